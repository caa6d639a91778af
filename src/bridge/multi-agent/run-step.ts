import type { Static } from 'typebox';
import { type Clock, deadline, joinSignals } from '../../platform/clock/clock.ts';
import type { AgentProvider, AgentTurn, FailureCode, TurnEnd, TurnUsage } from '../agents/agent-provider.ts';
import { createTextMeter, cutText, MAX_OUTPUT_LENGTH } from '../agents/agent-text.ts';
import { superviseTurn } from '../agents/supervise-turn.ts';
import type { StepRecord as StepSchema } from '../contract/session-update.ts';
import type { FairGate } from '../sessions/turn-limits.ts';
import { type MultiAgentPlan, type PlanChange, type PlannedStep, TEMPLATE } from './multi-agent-plan.ts';

/** How a step ended, as it is shown in the result. */
type StepRecord = Static<typeof StepSchema>;

export interface StepEnd {
  readonly record: StepRecord;
  /** Empty for a step that did not complete. */
  readonly output: string;
  readonly code: FailureCode;
  readonly usage: TurnUsage | undefined;
  /** What the step produced, besides files in the working directory. */
  readonly files: NonNullable<Extract<TurnEnd, { kind: 'completed' }>['files']>;
  /** The agent no longer has the session that the step was to continue. */
  readonly isLost: boolean;
}

/** A step of a run that is in progress. Each step has its own agent session, even if two steps use the same agent. */
export interface RunningStep {
  /** Sends a prompt to the agent, in the session of the step; the first call opens the session. Never rejects. */
  ask(prompt: string, conversationTurn?: number): Promise<StepEnd>;
  /** Stops the step: `ask` then resolves soon. */
  cancel(): void;
  /** Closes its agent session. */
  close(): Promise<void>;
}

interface RunningStepOptions {
  readonly index: number;
  readonly step: PlannedStep;
  /** Undefined for a step that cannot continue: it fails without being asked. */
  readonly provider: AgentProvider | undefined;
  /** Of the agent session that the step continues; empty: it opens a new one. */
  readonly reference: string;
  /** The worktree of the step. Undefined: it works in the folder of the run. */
  readonly folder: string | undefined;
  /** The places at the agent. */
  readonly gate: FairGate;
  /** The turn of the whole run, and the signal that stops it. */
  readonly turn: AgentTurn;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Keeps work that nobody waits for until the bridge stops. */
  keep(work: Promise<unknown>): void;
  /** Why the agent cannot be used right now. */
  unavailableReason(providerId: string): Promise<string | undefined>;
  /** Called with the reference of the session that the step has opened. */
  opened(reference: string): void;
  /** Called when the step has ended, before the update about it is sent. */
  ended(end: StepEnd): void;
}

/** The most characters of a step's output in the update at its end. */
const MAX_TOLD_LENGTH = 65_536;

/** Shortens the output of a step for the update at its end, because earlier updates contain the whole text. */
export function toldRecord(record: StepRecord): StepRecord {
  const { output = '' } = record;
  if (output.length <= MAX_TOLD_LENGTH) return record;
  return { ...record, output: cutText(output, MAX_TOLD_LENGTH), truncated: true };
}

