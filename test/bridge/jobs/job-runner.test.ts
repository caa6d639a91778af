import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionResult } from '../../../src/bridge/contract/session.ts';
import type { BridgeEvent } from '../../../src/bridge/contract/surface.ts';
import type { JobEnding } from '../../../src/bridge/jobs/job-record.ts';
import { createJobRunner } from '../../../src/bridge/jobs/job-runner.ts';
import type { JobCall } from '../../../src/bridge/sessions/session-calls.ts';
import type { JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { waitingJob } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

/** A runner on which the test decides what is taken, what the store says, and when turns end. */
function startRunner(changes: Partial<JobRow> = {}, options: Partial<Parameters<typeof createJobRunner>[0]> = {}) {
  const clock = createFakeClock();
  const created_at = clock.now();
  const job = waitingJob({
    status: 'running',
    instance: 'own',
    attempt: 1,
    created_at,
    deadline_at: created_at + 5000,
    started_at: created_at,
    ...changes,
  });
  const waiting = [job];
  const turn = Promise.withResolvers<SessionResult | undefined>();
  const ended: JobEnding[] = [];
  const retried: number[] = [];
  const cancelled: string[] = [];
  const putBack: string[] = [];
  const released: string[] = [];
  const stored: { rows: () => Promise<Pick<JobRow, 'id' | 'attempt' | 'stop_requested'>[]> } = {
    rows: async () => [job],
  };
  const runner = createJobRunner({
    mayWork: async () => true,
    queue: { take: async () => waiting.pop(), hasLeft: () => false },
    search: { runningOn: () => stored.rows() },
    ends: {
      async end(_job, ending) {
        ended.push(ending);
        return true;
      },
      async retry(_job, retryAt) {
        retried.push(retryAt - created_at);
        return true;
      },
      stop() {},
    },
    instance: 'own',
    maxRunning: 4,
    clock,
    logger: silentLogger,
    maxRunningOfOwner: () => 4,
    serverBox: { open: () => [] },
    runTurn({ jobId }, signal) {
      signal.addEventListener('abort', () => cancelled.push(jobId));
      return turn.promise;
    },
    async putBack({ id }) {
      putBack.push(id);
    },
    async release(id) {
      released.push(id);
    },
    ...options,
  });
  return { runner, clock, job, turn, ended, retried, cancelled, putBack, released, stored };
}

const result = (changes: Partial<SessionResult>) =>
  ({ resolvedProviderId: 'one', resolvedGatewayProviderId: '', ...changes }) as SessionResult;
const codes = (endings: readonly JobEnding[]) => endings.map(({ status, errorCode }) => [status, errorCode]);

test('B-70: the end at the deadline is the only one, whatever the turn says later', async () => {
  const { runner, clock, turn, ended, cancelled, job } = startRunner();
  await runner.look();
  await clock.advance(4999);
  assert.deepEqual(ended, []);
  await clock.advance(1);
  assert.deepEqual(codes(ended), [['failed', 'JOB_TIMEOUT']]);
  assert.deepEqual(cancelled, [job.id]);
  turn.resolve(result({ status: 'completed' }));
  await runner.stop();
  assert.equal(ended.length, 1);
});

test('B-70: a job has no more time than it was given, though the clock was set back since its submit', async () => {
  const { runner, clock, ended } = startRunner({ timeout_ms: 5000 });
  clock.stepWall(-90 * 86_400_000);
  await runner.look();
  await clock.advance(4999);
  assert.deepEqual(ended, []);
  await clock.advance(1);
  assert.deepEqual(codes(ended), [['failed', 'JOB_TIMEOUT']]);
});

test('a turn that completed although it was to be cancelled has completed', async () => {
  for (const [status, expected] of [
    ['completed', ['completed', null]],
    ['cancelled', ['failed', 'JOB_CANCELLED']],
    ['failed', ['failed', 'JOB_CANCELLED']],
  ] as const) {
    const { runner, turn, ended, job } = startRunner();
    await runner.look();
    assert.equal(runner.cancel(job.id), true);
    turn.resolve(result({ status }));
    await runner.stop();
    assert.deepEqual(codes(ended), [expected]);
    assert.equal(runner.cancel(job.id), false);
  }
});

test('B-72: a job that another bridge has taken over is stopped, and nothing is written about it', async () => {
  const { runner, turn, ended, cancelled, job, stored } = startRunner();
  await runner.look();
  await runner.compare();
  assert.deepEqual(cancelled, []);
  stored.rows = async () => [];
  await runner.compare();
  assert.deepEqual(cancelled, [job.id]);
  turn.resolve(result({ status: 'completed' }));
  await runner.stop();
  assert.deepEqual(ended, []);
});

test('a job that was taken while the store was being read is not taken for lost', async () => {
  const { runner, turn, cancelled, stored } = startRunner();
  const reading = Promise.withResolvers<[]>();
  stored.rows = () => reading.promise;
  const compared = runner.compare();
  await new Promise((resolve) => setImmediate(resolve));
  await runner.look();
  reading.resolve([]);
  await compared;
  assert.deepEqual(cancelled, []);
  turn.resolve(result({ status: 'completed' }));
  await runner.stop();
});

test('a job that the store takes for running here, though it is not, is released', async () => {
  const { runner, released, stored } = startRunner();
  stored.rows = async () => [{ id: 'job-stray', attempt: 1, stop_requested: 0 }];
  await runner.compare();
  assert.deepEqual(released, ['job-stray']);
});

test('O-08: a job that was taken when its turn was already refused waits again, and has not failed', async () => {
  const { runner, turn, ended, putBack, job } = startRunner();
  const looking = runner.look();
  runner.settle();
  await looking;
  turn.reject(new AppError('SHUTTING_DOWN'));
  await runner.stop();
  assert.deepEqual(putBack, [job.id]);
  assert.deepEqual(ended, []);
});

test('DB-6: a job whose session is not idle waits again, and has not failed', async () => {
  const { runner, turn, ended, putBack, job } = startRunner();
  await runner.look();
  turn.resolve(undefined);
  await runner.stop();
  assert.deepEqual([putBack, ended], [[job.id], []]);
});

test('a job that was cancelled before its turn was refused has ended', async () => {
  const { runner, turn, ended, putBack, job } = startRunner();
  await runner.look();
  runner.cancel(job.id);
  turn.reject(new AppError('SHUTTING_DOWN'));
  await runner.stop();
  assert.deepEqual(codes(ended), [['failed', 'JOB_CANCELLED']]);
  assert.deepEqual(putBack, []);
});

test('an interrupted job that is to be run again stays as it is', async () => {
  const { runner, turn, ended } = startRunner({ retry_on_restart: 1 });
  await runner.look();
  turn.resolve(result({ status: 'failed', code: 'TURN_INTERRUPTED' }));
  await runner.stop();
  assert.deepEqual(ended, []);
});

test('a job whose agent fails is run again, with longer pauses, as often as it may and only within its time', async () => {
  const cases: [Partial<JobRow>, SessionResult['code'], number[]][] = [
    [{ retries: 3 }, 'AGENT_EXITED', [5000]],
    [{ retries: 3, retried: 1 }, 'AGENT_TIMEOUT', [10_000]],
    [{ retries: 10, retried: 9 }, 'PROVIDER_UNAVAILABLE', [300_000]],
    [{ retries: 3, retried: 3 }, 'AGENT_EXITED', []],
    [{ retries: 0 }, 'AGENT_EXITED', []],
    [{ retries: 3 }, 'AGENT_FAILED', []],
    [{ retries: 3 }, 'EMPTY_OUTPUT', []],
    [{ retries: 3, deadline_at: 0 }, 'AGENT_EXITED', []],
  ];
  for (const [changes, code, expected] of cases) {
    const late = createFakeClock().now() + 3_600_000;
    const { runner, turn, ended, retried } = startRunner({ deadline_at: late, timeout_ms: 3_600_000, ...changes });
    await runner.look();
    turn.resolve(result({ status: 'failed', ...(code !== undefined && { code }) }));
    await runner.stop();
    assert.deepEqual(retried, expected, `${code} ${JSON.stringify(changes)}`);
    if (changes.deadline_at === undefined) assert.equal(ended.length, 1 - expected.length, String(code));
  }
});

test('a job that was cancelled, or whose time is up, is not run again', async () => {
  const { runner, turn, ended, retried, job } = startRunner({ retries: 3 });
  await runner.look();
  runner.cancel(job.id);
  turn.resolve(result({ status: 'failed', code: 'AGENT_EXITED' }));
  await runner.stop();
  assert.deepEqual(codes(ended), [['failed', 'JOB_CANCELLED']]);
  assert.deepEqual(retried, []);
});

test('a turn gets what its job was submitted with, and nothing that is for the job alone', async () => {
  const turnOf = async (changes: Partial<JobRow>) => {
    const calls: JobCall[] = [];
    const announced: BridgeEvent[] = [];
    const { runner } = startRunner(changes, {
      announce: (event) => announced.push(event),
      serverBox: { open: (id, sealed) => [{ type: 'trestle', name: `${id} ${sealed}` }] },
      async runTurn(job) {
        calls.push(job);
        return result({ status: 'completed' });
      },
    });
    await runner.look();
    await runner.stop();
    return { call: calls[0], announced };
  };
  const request = { taskPrompt: 'work', routing: {}, sealedServers: 'x', retryOf: 'job-0', card: { target: 't' } };
  const names = { id: 'job-1', owner: 'team:t', member: 'user:a', session_id: 's', thread_id: 'th' };
  const first = await turnOf({ ...names, request: JSON.stringify(request) });
  assert.deepEqual(first.call, {
    ...{ jobId: 'job-1', owner: 'team:t', member: 'user:a' },
    params: { taskPrompt: 'work', routing: {}, sessionId: 's', threadId: 'th' },
    mcpServers: [{ type: 'trestle', name: 'job-1 x' }],
    ...{ newSession: false, isRetry: false, survivesRestart: false },
  });
  const data = { jobId: 'job-1', owner: 'team:t', sessionId: 's', attempt: 1 };
  assert.deepEqual(first.announced, [{ event: 'job.started', data }]);
  const again = JSON.stringify({ taskPrompt: 'work', newSession: true });
  const { call } = await turnOf({ id: 'job-2', request: again, attempt: 2, retry_on_restart: 1 });
  assert.deepEqual([call?.newSession, call?.isRetry, call?.survivesRestart], [true, true, true]);
  assert.deepEqual(call?.mcpServers, [{ type: 'trestle', name: 'job-2 ' }]);
});

test('a job whose owner may not work ends without a turn, and one whose owner cannot be looked up waits again', async () => {
  let turns = 0;
  const runTurn = async () => {
    turns += 1;
    return result({ status: 'completed' });
  };
  const left = startRunner({}, { runTurn, mayWork: async () => false });
  await left.runner.look();
  await left.runner.stop();
  assert.deepEqual(codes(left.ended), [['failed', 'JOB_CANCELLED']]);
  const unknown = startRunner({}, { runTurn, mayWork: () => Promise.reject(new AppError('STORAGE_UNAVAILABLE')) });
  await unknown.runner.look();
  await unknown.runner.stop();
  assert.deepEqual([unknown.ended, unknown.putBack, turns], [[], [unknown.job.id], 0]);
});

test('no more jobs run than have room, in all and of one owner or member, and the next runs when one ends', async () => {
  const waiting = ['a', 'b', 'c'].map((id) =>
    waitingJob({ id, owner: 'team:t', member: `user:${id}`, deadline_at: 9e15 }),
  );
  const ends = new Map<string, () => void>();
  const rooms: boolean[][] = [];
  const { runner } = startRunner(
    {},
    {
      maxRunning: 2,
      maxRunningOfOwner: () => 2,
      queue: {
        async take(hasRoom) {
          rooms.push(['team:t', 'user:a', 'other'].map(hasRoom));
          return waiting.shift();
        },
        hasLeft: () => true,
      },
      runTurn: ({ jobId }) => new Promise((resolve) => ends.set(jobId, () => resolve(result({ status: 'completed' })))),
    },
  );
  await runner.look();
  await until('two to run', () => ends.size === 2);
  assert.deepEqual([waiting.length, rooms], [1, Array(2).fill([true, true, true])]);
  await runner.look();
  assert.equal(rooms.length, 2, 'there is no room to look for');
  ends.get('a')?.();
  await until('the third to run', () => ends.has('c'));
  runner.settle();
  runner.sessionIdle();
  for (const end of ends.values()) end();
  await runner.stop();
  assert.equal(rooms.length, 3, 'a runner that takes no more does not look');
});

test('an owner has room until as many of its jobs run as may, those of its members for a team included', async () => {
  const waiting = [waitingJob({ id: 'a', owner: 'team:t', member: 'user:a', deadline_at: 9e15 })];
  const rooms: boolean[][] = [];
  const turn = Promise.withResolvers<SessionResult>();
  const { runner } = startRunner(
    {},
    {
      maxRunningOfOwner: () => 1,
      queue: {
        async take(hasRoom) {
          rooms.push(['team:t', 'user:a', 'other'].map(hasRoom));
          return waiting.shift();
        },
        hasLeft: () => false,
      },
      runTurn: () => turn.promise,
    },
  );
  await runner.look();
  assert.deepEqual(rooms, [
    [true, true, true],
    [false, false, true],
  ]);
  runner.sessionIdle();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(rooms.length, 2, 'nothing was left behind');
  turn.resolve(result({ status: 'completed' }));
  await runner.stop();
});

test('after a stop no job is taken, and the jobs of those who are meant are cancelled alone', async () => {
  const { runner, turn, cancelled, job } = startRunner({ owner: 'user:a' });
  await runner.look();
  runner.cancelWhere(({ owner }) => owner === 'other');
  assert.deepEqual(cancelled, []);
  runner.cancelWhere(({ owner }) => owner === 'user:a');
  assert.deepEqual(cancelled, [job.id]);
  turn.resolve(result({ status: 'cancelled' }));
  await runner.stop();
  let taken = 0;
  const take = async () => {
    taken += 1;
    return undefined;
  };
  const stopped = startRunner({}, { queue: { take, hasLeft: () => true } });
  await stopped.runner.stop();
  await stopped.runner.look();
  stopped.runner.sessionIdle();
  assert.equal(taken, 0);
});

test('a job that another bridge wants stopped, or runs again itself, is stopped here', async () => {
  for (const [row, expected] of [
    [{ stop_requested: 1 }, [['failed', 'JOB_CANCELLED']]],
    [{ attempt: 2 }, []],
  ] as const) {
    const { runner, turn, ended, cancelled, job, stored } = startRunner();
    await runner.look();
    stored.rows = async () => [{ ...job, ...row }];
    await runner.compare();
    assert.deepEqual(cancelled, [job.id]);
    turn.resolve(result({ status: 'cancelled' }));
    await runner.stop();
    assert.deepEqual(codes(ended), expected);
  }
});

test('a queue that cannot be looked at is looked at again', async () => {
  let looks = 0;
  const take = async () => {
    looks += 1;
    throw new AppError('STORAGE_UNAVAILABLE');
  };
  const { runner } = startRunner({}, { queue: { take, hasLeft: () => false } });
  await runner.look();
  await runner.look();
  assert.equal(looks, 2);
});

test('a job whose end cannot be stored gives its place back', async () => {
  const ends = { end: () => Promise.reject(new Error('no')), retry: async () => true, stop() {} };
  const { runner, turn, job } = startRunner({}, { ends });
  await runner.look();
  turn.resolve(result({ status: 'completed' }));
  await runner.stop();
  assert.equal(runner.cancel(job.id), false);
});
