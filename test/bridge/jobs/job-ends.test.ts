import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  cancelJobs,
  createJobEnds,
  expireJobs,
  type JobEnds,
  settleAbandoned,
} from '../../../src/bridge/jobs/job-ends.ts';
import type { JobEnding } from '../../../src/bridge/jobs/job-record.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { JobDeliveryRow, JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { waitingJob } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

const DONE: JobEnding = { status: 'completed', providerId: '', result: { output: 'x' }, error: null, errorCode: null };

/** Ends whose store fails with these errors first. */
function startEnds(problems: readonly Error[] = [], isTaken = true) {
  const clock = createFakeClock();
  const left = [...problems];
  const stored: { end: { readonly providerId: string }; deliveries: readonly JobDeliveryRow[] }[] = [];
  const retried: number[] = [];
  let told = 0;
  let tries = 0;
  const failFirst = () => {
    tries += 1;
    const problem = left.shift();
    if (problem !== undefined) throw problem;
  };
  const ends = createJobEnds({
    store: {
      async end(_job, end, deliveries) {
        failFirst();
        stored.push({ end, deliveries });
        return isTaken;
      },
      async retry(_job, retryAt) {
        failFirst();
        retried.push(retryAt);
        return isTaken;
      },
    },
    clock,
    makeId: (prefix) => `${prefix}1`,
    logger: silentLogger,
    onEnded: () => {
      told += 1;
    },
  });
  return { ends, clock, stored, retried, told: () => told, tries: () => tries };
}

test('the end of a job is stored with its outcome and with the deliveries that it asked for', async () => {
  const plain = startEnds();
  assert.equal(await plain.ends.end(waitingJob({ provider_id: 'asked' }), DONE), true);
  const outcome = JSON.stringify({ result: { output: 'x' }, error: null, errorCode: null });
  const end = { status: 'completed', providerId: 'asked', outcome, now: plain.clock.now() };
  assert.deepEqual(plain.stored, [{ end, deliveries: [] }]);
  assert.equal(plain.told(), 0, 'there is nothing to deliver');

  const both = startEnds();
  const request = JSON.stringify({ card: { target: 't', channel: '', accountId: '' } });
  const job = waitingJob({ webhook_url: 'https://receiver.example/', request });
  await both.ends.end(job, { ...DONE, providerId: 'worked' });
  const due = { id: 'dlv_1', job_id: job.id, attempts: 0, due_at: both.clock.now() };
  assert.deepEqual(both.stored[0]?.deliveries, [
    { ...due, kind: 'webhook' },
    { ...due, kind: 'card' },
  ]);
  assert.equal(both.stored[0]?.end.providerId, 'worked');
  assert.equal(both.told(), 1);
});

test('a job that has ended already is reported as such, and nothing is delivered again', async () => {
  const { ends, told } = startEnds([], false);
  assert.equal(await ends.end(waitingJob({ webhook_url: 'https://receiver.example/' }), DONE), false);
  assert.equal(told(), 0);
  assert.equal(await ends.retry(waitingJob(), 5), false);
});

test('while the store is away an end is tried again every second', async () => {
  const away = () => new AppError('STORAGE_UNAVAILABLE');
  const { ends, clock, stored, tries } = startEnds([away(), away()]);
  const ended = ends.end(waitingJob(), DONE);
  await clock.advance(999);
  assert.equal(tries(), 1);
  await clock.advance(1);
  assert.equal(tries(), 2);
  await clock.advance(1000);
  assert.equal(await ended, true);
  assert.equal(stored.length, 1);
  const again = startEnds([away()]);
  const retried = again.ends.retry(waitingJob(), 77);
  await again.clock.advance(1000);
  assert.equal(await retried, true);
  assert.deepEqual(again.retried, [77]);
});

test('what is not a fault of the store is not tried again, nor anything after the stop', async () => {
  const broken = startEnds([new Error('broken')]);
  await assert.rejects(broken.ends.end(waitingJob(), DONE), /broken/);
  assert.equal(broken.tries(), 1);

  const { ends, clock, tries } = startEnds(Array.from({ length: 9 }, () => new AppError('STORAGE_UNAVAILABLE')));
  const ended = assert.rejects(ends.end(waitingJob(), DONE), { code: 'STORAGE_UNAVAILABLE' });
  await clock.advance(1000);
  ends.stop();
  await ended;
  const before = tries();
  await clock.advance(10_000);
  assert.equal(tries(), before);
});

/** Notes what becomes of jobs; `refused` have ended elsewhere. */
function noting(refused: ReadonlySet<string> = new Set()) {
  const seen: string[] = [];
  const note = async (job: JobRow, what: string) => {
    if (refused.has(job.id)) return false;
    seen.push(`${job.id} ${what}`);
    return true;
  };
  const ends: JobEnds = {
    end: (job, { status, errorCode }) => note(job, errorCode ?? status),
    retry: (job, at) => note(job, `again ${at}`),
    stop: () => undefined,
  };
  return { seen, ends, requeue: (job: JobRow) => note(job, 'requeued') };
}

