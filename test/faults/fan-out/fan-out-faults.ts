import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { createScope } from '../../kit/create-scope.ts';
import { until } from '../../kit/until.ts';
import { beginTurn, type Pace, readTurn } from '../cluster/followed-turn.ts';
import { startInstances } from '../cluster/instances.ts';
import {
  countFigure,
  type FaultReport,
  type FaultSuite,
  longestFigure,
  neverFigure,
  workFigure,
} from '../fault-suite.ts';
import { inBatches } from '../in-batches.ts';
import { mostOpenFiles } from '../sockets/many-sockets.ts';
import type { FollowersAnswer, FollowersWork } from './follower-client.ts';

const INSTANCES = 3;
/** Sockets, unless it is said, and how many of them follow one session. */
const USUAL_SOCKETS = 10_000;
const FOLLOWERS = 20;
/** Files that a process needs beside its sockets. */
const OTHER_FILES = 500;
/** Slow, so that the machine is not late, and longer than all sockets take to be opened. */
const PACE: Pace = { words: 360, delayMs: 5000 };
const BEGIN_EVERY_MS = 20;
const PATIENCE_MS = 240_000;
/** Between two looks at what is stored: many looks would keep the instances from their work. */
const LOOK_EVERY_MS = 500;
/** A dead instance is found within this time. */
const FOUND_MS = 12_000;
const SHOWN_AT_MOST = 20;

/**
 * In each cycle one instance runs all sessions, and clients of all three instances follow them. Then that instance is killed. Its own clients
 * go on at the others, and every one of them must get all that is stored, in order, each update once, and the stored end.
 */
export const fanOutFaults: FaultSuite = async ({ cycles, load = USUAL_SOCKETS, say }): Promise<FaultReport> => {
  const files = await mostOpenFiles();
  if (files < load + OTHER_FILES) {
    const impossible = `a process may have ${files} files open (ulimit -n), and ${load + OTHER_FILES} are needed`;
    return { violations: [], figures: [], impossible };
  }
  const scope = createScope();
  const violations: string[] = [];
  const foundMs: number[] = [];
  const settledMs: number[] = [];
  const sessions = Math.ceil(load / FOLLOWERS);
  let followed = 0;
  let again = 0;
  let updates = 0;
  try {
    const limit = String(2 * sessions);
    const settings = { TRESTLE_BRIDGE_LIMITS_TURNS_PER_PRINCIPAL: limit, TRESTLE_BRIDGE_LIMITS_TURNS_PER_AGENT: limit };
    const instances = await startInstances(scope, INSTANCES, settings);
    for (let cycle = 1; cycle <= cycles; cycle += 1) {
      const owner = (cycle - 1) % INSTANCES;
      const { url = '' } = instances.programs[owner] ?? {};
      const { url: other = '' } = instances.programs[(owner + 1) % INSTANCES] ?? {};
      const names = Array.from({ length: sessions }, (_, index) => `fan-${cycle}-${index}`);
      for (const sessionId of names) {
        // Its result is read from the store: the connection of the caller ends with the instance.
        void beginTurn(url, sessionId, PACE);
        await sleep(BEGIN_EVERY_MS);
      }
      say(`${sessions} turns were begun`);
      const client = followersProcess();
      scope.after(client.end);
      const ports = instances.programs.map(({ port }) => port);
      const following = await client.ask({ kind: 'follow', ports, sessions: names, sockets: load });
      if (following.kind === 'following') followed += following.sockets;
      say(`${load} sockets follow them, and each has got something`);
      const killedAt = performance.now();
      const restarted = instances.kill(owner);
      const ends = await watchEnds(instances.server.url, `fan-${cycle}-`, sessions);
      foundMs.push(ends.firstAt - killedAt);
      settledMs.push(ends.lastAt - killedAt);
      const stored = await inBatches(sessions, async (index) => {
        const sessionId = names[index] ?? '';
        const ended = await until(`the end of ${sessionId}`, () => endedTurn(other, sessionId), PATIENCE_MS);
        if (ended.wrong !== undefined) violations.push(ended.wrong);
        return ended.seqs;
      });
      say('all turns have a stored end');
      await restarted;
      const compared = await client.ask({ kind: 'compare', stored, patienceMs: PATIENCE_MS });
      if (compared.kind === 'compared') {
        again += compared.again;
        updates += compared.updates;
        violations.push(...compared.violations);
      }
      await client.end();
      say(`${cycle} of ${cycles} cycles, ${violations.length} violations`);
    }
  } finally {
    await scope.end();
  }
  return {
    violations: violations.slice(0, SHOWN_AT_MOST),
    figures: [
      workFigure('sockets that followed', followed),
      countFigure('sessions whose instance was killed', cycles * sessions),
      countFigure('connections that were opened again', again),
      workFigure('updates that followers got', updates),
      longestFigure('from kill to the first stored end', foundMs, FOUND_MS),
      longestFigure('from kill to the last stored end', settledMs),
      neverFigure('violations', violations.length),
    ],
  };
};

/** When the first and the last of the turns was ended in the store, which is asked itself: instances have enough to do. */
async function watchEnds(url: string, prefix: string, turns: number) {
  const client = new pg.Client(url);
  await client.connect();
  const ended = async () => {
    const sql = 'select count(*) from bridge.turns where ended_at is not null and session_key in';
    const result = await client.query(`${sql} (select key from bridge.sessions where session_id like $1)`, [
      `${prefix}%`,
    ]);
    await sleep(LOOK_EVERY_MS / 5);
    return Number(result.rows[0]?.count);
  };
  const since = async (count: number) => {
    await until(`${count} stored ends`, async () => (await ended()) >= count, PATIENCE_MS);
    return performance.now();
  };
  try {
    return { firstAt: await since(1), lastAt: await since(turns) };
  } finally {
    await client.end();
  }
}

/** Undefined while the turn runs, or cannot be read. */
async function endedTurn(url: string, sessionId: string) {
  const stored = await readTurn(url, sessionId).catch(() => undefined);
  const [turn] = stored?.turns ?? [];
  if (stored === undefined || turn === undefined || turn.status === 'running') {
    await sleep(LOOK_EVERY_MS);
    return undefined;
  }
  const isRight = stored.turns.length === 1 && turn.status === 'failed' && turn.code === 'TURN_INTERRUPTED';
  const wrong = `${sessionId} is stored as ${stored.turns.map(({ status, code }) => `${status} ${code ?? ''}`).join(', ')}`;
  return { seqs: stored.seqs, ...(!isRight && { wrong }) };
}

/** The clients, which answer each question once. */
function followersProcess() {
  const child = fork(new URL('./follower-client.ts', import.meta.url));
  const exited = once(child, 'exit');
  return {
    async ask(work: FollowersWork): Promise<FollowersAnswer> {
      child.send(work);
      const gone = exited.then(([code]) =>
        Promise.reject(new Error(`the process of the followers ended with ${code}`)),
      );
      const [answer] = await Promise.race([once(child, 'message'), gone]);
      return answer as FollowersAnswer;
    },
    async end(): Promise<void> {
      if (child.connected) child.disconnect();
      await exited;
    },
  };
}
