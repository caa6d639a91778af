import type { Clock } from '../../platform/clock/clock.ts';
import type { AgentEnd, AgentProvider, AgentTurn, TurnUsage } from '../agents/agent-provider.ts';
import { cutText } from '../agents/agent-text.ts';
import type { TurnLimits } from '../sessions/turn-limits.ts';
import { fillTemplate, type MultiAgentPlan, type OrchestrationMode, type PlanChange } from './multi-agent-plan.ts';
import {
  createRunningStep,
  hasProgress,
  type KeptEnd,
  type KeptRun,
  type KeptStep,
  keptPrompt,
  planNext,
  type RunningStep,
  type RunProgress,
  readRun,
  type StepEnd,
  toldRecord,
  writeRun,
} from './run-step.ts';

/** The maximum length of a step's prompt in the update that shows the plan. */
const MAX_TOLD_PROMPT = 1024;

export const MULTI_AGENT_ID = 'multi-agent';

interface MultiAgentOptions {
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly limits: Pick<TurnLimits, 'ofAgent'>;
  readonly clock: Clock;
  /** Why an agent cannot be used right now; undefined when it can. */
  unavailableReason(providerId: string): Promise<string | undefined>;
}

/** Creates the provider of runs with several agents. For the session orchestrator, a run is a turn of one agent with one result. */
export function createMultiAgent(options: MultiAgentOptions): AgentProvider {
  const { providers, limits, clock, unavailableReason } = options;
  /** Conversations that are being closed after a step was over. */
  const closing = new Set<Promise<unknown>>();
  function keep(work: Promise<unknown>): void {
    const noted = work.catch(() => undefined).finally(() => closing.delete(noted));
    closing.add(noted);
  }

  /** Runs a plan. `places`: the kept step that each step of the plan continues. `before`: the progress of an interrupted run of the same plan. */
  async function run(
    turn: AgentTurn,
    plan: MultiAgentPlan,
    places: readonly (number | undefined)[],
    earlier: readonly KeptStep[],
    signal: AbortSignal,
    before?: RunProgress,
  ): Promise<AgentEnd> {
    const { mode, maxTurns, stopConditions } = plan;
    const kept = [...earlier];
    const ends = [...(before?.ends ?? [])];
    const opens = before?.opened ?? places.filter((place) => place !== undefined && kept[place]?.reference === '');
    if (before !== undefined) forgetUnfinished(turn, kept, places, before);
    const isUnable = plan.steps.map(({ providerId }, index) => {
      const place = places[index];
      const hasFolder = turn.stepFolders === undefined || (turn.stepFolders[place ?? -1] ?? '') !== '';
      return place === undefined || kept[place]?.isClosed === true || !providers.has(providerId) || !hasFolder;
    });
    // A race continues without the steps that cannot continue; in any other mode the run fails before it starts.
    const unable = plan.steps.find((_, index) => isUnable[index]);
    if (unable !== undefined && (mode !== 'race' || !isUnable.includes(false))) return lost(unable.providerId);
    const planned = places.map((place) => place ?? -1);
    const { taskId } = turn;
    let hasEnded = false;
    const tellReference = () => {
      const known = planned.filter((place) => place !== -1);
      const isKept = taskId !== undefined && !hasEnded;
      const progress = isKept ? { progress: { taskId, opened: opens.flatMap((one) => one ?? []), ends } } : {};
      turn.opened(writeRun({ mode, maxTurns, stopConditions, steps: kept, planned: known, ...progress }));
    };
    const steps = plan.steps.map((step, index) => {
      const place = planned[index] ?? -1;
      const known = kept[place];
      if (known !== undefined) kept[place] = { ...known, ...step, prompt: keptPrompt(step.prompt) };
      const running = createRunningStep({
        index,
        step,
        provider: isUnable[index] ? undefined : providers.get(step.providerId),
        reference: known?.reference ?? '',
        folder: turn.stepFolders?.[place],
        gate: limits.ofAgent(step.providerId),
        turn,
        signal,
        clock,
        keep,
        unavailableReason,
        opened(reference) {
          const one = kept[place];
          if (one !== undefined) kept[place] = { ...one, reference };
          tellReference();
        },
        ended(end) {
          if (taskId === undefined || signal.aborted || !isWorthKeeping(end, ends)) return;
          ends.push({ record: end.record, code: end.code, ...(end.usage !== undefined && { usage: end.usage }) });
          tellReference();
        },
      });
      return before === undefined ? running : withEarlierEnds(running, index, before.ends);
    });
    tellReference();
    const told = plan.steps.map(({ providerId, prompt, outputAs, timeoutMs }, index) => {
      return { index, providerId, prompt: cutText(prompt, MAX_TOLD_PROMPT), outputAs, timeoutMs };
    });
    const limit = mode === 'conversation' ? { maxTurns: plan.maxTurns } : {};
    const facts = { orchestrationMode: mode, ...limit, steps: told };
    turn.report({ kind: 'stage', event: 'multi_agent_started', message: `A ${mode} has started.`, members: facts });
    const end = await runModes[mode](plan, steps);
    if (end.winner !== undefined) turn.won?.(planned[end.winner.record.index] ?? -1);
    if (mode === 'race' && !signal.aborted) await closeLosers(end);
    if (taskId !== undefined && !signal.aborted) {
      hasEnded = true;
      tellReference();
    }
    const members = describeRun(plan, end, turn.workingDirectory, signal.aborted);
    const ended = { ...members, steps: members.steps.map(toldRecord) };
    turn.report({ kind: 'stage', event: 'multi_agent_completed', message: `The ${mode} has ended.`, members: ended });
    return agentEnd(mode, end, members, signal.aborted);

    /** Closes the conversations of the steps that have lost a race, which ends their processes. */
    async function closeLosers(end: RunEnd): Promise<void> {
      const losers = end.steps.filter(({ record }) => record.status === 'cancelled').map(({ record }) => record.index);
      for (const index of losers) {
        const place = planned[index] ?? -1;
        const one = kept[place];
        if (one !== undefined && one.reference !== '') kept[place] = { ...one, reference: '', isClosed: true };
      }
      if (losers.length > 0) tellReference();
      await Promise.allSettled(losers.map((index) => steps[index]?.close()));
    }
  }

  /**
   * Makes unfinished steps of the interrupted run start again in new agent sessions, because not every agent can continue a session
   * that was interrupted.
   */
  function forgetUnfinished(
    turn: AgentTurn,
    kept: KeptStep[],
    places: readonly (number | undefined)[],
    before: RunProgress,
  ): void {
    for (const [index, place = -1] of places.entries()) {
      const one = kept[place];
      const isFinished = before.ends.some(({ record }) => record.index === index);
      if (one === undefined || one.reference === '' || isFinished || !before.opened.includes(place)) continue;
      kept[place] = { ...one, reference: '' };
      const left = (what: string) => turn.leftBehind(one.providerId, what);
      const closed = providers.get(one.providerId)?.close(one.reference, { owner: turn.owner, left });
      if (closed !== undefined) keep(closed);
    }
  }

  return {
    id: MULTI_AGENT_ID,
    probe: () => Promise.resolve({ status: 'ok', version: '' }),
    async run(turn, signal) {
      if (turn.reference === undefined) {
        const { plan } = turn;
        if (plan === undefined || !isWhole(plan)) throw new Error('a multi-agent run needs a plan');
        const steps = plan.steps.map((step): KeptStep => ({ ...step, reference: '', isClosed: false }));
        return run(turn, plan, [...steps.keys()], steps, signal);
      }
      // Each step continues its own agent session.
      const kept = readRun(turn.reference);
      const change = turn.plan ?? { input: turn.prompt };
      if (kept === undefined) return lost(change.steps?.[0]?.providerId ?? MULTI_AGENT_ID);
      const { plan, places } = planNext(kept, change);
      const before = hasProgress(turn.reference, turn.taskId) ? kept.progress : undefined;
      return run(turn, plan, places, kept.steps, signal, before);
    },
    async close(reference, request) {
      const open: KeptRun['steps'] = readRun(reference)?.steps.filter((step) => step.reference !== '') ?? [];
      await Promise.allSettled(
        open.map(({ providerId, reference: ofStep }) => {
          const left = (what: string) => request?.left(`${providerId}: ${what}`);
          return providers.get(providerId)?.close(ofStep, request && { ...request, left });
        }),
      );
    },
    stop: async () => void (await Promise.all(closing)),
  };
}

