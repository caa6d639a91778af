import type { AgentEvent, AgentProvider, SupervisedTurn, TurnEnd } from '../../src/bridge/agents/agent-provider.ts';
import type { ProbeResult } from '../../src/bridge/agents/probe-board.ts';
import { joinSignals } from '../../src/platform/clock/clock.ts';

/** What an agent of the tests does in a turn. `signal` aborts when the turn is cancelled. */
export type TurnScript = (turn: ScriptedTurn) => Promise<TurnEnd>;

export interface ScriptedTurn extends SupervisedTurn {
  readonly reference: string;
  /** How often the conversation was used before. */
  readonly count: number;
  readonly signal: AbortSignal;
}

export interface ScriptedProvider extends AgentProvider {
  /** Ids of turns, in the order in which they were asked for. */
  readonly asked: string[];
  readonly cancelled: string[];
  readonly closed: string[];
  readonly folders: string[];
  /** Turns that run right now, and the most that ever did at the same time. */
  running(): number;
  mostRunning(): number;
  /** What the probe finds from now on. */
  setProbe(result: ProbeResult): void;
  probes(): number;
  /** Forgets all conversations, as an agent that was reinstalled does. */
  forget(): void;
  isStopped(): boolean;
}

/** Says the prompt, word by word. */
export const echo: TurnScript = async ({ prompt, report }) => {
  for (const text of prompt.split(/(?<= )/)) report({ kind: 'text', text });
  return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
};

/** Tells these things, then ends like that. */
export function telling(events: readonly AgentEvent[], end: TurnEnd): TurnScript {
  return async ({ report }) => {
    for (const event of events) report(event);
    return end;
  };
}

/** Works until it is cancelled. */
export const endless: TurnScript = ({ signal, report }) => {
  report({ kind: 'text', text: 'working' });
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve({ kind: 'cancelled', output: '' }));
  });
};

/** An agent in memory that does what the test says. Conversations live as long as it. */
export function createScriptedProvider(id: string, script: TurnScript = echo): ScriptedProvider {
  const asked: string[] = [];
  const cancelled: string[] = [];
  const closed: string[] = [];
  const folders: string[] = [];
  const conversations = new Map<string, number>();
  const stopped = new AbortController();
  let running = 0;
  let most = 0;
  let probes = 0;
  let probe: ProbeResult = { status: 'ok', version: '1.0.0' };
  let isStopped = false;

  async function run(turn: SupervisedTurn, signal: AbortSignal): Promise<TurnEnd> {
    asked.push(turn.turnId);
    const reference = turn.reference ?? `${id}-conversation-${asked.length}`;
    if (turn.reference === undefined) turn.opened(reference);
    else if (!conversations.has(reference)) return { kind: 'lost', detail: 'no such conversation' };
    const count = conversations.get(reference) ?? 0;
    conversations.set(reference, count + 1);
    folders.push(turn.workingDirectory);
    signal.addEventListener('abort', () => cancelled.push(turn.turnId));
    const stopping = joinSignals(signal, stopped.signal);
    running += 1;
    most = Math.max(most, running);
    try {
      await turn.ready;
      // Spread would call the orchestrator's functions apart from it, which must work as well.
      return await script({ ...turn, reference, count, signal: stopping.signal });
    } finally {
      running -= 1;
      stopping.release();
    }
  }

  return {
    id,
    asked,
    cancelled,
    closed,
    folders,
    running: () => running,
    mostRunning: () => most,
    probes: () => probes,
    setProbe(result) {
      probe = result;
    },
    forget: () => conversations.clear(),
    isStopped: () => isStopped,
    async probe() {
      probes += 1;
      return probe;
    },
    run,
    async fork(reference, { turnId }) {
      const count = conversations.get(reference);
      if (count === undefined) return { why: 'no such conversation' };
      const copy = `${reference}-copy-${turnId ?? 'whole'}`;
      conversations.set(copy, count);
      return { reference: copy };
    },
    async close(reference) {
      closed.push(reference);
      conversations.delete(reference);
    },
    async stop() {
      isStopped = true;
      stopped.abort();
    },
  };
}
