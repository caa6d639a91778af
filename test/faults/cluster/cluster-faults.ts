import { setTimeout as sleep } from 'node:timers/promises';
import { createScope } from '../../kit/create-scope.ts';
import type { RunningProgram } from '../../kit/running-program.ts';
import { until } from '../../kit/until.ts';
import {
  countFigure,
  type FaultFigure,
  type FaultReport,
  type FaultSuite,
  longestFigure,
  neverFigure,
  seededRandom,
  workFigure,
} from '../fault-suite.ts';
import { type Amounts, beginLoad, type ClusterLoad, PATIENCE_MS } from './cluster-load.ts';
import { checkTurn, type FollowedTurn, type Pace, readTurn } from './followed-turn.ts';
import { startInstances } from './instances.ts';
import { readJob } from './other-work.ts';

/** By the seed: 1 plays with three, 6 with eight. */
const MIN_INSTANCES = 3;
const MAX_INSTANCES = 8;
/** Turns, and as many streamed answers, and a third as many jobs, unless it is said. */
const USUAL_LOAD = 6;
/** After all of them run, turns last at least so long, and up to so much more. */
const TURN_MS = 8_000;
const MORE_MS = 4_000;
/** To begin one takes so long, until it was measured. */
const BEGIN_MS = 250;
/** Where some had ended before the last ones began, all are begun again, with longer turns. */
const ATTEMPTS = 3;
const DELAY_MS = 50;
/** With more than this, words come more slowly: the machine is to be busy, not late. */
const MAX_WORDS_A_SECOND = 250;
/** A dead instance is found within this time. */
const FOUND_MS = 12_000;
const CANCEL_MS = 250;
const CLOCK_MS = 90_000;
const MAX_SAID = 5;
/** Others take an instance that was frozen for less than this for alive. */
const DEAD_AFTER_MS = 8_000;

type Fault = 'none' | 'clock' | 'kill' | 'freeze' | 'outage' | 'alone' | 'unreachable' | 'restart';
/** From `clock` on one instance has a wrong clock, until all are restarted. */
const FAULTS: readonly Fault[] = ['none', 'clock', 'kill', 'freeze', 'outage', 'alone', 'unreachable', 'restart'];

/** What a fault has done. */
interface Broken {
  readonly killedAt?: number;
  /** Others may have taken an instance for dead. */
  readonly isLost: boolean;
}

/**
 * In each cycle jobs, turns and streamed answers are begun behind HAProxy. When all of them run, an instance gets a wrong clock, one is
 * killed, one is frozen, the database is away, one is cut off from the database or from the others; or all instances are restarted one after the other, each while all of that runs. A
 * third of the turns is cancelled. Clients do what docs/several-machines.md says: each gets the result of its turn, which is the stored
 * one; only the turns, jobs and answers of an instance that was lost may fail; no number is used twice; followers get everything.
 */
