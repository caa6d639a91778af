import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import { freePort } from '../../kit/free-port.ts';
import { startHaproxy } from '../../kit/real-haproxy.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { until } from '../../kit/until.ts';
import {
  countFigure,
  type FaultReport,
  type FaultSuite,
  longestFigure,
  neverFigure,
  seededRandom,
} from '../fault-suite.ts';
import {
  beginTurn,
  callBridge,
  checkTurn,
  type FollowedTurn,
  followSession,
  type Pace,
  readTurn,
} from './followed-turn.ts';
import { beginJob, readJob, streamWords } from './other-work.ts';

const INSTANCES = 3;
const PATIENCE_MS = 240_000;
/** Turns, and as many streamed answers, and a third as many jobs, unless it is said. */
const USUAL_LOAD = 6;
/** Turns last so long, short enough for `cluster.drain`. */
const TURN_MS = [6_000, 10_000] as const;
const JOB_MS = 3_000;
const DELAY_MS = 50;
/** With more than this, words come more slowly: the machine is to be busy, not late. */
const MAX_WORDS_A_SECOND = 800;
/** A dead instance is found within this time. */
const FOUND_MS = 12_000;
const CANCEL_MS = 250;
const FOUND_AGAIN_MS = 2500;
const CLOCK_MS = 90_000;
/** Others take an instance that was frozen for less than this for alive. */
const DEAD_AFTER_MS = 8_000;

type Fault = 'none' | 'clock' | 'kill' | 'freeze' | 'outage' | 'restart';
/** From `clock` on one instance has a wrong clock, until all are restarted. */
const FAULTS: readonly Fault[] = ['none', 'clock', 'kill', 'freeze', 'outage', 'restart'];

interface Place {
  readonly port: number;
  readonly dataDirectory: string;
  aheadMs: number;
}

/** What a fault has done. */
interface Broken {
  readonly killedAt?: number;
  /** Others may have taken an instance for dead. */
  readonly isLost: boolean;
}

/**
 * In each cycle turns are begun, followed and cancelled, jobs run and answers are streamed behind HAProxy, while an instance gets a
 * wrong clock, one is killed, one is frozen, the database is away, or all instances are restarted one after the other. Clients do what
 * docs/several-machines.md says: each gets the result of its turn, which is the stored one; only the turns, jobs and answers of an
 * instance that was lost may fail; no number is used twice; followers get everything.
 */
