import type { AgentProvider, AgentTurn, TurnEnd } from '../../../../src/bridge/agents/agent-provider.ts';
import { type Clock, joinSignals, pause } from '../../../../src/platform/clock/clock.ts';
import type { Chance } from '../chance.ts';

/** An agent at work. A run that was begun and has no end died with its process. */
export interface RunEvent {
  readonly kind: 'run';
  readonly at: number;
  readonly agent: string;
  readonly turnId: string;
  readonly prompt: string;
  /** Undefined: it begins. */
  readonly end?: TurnEnd['kind'];
  readonly output?: string;
}

export interface PlayedAgentOptions {
  readonly id: string;
  /** Of the process that the agent belongs to, and dies with. */
  readonly clock: Clock;
  readonly chance: Chance;
  /** What all agents have on their disk: it outlives every process. */
  readonly conversations: Set<string>;
  now(): number;
  note(event: RunEvent): void;
}

type Ending = 'completes' | 'says nothing' | 'fails' | 'hangs' | 'breaks';

const MAX_TO_BE_QUIET_MS = 4500;
const MAX_TEXTS = 6;
/** More than the numbers that are reserved at once. */
const MAX_BURST = 400;

/** Tells something now and then, and ends in any way that an agent may. */
export function createPlayedAgent({ id, clock, chance, conversations, now, note }: PlayedAgentOptions): AgentProvider {
  const running = new Set<Promise<TurnEnd>>();
  const stopped = new AbortController();

  const between = (): number =>
    chance.weigh([
      [5, 0],
      [4, chance.between(1, 40)],
      [2, chance.between(50, 1500)],
      [1, chance.between(2000, 12_000)],
    ]);
  const ending = (): Ending =>
    chance.weigh<Ending>([
      [70, 'completes'],
      [10, 'fails'],
      [12, 'hangs'],
      [4, 'says nothing'],
      [2, 'breaks'],
    ]);

  async function work({ prompt, report }: AgentTurn, signal: AbortSignal): Promise<TurnEnd> {
    const how = ending();
    let output = '';
    if (chance.happens(0.05)) {
      for (let left = chance.between(1, MAX_BURST); left > 0; left -= 1) report({ kind: 'text', text: '.' });
    }
    for (let left = chance.between(0, MAX_TEXTS); left >= 0; left -= 1) {
      await pause(clock, between(), signal);
      if (signal.aborted) return stop(output);
      if (left === 0 || how === 'says nothing') break;
      const text = `${prompt} ${left} `;
      output += text;
      report({ kind: 'text', text });
    }
    switch (how) {
      case 'completes':
        return { kind: 'completed', output: `${output}done`, stopReason: 'end_turn' };
      case 'says nothing':
        return { kind: 'completed', output: '', stopReason: 'end_turn' };
      case 'fails':
        return { kind: 'failed', code: 'AGENT_FAILED', error: 'it did not work out', output };
      case 'breaks':
        throw new Error('an agent has broken');
      case 'hangs':
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        return stop(output);
    }
  }

  /** Being quiet takes a while; now and then the work is done by then. */
  async function stop(output: string): Promise<TurnEnd> {
    if (chance.happens(0.5)) await pause(clock, chance.between(1, MAX_TO_BE_QUIET_MS));
    if (chance.happens(0.1)) return { kind: 'completed', output: `${output}done`, stopReason: 'end_turn' };
    return { kind: 'cancelled', output };
  }

  /** Opening a conversation takes a while, too. */
  async function open(turn: AgentTurn, signal: AbortSignal): Promise<TurnEnd> {
    await pause(clock, between(), signal);
    if (signal.aborted) return { kind: 'cancelled', output: '' };
    const reference = `${id} ${conversations.size + 1}`;
    conversations.add(reference);
    turn.opened(reference);
    return work(turn, signal);
  }

  async function run(turn: AgentTurn, signal: AbortSignal): Promise<TurnEnd> {
    const { turnId, prompt, reference } = turn;
    if (reference !== undefined && !conversations.has(reference))
      return { kind: 'lost', detail: 'no such conversation' };
    const begun = { kind: 'run', agent: id, turnId, prompt } as const;
    note({ ...begun, at: now() });
    const stopping = joinSignals(signal, stopped.signal);
    const ended = reference === undefined ? open(turn, stopping.signal) : work(turn, stopping.signal);
    running.add(ended);
    try {
      const end = await ended;
      note({ ...begun, at: now(), end: end.kind, ...('output' in end && { output: end.output }) });
      return end;
    } catch (error) {
      note({ ...begun, at: now(), end: 'failed' });
      throw error;
    } finally {
      running.delete(ended);
      stopping.release();
    }
  }

  return {
    id,
    probe: async () => ({ status: 'ok', version: '1' }),
    run,
    async close() {},
    async stop() {
      stopped.abort();
      await Promise.allSettled(running);
    },
  };
}
