import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SubmitJobParams } from '../../../src/bridge/contract/jobs.ts';
import { createSubmitJob, type SubmitJobOptions } from '../../../src/bridge/jobs/submit-job.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Bucket } from '../../../src/platform/identity/owner.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { endedRow, makeId } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const DAY_MS = 86_400_000;
const REVIEW = principalOf('review');
const bucket = (id: string, name: string, jobs?: number): Bucket => ({
  id,
  name,
  limits: jobs === undefined ? {} : { jobs },
});

/** Submits to a store in memory, with fakes that note what they are asked. */
function startSubmit(changes: Partial<SubmitJobOptions> = {}, earlier: readonly JobRow[] = []) {
  const clock = createFakeClock();
  const jobs: JobRow[] = [...earlier];
  const asked: string[] = [];
  let submits = 0;
  const submission = createSubmitJob({
    store: {
      async add(job) {
        const isUsed = (one: JobRow) => one.owner === job.owner && one.idempotency_key === job.idempotency_key;
        if (job.idempotency_key !== null && jobs.some(isUsed)) throw new AppError('STORAGE_DUPLICATE');
        jobs.push(job);
      },
      find: async (id) => jobs.find((job) => job.id === id),
      findByKey: async (owner, key) => jobs.find((job) => job.owner === owner && job.idempotency_key === key),
    },
    async countOpen(owner) {
      const open = jobs.filter((job) => (job.owner === owner || job.member === owner) && job.completed_at === null);
      return { pending: open.length, running: 0 };
    },
    principalFor: async (owner, member) => {
      asked.push(`principal ${owner} ${member}`);
      return principalOf(owner);
    },
    maxWaitingOfOwner: 5,
    agentIds: ['one', 'two'],
    gatewayId: 'far',
    clock,
    makeId,
    async route({ routing }) {
      asked.push(`route ${JSON.stringify(routing)}`);
      return { resolvedProviderId: 'routed', resolvedGatewayProviderId: '' } as never;
    },
    async keepFiles(owner, _params, until) {
      asked.push(`files ${owner} ${until - clock.now()}`);
      return {};
    },
    checkDirectory: async (path, owner) => void asked.push(`directory ${path} ${owner}`),
    serverBox: {
      seal: (key, servers) => (servers.length === 0 ? '' : JSON.stringify([key, servers])),
      open: (key, sealed) => {
        if (sealed === '') return [];
        const [sealedFor, servers] = JSON.parse(sealed) as [string, []];
        assert.equal(sealedFor, key);
        return servers;
      },
    },
    checkServers: (servers, folder) => {
      if (servers.length > 0) asked.push(`servers ${servers.map(({ name }) => name).join()} ${folder}`);
    },
    checkGatewayOwner: (owner) => void asked.push(`gateway ${owner}`),
    async checkCallback(url) {
      asked.push(`callback ${url}`);
      return `${url}checked`;
    },
    onSubmitted: () => {
      submits += 1;
    },
    ...changes,
  });
  const submit = (params: SubmitJobParams, principal: Principal = MAIN) =>
    submission.submit({ taskPrompt: 'task', ...params }, principal);
  /** The stored job of a submit. */
  const stored = async (params: SubmitJobParams, principal: Principal = MAIN): Promise<JobRow> => {
    const { jobId } = await submit(params, principal);
    const job = jobs.find(({ id }) => id === jobId);
    assert.ok(job);
    return job;
  };
  /** The same without a prompt of its own. */
  const repeat = async (params: SubmitJobParams, principal: Principal): Promise<JobRow> => {
    const { jobId } = await submission.submit(params, principal);
    return jobs.find(({ id }) => id === jobId) as JobRow;
  };
  return { ...submission, submit, stored, repeat, jobs, asked, clock, submits: () => submits };
}

const requestOf = ({ request }: JobRow) => JSON.parse(request) as Record<string, unknown>;
const refused = (work: Promise<unknown>, code: string, reason?: RegExp) =>
  assert.rejects(work, (error: AppError) => {
    assert.equal(error.code, code);
    if (reason !== undefined) assert.match(JSON.stringify(error.details), reason);
    return true;
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