export function createRunningStep(options: RunningStepOptions): RunningStep {
  const { index, step, provider, gate, turn, clock, keep } = options;
  const { providerId } = step;
  const mark = { stepIndex: index, providerId };
  let { reference } = options;
  let turns = 0;
  const cancelled = new AbortController();
  let text = createTextMeter();

  async function ask(prompt: string, conversationTurn?: number): Promise<StepEnd> {
    const startedAt = clock.monotonic();
    text = createTextMeter();
    const spoken = conversationTurn === undefined ? {} : { conversationTurn };
    const conclude = (end: Concluded): StepEnd => {
      const { status, output = '', error, code = 'AGENT_FAILED', usage, files = [], isLost = false } = end;
      const durationMs = Math.round(clock.monotonic() - startedAt);
      const record = {
        index,
        providerId,
        ...spoken,
        status,
        durationMs,
        ...(output === '' ? {} : { output }),
        ...(text.length() > MAX_OUTPUT_LENGTH && { truncated: true as const }),
        ...(error === undefined ? {} : { error }),
        ...(options.folder !== undefined && { workingDirectory: options.folder }),
      };
      const stepEnd = { record, output: status === 'completed' ? output : '', code, usage, files, isLost };
      options.ended(stepEnd);
      const { index: _index, providerId: _providerId, ...members } = toldRecord(record);
      const message = `${providerId}: ${status}`;
      turn.report({ kind: 'stage', event: 'multi_agent_step_completed', message, members }, mark);
      return stepEnd;
    };
    const message = `${providerId} has started.`;
    turn.report({ kind: 'stage', event: 'multi_agent_step_started', message, members: spoken }, mark);
    if (provider === undefined) return conclude(LOST);
    const reason = await options.unavailableReason(providerId);
    if (cancelled.signal.aborted || options.signal.aborted) return conclude({ status: 'cancelled' });
    if (reason !== undefined) return conclude({ status: 'failed', error: reason, code: 'PROVIDER_UNAVAILABLE' });
    const { signal, release } = joinSignals(cancelled.signal, options.signal);
    try {
      const place = turn.member ?? turn.owner;
      if (!(await gate.enter(place, signal))) return conclude({ status: 'cancelled' });
      try {
        return conclude(await limited(provider, prompt, signal));
      } finally {
        gate.leave(place);
      }
    } finally {
      release();
    }
  }

  async function limited(agent: AgentProvider, prompt: string, outer: AbortSignal): Promise<Concluded> {
    turns += 1;
    const { signal, hasPassed, release } = deadline(clock, step.timeoutMs, [outer]);
    const agentTurn: AgentTurn = {
      turnId: `${turn.turnId}.${index}.${turns}`,
      ...(reference !== '' && { reference }),
      owner: turn.owner,
      ...(turn.member !== undefined && { member: turn.member }),
      prompt,
      // In later prompts of the same run, the agent has seen them already.
      ...(turns === 1 && turn.files !== undefined && { files: turn.files }),
      ...(turn.fileFolder !== undefined && { fileFolder: turn.fileFolder }),
      workingDirectory: options.folder ?? turn.workingDirectory,
      model: step.model,
      skills: turn.skills,
      ...(turn.mcpServers !== undefined && { mcpServers: turn.mcpServers }),
      hop: turn.hop,
      ...(turn.isJob === true && { isJob: turn.isJob }),
      ...(turn.trace !== undefined && { trace: turn.trace }),
      ...(turn.ready !== undefined && { ready: turn.ready }),
      opened(opened) {
        reference = opened;
        options.opened(opened);
      },
      // The result of a run has only one model, and its steps may use several.
      usedModel: () => undefined,
      leftBehind: turn.leftBehind,
      ...(turn.isReadOnly !== undefined && { isReadOnly: turn.isReadOnly }),
      ...(turn.ask !== undefined && { ask: turn.ask }),
      ...(turn.asks !== undefined && { asks: turn.asks }),
      ...(turn.deniedPaths !== undefined && { deniedPaths: turn.deniedPaths }),
      report(event) {
        text.add(event);
        return turn.report(event, mark);
      },
    };
    try {
      const end = await superviseTurn({ provider: agent, turn: agentTurn, signal, clock, keep });
      return concluded(end, hasPassed(), step.timeoutMs);
    } catch {
      // A fault in an agent's implementation fails this step only.
      return { status: 'failed', error: 'The agent could not be run.' };
    } finally {
      release();
    }
  }

  return {
    ask,
    cancel: () => cancelled.abort(),
    async close() {
      if (reference === '') return;
      const left = (what: string) => turn.leftBehind(providerId, what);
      await provider?.close(reference, { owner: turn.owner, left });
    },
  };
}

interface Concluded {
  readonly status: StepRecord['status'];
  readonly output?: string;
  readonly error?: string;
  readonly code?: FailureCode;
  readonly usage?: TurnUsage | undefined;
  readonly files?: StepEnd['files'] | undefined;
  readonly isLost?: boolean;
}

