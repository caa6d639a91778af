import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../kit/until.ts';
import { inBatches } from '../in-batches.ts';
import { beginTurn, callBridge, type FollowedTurn, followSession, type Pace } from './followed-turn.ts';
import { beginJob, type JobToRun, type StreamedWords, statusOfJob, streamWords } from './other-work.ts';

/** How many of each kind. */
export interface Amounts {
  readonly turns: number;
  readonly streams: number;
  readonly jobs: number;
}

export interface ClusterLoad {
  readonly turns: readonly FollowedTurn[];
  readonly streams: readonly StreamedWords[];
  readonly jobs: readonly JobToRun[];
  readonly jobPace: Pace;
  /** How many of each kind have begun and not ended. */
  running(): Promise<Amounts>;
  /** Cancels every third turn within some seconds, at an instance that need not have it. */
  cancelSome(random: () => number): Promise<void>;
}

export interface LoadOptions {
  readonly url: string;
  readonly name: string;
  readonly amounts: Amounts;
  paceOfTurn(): Pace;
}

export const PATIENCE_MS = 240_000;
const CANCELLED_WITHIN_MS = 3000;

/** Begins jobs, then turns with a follower each, and streamed answers, and waits until all of them run. */
export async function beginLoad({ url, name, amounts, paceOfTurn }: LoadOptions): Promise<ClusterLoad> {
  const jobPace = paceOfTurn();
  const jobs = await inBatches(amounts.jobs, (index) => beginJob(url, `job ${name} ${index}`, jobPace));
  const turns = Array.from({ length: amounts.turns }, (_, index): FollowedTurn => {
    const turn = { sessionId: `cycle-${name}-${index}`, hasEnded: false };
    const reported = beginTurn(url, turn.sessionId, paceOfTurn());
    return Object.assign(turn, { reported, follower: followSession(turn.sessionId, url) });
  });
  for (const turn of turns) {
    void turn.reported.then(() => {
      turn.hasEnded = true;
    });
  }
  const streams = Array.from({ length: amounts.streams }, () => streamWords(url, paceOfTurn()));
  for (const { sessionId, follower } of turns)
    await until(`${sessionId} to run`, () => follower.seqs.length > 3, PATIENCE_MS);
  for (const { begun } of streams) await begun;
  // One that has ended is not waited for: it is missing among those that run.
  const hasBegun = async (job: JobToRun) => ((await statusOfJob(url, job)) ?? 'pending') !== 'pending';
  for (const job of jobs) await until(`${job.name} to run`, () => hasBegun(job), PATIENCE_MS);

  return {
    turns,
    streams,
    jobs,
    jobPace,
    async running() {
      const statuses = await Promise.all(jobs.map((job) => statusOfJob(url, job)));
      return {
        turns: turns.filter(({ hasEnded }) => !hasEnded).length,
        streams: streams.filter(({ hasEnded }) => !hasEnded()).length,
        jobs: statuses.filter((status) => status === 'running').length,
      };
    },
    async cancelSome(random) {
      const cancelled = turns.filter((_, index) => index % 3 === 2);
      await Promise.all(cancelled.map((turn) => sleep(random() * CANCELLED_WITHIN_MS).then(() => cancel(url, turn))));
    },
  };
}

async function cancel(url: string, turn: FollowedTurn): Promise<void> {
  turn.wasCancelled = true;
  const { result } = await callBridge(url, 'session.cancel', { sessionId: turn.sessionId }).catch(() => ({
    result: undefined,
  }));
  const { accepted } = Object(result) as { readonly accepted?: boolean };
  if (accepted === true) turn.cancelledAt = performance.now();
}
