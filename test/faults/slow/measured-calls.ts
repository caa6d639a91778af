import { setTimeout as sleep } from 'node:timers/promises';
import type { Operation, Phase } from './check-operations.ts';

export interface MeasuredCallsOptions {
  readonly phase: Phase;
  /** Between the beginnings of two calls. */
  readonly everyMs: number;
  note(operation: Operation): void;
  /** One call of a healthy client: resolves with whether the answer is right, rejects when there is none. */
  call(): Promise<boolean>;
}

const LIMIT_MS = 60_000;

/** Calls at a steady pace, however long the answers take, until `over` is settled; then waits for the last answers. */
export async function measureCalls(options: MeasuredCallsOptions, over: Promise<unknown>): Promise<void> {
  const { phase, everyMs, note, call } = options;
  let isOver = false;
  const ended = over.finally(() => {
    isOver = true;
  });
  const calls: Promise<void>[] = [];
  const measure = async (): Promise<void> => {
    const began = performance.now();
    const limit = sleep(LIMIT_MS, 'unknown' as const, { ref: false });
    const answer = call().then(
      (isRight) => (isRight ? ('ok' as const) : ('fail' as const)),
      () => 'unknown' as const,
    );
    const outcome = await Promise.race([answer, limit]);
    note({ kind: 'call', phase, outcome, ms: performance.now() - began });
  };
  for (let next = performance.now(); !isOver; next += everyMs) {
    await sleep(Math.max(0, next - performance.now()));
    calls.push(measure());
  }
  await Promise.all(calls);
  await ended;
}
