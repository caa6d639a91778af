import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SubmitJobParams } from '../../../src/bridge/contract/jobs.ts';
import { principalOf } from '../../../src/bridge/principal.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Bucket } from '../../../src/platform/identity/owner.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { endedRow } from '../../kit/bridge/job-rows.ts';
import { refused, requestOf, startSubmit } from './start-submit.ts';

const DAY_MS = 86_400_000;
const REVIEW = principalOf('review');
const bucket = (id: string, name: string, jobs?: number): Bucket => ({
  id,
  name,
  limits: jobs === undefined ? {} : { jobs },
});

test('a plain submit stores a job of its caller with a session of its own, and says so', async () => {
  const { submit, jobs, clock, submits, asked } = startSubmit();
  const answer = await submit({}, REVIEW);
  const [job] = jobs;
  assert.ok(job);
  assert.deepEqual(answer, { jobId: job.id, status: 'pending', sessionId: job.id, providerId: 'routed' });
  const now = clock.now();
  assert.deepEqual(job, {
    ...endedRow(),
    id: job.id,
    owner: 'review',
    status: 'pending',
    provider_id: 'routed',
    session_id: job.id,
    thread_id: job.id,
    request: JSON.stringify({ taskPrompt: 'task', routing: {} }),
    created_at: now,
    deadline_at: now + 600_000,
    started_at: null,
    completed_at: null,
    attempt: 0,
    outcome: '',
    search_text: `task\n${job.id}\n${job.id}`,
  });
  assert.equal(submits(), 1);
  assert.deepEqual(asked, ['route {}', 'files review 600000']);
});

test('what a submit asks for is in its job', async () => {
  const { stored, asked, clock } = startSubmit();
  const job = await stored({
    sessionId: 's',
    threadId: 't',
    providerId: 'two',
    workingDirectory: '/w',
    mode: 'single',
    newSession: true,
    target: 'who',
    channel: 'where',
    timeoutMs: 5000,
    priority: 'low',
    retries: 3,
    retryOnRestart: true,
    callbackUrl: 'https://receiver.example/',
    mcpServers: [{ name: 'tools', command: 'run', args: [], env: [] }],
  } as SubmitJobParams);
  assert.deepEqual(
    [job.session_id, job.thread_id, job.provider_id, job.timeout_ms, job.deadline_at - clock.now()],
    ['s', 't', 'two', 5000, 5000],
  );
  assert.deepEqual(
    [job.priority, job.retries, job.retry_on_restart, job.webhook_url],
    [2, 3, 1, 'https://receiver.example/checked'],
  );
  const { sealedServers, ...request } = requestOf(job);
  assert.deepEqual(request, {
    taskPrompt: 'task',
    routing: { explicitProviderId: 'two' },
    workingDirectory: '/w',
    mode: 'single',
    newSession: true,
    card: { target: 'who', channel: 'where', accountId: '' },
  });
  assert.match(String(sealedServers), new RegExp(`${job.id}.*"tools"`));
  assert.deepEqual(asked.slice(0, 4), [
    'gateway main',
    'directory /w main',
    'servers tools /w',
    'callback https://receiver.example/',
  ]);
  assert.ok(!asked.some((line) => line.startsWith('route')), 'a named agent is not routed');
  const other = await stored({ sessionId: 'named', webhookUrl: 'https://other.example/' });
  assert.deepEqual([other.thread_id, other.webhook_url], ['named', 'https://other.example/checked']);
});

test('a named provider must be known, the same in both places, and may be the gateway', async () => {
  const { stored, submit, asked } = startSubmit();
  const gateway = await stored({ providerId: 'far', routing: { explicitModel: 'm' } });
  assert.deepEqual(requestOf(gateway).routing, {
    explicitModel: 'm',
    explicitExecutionTarget: 'gateway',
    preferredGatewayProviderId: 'far',
  });
  assert.ok(asked.includes('gateway main'));
  const named = await stored({ routing: { explicitProviderId: 'far' } });
  assert.equal((requestOf(named).routing as { explicitProviderId?: string }).explicitProviderId, undefined);
  const both = await stored({ providerId: 'one', routing: { explicitProviderId: 'one' } });
  assert.equal(both.provider_id, 'one');
  await refused(
    submit({ providerId: 'one', routing: { explicitProviderId: 'two' } }),
    'INVALID_PARAMS',
    /not the same/,
  );
  await refused(submit({ providerId: 'nobody' }), 'PROVIDER_UNKNOWN', /"nobody".*one, two, far/);
  const agent = startSubmit({ gatewayId: 'one' });
  assert.deepEqual(requestOf(await agent.stored({ providerId: 'one' })).routing, { explicitProviderId: 'one' });
});