export const clusterFaults: FaultSuite = async ({ cycles, seed, load = USUAL_LOAD, say }): Promise<FaultReport> => {
  const random = seededRandom(seed);
  const instances = MIN_INSTANCES + (Math.max(0, seed - 1) % (MAX_INSTANCES - MIN_INSTANCES + 1));
  const scope = createScope();
  const violations: string[] = [];
  const counts = Object.fromEntries(FAULTS.map((fault) => [fault, 0])) as Record<Fault, number>;
  const cancelMs: number[] = [];
  const foundMs: number[] = [];
  const amounts: Amounts = { turns: load, streams: load, jobs: Math.ceil(load / 3) };
  const atFaults: Amounts[] = [];
  const delayMs = Math.max(DELAY_MS, Math.ceil((2 * load * 1000) / MAX_WORDS_A_SECOND));
  let longestBeginMs = load * BEGIN_MS;
  const paceOfTurn = (): Pace => {
    const ms = 1.5 * longestBeginMs + TURN_MS + random() * MORE_MS;
    return { words: Math.ceil(ms / delayMs), delayMs };
  };
  let turnsSeen = 0;
  let jobsSeen = 0;
  let answersSeen = 0;
  let interrupted = 0;
  let repeats = 0;
  let broken = 0;
  let failedJobs = 0;
  try {
    // Two of them can run all jobs.
    const settings = { TRESTLE_JOBS_MAX_RUNNING: String(Math.max(4, Math.ceil(amounts.jobs / 2))) };
    const { url, server, programs, links, kill, restart } = await startInstances(scope, instances, settings, true);

    async function breakSomething(fault: Fault, index: number): Promise<Broken> {
      const program = programs[index] as RunningProgram;
      switch (fault) {
        case 'kill':
          return { killedAt: await kill(index), isLost: true };
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
        case 'alone': {
          const awayMs = 1000 + random() * 29_000;
          await links[index]?.toDatabase.breakFor(awayMs, random() < 0.5 ? 'silent' : 'refused');
          return { isLost: awayMs > DEAD_AFTER_MS - 3000 };
        }
        case 'unreachable':
          await links[index]?.fromOthers.breakFor(1000 + random() * 19_000, random() < 0.5 ? 'silent' : 'refused');
          break;
        case 'clock':
          await restart(index, (random() < 0.5 ? -1 : 1) * CLOCK_MS);
          break;
        case 'restart':
          await restart(index);
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

    async function beginAll(fault: Fault, name: string): Promise<ClusterLoad> {
      for (let attempt = 1; ; attempt += 1) {
        const beganAt = performance.now();
        const work = await beginLoad({ url, name: `${name}-${attempt}`, amounts, paceOfTurn });
        const beginMs = performance.now() - beganAt;
        longestBeginMs = Math.max(longestBeginMs, beginMs);
        await sleep(random() * 1000);
        const running = await work.running();
        say(`${fault}: ${textOf(running)} run after ${Math.round(beginMs / 1000)} s`);
        if (attempt < ATTEMPTS && KINDS.some((kind) => running[kind] < amounts[kind])) {
          await endAll(work, { isLost: false }, 'none');
          continue;
        }
        atFaults.push(running);
        return work;
      }
    }

    async function play(fault: Fault, name: string, index: number): Promise<void> {
      const before = violations.length;
      const work = await beginAll(fault, name);
      const cancelling = work.cancelSome(random);
      const done = await breakSomething(fault, index);
      await cancelling;
      await endAll(work, done, fault);
      // A long run says early what went wrong.
      for (const violation of violations.slice(before, before + MAX_SAID)) say(violation);
    }

    async function endAll(work: ClusterLoad, done: Broken, fault: Fault): Promise<void> {
      await Promise.all(work.turns.map((turn) => endTurn(turn, done, fault)));
      for (const job of work.jobs) {
        const ended = await until(`the end of ${job.name}`, () => readJob(url, job, work.jobPace), PATIENCE_MS);
        jobsSeen += 1;
        if (ended.wrong !== undefined) violations.push(`${fault}: ${ended.wrong}`);
        if (ended.failedWith === undefined) continue;
        failedJobs += 1;
        if (!done.isLost) violations.push(`${fault}: ${job.name} failed: ${ended.failedWith}`);
      }
      for (const { isWhole, wrong, reason } of await Promise.all(work.streams.map(({ ended }) => ended))) {
        answersSeen += 1;
        if (wrong !== undefined) violations.push(`${fault}: ${wrong}`);
        if (isWhole) continue;
        broken += 1;
        // One that is frozen or without its database goes on with its answers.
        if (done.killedAt === undefined) violations.push(`${fault}: an answer broke off: ${reason}`);
      }
    }

    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const fault = FAULTS[(cycle - 1) % FAULTS.length] as Fault;
      counts[fault] += 1;
      if (fault !== 'restart') await play(fault, String(cycle), Math.floor(random() * instances));
      else for (const index of programs.keys()) await play(fault, `${cycle}-${index}`, index);
      say(`${cycle} of ${cycles} cycles (${fault}), ${violations.length} violations`);
    }
  } finally {
    await scope.end();
  }
  const atLeast = leastOf(atFaults);
  // With less work under way, the run would show less than it says.
  for (const kind of KINDS)
    if (atLeast[kind] < amounts[kind])
      violations.push(`only ${atLeast[kind]} of ${amounts[kind]} ${kind} ran at a fault`);
  return {
    violations,
    figures: [
      countFigure('instances', instances),
      workFigure('turns', turnsSeen),
      countFigure('turns that ended with their instance', interrupted),
      countFigure('calls for turns that were made again', repeats),
      workFigure('jobs', jobsSeen),
      countFigure('jobs that failed, as their turns did', failedJobs),
      workFigure('streamed answers', answersSeen),
      countFigure('streamed answers that broke off', broken),
      ...KINDS.map((kind) => leastFigure(`${kind} running at each fault, at least`, atLeast[kind], amounts[kind])),
      ...FAULTS.slice(1).map((fault) => countFigure(`cycles: ${fault}`, counts[fault])),
      longestFigure('from accepted cancel to the end', cancelMs, CANCEL_MS),
      longestFigure('from kill to the end that callers got', foundMs, FOUND_MS),
      neverFigure('violations', violations.length),
    ],
  };
};

const KINDS = ['turns', 'streams', 'jobs'] as const;

function leastOf(all: readonly Amounts[]): Amounts {
  const least = (kind: (typeof KINDS)[number]) => Math.min(...all.map((amounts) => amounts[kind]));
  return { turns: least('turns'), streams: least('streams'), jobs: least('jobs') };
}

function leastFigure(name: string, count: number, goal: number): FaultFigure {
  return {
    name,
    value: count.toLocaleString('en'),
    goal: `≥ ${goal.toLocaleString('en')}`,
    met: count >= goal,
  };
}

function textOf({ turns, streams, jobs }: Amounts): string {
  return `${turns} turns, ${streams} streams and ${jobs} jobs`;
}
