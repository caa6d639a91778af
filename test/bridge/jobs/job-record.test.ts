import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionResult } from '../../../src/bridge/contract/session.ts';
import {
  endingOf,
  endingOfError,
  endingOfTurn,
  isPutOff,
  type JobEnding,
  retryTime,
  toAttempt,
  toRecord,
} from '../../../src/bridge/jobs/job-record.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { waitingJob } from '../../kit/bridge/job-rows.ts';

const BEGIN = Date.UTC(2026, 0, 2);
const MINUTE_MS = 60_000;
const failed = (errorCode: string | null): JobEnding => ({
  status: 'failed',
  providerId: '',
  result: null,
  error: 'no',
  errorCode,
});
const resultOf = (changes: object) =>
  ({ status: 'failed', resolvedProviderId: '', resolvedGatewayProviderId: 'far', ...changes }) as SessionResult;

test('a record says how long a job waits or has taken, and has no moments that have not come', () => {
  const waiting = toRecord(waitingJob({ created_at: BEGIN }), BEGIN + 1500);
  assert.deepEqual(
    [waiting.createdAt, waiting.startedAt, waiting.completedAt, waiting.elapsedMs, waiting.durationMs],
    ['2026-01-02T00:00:00.000Z', null, null, 1500, null],
  );
  assert.deepEqual(
    [waiting.notBefore, waiting.scheduleId, waiting.result, waiting.errorCode],
    [null, null, null, null],
  );
  assert.equal(toRecord(waitingJob({ created_at: BEGIN }), BEGIN - 5).elapsedMs, 0, 'a clock that was set back');

  const row = waitingJob({
    created_at: BEGIN,
    started_at: BEGIN + 1000,
    completed_at: BEGIN + 4000,
    not_before: BEGIN + 500,
    schedule_id: 'sch_1',
    outcome: JSON.stringify({ result: { output: 'x' }, error: 'e', errorCode: 'E' }),
  });
  const ended = toRecord(row, BEGIN + 99_000);
  assert.deepEqual(
    [ended.notBefore, ended.startedAt, ended.completedAt, ended.elapsedMs, ended.durationMs, ended.scheduleId],
    ['2026-01-02T00:00:00.500Z', '2026-01-02T00:00:01.000Z', '2026-01-02T00:00:04.000Z', 4000, 3000, 'sch_1'],
  );
  assert.deepEqual([ended.result, ended.error, ended.errorCode], [{ output: 'x' }, 'e', 'E']);
  assert.equal(toRecord({ ...row, started_at: null }, BEGIN).durationMs, null);
});

test('a record shows the beginning of a long task, and sent messages as sent', () => {
  const request = JSON.stringify({ taskPrompt: `${'a'.repeat(199)}😀b`, retryOf: 'job_0' });
  const record = toRecord(waitingJob({ request, webhook_sent: 1, card_sent: 0 }), BEGIN);
  assert.equal(record.taskPrompt, `${'a'.repeat(199)}\ufffd`);
  assert.deepEqual([record.retryOf, record.webhookSent, record.cardSent], ['job_0', true, false]);
  assert.deepEqual(toRecord(waitingJob({ request: '{}', card_sent: 1 }), BEGIN).cardSent, true);
});

test('a delivery that has not ended has no end', () => {
  const row = { kind: 'webhook', attempt: 2, started_at: BEGIN, ended_at: null, result: 'open', detail: '' };
  const attempt = (ended_at: number | null) => toAttempt({ ...row, ended_at } as Parameters<typeof toAttempt>[0]);
  assert.equal(attempt(null).endedAt, null);
  assert.equal(attempt(BEGIN + 1000).endedAt, '2026-01-02T00:00:01.000Z');
  assert.equal(attempt(null).startedAt, '2026-01-02T00:00:00.000Z');
});

test('a failure that may pass is tried again after pauses that double up to five minutes, before the deadline', () => {
  const pause = (retried: number, code: string | null = 'AGENT_EXITED', deadline = Number.MAX_SAFE_INTEGER) => {
    const at = retryTime(waitingJob({ retries: 9, retried, deadline_at: deadline }), failed(code), BEGIN);
    return at === undefined ? undefined : at - BEGIN;
  };
  assert.deepEqual(
    [0, 1, 2, 6, 8].map((retried) => pause(retried)),
    [5000, 10_000, 20_000, 300_000, 300_000],
  );
  assert.equal(pause(9), undefined, 'as often as was allowed');
  for (const code of ['AGENT_TIMEOUT', 'PROVIDER_UNAVAILABLE']) assert.equal(pause(0, code), 5000);
  for (const code of ['AGENT_FAILED', 'JOB_CANCELLED', null]) assert.equal(pause(0, code), undefined);
  assert.equal(pause(0, 'AGENT_EXITED', BEGIN + 5000), undefined);
  assert.equal(pause(0, 'AGENT_EXITED', BEGIN + 5001), 5000);
});

test('a job is put off until its time, but not by a clock that was set back', () => {
  const isOff = (inMs: number) => isPutOff(waitingJob({ retry_at: BEGIN + inMs }), BEGIN);
  assert.deepEqual([0, 1, 5 * MINUTE_MS, 5 * MINUTE_MS + 1].map(isOff), [false, true, true, false]);
});

test('the end of a turn is the end of its job, and a cancel has another code than a failure', () => {
  const short = ({ status, providerId, error, errorCode }: JobEnding) => [status, providerId, error, errorCode];
  assert.deepEqual(short(endingOf(resultOf({ status: 'completed' }), true)), ['completed', 'far', null, null]);
  assert.equal(endingOf(resultOf({ resolvedProviderId: 'near' }), false).providerId, 'near');
  const cancelled = ['failed', 'far', 'The job was cancelled.', 'JOB_CANCELLED'];
  assert.deepEqual(short(endingOf(resultOf({ status: 'cancelled' }), false)), cancelled);
  assert.deepEqual(short(endingOf(resultOf({}), true)), cancelled);
  assert.equal(endingOf(resultOf({ code: 'TURN_INTERRUPTED' }), false).errorCode, 'JOB_INTERRUPTED');
  assert.deepEqual(short(endingOf(resultOf({}), false)), ['failed', 'far', 'The turn failed.', 'AGENT_FAILED']);
  const named = resultOf({ error: 'It broke.', code: 'AGENT_EXITED' });
  assert.deepEqual(short(endingOf(named, false)), ['failed', 'far', 'It broke.', 'AGENT_EXITED']);
});

test('a turn that could not be run ends its job with an error of ours, unless the job was cancelled', () => {
  assert.equal(endingOfError(new AppError('OVERLOADED'), false).errorCode, 'OVERLOADED');
  const inner = endingOfError(new Error('secret detail'), false);
  assert.equal(inner.status, 'failed');
  assert.ok(!JSON.stringify(inner).includes('secret detail'));
  assert.equal(endingOfError(new Error('x'), true).errorCode, 'JOB_CANCELLED');
  const unreadable = { outcome: 'not an outcome', endedAt: 0 };
  assert.equal(endingOfTurn(waitingJob(), unreadable).status, 'failed');
  assert.equal(endingOfTurn(waitingJob({ stop_requested: 1 }), unreadable).errorCode, 'JOB_CANCELLED');
});
