import type { Clock } from '../../platform/clock/clock.ts';
import type { AgentProvider, AgentTurn, TurnEnd, TurnUsage } from '../agents/agent-provider.ts';
import type { TurnLimits } from '../sessions/turn-limits.ts';
import {
  type KeptRun,
  type KeptStep,
  keptPrompt,
  type MultiAgentPlan,
  type PlanChange,
  planNext,
  readRun,
  writeRun,
} from './multi-agent-plan.ts';
import { type RunEnd, runModes } from './run-modes.ts';
import { createRunningStep, type RunningStep, toldRecord } from './run-step.ts';

export const MULTI_AGENT_ID = 'multi-agent';

export interface MultiAgentOptions {
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly limits: Pick<TurnLimits, 'ofAgent'>;
  readonly clock: Clock;
  /** Why an agent cannot be used right now; undefined when it can. */
  unavailableReason(providerId: string): Promise<string | undefined>;
}

interface LiveRun {
  readonly steps: readonly RunningStep[];
  isCancelled: boolean;
}

/** A run of several agents; to the session orchestrator it is a turn of one agent, with one result. */
export function createMultiAgent({ providers, limits, clock, unavailableReason }: MultiAgentOptions): AgentProvider {
  const runs = new Map<string, LiveRun>();

  /** `places` says which kept step each step of the plan continues. */
  async function run(
    turn: AgentTurn,
    plan: MultiAgentPlan,
    places: readonly (number | undefined)[],
    earlier: readonly KeptStep[],
  ): Promise<TurnEnd> {
    const { mode, maxTurns, stopConditions } = plan;
    const kept = [...earlier];
    const isUnable = plan.steps.map(({ providerId }, index) => {
      const place = places[index];
      return place === undefined || kept[place]?.isClosed === true || !providers.has(providerId);
    });
    // In a race the others go on without a step that cannot continue; in any other mode nothing runs.
    const unable = plan.steps.find((_, index) => isUnable[index]);
    if (unable !== undefined && (mode !== 'race' || !isUnable.includes(false))) return lost(unable.providerId);
    const planned = places.map((place) => place ?? -1);
    const keep = () => {
      const known = planned.filter((place) => place !== -1);
      turn.opened(writeRun({ mode, maxTurns, stopConditions, steps: kept, planned: known }));
    };
    const steps = plan.steps.map((step, index) => {
      const place = planned[index] ?? -1;
      const known = kept[place];
      if (known !== undefined) kept[place] = { ...known, ...step, prompt: keptPrompt(step.prompt) };
      return createRunningStep({
        index,
        step,
        provider: isUnable[index] ? undefined : providers.get(step.providerId),
        reference: known?.reference ?? '',
        gate: limits.ofAgent(step.providerId),
        turn,
        clock,
        unavailableReason,
        opened(reference) {
          const one = kept[place];
          if (one !== undefined) kept[place] = { ...one, reference };
          keep();
        },
      });
    });
    keep();
    const live: LiveRun = { steps, isCancelled: false };
    runs.set(turn.turnId, live);
    const facts = { orchestrationMode: mode, steps: plan.steps.map(({ providerId }) => ({ providerId })) };
    turn.report({ kind: 'stage', event: 'multi_agent_started', message: `A ${mode} has started.`, members: facts });
    try {
      const end = await runModes[mode](plan, steps);
      if (mode === 'race' && !live.isCancelled) await closeLosers(end);
      const members = describeRun(plan, end, turn.workingDirectory, live.isCancelled);
      const told = { ...members, steps: members.steps.map(toldRecord) };
      turn.report({ kind: 'stage', event: 'multi_agent_completed', message: `The ${mode} has ended.`, members: told });
      return turnEnd(mode, end, members, live.isCancelled);
    } finally {
      runs.delete(turn.turnId);
    }

    /** Contract/bridge 6: the processes of those that have lost a race are ended. */
    async function closeLosers(end: RunEnd): Promise<void> {
      const losers = end.steps.filter(({ record }) => record.status === 'cancelled').map(({ record }) => record.index);
      for (const index of losers) {
        const place = planned[index] ?? -1;
        const one = kept[place];
        if (one !== undefined && one.reference !== '') kept[place] = { ...one, reference: '', isClosed: true };
      }
      if (losers.length > 0) keep();
      await Promise.allSettled(losers.map((index) => steps[index]?.close()));
    }
  }

  return {
    id: MULTI_AGENT_ID,
    probe: () => Promise.resolve({ status: 'ok', version: '' }),
    async startTurn(turn) {
      const { plan } = turn;
      if (plan === undefined || !isWhole(plan)) throw new Error('a multi-agent run needs a plan');
      const steps = plan.steps.map((step): KeptStep => ({ ...step, reference: '', isClosed: false }));
      return run(turn, plan, [...steps.keys()], steps);
    },
    /** Each step continues its own agent session (spec/bridge 4.3, session rule 4). */
    async continueTurn(reference, turn) {
      const kept = readRun(reference);
      const change = turn.plan ?? { input: turn.prompt };
      if (kept === undefined) return lost(change.steps?.[0]?.providerId ?? MULTI_AGENT_ID);
      const { plan, places } = planNext(kept, change);
      return run(turn, plan, places, kept.steps);
    },
    async cancel(turnId) {
      const live = runs.get(turnId);
      if (live === undefined) return;
      live.isCancelled = true;
      await Promise.all(live.steps.map((step) => step.cancel()));
    },
    async close(reference, closing) {
      const open: KeptRun['steps'] = readRun(reference)?.steps.filter((step) => step.reference !== '') ?? [];
      await Promise.allSettled(
        open.map(({ providerId, reference: ofStep }) => {
          const left = (what: string) => closing?.left(`${providerId}: ${what}`);
          return providers.get(providerId)?.close(ofStep, closing && { ...closing, left });
        }),
      );
    },
    stop: () => Promise.resolve(),
  };
}

function isWhole(plan: PlanChange): plan is MultiAgentPlan {
  return plan.steps !== undefined && plan.mode !== undefined;
}

function lost(providerId: string): TurnEnd {
  return { kind: 'lost', detail: `the step of ${providerId} has no agent session to continue`, providerId };
}

/** What the result has more than that of a single agent (contract/bridge 6). */
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

function turnEnd(
  mode: MultiAgentPlan['mode'],
  end: RunEnd,
  members: ReturnType<typeof describeRun>,
  isCancelled: boolean,
): TurnEnd {
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

/** The usage that the steps reported, added up; what none of them reported is left out. */
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
