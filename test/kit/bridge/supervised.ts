import type { AgentProvider, AgentTurn, TurnEnd } from '../../../src/bridge/agents/agent-provider.ts';
import { superviseTurn } from '../../../src/bridge/agents/supervise-turn.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';

/** A provider whose turns run under the supervisor of the bridge. */
export interface SupervisedProvider extends AgentProvider {
  startTurn(turn: AgentTurn): Promise<TurnEnd>;
  continueTurn(reference: string, turn: AgentTurn): Promise<TurnEnd>;
  /** Stops a running turn; resolves when it has ended. */
  cancel(turnId: string): Promise<void>;
}

export function supervised(provider: AgentProvider, clock: Clock = systemClock): SupervisedProvider {
  const running = new Map<string, { readonly aborter: AbortController; readonly ended: Promise<unknown> }>();

  function startTurn(turn: AgentTurn): Promise<TurnEnd> {
    const aborter = new AbortController();
    const { signal } = aborter;
    const ended = superviseTurn({ provider, turn, signal, clock, keep: (work) => void work.catch(() => undefined) });
    running.set(turn.turnId, { aborter, ended: ended.catch(() => undefined) });
    return ended.finally(() => running.delete(turn.turnId));
  }

  async function cancel(turnId: string): Promise<void> {
    const turn = running.get(turnId);
    turn?.aborter.abort();
    await turn?.ended;
  }

  return {
    ...provider,
    startTurn,
    continueTurn: (reference, turn) => startTurn({ ...turn, reference }),
    cancel,
  };
}
