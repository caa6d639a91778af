import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDeliveries, type SendDelivery } from '../../../src/bridge/jobs/deliveries.ts';
import type { JobDeliveryRow } from '../../../src/bridge/storage/bridge-schema.ts';
import type { JobDeliveryStore } from '../../../src/bridge/storage/job-store.ts';
import { judgeStatus } from '../../../src/platform/callbacks/callback-post.ts';
import { endedRow } from '../../kit/bridge/job-rows.ts';
import { createFakeClock, type FakeClock } from '../../kit/fake-clock.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

/** Deliveries in memory, which keep what they are told. */
function memoryStore(rows: readonly JobDeliveryRow[]) {
  const stored = new Map(rows.map((row) => [row.id, row]));
  const finished: [string, boolean][] = [];
  const store: JobDeliveryStore = {
    attempts: async () => [],
    due: async (now, latest, limit) =>
      [...stored.values()].filter((row) => row.due_at <= now || row.due_at > latest).slice(0, limit),
    async beginAttempt({ id, attempts }, _now, dueAt) {
      const row = stored.get(id);
      if (row?.attempts !== attempts) return false;
      stored.set(id, { ...row, attempts: attempts + 1, due_at: dueAt });
      return true;
    },
    async postpone({ id }, dueAt) {
      stored.set(id, { ...(stored.get(id) as JobDeliveryRow), due_at: dueAt });
    },
    async finish({ id }, wasSent) {
      stored.delete(id);
      finished.push([id, wasSent]);
    },
  };
  return { store, finished, stored };
}

function delivery(clock: FakeClock, changes: Partial<JobDeliveryRow> = {}): JobDeliveryRow {
  return { id: 'dlv_1', job_id: 'job', kind: 'webhook', attempts: 0, due_at: clock.now(), ...changes };
}

function start(clock: FakeClock, rows: readonly JobDeliveryRow[], send: SendDelivery) {
  const memory = memoryStore(rows);
  const jobs = { find: async () => endedRow() };
  const senders = { webhook: send, card: send };
  return { ...memory, ...createDeliveries({ store: memory.store, jobs, senders, clock, logger: silentLogger }) };
}

test('B-75: there are three attempts at most: immediately, after 2 seconds and after 10 more', async () => {
  const clock = createFakeClock();
  const began = clock.now();
  const times: number[] = [];
  const { look, finished } = start(clock, [delivery(clock)], async () => {
    times.push(clock.now() - began);
    return { result: 'try again', detail: 'HTTP 503' };
  });
  await look();
  await clock.advance(60_000);
  assert.deepEqual(times, [0, 2000, 12_000]);
  assert.deepEqual(finished, [['dlv_1', false]]);
});

test('B-75: only network errors, 408, 429 and 5xx are worth another attempt', () => {
  for (const status of [200, 201, 202, 204, 299]) assert.equal(judgeStatus(status), 'sent');
  for (const status of [408, 429, 500, 502, 503, 504, 599]) assert.equal(judgeStatus(status), 'try again');
  for (const status of [301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 422]) {
    assert.equal(judgeStatus(status), 'given up');
  }
});

test('B-75: an attempt that died with its bridge counts, and the last one is not repeated', async () => {
  const clock = createFakeClock();
  let calls = 0;
  const send: SendDelivery = async () => {
    calls += 1;
    return { result: 'try again', detail: 'HTTP 503' };
  };
  const rows = [delivery(clock, { id: 'a', attempts: 2 }), delivery(clock, { id: 'b', attempts: 3 })];
  const { look, finished } = start(clock, rows, send);
  await look();
  await clock.advance(60_000);
  assert.equal(calls, 1);
  assert.deepEqual(finished.toSorted(), [
    ['a', false],
    ['b', false],
  ]);
});

test('B-75: a clock that is set back puts no attempt off for as long', async () => {
  const clock = createFakeClock();
  const began = clock.monotonic();
  const times: number[] = [];
  const { look } = start(clock, [delivery(clock)], async () => {
    times.push(clock.monotonic() - began);
    return { result: times.length === 1 ? 'try again' : 'sent', detail: '' };
  });
  await look();
  await clock.advance(1000);
  clock.stepWall(-3_600_000);
  await clock.advance(1000);
  assert.deepEqual(times, [0, 2000]);
});

test('a card is attempted once', async () => {
  const clock = createFakeClock();
  let calls = 0;
  const { look, finished } = start(clock, [delivery(clock, { kind: 'card' })], async () => {
    calls += 1;
    return { result: 'try again', detail: 'HTTP 503' };
  });
  await look();
  await clock.advance(60_000);
  assert.equal(calls, 1);
  assert.deepEqual(finished, [['dlv_1', false]]);
});

test('a stop waits a moment for what is under way, then aborts it, and it is tried again after the next start', async () => {
  const clock = createFakeClock();
  const { look, stop, stored } = start(clock, [delivery(clock)], (_job, _delivery, signal) => {
    return new Promise((resolve) =>
      signal.addEventListener('abort', () => resolve({ result: 'try again', detail: '' })),
    );
  });
  await look();
  const stopped = stop();
  await clock.advance(2000);
  await stopped;
  assert.deepEqual([...stored.values()], [{ ...delivery(clock), attempts: 1, due_at: clock.now() + 2000 }]);
  assert.equal(clock.pending(), 0);
});

test('B-75: while one bridge makes an attempt another makes none, and goes on when that one has died', async () => {
  const clock = createFakeClock();
  const { store, look, finished } = start(clock, [delivery(clock)], () => new Promise(() => undefined));
  await look();
  let calls = 0;
  const send: SendDelivery = async () => {
    calls += 1;
    return { result: 'sent', detail: 'HTTP 204' };
  };
  const jobs = { find: async () => endedRow() };
  const senders = { webhook: send, card: send };
  const other = createDeliveries({ store, jobs, senders, clock, logger: silentLogger });
  await clock.advance(29_000);
  await other.look();
  await clock.advance(0);
  assert.equal(calls, 0);
  await clock.advance(1000);
  await other.look();
  await clock.advance(0);
  assert.equal(calls, 1);
  assert.deepEqual(finished, [['dlv_1', true]]);
});
