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
  type FaultOptions,
  type FaultReport,
  type FaultSuite,
  longestFigure,
  neverFigure,
  seededRandom,
} from '../fault-suite.ts';
import { beginTurn, callBridge, checkTurn, type FollowedTurn, followSession, readTurn } from './followed-turn.ts';
import { beginJob, type JobToRun, readJob, streamWords } from './other-work.ts';

const INSTANCES = 3;
const TURNS = 6;
const JOBS = 2;
const STREAMS = 2;
const PATIENCE_MS = 120_000;
/** A dead instance is found within this time. */
const FOUND_MS = 12_000;
const CANCEL_MS = 250;
const FOUND_AGAIN_MS = 2500;

type Fault = 'none' | 'kill' | 'freeze' | 'outage' | 'clock' | 'restart';
const FAULTS: readonly Fault[] = ['none', 'kill', 'freeze', 'outage', 'clock', 'restart'];
/** Faults that no client may notice where it has a stream open or a job under way. */
const UNNOTICED: ReadonlySet<Fault> = new Set(['none', 'clock', 'restart']);

interface Place {
  readonly port: number;
  readonly dataDirectory: string;
}

/**
 * In each cycle turns are begun, followed and cancelled, jobs run and answers are streamed behind HAProxy, while an instance is killed or
 * frozen, the database is away, an instance joins whose clock is wrong, or all instances are restarted one after the other. Each turn
 * ends once, as it was reported; no number is used twice; followers get everything; each job ends, and each whole answer is the right one.
 */
