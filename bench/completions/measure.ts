import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { Rates, Rounds } from '../report/take-turns.ts';
import type { CompletionCount, CompletionRound } from './completions-client.ts';

/** A server under load, and how it is called. Those in this process are also measured by processor time. */
export type Contender = Omit<CompletionRound, 'ms'> & {
  /** A peer that refuses now and then is measured by what it answers. */
  readonly mayRefuse?: boolean;
  /** Processor time that the server has used so far, where it is another process. */
  readonly processorMs?: () => Promise<number>;
};

export interface Measured extends Rates {
  readonly firstMs: number[];
}

/** All contenders take turns with one client in another process, so that they have the same weather. */
export async function measure<Contenders extends Readonly<Record<string, Contender | undefined>>>(
  contenders: Contenders,
  { warmUpMs, rounds, roundMs }: Rounds,
): Promise<{ [Name in keyof Contenders]: Contenders[Name] extends Contender ? Measured : Measured | undefined }> {
  const client = fork(new URL('./completions-client.ts', import.meta.url));
  const running = Object.entries(contenders).flatMap(([name, contender]) =>
    contender === undefined ? [] : [{ name, contender, result: emptyResult() }],
  );
  try {
    for (const { contender } of running) await runRound(client, roundOf(contender, warmUpMs));
    for (let count = 0; count < rounds; count += 1) {
      for (const { contender, result } of running) {
        const { processorMs = async () => sumOf(process.cpuUsage()) / 1000 } = contender;
        const before = await processorMs();
        const { answers, refusals, ms, firstMs } = await runRound(client, roundOf(contender, roundMs));
        if (refusals > 0 && contender.mayRefuse !== true) throw new Error(`${refusals} refusals at ${contender.port}`);
        const usedMs = (await processorMs()) - before;
        result.perSecond.push((answers / ms) * 1000);
        result.perCpuSecond.push((answers / usedMs) * 1000);
        result.firstMs.push(firstMs);
      }
    }
  } finally {
    client.kill();
  }
  return Object.fromEntries(running.map(({ name, result }) => [name, result])) as never;
}

/** How long the answers of each contender take to begin at a steady rate, round by round; they take turns as above. */
export async function measureLatency<Name extends string>(
  contenders: Readonly<Record<Name, Contender>>,
  { perSecond, rounds, roundMs }: Omit<Rounds, 'warmUpMs'> & { readonly perSecond: number },
): Promise<Readonly<Record<Name, readonly (readonly number[])[]>>> {
  const client = fork(new URL('./completions-client.ts', import.meta.url));
  const times = Object.entries<Contender>(contenders).map(([name, contender]) => ({
    name,
    contender,
    all: [] as (readonly number[])[],
  }));
  try {
    // The first round warms up.
    for (let count = 0; count <= rounds; count += 1) {
      for (const { contender, all } of times) {
        const { allFirstMs, refusals } = await runRound(client, { ...roundOf(contender, roundMs), perSecond });
        if (refusals > 0) throw new Error(`${refusals} refusals at ${contender.port}`);
        if (count > 0) all.push(allFirstMs);
      }
    }
  } finally {
    client.kill();
  }
  return Object.fromEntries(times.map(({ name, all }) => [name, all])) as never;
}

function roundOf(
  { processorMs: _processorMs, mayRefuse: _mayRefuse, ...round }: Contender,
  ms: number,
): CompletionRound {
  return { ...round, ms };
}

function sumOf({ user, system }: NodeJS.CpuUsage): number {
  return user + system;
}

function emptyResult(): Measured {
  return { perSecond: [], perCpuSecond: [], firstMs: [] };
}

async function runRound(client: ChildProcess, round: CompletionRound): Promise<CompletionCount> {
  client.send(round);
  const ended = new AbortController();
  const exit = once(client, 'exit', { signal: ended.signal }).then(() => {
    throw new Error('the client of the benchmark ended');
  });
  exit.catch(() => undefined);
  try {
    const [count] = await Promise.race([once(client, 'message', { signal: ended.signal }), exit]);
    return count as CompletionCount;
  } finally {
    ended.abort();
  }
}
