import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { endedRow } from '../../kit/bridge/job-rows.ts';
import { refused, requestOf, startSubmit } from './start-submit.ts';

const REVIEW = principalOf('review');
const ENDED = endedRow({
  id: 'job-0',
  owner: 'review',
  session_id: 'job-0',
  thread_id: 'job-0',
  timeout_ms: 5000,
  priority: 0,
  retries: 2,
  retry_on_restart: 1,
  webhook_url: 'https://receiver.example/',
  request: JSON.stringify({
    taskPrompt: 'again',
    routing: { explicitProviderId: 'one' },
    card: { target: 'who', channel: 'where', accountId: 'a' },
    sealedServers: JSON.stringify(['job-0', [{ type: 'stdio', name: 'tools', command: 'run', args: [], env: [] }]]),
    retryOf: 'job-before',
  }),
});

test('an ended job is run again as it was, for its owner, but for what is given now', async () => {
  const { repeat, jobs, asked, clock } = startSubmit({}, [ENDED]);
  const own = await repeat({ retryOf: 'job-0', priority: 'low', idempotencyKey: 'k' }, REVIEW);
  assert.notEqual(own.id, 'job-0');
  assert.deepEqual(
    [own.owner, own.session_id, own.thread_id, own.provider_id, own.timeout_ms, own.deadline_at - clock.now()],
    ['review', own.id, own.id, 'one', 5000, 5000],
  );
  assert.deepEqual(
    [own.priority, own.retries, own.retry_on_restart, own.webhook_url, own.idempotency_key],
    [2, 2, 1, 'https://receiver.example/checked', 'k'],
  );
  const { sealedServers, ...request } = requestOf(own);
  assert.deepEqual(request, {
    taskPrompt: 'again',
    routing: { explicitProviderId: 'one' },
    card: { target: 'who', channel: 'where', accountId: 'a' },
    retryOf: 'job-0',
  });
  assert.match(String(sealedServers), new RegExp(`${own.id}.*"tools"`));
  assert.ok(!asked.some((line) => line.startsWith('principal')));
  const byMain = await repeat({ retryOf: 'job-0' }, MAIN);
  assert.deepEqual([byMain.owner, byMain.priority], ['review', 0]);
  assert.ok(asked.includes('principal review '), 'it counts for its owner');
  assert.equal(jobs.length, 3);
});

test('a job of a named session goes on there when it is run again', async () => {
  const named = { ...ENDED, session_id: 's', thread_id: 't', webhook_url: '' };
  const { repeat, asked } = startSubmit({}, [named]);
  const job = await repeat({ retryOf: 'job-0' }, REVIEW);
  assert.deepEqual([job.session_id, job.thread_id, job.webhook_url], ['s', 't', '']);
  assert.ok(!asked.some((line) => line.startsWith('callback')));
});

test('only an ended job that is seen and may be started is run again, without another task', async () => {
  const running = { ...ENDED, id: 'job-1', completed_at: null };
  const { repeat } = startSubmit({}, [ENDED, running]);
  await refused(repeat({ retryOf: 'job-0', taskPrompt: 'x' }, REVIEW), 'INVALID_PARAMS', /"\/taskPrompt".*leave/);
  await refused(repeat({ retryOf: 'job-0', callbackUrl: 'x' }, REVIEW), 'INVALID_PARAMS', /"\/callbackUrl"/);
  for (const retryOf of ['job-9', '\ud800', '']) {
    await refused(repeat({ retryOf }, REVIEW), 'INVALID_PARAMS', /"\/retryOf".*names no job/);
  }
  await refused(repeat({ retryOf: 'job-0' }, principalOf('user:a')), 'INVALID_PARAMS', /names no job/);
  await refused(repeat({ retryOf: 'job-1' }, REVIEW), 'INVALID_PARAMS', /has not ended/);
  const reader: Principal = { ...REVIEW, role: 'readonly' };
  await refused(repeat({ retryOf: 'job-0' }, reader), 'FORBIDDEN');
  await repeat({ retryOf: 'job-0', timeoutMs: 1000, retries: 0, notBefore: '2030-01-01T00:00:01Z' }, REVIEW);
});

test('a job of a schedule names the schedule, runs for its owner and has its servers', async () => {
  const { addScheduled, jobs, asked } = startSubmit();
  const sealedServers = JSON.stringify([
    'sch_1',
    [{ type: 'stdio', name: 'tools', command: 'run', args: [], env: [] }],
  ]);
  const more: string[] = [];
  const task = { taskPrompt: 'each day', sealedServers };
  const schedule = { id: 'sch_1', owner: 'review', member: '' };
  const { jobId } = await addScheduled(task, schedule, (id) => {
    more.push(id);
    return [];
  });
  const [job] = jobs;
  assert.ok(job);
  assert.deepEqual([job.id, job.owner, job.schedule_id, more], [jobId, 'review', 'sch_1', [jobId]]);
  assert.match(String(requestOf(job).sealedServers), new RegExp(`${job.id}.*"tools"`));
  assert.deepEqual(asked[0], 'principal review ');
});

test('a check refuses what a submit would refuse, and stores nothing', async () => {
  const { check, jobs } = startSubmit();
  await check({ taskPrompt: 'fine' }, 'main');
  await refused(check({ taskPrompt: '' }, 'main'), 'INVALID_PARAMS');
  assert.deepEqual(jobs, []);
});