export const clusterFaults: FaultSuite = async ({ cycles, seed, say }: FaultOptions): Promise<FaultReport> => {
  const random = seededRandom(seed);
  const scope = createScope();
  const violations: string[] = [];
  const counts: Record<Fault, number> = { none: 0, kill: 0, freeze: 0, outage: 0, clock: 0, restart: 0 };
  const cancelMs: number[] = [];
  const foundMs: number[] = [];
  let turnsSeen = 0;
  let unreported = 0;
  let broken = 0;
  let failedJobs = 0;
  try {
    const server = await startPostgres();
    scope.after(() => server.stop());
    const places: Place[] = [];
    const programs: RunningProgram[] = [];
    for (let index = 0; index < INSTANCES; index += 1) {
      const place = { port: await freePort(), dataDirectory: await temporaryFolder(scope) };
      places.push(place);
      programs.push(await startInstance(scope, server, place));
    }
    const { url } = await startHaproxy(
      scope,
      places.map(({ port }) => port),
    );
    const anyUrl = () => url;

    async function breakSomething(fault: Fault): Promise<number | undefined> {
      await sleep(random() * 1000);
      const index = Math.floor(random() * INSTANCES);
      const program = programs[index] as RunningProgram;
      if (fault === 'kill') {
        await program.stop('SIGKILL');
        const killedAt = performance.now();
        programs[index] = await startInstance(scope, server, places[index] as Place);
        return killedAt;
      }
      if (fault === 'restart') {
        for (const [each, place] of places.entries()) {
          await programs[each]?.stop('SIGTERM');
          programs[each] = await startInstance(scope, server, place);
          // Until HAProxy has found it.
          await sleep(FOUND_AGAIN_MS);
        }
      }
      if (fault === 'freeze') {
        program.child.kill('SIGSTOP');
        await sleep(3000 + random() * 27_000);
        program.child.kill('SIGCONT');
      } else if (fault === 'outage') {
        await server.pause();
        await sleep(1000 + random() * 14_000);
        await server.start();
      } else if (fault === 'clock') {
        const ahead = await startInstance(scope, server, undefined, (random() < 0.5 ? -1 : 1) * 90_000);
        await sleep(5000);
        await ahead.stop('SIGTERM');
      }
      return undefined;
    }

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const fault = FAULTS[(cycle - 1) % FAULTS.length] as Fault;
      counts[fault] += 1;
      const turns = Array.from({ length: TURNS }, (_, index): FollowedTurn => {
        const sessionId = `cycle-${cycle}-${index}`;
        const reported = beginTurn(url, sessionId, 100 + Math.floor(random() * 150));
        return { sessionId, reported, follower: followSession(sessionId, anyUrl) };
      });
      const jobs: JobToRun[] = [];
      for (let index = 0; index < JOBS; index += 1) jobs.push(await beginJob(url, `job ${cycle} ${index}`));
      const streams = Array.from({ length: STREAMS }, (_, index) => streamWords(url, 50 + cycle + index));
      for (const { sessionId, follower } of turns)
        await until(`${sessionId} to run`, () => follower.seqs.length > 3, PATIENCE_MS);
      const breaking = breakSomething(fault);
      // Every third turn is cancelled, at an instance that need not have it.
      for (const turn of turns.filter((_, index) => index % 3 === 2)) {
        await sleep(random() * 1000);
        const { result } = await callBridge(url, 'session.cancel', { sessionId: turn.sessionId }).catch(() => ({
          result: undefined,
        }));
        if ((result as { readonly accepted?: boolean } | undefined)?.accepted === true)
          turn.cancelledAt = performance.now();
      }
      const killedAt = await breaking;
      for (const turn of turns) {
        const reported = await turn.reported;
        const stored = await until(
          `the end of ${turn.sessionId}`,
          async () => {
            const found = await readTurn(url, turn.sessionId).catch(() => undefined);
            return found?.turns.every(({ status }) => status !== 'running') === true && found;
          },
          PATIENCE_MS,
        );
        const last = stored.seqs.at(-1) ?? 0;
        await until('a follower', () => (turn.follower.seqs.at(-1) ?? 0) >= last, PATIENCE_MS).catch(() => undefined);
        turn.follower.stop();
        // What is stored is read again: nothing may be added after the end.
        violations.push(
          ...checkTurn(
            turn,
            reported,
            await until('what is stored', () => readTurn(url, turn.sessionId).catch(() => undefined), PATIENCE_MS),
          ).map((text) => `${fault}: ${text}`),
        );
        turnsSeen += 1;
        if (reported.status === undefined) unreported += 1;
        if (fault === 'none' && turn.cancelledAt !== undefined)
          cancelMs.push(Math.max(0, reported.at - turn.cancelledAt));
        const isInterrupted = stored.turns[0]?.code === 'TURN_INTERRUPTED';
        if (killedAt !== undefined && isInterrupted) {
          const endedAt = Number(stored.turns[0]?.endedAt) - performance.timeOrigin;
          foundMs.push(endedAt - killedAt);
        }
      }
      for (const job of jobs) {
        const ended = await until(`the end of ${job.name}`, () => readJob(url, job), PATIENCE_MS);
        if (ended.wrong !== undefined) violations.push(`${fault}: ${ended.wrong}`);
        if (!ended.isFailed) continue;
        failedJobs += 1;
        if (UNNOTICED.has(fault)) violations.push(`${fault}: ${job.name} failed`);
      }
      for (const { isWhole, wrong } of await Promise.all(streams)) {
        if (wrong !== undefined) violations.push(`${fault}: ${wrong}`);
        if (isWhole) continue;
        broken += 1;
        if (UNNOTICED.has(fault)) violations.push(`${fault}: an answer broke off`);
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
      countFigure('turns whose caller got no result', unreported),
      countFigure('jobs', cycles * JOBS),
      countFigure('jobs that failed, as their turns did', failedJobs),
      countFigure('streamed answers', cycles * STREAMS),
      countFigure('streamed answers that broke off', broken),
      ...FAULTS.slice(1).map((fault) => countFigure(`cycles: ${fault}`, counts[fault])),
      longestFigure('from accepted cancel to the end', cancelMs, CANCEL_MS),
      longestFigure('from kill to the stored end', foundMs, FOUND_MS),
      neverFigure('violations', violations.length),
    ],
  };
};

/** `place`: undefined for one that HAProxy does not know. */
async function startInstance(
  scope: Scope,
  server: RealPostgres,
  place: Place | undefined,
  aheadMs = 0,
): Promise<RunningProgram> {
  const args = ['--log-level', 'error', '--database', server.url];
  if (place !== undefined) {
    const { port, dataDirectory } = place;
    return startProgram(scope, { dataDirectory, args: [...args, '--listen', `127.0.0.1:${port}`] });
  }
  const script = join(await temporaryFolder(scope), 'clock.cjs');
  await writeFile(script, `const now = Date.now;\nDate.now = () => now() + ${aheadMs};\n`);
  return startProgram(scope, { args, environment: { NODE_OPTIONS: `--require ${script}` } });
}