test('a job without an agent of its own is known by the gateway it prefers, and a multi-agent run by none', async () => {
  const route = (found: object) => async () =>
    ({ resolvedProviderId: '', resolvedGatewayProviderId: '', ...found }) as never;
  const gateway = startSubmit({ route: route({ resolvedGatewayProviderId: 'far' }) });
  assert.equal((await gateway.stored({})).provider_id, 'far');
  const preferred = startSubmit({ route: route({}) });
  assert.equal((await preferred.stored({ routing: { preferredGatewayProviderId: 'later' } })).provider_id, 'later');
  assert.equal((await preferred.stored({})).provider_id, '');
  const steps = { steps: [{ providerId: 'one', prompt: 'a' }] };
  for (const params of [{ multiAgent: true }, { mode: 'multi-agent' as const }]) {
    const several = startSubmit();
    const job = await several.stored({ ...params, routing: steps, taskPrompt: '' });
    assert.deepEqual([job.provider_id, several.asked.some((line) => line.startsWith('route'))], ['', false]);
    const toGateway = { ...steps, explicitExecutionTarget: 'gateway' as const };
    await refused(several.submit({ ...params, routing: toGateway }), 'GATEWAY_MULTI_AGENT_CONFLICT');
  }
});

test('what cannot be run is refused, and nothing is stored', async () => {
  const { submit, jobs, submits } = startSubmit();
  await refused(submit({ taskPrompt: '' }), 'INVALID_PARAMS', /taskPrompt is needed/);
  for (const name of ['sessionId', 'threadId', 'idempotencyKey']) {
    await refused(submit({ [name]: '\ud800' }), 'INVALID_PARAMS', /whole characters/);
  }
  const urls = { callbackUrl: 'https://a.example/', webhookUrl: 'https://b.example/' };
  await refused(submit(urls), 'INVALID_PARAMS', /are one setting/);
  assert.deepEqual([jobs, submits()], [[], 0]);
  await submit({ callbackUrl: 'https://a.example/', webhookUrl: 'https://a.example/' });
  assert.equal(jobs.length, 1);
});

test('a job may wait for a moment of the next 366 days, and has its time from then on', async () => {
  const { stored, submit, clock } = startSubmit();
  const inMs = (ms: number) => new Date(clock.now() + ms).toISOString();
  const later = await stored({ notBefore: inMs(1000), timeoutMs: 5000 });
  assert.deepEqual([later.not_before, later.deadline_at], [clock.now() + 1000, clock.now() + 6000]);
  for (const ms of [0, -5000]) {
    const passed = await stored({ notBefore: inMs(ms), timeoutMs: 5000 });
    assert.deepEqual([passed.not_before, passed.deadline_at], [0, clock.now() + 5000]);
  }
  assert.equal((await stored({ notBefore: inMs(366 * DAY_MS) })).not_before, clock.now() + 366 * DAY_MS);
  await refused(submit({ notBefore: inMs(366 * DAY_MS + 1) }), 'INVALID_PARAMS', /"\/notBefore".*366 days/);
  await refused(submit({ notBefore: '2030-13-01T00:00:00Z' }), 'INVALID_PARAMS', /not a moment that exists/);
});

test('an owner has no more waiting jobs than it may, also when many come at the same moment', async () => {
  const { submit, jobs } = startSubmit();
  const answers = await Promise.allSettled(Array.from({ length: 8 }, () => submit({})));
  assert.equal(answers.filter(({ status }) => status === 'fulfilled').length, 5);
  assert.equal(jobs.length, 5);
  await refused(submit({}), 'OVERLOADED');
  await submit({}, REVIEW);
  jobs.splice(0, 1);
  await submit({});
});