const TURN_ENDED_AT = 5000;

/** Turns that have ended, by the id of their job. */
async function settle(jobs: readonly JobRow[], turns: Readonly<Record<string, object>> = {}) {
  const clock = createFakeClock();
  const { seen, ends, requeue } = noting();
  const search = {
    abandoned: async () => jobs,
    endedTurn: async ({ id }: JobRow) =>
      turns[id] === undefined ? undefined : { outcome: JSON.stringify(turns[id]), endedAt: TURN_ENDED_AT },
  };
  const settled = await settleAbandoned({ store: { requeue }, search, ends, instance: 'own', clock });
  return { seen, settled, now: clock.now() };
}

test('a job whose bridge is gone was interrupted, unless it asked to be run again', async () => {
  const jobs = [waitingJob({ id: 'plain' }), waitingJob({ id: 'asked', retry_on_restart: 1 })];
  const { seen, settled } = await settle(jobs);
  assert.deepEqual(seen, ['plain JOB_INTERRUPTED', 'asked requeued']);
  assert.equal(settled, 2);
});

test('a job whose turn had ended before its bridge was gone ends as the turn did', async () => {
  const turn = (changes: object) => ({ resolvedProviderId: 'one', resolvedGatewayProviderId: '', ...changes });
  const jobs = [
    waitingJob({ id: 'done', retry_on_restart: 1 }),
    waitingJob({ id: 'stopped', stop_requested: 1 }),
    waitingJob({ id: 'cut', retry_on_restart: 1 }),
    waitingJob({ id: 'exited', retries: 1, deadline_at: Number.MAX_SAFE_INTEGER }),
    waitingJob({ id: 'spent', deadline_at: Number.MAX_SAFE_INTEGER }),
  ];
  const { seen, now } = await settle(jobs, {
    done: turn({ status: 'completed' }),
    stopped: turn({ status: 'failed', code: 'AGENT_FAILED' }),
    cut: turn({ status: 'failed', code: 'TURN_INTERRUPTED' }),
    exited: turn({ status: 'failed', code: 'AGENT_EXITED' }),
    spent: turn({ status: 'failed', code: 'AGENT_EXITED' }),
  });
  assert.deepEqual(seen, [
    'done completed',
    'stopped JOB_CANCELLED',
    'cut requeued',
    `exited again ${now + 5000}`,
    'spent AGENT_EXITED',
  ]);
});

test('a job whose turn was cancelled because its time was up ends as timed out', async () => {
  const turn = {
    resolvedProviderId: 'one',
    resolvedGatewayProviderId: '',
    status: 'cancelled',
    code: 'TURN_CANCELLED',
  };
  const jobs = [
    waitingJob({ id: 'late', deadline_at: TURN_ENDED_AT }),
    waitingJob({ id: 'early', deadline_at: TURN_ENDED_AT + 1 }),
    waitingJob({ id: 'stopped', deadline_at: TURN_ENDED_AT, stop_requested: 1 }),
  ];
  const { seen } = await settle(jobs, { late: turn, early: turn, stopped: turn });
  assert.deepEqual(seen, ['late JOB_TIMEOUT', 'early JOB_CANCELLED', 'stopped JOB_CANCELLED']);
});

test('jobs that were left behind are settled page by page, and those of others do not hold it up', async () => {
  const clock = createFakeClock();
  const all = Array.from({ length: 250 }, (_, index) => waitingJob({ id: `job-${index}` }));
  const pages: [string, number][] = [];
  const { seen, ends, requeue } = noting();
  const search = {
    async abandoned(instance: string, limit: number) {
      pages.push([instance, limit]);
      return all.splice(0, limit);
    },
    endedTurn: async () => undefined,
  };
  assert.equal(await settleAbandoned({ store: { requeue }, search, ends, instance: 'own', clock }), 250);
  assert.equal(seen.length, 250);
  assert.deepEqual(pages, Array(3).fill(['own', 100]));

  const stuck = Array.from({ length: 100 }, (_, index) => waitingJob({ id: `job-${index}` }));
  const other = noting(new Set(stuck.map(({ id }) => id)));
  const same = { abandoned: async () => stuck, endedTurn: async () => undefined };
  const parts = { store: { requeue: other.requeue }, search: same, ends: other.ends, instance: 'own', clock };
  assert.equal(await settleAbandoned(parts), 0, 'another bridge settles them');
});

test('jobs that are given are settled, and no others are looked for', async () => {
  const clock = createFakeClock();
  const { seen, ends, requeue } = noting();
  const search = { abandoned: () => Promise.reject(new Error('looked')), endedTurn: async () => undefined };
  const given = Array.from({ length: 100 }, (_, index) => waitingJob({ id: `job-${index}` }));
  assert.equal(await settleAbandoned({ store: { requeue }, search, ends, instance: 'own', clock }, given), 100);
  assert.equal(seen.length, 100);
});