const LOST: Concluded = { status: 'failed', error: 'The agent has lost the session of this step.', isLost: true };

function concluded(end: TurnEnd, isTimedOut: boolean, timeoutMs: number): Concluded {
  if (end.kind === 'lost') return LOST;
  const { output } = end;
  const common = { usage: end.usage, files: end.files };
  if (end.kind === 'completed') {
    if (output.trim() !== '') return { status: 'completed', output, ...common };
    return { status: 'failed', error: 'The agent ended without saying anything.', code: 'EMPTY_OUTPUT', ...common };
  }
  if (isTimedOut) {
    const error = `The step was not done within ${timeoutMs} ms.`;
    return { status: 'timed_out', output, error, code: 'AGENT_TIMEOUT', ...common };
  }
  if (end.kind === 'cancelled') return { status: 'cancelled', output, ...common };
  return { status: 'failed', output, error: end.error, code: end.code, ...common };
}

/** A step as the session stores it, so that a message can continue it. */
export interface KeptStep extends PlannedStep {
  /** The agent's own reference to its session; empty until the step has been asked. */
  readonly reference: string;
  /** The step has lost a race, and its agent session was closed. */
  readonly isClosed: boolean;
}

/** How a step of an interrupted run ended: as its record, with what the step used. */
export interface KeptEnd {
  readonly record: StepRecord;
  readonly code: FailureCode;
  readonly usage?: TurnUsage;
}

/** What a run has done so far, for the run of the same task after a restart. */
export interface RunProgress {
  readonly taskId: string;
  /** The places of the steps whose agent sessions this run opens. */
  readonly opened: readonly number[];
  readonly ends: readonly KeptEnd[];
}

/** What a session stores of its runs, as its reference. */
export interface KeptRun extends Omit<MultiAgentPlan, 'input' | 'steps'> {
  /** Every step that the session ever had; a prompt without templates is empty, because a message replaces it. */
  readonly steps: readonly KeptStep[];
  /** The steps of the last run, by their places in `steps`. */
  readonly planned: readonly number[];
  /** Of a run that has not ended. */
  readonly progress?: RunProgress;
}

/** Whether the last run of a session was interrupted, and this task goes on with it. */
export function hasProgress(reference = '', taskId?: string): boolean {
  return taskId !== undefined && readRun(reference)?.progress?.taskId === taskId;
}

/** Longer prompts are not stored with the session; in the next run, the message replaces them. */
const MAX_KEPT_PROMPT = 16 * 1024;

export function keptPrompt(prompt: string): string {
  return prompt.length <= MAX_KEPT_PROMPT && prompt.search(TEMPLATE) !== -1 ? prompt : '';
}

export function writeRun(run: KeptRun): string {
  return JSON.stringify({ version: 1, ...run });
}

/** Undefined for the reference of a run of release 0.1.0, which stored nothing about its steps. */
export function readRun(reference: string): KeptRun | undefined {
  if (!reference.startsWith('{"version":1,')) return undefined;
  return JSON.parse(reference) as KeptRun;
}

/**
 * Plans the next run of a session. The nth step of an agent continues the nth kept step of the same agent. A step for which there is
 * no kept step has no place.
 */
export function planNext(run: KeptRun, change: PlanChange): { plan: MultiAgentPlan; places: (number | undefined)[] } {
  const { mode = run.mode, maxTurns = run.maxTurns, stopConditions = run.stopConditions, input, steps } = change;
  const common = { mode, maxTurns, stopConditions, input };
  if (steps === undefined) {
    const earlier = run.planned.flatMap((place) => run.steps[place] ?? []);
    return {
      plan: { ...common, steps: earlier.map((step) => ({ ...step, prompt: step.prompt || input })) },
      places: [...run.planned],
    };
  }
  const free = run.steps.map(({ providerId }, place) => ({ providerId, place }));
  const places = steps.map(({ providerId }) => {
    const index = free.findIndex((one) => one.providerId === providerId);
    return index === -1 ? undefined : free.splice(index, 1)[0]?.place;
  });
  return { plan: { ...common, steps }, places };
}