test('a submit that fails gives its place back', async () => {
  let isRefused = true;
  const { submit } = startSubmit({
    maxWaitingOfOwner: 1,
    async checkDirectory() {
      if (isRefused) throw new AppError('WORKING_DIRECTORY_REFUSED');
    },
  });
  for (let count = 0; count < 3; count += 1) {
    await refused(submit({ workingDirectory: '/x' }), 'WORKING_DIRECTORY_REFUSED');
  }
  isRefused = false;
  await submit({ workingDirectory: '/x' });
});

test('the lowest limit of a plan counts waiting and running jobs, and is named', async () => {
  const countOpen = async () => ({ pending: 1, running: 1 });
  const limited = (jobs: number) =>
    principalOf('user:a', [bucket('p', 'the plan free', jobs), bucket('q', 'other', 9)]);
  await startSubmit({ countOpen }).submit({}, limited(3));
  await refused(startSubmit({ countOpen }).submit({}, limited(2)), 'TOO_MANY_JOBS', /"The plan free".*2/);
  await startSubmit({ countOpen }).submit({}, principalOf('user:a', [bucket('p', 'unlimited')]));
});

test('work for a team counts for the team and for its member, and is stored with both', async () => {
  const member = principalOf('user:a', [bucket('user:a', 'you', 1)]);
  const team: Principal = {
    ...principalOf('team:t'),
    buckets: [...member.buckets, bucket('team:t', 'the team', 9)],
    member,
  };
  const { stored, submit } = startSubmit();
  const job = await stored({}, team);
  assert.deepEqual([job.owner, job.member], ['team:t', 'user:a']);
  await refused(submit({}, team), 'TOO_MANY_JOBS', /"You"/);
  await refused(submit({}, member), 'TOO_MANY_JOBS');
});

test('a key stands for one request: the same again gives the same job, another is refused', async () => {
  const { submit, jobs, submits } = startSubmit();
  const first = await submit({ idempotencyKey: 'k', routing: { explicitModel: 'm', explicitSkills: ['a', 'b'] } });
  const same = { routing: { explicitSkills: ['a', 'b'], explicitModel: 'm' }, idempotencyKey: 'k' };
  assert.deepEqual(await submit(same), first);
  assert.equal(submits(), 1);
  for (const other of [{ taskPrompt: 'other' }, { routing: { explicitSkills: ['b', 'a'], explicitModel: 'm' } }]) {
    await refused(submit({ ...same, ...other }), 'IDEMPOTENCY_KEY_REUSED', new RegExp(first.jobId));
  }
  assert.notEqual((await submit(same, REVIEW)).jobId, first.jobId, 'a key is that of its owner');
  const [job] = jobs;
  assert.ok(job);
  jobs[0] = { ...job, request_fingerprint: '' };
  assert.equal((await submit({ ...same, taskPrompt: 'other' })).jobId, first.jobId, 'a job of an older release');
});

test('of two submits with one key at the same moment the second gets the first, and other faults stay faults', async () => {
  const racing = startSubmit();
  const both = await Promise.all(['a', 'a'].map(() => racing.submit({ idempotencyKey: 'k' })));
  assert.equal(both[0]?.jobId, both[1]?.jobId);
  assert.equal(racing.jobs.length, 1);
  const failing = (error: Error) =>
    startSubmit({
      store: { add: () => Promise.reject(error), find: async () => undefined, findByKey: async () => undefined },
    });
  await refused(failing(new AppError('STORAGE_UNAVAILABLE')).submit({ idempotencyKey: 'k' }), 'STORAGE_UNAVAILABLE');
  await refused(failing(new AppError('STORAGE_DUPLICATE')).submit({ idempotencyKey: 'k' }), 'STORAGE_DUPLICATE');
  await refused(failing(new AppError('STORAGE_DUPLICATE')).submit({}), 'STORAGE_DUPLICATE');
});