/** The maximum length of the outputs that a run keeps of its finished steps. Steps beyond this limit run again after a restart. */
const MAX_KEPT_OUTPUT = 1024 * 1024;

/** Whether the end of a step is kept. A step that was cancelled, or whose files exist only in this process, runs again. */
function isWorthKeeping({ record, isLost, files }: StepEnd, before: readonly KeptEnd[]): boolean {
  if (record.status === 'cancelled' || isLost || files.length > 0) return false;
  const length = [...before.map((one) => one.record), record].reduce((sum, one) => sum + (one.output?.length ?? 0), 0);
  return length <= MAX_KEPT_OUTPUT;
}

/** Wraps a step of a resumed run: parts that it has already finished are not asked again. */
function withEarlierEnds(step: RunningStep, index: number, ends: readonly KeptEnd[]): RunningStep {
  return {
    ...step,
    async ask(prompt, conversationTurn) {
      const known = ends.find(({ record }) => record.index === index && record.conversationTurn === conversationTurn);
      if (known === undefined) return step.ask(prompt, conversationTurn);
      const { record, code, usage } = known;
      const output = record.status === 'completed' ? (record.output ?? '') : '';
      return { record, output, code, usage, files: [], isLost: false };
    },
  };
}

function isWhole(plan: PlanChange): plan is MultiAgentPlan {
  return plan.steps !== undefined && plan.mode !== undefined;
}

