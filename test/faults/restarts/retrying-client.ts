import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CallName, CallOperation, TryEnd } from './check-operations.ts';
import { tryOnce } from './try-once.ts';

/** What is asked, and how the answer must be. */
export interface Call {
  readonly name: CallName;
  readonly path: string;
  readonly body: object;
  /** Whether it may be repeated when nobody knows what became of it. */
  readonly isRepeatable: boolean;
  /** What is wrong with an answer; undefined when nothing is. */
  problemOf(status: number, text: string): string | undefined;
}

export interface Attempt {
  /** The instance to ask first; any, unless given. */
  readonly first?: number;
  /** Called when an answer begins. */
  onHead?(): void;
}

export interface RetryingClientOptions {
  /** Of the instances, as they are now. */
  urls(): readonly string[];
  random(): number;
  /** Whether it goes on with the instance that has answered last, or asks any. */
  readonly stays: boolean;
}

export interface RetryingClient {
  call(call: Call, attempt?: Attempt): Promise<{ readonly operation: CallOperation; readonly text: string }>;
  close(): void;
}

const MAX_TRIES = 5;
const PAUSE_MS = 50;
/** One that refuses connections is left alone for so long. */
const REFUSED_MS = 1000;

/**
 * A client as a careful user has it: it keeps its connections, goes on to the next instance when one does not take the
 * call, leaves that one alone for a while, and repeats what was cut only when that is safe.
 */
export function createRetryingClient({ urls, random, stays }: RetryingClientOptions): RetryingClient {
  let lastInstance: number | undefined;
  const agent = new Agent({ keepAlive: true });
  /** By address: an instance that was started again has a new one. */
  const avoidedUntil = new Map<string, number>();

  function next(all: readonly string[], before: number): number {
    const after = all.map((_, step) => (before + 1 + step) % all.length);
    return after.find((index) => (avoidedUntil.get(all[index] ?? '') ?? 0) <= performance.now()) ?? after[0] ?? 0;
  }

  return {
    async call({ name, path, body, isRepeatable, problemOf }, { first, onHead = () => undefined } = {}) {
      const startedAt = performance.now();
      const tries: { instance: number; end: TryEnd; why?: string }[] = [];
      const told = (outcome: CallOperation['outcome'], text: string, problem?: string) => {
        const endedAt = performance.now();
        const rest = problem === undefined ? {} : { problem };
        const operation: CallOperation = { kind: 'call', name, startedAt, endedAt, tries, outcome, ...rest };
        return { operation, text };
      };
      const any = next(urls(), Math.floor(random() * urls().length));
      let instance = first ?? (stays ? lastInstance : undefined) ?? any;
      while (tries.length < MAX_TRIES) {
        const url = urls()[instance] ?? '';
        const tried = await tryOnce({ agent, url: `${url}${path}`, body, onHead });
        const isTurnedAway = tried.end === 'answered' && tried.status === 503;
        const why = tried.end === 'cut' && { why: tried.problem };
        tries.push({ instance, end: isTurnedAway ? 'turned away' : tried.end, ...why });
        if (tried.end === 'answered' && !isTurnedAway) {
          lastInstance = instance;
          const problem = problemOf(tried.status, tried.text);
          return problem === undefined ? told('ok', tried.text) : told('fail', tried.text, problem);
        }
        if (tried.end === 'cut' && !isRepeatable) return told('unknown', '', tried.problem);
        avoidedUntil.set(url, performance.now() + (tried.end === 'answered' ? tried.retryAfterMs : REFUSED_MS));
        await sleep(random() * PAUSE_MS);
        instance = next(urls(), instance);
      }
      return told('fail', '', 'no instance took it');
    },
    close: () => agent.destroy(),
  };
}