export const clusterFaults: FaultSuite = async ({ cycles, seed, load = USUAL_LOAD, say }): Promise<FaultReport> => {
  const random = seededRandom(seed);
  const scope = createScope();
  const violations: string[] = [];
  const counts: Record<Fault, number> = { none: 0, clock: 0, kill: 0, freeze: 0, outage: 0, restart: 0 };
  const cancelMs: number[] = [];
  const foundMs: number[] = [];
  const numberOfJobs = Math.ceil(load / 3);
  const delayMs = Math.max(DELAY_MS, Math.ceil((2 * load * 1000) / MAX_WORDS_A_SECOND));
  const paceOf = (ms: number): Pace => ({ words: Math.ceil(ms / delayMs), delayMs });
  const turnPace = () => paceOf(TURN_MS[0] + random() * (TURN_MS[1] - TURN_MS[0]));
  const jobPace = paceOf(JOB_MS);
  let turnsSeen = 0;
  let interrupted = 0;
  let repeats = 0;
  let broken = 0;
  let failedJobs = 0;
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const places: Place[] = [];
    const programs: RunningProgram[] = [];
    for (let index = 0; index < INSTANCES; index += 1) {
      const place = { port: await freePort(), dataDirectory: await temporaryFolder(scope), aheadMs: 0 };
      places.push(place);
      programs.push(await startInstance(scope, server, place));
    }
    const { url } = await startHaproxy(
      scope,
      places.map(({ port }) => port),
    );

    async function restart(index: number, aheadMs: number): Promise<void> {
      const place = places[index] as Place;
      place.aheadMs = aheadMs;
      await programs[index]?.stop('SIGTERM');
      programs[index] = await startInstance(scope, server, place);
      // Until HAProxy has found it.
      await sleep(FOUND_AGAIN_MS);
    }

    async function breakSomething(fault: Fault): Promise<Broken> {
      await sleep(random() * 1000);
      const index = Math.floor(random() * INSTANCES);
      const program = programs[index] as RunningProgram;
      switch (fault) {
        case 'kill': {
          await program.stop('SIGKILL');
          const killedAt = performance.now();
          programs[index] = await startInstance(scope, server, places[index] as Place);
          return { killedAt, isLost: true };
        }
        case 'freeze': {
          const frozenAt = performance.now();
          program.child.kill('SIGSTOP');
          await sleep(3000 + random() * 27_000);
          program.child.kill('SIGCONT');
          // Its last heartbeat may have been sent two seconds before.
          return { isLost: performance.now() - frozenAt > DEAD_AFTER_MS - 3000 };
        }
        case 'outage':
          await server.pause();
          await sleep(1000 + random() * 14_000);
          await server.start();
          break;
        case 'clock':
          await restart(index, (random() < 0.5 ? -1 : 1) * CLOCK_MS);
          break;
        case 'restart':
          for (const each of places.keys()) await restart(each, 0);
      }
      return { isLost: false };
    }

    async function endTurn(turn: FollowedTurn, { isLost, killedAt }: Broken, fault: Fault): Promise<void> {
      const { sessionId, follower } = turn;
      const reported = await turn.reported;
      const read = () => readTurn(url, sessionId).catch(() => undefined);
      const stored = await until(`what is stored of ${sessionId}`, read, PATIENCE_MS);
      const last = stored.seqs.at(-1) ?? 0;
      await until('a follower', () => (follower.seqs.at(-1) ?? 0) >= last, PATIENCE_MS).catch(() => undefined);
      follower.stop();
      // What is stored is read again: nothing may be added after the end.
      const inTheEnd = await until(`what is stored of ${sessionId}`, read, PATIENCE_MS);
      violations.push(...checkTurn(turn, reported, inTheEnd, isLost).map((text) => `${fault}: ${text}`));
      turnsSeen += 1;
      repeats += reported.repeats;
      if (fault === 'none' && turn.cancelledAt !== undefined)
        cancelMs.push(Math.max(0, reported.at - turn.cancelledAt));
      if (reported.code !== 'TURN_INTERRUPTED') return;
      interrupted += 1;
      if (killedAt !== undefined) foundMs.push(reported.at - killedAt);
    }

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const fault = FAULTS[(cycle - 1) % FAULTS.length] as Fault;
      counts[fault] += 1;
      const turns = Array.from({ length: load }, (_, index): FollowedTurn => {
        const sessionId = `cycle-${cycle}-${index}`;
        return { sessionId, reported: beginTurn(url, sessionId, turnPace()), follower: followSession(sessionId, url) };
      });
      const streams = turns.map(() => streamWords(url, turnPace()));
      const jobs = await Promise.all(
        Array.from({ length: numberOfJobs }, (_, index) => beginJob(url, `job ${cycle} ${index}`, jobPace)),
      );
      for (const { sessionId, follower } of turns)
        await until(`${sessionId} to run`, () => follower.seqs.length > 3, PATIENCE_MS);
      for (const { begun } of streams) await begun;
      const breaking = breakSomething(fault);
      // Every third turn is cancelled, at an instance that need not have it.
      for (const turn of turns.filter((_, index) => index % 3 === 2)) {
        await sleep((random() * 3000) / load);
        turn.wasCancelled = true;
        const { result } = await callBridge(url, 'session.cancel', { sessionId: turn.sessionId }).catch(() => ({
          result: undefined,
        }));
        if ((result as { readonly accepted?: boolean } | undefined)?.accepted === true)
          turn.cancelledAt = performance.now();
      }
      const done = await breaking;
      await Promise.all(turns.map((turn) => endTurn(turn, done, fault)));
      for (const job of jobs) {
        const ended = await until(`the end of ${job.name}`, () => readJob(url, job, jobPace), PATIENCE_MS);
        if (ended.wrong !== undefined) violations.push(`${fault}: ${ended.wrong}`);
        if (ended.failedWith === undefined) continue;
        failedJobs += 1;
        if (!done.isLost) violations.push(`${fault}: ${job.name} failed: ${ended.failedWith}`);
      }
      for (const { isWhole, wrong, reason } of await Promise.all(streams.map(({ ended }) => ended))) {
        if (wrong !== undefined) violations.push(`${fault}: ${wrong}`);
        if (isWhole) continue;
        broken += 1;
        // One that is frozen or without its database goes on with its answers.
        if (done.killedAt === undefined) violations.push(`${fault}: an answer broke off: ${reason}`);
      }
      say(`${cycle} of ${cycles} cycles (${fault}), ${violations.length} violations`);
    }
  } finally {
    await scope.end();
  }
  return {
    violations,
    figures: [
      countFigure('turns on three instances', turnsSeen),
      countFigure('turns that ended with their instance', interrupted),
      countFigure('calls for turns that were made again', repeats),
      countFigure('jobs', cycles * numberOfJobs),
      countFigure('jobs that failed, as their turns did', failedJobs),
      countFigure('streamed answers', cycles * load),
      countFigure('streamed answers that broke off', broken),
      ...FAULTS.slice(1).map((fault) => countFigure(`cycles: ${fault}`, counts[fault])),
      longestFigure('from accepted cancel to the end', cancelMs, CANCEL_MS),
      longestFigure('from kill to the end that callers got', foundMs, FOUND_MS),
      neverFigure('violations', violations.length),
    ],
  };
};

async function startInstance(scope: Scope, server: RealPostgres, place: Place): Promise<RunningProgram> {
  const { port, dataDirectory, aheadMs } = place;
  const args = ['--log-level', 'error', '--database', server.url, '--listen', `127.0.0.1:${port}`];
  if (aheadMs === 0) return startProgram(scope, { dataDirectory, args });
  const script = join(await temporaryFolder(scope), 'clock.cjs');
  await writeFile(script, `const now = Date.now;\nDate.now = () => now() + ${aheadMs};\n`);
  return startProgram(scope, { dataDirectory, args, environment: { NODE_OPTIONS: `--require ${script}` } });
}