function lost(providerId: string): AgentEnd {
  return { kind: 'lost', detail: `the step of ${providerId} has no agent session to continue`, providerId };
}

/** Returns the members that only results of multi-agent runs have. */
function describeRun(plan: MultiAgentPlan, end: RunEnd, workingDirectory: string, isCancelled: boolean) {
  return {
    orchestrationMode: plan.mode,
    sharedWorkspace: workingDirectory,
    steps: end.steps.map(({ record }) => record).sort((one, other) => order(one) - order(other)),
    stopReason: isCancelled ? 'cancelled' : end.stopReason,
  };
}

function order({ index, conversationTurn }: { readonly index: number; readonly conversationTurn?: number }): number {
  return conversationTurn ?? index;
}

function agentEnd(
  mode: MultiAgentPlan['mode'],
  end: RunEnd,
  members: ReturnType<typeof describeRun>,
  isCancelled: boolean,
): AgentEnd {
  const { output, failed, steps } = end;
  const common = { output, usage: usageSum(end), members, files: steps.flatMap(({ files }) => files) };
  if (isCancelled) return { kind: 'cancelled', ...common };
  const lostStep = steps.find(({ isLost }) => isLost);
  if (lostStep !== undefined && (mode !== 'race' || steps.every(({ isLost }) => isLost))) {
    return lost(lostStep.record.providerId);
  }
  if (failed === undefined) return { kind: 'completed', stopReason: end.stopReason, ...common };
  const { index, providerId, error = 'it was cancelled' } = failed.record;
  return { kind: 'failed', code: failed.code, error: `Step ${index} (${providerId}): ${error}`, ...common };
}

/** Adds up the usage that the steps reported. Members that no step reported are left out. */
function usageSum({ steps }: RunEnd): TurnUsage {
  const sums: { -readonly [Member in keyof TurnUsage]: number } = {};
  for (const { usage } of steps) {
    for (const member of ['inputTokens', 'outputTokens', 'totalTokens', 'costUsd'] as const) {
      const told = usage?.[member];
      if (told !== undefined) sums[member] = (sums[member] ?? 0) + told;
    }
  }
  return sums;
}

/** The outcome of a run in one of the modes. */
interface RunEnd {
  /** In the order in which they ended. A conversation has one entry for each time that a participant was asked. */
  readonly steps: readonly StepEnd[];
  /** The final text; empty when the run has none. */
  readonly output: string;
  readonly stopReason: string;
  /** The step that the run failed with, if it did. */
  readonly failed?: StepEnd;
  /** Of a race. */
  readonly winner?: StepEnd;
}

