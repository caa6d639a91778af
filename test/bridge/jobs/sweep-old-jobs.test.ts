import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sweepOldJobs } from '../../../src/bridge/jobs/job-ends.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { endedRow } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const own = endedRow({ id: 'job-own', owner: 'main' });
const shared = endedRow({ id: 'job-in-a-session', session_id: 'talk' });

function sweepWith(close: (sessionId: string) => Promise<void>) {
  const left = [own, shared];
  const closed: string[] = [];
  const sweep = () =>
    sweepOldJobs({
      store: {
        ended: async () => [...left],
        remove: async () => void left.splice(0),
      },
      keptMs: 1,
      clock: createFakeClock(),
      signal: new AbortController().signal,
      async closeSession(_owner, { sessionId = '' }) {
        await close(sessionId);
        closed.push(sessionId);
      },
    });
  return { sweep, left, closed };
}

test('an old job stays until the session is closed that was its alone, and other sessions go on', async () => {
  let isReachable = false;
  const { sweep, left, closed } = sweepWith(async () => {
    if (!isReachable) throw new AppError('STORAGE_UNAVAILABLE');
  });
  await assert.rejects(sweep(), { code: 'STORAGE_UNAVAILABLE' });
  assert.equal(left.length, 2, 'nobody could find the session of a job that is gone');
  isReachable = true;
  await sweep();
  assert.deepEqual([left, closed], [[], ['job-own']]);
});

test('an old job whose session somebody goes on with on another bridge is removed too', async () => {
  const { sweep, left, closed } = sweepWith(async () => {
    throw new AppError('SESSION_BUSY');
  });
  await sweep();
  assert.deepEqual([left, closed], [[], []]);
});

test('jobs that ended before their time is over are removed in steps, until none is left or the bridge stops', async () => {
  const clock = createFakeClock();
  const sweepAll = async (count: number, keptMs: number, stopAfter = Number.POSITIVE_INFINITY) => {
    const left = Array.from({ length: count }, (_, index) => endedRow({ id: `job-${index}`, session_id: 'talk' }));
    const asked: [number, number][] = [];
    const stopped = new AbortController();
    const swept = sweepOldJobs({
      store: {
        async ended(before, limit) {
          asked.push([before, limit]);
          return left.slice(0, limit);
        },
        async remove(jobs) {
          left.splice(0, jobs.length);
          if (asked.length >= stopAfter) stopped.abort();
        },
      },
      keptMs,
      clock,
      signal: stopped.signal,
      closeSession: async () => undefined,
    });
    await clock.advance(1000);
    await swept;
    return { left: left.length, asked };
  };
  const many = await sweepAll(450, 5000);
  const before = clock.now() - 1000 - 5000;
  assert.deepEqual([many.left, many.asked], [0, Array(3).fill([before, 200])]);
  assert.equal((await sweepAll(400, 5000)).left, 0);
  assert.deepEqual(await sweepAll(3, 0), { left: 3, asked: [] }, '0 keeps them');
  assert.equal((await sweepAll(450, 5000, 1)).left, 250);
});
