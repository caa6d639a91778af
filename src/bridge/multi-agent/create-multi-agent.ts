import type { Clock } from '../../platform/clock/clock.ts';
import type { AgentProvider, AgentTurn, TurnEnd, TurnUsage } from '../agents/agent-provider.ts';
import type { TurnLimits } from '../sessions/turn-limits.ts';
import type { MultiAgentPlan } from './multi-agent-plan.ts';
import { type RunEnd, runModes } from './run-modes.ts';
import { createRunningStep, type RunningStep } from './run-step.ts';

export const MULTI_AGENT_ID = 'multi-agent';

export interface MultiAgentOptions {
  readonly providers: ReadonlyMap<string, AgentProvider>;
  readonly limits: Pick<TurnLimits, 'ofAgent'>;
  readonly clock: Clock;
  /** Why an agent cannot be used right now; undefined when it can. */
  unavailableReason(providerId: string): Promise<string | undefined>;
}

/** A run of several agents, to the session orchestrator a turn of one: the same updates, the same cancel, one result. */
export function createMultiAgent({ providers, limits, clock, unavailableReason }: MultiAgentOptions): AgentProvider {
  const runs = new Map<string, { readonly steps: readonly RunningStep[]; isCancelled: boolean }>();

  async function startTurn(turn: AgentTurn): Promise<TurnEnd> {
    const { plan } = turn;
    if (plan === undefined) throw new Error('a multi-agent turn has a plan');
    turn.opened(MULTI_AGENT_ID);
    const steps = plan.steps.map((step, index) => {
      const provider = providers.get(step.providerId);
      if (provider === undefined) throw new Error(`the plan names ${step.providerId}, which is not there`);
      return createRunningStep({
        index,
        step,
        provider,
        gate: limits.ofAgent(step.providerId),
        turn,
        clock,
        unavailableReason,
      });
    });
    const run = { steps, isCancelled: false };
    runs.set(turn.turnId, run);
    const { mode } = plan;
    const facts = { orchestrationMode: mode, steps: plan.steps.map(({ providerId }) => ({ providerId })) };
    turn.report({ kind: 'stage', event: 'multi_agent_started', message: `A ${mode} has started.`, members: facts });
    try {
      const end = await runModes[mode](plan, steps);
      const members = describeRun(plan, end, turn.workingDirectory, run.isCancelled);
      turn.report({ kind: 'stage', event: 'multi_agent_completed', message: `The ${mode} has ended.`, members });
      return turnEnd(end, members, run.isCancelled);
    } finally {
      runs.delete(turn.turnId);
      await Promise.allSettled(steps.map((step) => step.close()));
    }
  }

  return {
    id: MULTI_AGENT_ID,
    probe: () => Promise.resolve({ status: 'ok', version: '' }),
    startTurn,
    /** Each run stands for itself; a message without a plan of its own has nothing to go on with. */
    continueTurn: (_reference, turn) =>
      turn.plan === undefined
        ? Promise.resolve({ kind: 'lost', detail: 'a multi-agent run is over when it has ended' })
        : startTurn(turn),
    async cancel(turnId) {
      const run = runs.get(turnId);
      if (run === undefined) return;
      run.isCancelled = true;
      await Promise.all(run.steps.map((step) => step.cancel()));
    },
    close: () => Promise.resolve(),
    stop: () => Promise.resolve(),
  };
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

function turnEnd(end: RunEnd, members: ReturnType<typeof describeRun>, isCancelled: boolean): TurnEnd {
  const { output, failed } = end;
  const common = { output, usage: usageSum(end), members };
  if (isCancelled) return { kind: 'cancelled', ...common };
  if (failed === undefined) return { kind: 'completed', stopReason: end.stopReason, ...common };
  const { index, providerId, error = 'it was cancelled' } = failed.record;
  return { kind: 'failed', code: failed.code, error: `Step ${index} (${providerId}): ${error}`, ...common };
}

/** What the steps told, added up; what none of them told is left out. */
function usageSum({ steps }: RunEnd): TurnUsage {
  const sums: { -readonly [Member in keyof TurnUsage]: number } = {};
  for (const { usage } of steps) {
    for (const member of ['inputTokens', 'outputTokens', 'totalTokens'] as const) {
      const told = usage?.[member];
      if (told !== undefined) sums[member] = (sums[member] ?? 0) + told;
    }
  }
  return sums;
}
