import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';

/** Answers per second of wall time and per second of the server's processor time: one entry for each round. */
export interface Rates {
  readonly perSecond: number[];
  readonly perCpuSecond: number[];
}

export interface Rounds {
  readonly warmUpMs: number;
  readonly rounds: number;
  readonly roundMs: number;
}

/** What the client's process says after each round. */
export interface AnswerCount {
  readonly answers: number;
  /** Answers that did not count, where the client tells them apart. */
  readonly refusals?: number;
  readonly ms: number;
}

export interface BenchServer<Round> {
  /** What the client is told: where the server is, and how to load it. */
  readonly round: Round;
  close(): Promise<unknown>;
}

/**
 * Two servers in this process take turns with one client in another, so that both have the same weather. The client is a
 * module that answers each message `{ ...round, ms }` with an `AnswerCount`.
 */
export async function takeTurns<Round extends object>(
  clientModule: URL,
  bound: BenchServer<Round>,
  ours: BenchServer<Round>,
  { warmUpMs, rounds, roundMs }: Rounds,
): Promise<{ bound: Rates; ours: Rates }> {
  const client = fork(clientModule);
  const rates = { bound: emptyRates(), ours: emptyRates() };
  try {
    for (const { round } of [bound, ours]) await runRound(client, { ...round, ms: warmUpMs / 2 });
    const both = [
      { server: bound, into: rates.bound },
      { server: ours, into: rates.ours },
    ];
    for (let count = 0; count < rounds; count += 1) {
      // Each goes first as often as the other: what a round leaves behind, such as garbage, is then nobody's advantage.
      for (const { server, into } of count % 2 === 0 ? both : both.toReversed()) {
        await measure(client, { ...server.round, ms: roundMs }, into);
      }
    }
  } finally {
    client.kill();
    await Promise.all([bound.close(), ours.close()]);
  }
  return rates;
}

function emptyRates(): Rates {
  return { perSecond: [], perCpuSecond: [] };
}

async function measure(client: ChildProcess, message: object, rates: Rates): Promise<void> {
  const before = process.cpuUsage();
  const { answers, ms } = await runRound(client, message);
  const { user, system } = process.cpuUsage(before);
  rates.perSecond.push((answers / ms) * 1000);
  rates.perCpuSecond.push((answers / (user + system)) * 1_000_000);
}

/** Sends a round to the process of a client, and waits for what it counted. */
export async function runRound(client: ChildProcess, message: object): Promise<AnswerCount> {
  client.send(message);
  const ended = new AbortController();
  const exit = once(client, 'exit', { signal: ended.signal }).then(() => {
    throw new Error('the client of the benchmark ended');
  });
  try {
    const [count] = await Promise.race([once(client, 'message', { signal: ended.signal }), exit]);
    return count as AnswerCount;
  } finally {
    exit.catch(() => undefined);
    ended.abort();
  }
}
