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
