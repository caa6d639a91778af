import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JobRow } from '../../src/bridge/storage/bridge-schema.ts';
import { checkJobs } from '../faults/simulation/bridge/check-jobs.ts';
import type { JobsEvent, StoredJobs } from '../faults/simulation/bridge/job-events.ts';
import type { RunEvent } from '../faults/simulation/bridge/played-agent.ts';

const job: JobRow = {
  id: 'job-1',
  owner: 'main',
  tenant: 'default',
  status: 'completed',
  provider_id: 'one',
  session_id: 'job-1',
  thread_id: 'job-1',
  request: '{"taskPrompt":"task"}',
  idempotency_key: null,
  request_fingerprint: '',
  retry_on_restart: 0,
  timeout_ms: 5000,
  created_at: 1000,
  deadline_at: 6000,
  started_at: 1100,
  completed_at: 2000,
  instance: null,
  attempt: 1,
  stop_requested: 0,
  outcome: '{"result":{"output":"done"},"error":null,"errorCode":null}',
  webhook_url: 'https://hook.example/',
  webhook_sent: 1,
  webhook_tries: 1,
  card_sent: 0,
  priority: 1,
  retries: 0,
  retried: 0,
  not_before: 0,
  retry_at: 0,
  schedule_id: '',
  search_text: '',
  member: '',
};
const counts = {
  owner: 'main',
  tenant: 'default',
  provider_id: 'one',
  shard: 0,
  pending: 0,
  running: 0,
  completed: 1,
  failed: 0,
  ended_runs: 1,
  run_ms: 900,
};
const stored = (change: Partial<JobRow> = {}, more: Partial<StoredJobs> = {}): StoredJobs => ({
  jobs: [{ ...job, ...change }],
  deliveries: [],
  counts: [counts],
  openTurns: [],
  ...more,
});
const failed = (errorCode: string, change: Partial<JobRow> = {}): StoredJobs =>
  stored(
    { status: 'failed', outcome: JSON.stringify({ result: null, error: 'no', errorCode }), ...change },
    { counts: [{ ...counts, completed: 0, failed: 1 }] },
  );

const setUp: JobsEvent = { kind: 'set-up', maxRunning: 1, fails: 0, isSlow: 0 };
const submitted: JobsEvent = {
  kind: 'submit',
  key: 'task',
  prompt: 'task',
  startedAt: 0,
  endedAt: 1,
  outcome: 'ok',
  jobId: 'job-1',
};
const begins: RunEvent = { kind: 'run', at: 100, agent: 'one', turnId: 'turn-1', prompt: 'task' };
const ends: RunEvent = { ...begins, at: 1000, end: 'completed', output: 'done' };
const called = (at: number, digest = 'd'): JobsEvent => ({
  kind: 'callback',
  at,
  jobId: 'job-1',
  delivery: 'dlv_1',
  digest,
  answer: 200,
});
const good: readonly JobsEvent[] = [setUp, submitted, begins, ends, called(1001)];

test('a run of jobs in which everything held has no violations', () => {
  assert.deepEqual(checkJobs(good, stored()), []);
  const cancel: JobsEvent = { kind: 'cancel', sessionId: 'job-1', startedAt: 5, endedAt: 6, outcome: 'ok' };
  assert.deepEqual(checkJobs([setUp, submitted, cancel, called(9)], failed('JOB_CANCELLED')), []);
  const kill: JobsEvent = { kind: 'kill', at: 500 };
  assert.deepEqual(
    checkJobs([setUp, submitted, begins, kill, begins, ends, called(9)], stored({ retry_on_restart: 1 })),
    [],
  );
});

test('each thing that must not happen to a job is found', () => {
  const wrong: readonly [what: RegExp, events: readonly JobsEvent[], stored: StoredJobs][] = [
    [/is lost/, good, stored({}, { jobs: [], counts: [] })],
    [/ran beside itself/, [...good.slice(0, 3), begins, ends, called(9)], stored({ retry_on_restart: 1 })],
    [/2 times unasked/, [...good, begins, ends], stored()],
    [/2 jobs ran at once/, [setUp, submitted, { ...begins, prompt: 'other' }, begins, ends, called(9)], stored()],
    [/no agent has said/, good, stored({ outcome: '{"result":{"output":"made up"},"error":null,"errorCode":null}' })],
    [/cancelled by nobody/, good, failed('JOB_CANCELLED')],
    [/interrupted by nothing/, good, failed('JOB_INTERRUPTED')],
    [/was to be run again/, [...good, { kind: 'kill', at: 1 }], failed('JOB_INTERRUPTED', { retry_on_restart: 1 })],
    [/timed out after/, good, failed('JOB_TIMEOUT')],
    [/went on for/, good, stored({ completed_at: 9000 }, { counts: [{ ...counts, run_ms: 7900 }] })],
    [/failed with SESSION_BUSY/, good, failed('SESSION_BUSY')],
    [/its own session/, good, failed('SESSION_CONTINUATION_UNAVAILABLE')],
    [/failed with INTERNAL_ERROR/, good, failed('INTERNAL_ERROR')],
    [/completed is counted as 2/, good, stored({}, { counts: [{ ...counts, completed: 2 }] })],
    [/nobody has taken it/, good.slice(0, 4), stored()],
    [/given up after 1 tries/, good.slice(0, 4), stored({ webhook_sent: 0 })],
    [/sent again after 500 ms/, [...good, called(1501)], stored({ webhook_tries: 2 })],
    [/different things/, [...good, called(9001, 'other')], stored({ webhook_tries: 2 })],
    [/in 4 tries/, good, stored({ webhook_tries: 4 })],
    [
      /still waits/,
      good,
      stored({}, { deliveries: [{ id: 'd', job_id: 'job-1', kind: 'webhook', attempts: 1, due_at: 1 }] }),
    ],
    [/never ended/, good, stored({}, { openTurns: [{ id: 'turn-1' }] })],
    [/a fault of the program/, [...good, { kind: 'unexpected', at: 1, error: 'TypeError' }], stored()],
    [/did not start/, [...good, { kind: 'not-started', at: 1, code: 'STORAGE_FULL' }], stored()],
    [/ms to stop/, [...good, { kind: 'stop', at: 1 }], stored()],
  ];
  for (const [what, events, at] of wrong) {
    const violations = checkJobs(events, at);
    assert.ok(
      violations.some((violation) => what.test(violation)),
      `${what} is not among ${JSON.stringify(violations)}`,
    );
  }
});