test('jobs whose time was up before they ran end as timed out, however many they are', async () => {
  const all = Array.from({ length: 150 }, (_, index) => waitingJob({ id: `job-${index}` }));
  const { seen, ends } = noting();
  const asked: number[] = [];
  const search = {
    async overdue(now: number, limit: number) {
      asked.push(now);
      return all.splice(0, limit);
    },
  };
  await expireJobs({ search, ends, now: 7 });
  assert.equal(seen.length, 150);
  assert.equal(seen[0], 'job-0 JOB_TIMEOUT');
  assert.deepEqual(asked, [7, 7]);

  const stuck = Array.from({ length: 100 }, (_, index) => waitingJob({ id: `job-${index}` }));
  const other = noting(new Set(stuck.map(({ id }) => id)));
  await expireJobs({ search: { overdue: async () => stuck }, ends: other.ends, now: 7 });
  assert.deepEqual(other.seen, [], 'it comes to an end though none of them could be ended');
});

/** Cancels what a principal means by a name; notes what is stopped, and how. */
async function cancel(
  jobs: readonly JobRow[],
  given: {
    readonly principal?: Principal;
    readonly name?: { readonly sessionId?: string; readonly threadId?: string };
    readonly hasOwn?: boolean;
    readonly ended?: readonly string[];
    readonly here?: readonly string[];
  },
) {
  const { principal = MAIN, name = { sessionId: 's' }, hasOwn = false, ended = [], here = [] } = given;
  const { seen, ends } = noting(new Set(ended));
  const asked: unknown[] = [];
  const isMeant = await cancelJobs(
    {
      store: { find: async () => undefined, requestStop: async (id) => void seen.push(`${id} asked to stop`) },
      search: {
        async ofSession(sought, owners) {
          asked.push([sought, owners]);
          return [...jobs];
        },
      },
      ends,
      cancelHere(id) {
        const isHere = here.includes(id);
        if (isHere) seen.push(`${id} cancelled here`);
        return isHere;
      },
      hasOwnSession: async () => hasOwn,
    },
    principal,
    'session.cancel',
    name,
  );
  return { seen, isMeant, asked };
}

test('a cancel ends jobs that wait, and stops those that run, here or elsewhere', async () => {
  const jobs = [
    waitingJob({ id: 'waits' }),
    waitingJob({ id: 'begun', status: 'pending' }),
    waitingJob({ id: 'here', status: 'running' }),
    waitingJob({ id: 'elsewhere', status: 'running' }),
  ];
  const { seen, isMeant, asked } = await cancel(jobs, { ended: ['begun'], here: ['here', 'begun'] });
  assert.deepEqual(seen, [
    'waits JOB_CANCELLED',
    'begun cancelled here',
    'here cancelled here',
    'elsewhere asked to stop',
  ]);
  assert.equal(isMeant, false, 'the jobs were its own, so the sessions of others are not meant');
  assert.deepEqual(asked, [[{ sessionId: 's' }, undefined]]);
});

test('a session is looked for by its id, else by its thread, and without a usable name nothing is', async () => {
  const review = principalOf('review');
  const byThread = await cancel([], { principal: review, name: { threadId: 't' } });
  assert.deepEqual(byThread.asked, [[{ threadId: 't' }, ['review']]]);
  const byBoth = await cancel([], { principal: review, name: { sessionId: 's', threadId: 't' } });
  assert.deepEqual(byBoth.asked, [[{ sessionId: 's' }, ['review']]]);
  for (const name of [{}, { sessionId: '', threadId: '' }, { sessionId: '\ud800' }, { threadId: '\udc00' }]) {
    const { asked, isMeant } = await cancel([], { name });
    assert.deepEqual([asked, isMeant], [[], true]);
  }
});

test('who sees all means its own job or session first, and only without one those of others', async () => {
  const own = waitingJob({ id: 'own', owner: 'main' });
  const other = waitingJob({ id: 'other', owner: 'review' });
  const both = await cancel([own, other], {});
  assert.deepEqual([both.seen, both.isMeant], [['own JOB_CANCELLED'], false]);
  const alone = await cancel([other], {});
  assert.deepEqual([alone.seen, alone.isMeant], [['other JOB_CANCELLED'], true]);
  const withSession = await cancel([other], { hasOwn: true });
  assert.deepEqual([withSession.seen, withSession.isMeant], [[], true], 'its own session has that name');
  const ownToo = await cancel([own, other], { hasOwn: true });
  assert.deepEqual([ownToo.seen, ownToo.isMeant], [['own JOB_CANCELLED'], true], 'its session and its job');
  const none = await cancel([], {});
  assert.equal(none.isMeant, true);
});

test('who sees its own alone means its session too, and nobody cancels what they may only see', async () => {
  const own = waitingJob({ id: 'own', owner: 'review' });
  const { seen, isMeant } = await cancel([own], { principal: principalOf('review') });
  assert.deepEqual([seen, isMeant], [['own JOB_CANCELLED'], true]);
  const reader = { ...principalOf('user:reader'), role: 'readonly', seesAll: true } as const;
  await assert.rejects(cancel([waitingJob({ owner: 'review' })], { principal: reader }), { code: 'FORBIDDEN' });
});