/** The order in which the agents are asked, and the prompt of each. */
export const runModes: Readonly<
  Record<OrchestrationMode, (plan: MultiAgentPlan, steps: readonly RunningStep[]) => Promise<RunEnd>>
> = { sequence, parallel, race, conversation };

async function sequence(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const ends: StepEnd[] = [];
  const outputs = new Map<string, string>();
  let previous = '';
  for (const [index, step] of steps.entries()) {
    const planned = plan.steps[index];
    // Set last, because `outputAs` must not replace the names of the contract.
    const values = new Map([...outputs, ['previousOutput', previous], ['input', plan.input]]);
    const end = await step.ask(fillTemplate(planned?.prompt ?? '', values));
    ends.push(end);
    if (!isCompleted(end)) return { steps: ends, output: '', stopReason: 'step_failed', failed: end };
    previous = end.output;
    if (planned !== undefined && planned.outputAs !== '') outputs.set(planned.outputAs, end.output);
  }
  return { steps: ends, output: previous, stopReason: 'completed' };
}

async function parallel(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const ends = await Promise.all(askAll(plan, steps));
  const failed = ends.find((end) => !isCompleted(end));
  const output = ends
    .filter(isCompleted)
    .map(({ record, output: text }) => spoken(record.providerId, text))
    .join('\n\n');
  return failed === undefined
    ? { steps: ends, output, stopReason: 'completed' }
    : { steps: ends, output, stopReason: 'step_failed', failed };
}

async function race(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const asked = askAll(plan, steps);
  const winner = await firstCompleted(asked);
  for (const step of steps) step.cancel();
  const ends = await Promise.all(asked);
  if (winner !== undefined) return { steps: ends, output: winner.output, stopReason: 'won', winner };
  const [failed] = ends;
  return { steps: ends, output: '', stopReason: 'step_failed', ...(failed === undefined ? {} : { failed }) };
}

async function conversation(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<RunEnd> {
  const ends: StepEnd[] = [];
  const values = new Map([['input', plan.input]]);
  const heardUpTo = steps.map(() => 0);
  const speeches: { readonly speaker: number; readonly text: string }[] = [];
  for (let count = 1; count <= plan.maxTurns; count += 1) {
    const speaker = (count - 1) % steps.length;
    const heard = speeches.slice(heardUpTo[speaker]).filter((speech) => speech.speaker !== speaker);
    // A single participant hears nobody: its task is repeated, because an empty prompt would be refused.
    const task =
      count <= steps.length || heard.length === 0 ? [fillTemplate(plan.steps[speaker]?.prompt ?? '', values)] : [];
    const end = await (steps[speaker] as RunningStep).ask(
      [...task, ...heard.map(({ text }) => text)].join('\n\n'),
      count,
    );
    ends.push(end);
    if (!isCompleted(end)) return { steps: ends, output: '', stopReason: 'step_failed', failed: end };
    speeches.push({ speaker, text: spoken(end.record.providerId, end.output) });
    heardUpTo[speaker] = speeches.length;
    const text = end.output.toLowerCase();
    if (plan.stopConditions.some((condition) => condition !== '' && text.includes(condition))) {
      return { steps: ends, output: end.output, stopReason: 'stop_condition' };
    }
  }
  return { steps: ends, output: ends.at(-1)?.output ?? '', stopReason: 'max_turns' };
}

function askAll(plan: MultiAgentPlan, steps: readonly RunningStep[]): Promise<StepEnd>[] {
  const values = new Map([['input', plan.input]]);
  return steps.map((step, index) => step.ask(fillTemplate(plan.steps[index]?.prompt ?? '', values)));
}

/** Resolves with the first step that completes; undefined when none does. */
function firstCompleted(asked: readonly Promise<StepEnd>[]): Promise<StepEnd | undefined> {
  const { promise, resolve } = Promise.withResolvers<StepEnd | undefined>();
  for (const one of asked) void one.then((end) => (isCompleted(end) ? resolve(end) : undefined));
  void Promise.all(asked).then(() => resolve(undefined));
  return promise;
}

function isCompleted({ record }: StepEnd): boolean {
  return record.status === 'completed';
}

function spoken(providerId: string, text: string): string {
  return `[${providerId}]: ${text}`;
}
