import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { BRIDGE_TOKEN, bearer, CHAT, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { until } from '../kit/until.ts';

const plans = { single: { bridge: true, running_turns: 1, jobs: 1 } };
const people = await startPeople({ after }, { bridge: BRIDGE_TOKEN, completions: MASTER_KEY }, { plans });
const { send, chat, rpc, asRoot, newPerson, newTeam, newToken, setPlan, pause, openSocket } = people;
/** A turn that runs until it is stopped. */
const SLOW = {
  taskPrompt: 'Say hello',
  routing: { explicitProviderId: 'builtin', explicitModel: 'demo/echo?delay=60000' },
};
const QUICK = { taskPrompt: 'Say hello', routing: { explicitProviderId: 'builtin' } };

test('people see and change their own work on the bridge; operators cancel, administrators do all', async () => {
  const [ann, bob] = [await newPerson('operator'), await newPerson('operator')];
  const annsToken = bearer((await newToken(ann, ['bridge'])).token);
  const bobsToken = bearer((await newToken(bob, ['bridge'])).token);
  const start = { sessionId: 'same', taskPrompt: 'Say hello', routing: { explicitProviderId: 'builtin' } };
  const submit = { taskPrompt: 'x', sessionId: 'jobs', callbackUrl: '' };
  for (const headers of [annsToken, bobsToken]) await rpc('session.start', headers, start);
  const { jobId } = (await rpc('app.jobs.submit', annsToken, submit)).body.result;
  const statusFor = async (headers: Headers) => (await rpc('app.jobs.get', headers, { jobId })).body.result.status;
  // Without the scope admin, a token of an operator sees what is its own.
  assert.equal(await statusFor(bobsToken), 'not_found');
  for (const headers of [annsToken, bearer(bob.token), asRoot, bearer(BRIDGE_TOKEN)]) {
    assert.notEqual(await statusFor(headers), 'not_found');
  }
  const jobs = (await rpc('app.jobs.list', bobsToken)).body.result.jobs as readonly unknown[];
  assert.deepEqual(jobs, []);

  const named = { sessionId: 'only-of-ann' };
  const started = await rpc('session.start', annsToken, { ...start, ...named });
  assert.equal(started.body.result.status, 'completed', JSON.stringify(started.body));
  const message = { ...start, ...named };
  const codeFor = async (method: string, headers: Headers) => {
    const { status, body } = await rpc(method, headers, method === 'session.message' ? message : named);
    return `${status} ${body.error?.data.code ?? body.result.status ?? 'accepted'}`;
  };
  // What is not seen is as if it were not there.
  assert.equal(await codeFor('session.message', bobsToken), '200 SESSION_CONTINUATION_UNAVAILABLE');
  assert.equal(await codeFor('session.close', bobsToken), '200 accepted');
  assert.equal(await codeFor('session.message', bearer(bob.token)), '403 FORBIDDEN');
  assert.equal(await codeFor('session.close', bearer(bob.token)), '403 FORBIDDEN');
  assert.equal(await codeFor('session.cancel', bearer(bob.token)), '200 accepted');
  assert.equal(await codeFor('session.message', annsToken), '200 completed');
  assert.equal(await codeFor('session.message', asRoot), '200 completed');
  // An operator without the permission sees no more than anyone.
  const { version, matrix } = (await send('GET', '/api/auth/admin/settings', asRoot)).body;
  const without = { version, matrix: { ...matrix, 'admin.bridge.read': { operator: false } } };
  assert.equal((await send('POST', '/api/auth/admin/settings', asRoot, without)).status, 200);
  assert.equal(await statusFor(bearer(bob.token)), 'not_found');
  assert.equal(await codeFor('session.close', bearer(bob.token)), '200 accepted');
  assert.equal(await codeFor('session.message', annsToken), '200 completed');
  assert.equal(await codeFor('session.close', asRoot), '200 accepted');
  assert.equal(await codeFor('session.message', annsToken), '200 SESSION_CONTINUATION_UNAVAILABLE');
});

test('a pause ends running turns and fails queued jobs, and none begins after it', async () => {
  const operator = await newPerson('operator');
  const headers = bearer((await newToken(operator, ['bridge'])).token);
  const turn = rpc('session.start', headers, { sessionId: 'long', ...SLOW });
  const submit = (sessionId: string) => rpc('app.jobs.submit', headers, { sessionId, providerId: 'builtin', ...SLOW });
  const jobs: string[] = [];
  // More than may run at the same time: some wait.
  for (let one = 0; one < 8; one += 1) jobs.push((await submit(`job-${one}`)).body.result.jobId);
  const asMain = bearer(BRIDGE_TOKEN);
  const states = async () =>
    Promise.all(
      jobs.map(async (jobId) => {
        const { status, errorCode } = (await rpc('app.jobs.get', asMain, { jobId })).body.result;
        return `${status} ${errorCode}`;
      }),
    );
  await until('a job to run and another to wait', async () => {
    const found = await states();
    return found.includes('running null') && found.includes('pending null');
  });
  await pause(operator.id);
  assert.equal((await turn).body.result.status, 'cancelled');
  await until('all jobs to fail', async () => (await states()).every((state) => state === 'failed JOB_CANCELLED'));
  await send('POST', `/api/auth/admin/users/${operator.id}/resume`, asRoot, {});
  assert.equal(
    (await rpc('session.start', headers, { sessionId: 'again', taskPrompt: 'Hi' })).body.result.status,
    'completed',
  );
});

test('someone who may only read from now on spends nothing more: by no key, running turn or waiting job', async () => {
  const ann = await newPerson('user', 'single');
  const { key } = (await send('POST', '/api/auth/keys', bearer(ann.token), { name: 'k' })).body as { key: string };
  const headers = bearer((await newToken(ann, ['bridge'])).token);
  assert.equal(await chat(bearer(key)), 200);
  const turn = rpc('session.start', headers, { sessionId: 'long', ...SLOW });
  const submitted = await rpc('app.jobs.submit', headers, { sessionId: 'job', providerId: 'builtin', ...SLOW });
  const { jobId } = submitted.body.result;
  const jobStatus = async () => (await rpc('app.jobs.get', bearer(BRIDGE_TOKEN), { jobId })).body.result.status;
  assert.equal(await jobStatus(), 'pending', 'one turn runs at a time');
  await people.setRole(ann.id, 'readonly');
  assert.equal((await turn).body.result.status, 'cancelled');
  await until('the job to fail', async () => (await jobStatus()) === 'failed');
  assert.equal(await chat(bearer(key)), 403);
  assert.equal((await send('GET', '/v1/models', bearer(key))).status, 200);
  await people.setRole(ann.id, 'user');
  assert.equal(await chat(bearer(key)), 200);
});

test('the plan of a person opens the bridge, limits running turns and jobs, and closes it again', async () => {
  const [worker, other] = [await newPerson('user', 'worker'), await newPerson('user', 'worker')];
  const headers = bearer((await newToken(worker, ['bridge'])).token);
  const start = (sessionId: string, what: object) => rpc('session.start', headers, { sessionId, ...what });
  const own = async () =>
    (await send('GET', '/api/bridge/sessions', bearer(worker.token))).body.sessions as { state: string }[];
  const first = start('first', SLOW);
  await until('the first turn to run', async () => (await own())[0]?.state === 'running');
  let hasEnded = false;
  const second = start('second', QUICK).finally(() => {
    hasEnded = true;
  });
  // One turn at a time: the second one waits, and that of someone else does not.
  assert.equal((await rpc('session.start', bearer(other.token), { sessionId: 'o', ...QUICK })).status, 200);
  assert.ok(!hasEnded);
  await rpc('session.cancel', headers, { sessionId: 'first' });
  assert.equal((await first).body.result.status, 'cancelled');
  assert.equal((await second).body.result.status, 'completed');

  const submit = () => rpc('app.jobs.submit', headers, { ...SLOW, providerId: 'builtin', timeoutMs: 60_000 });
  const answers = await Promise.all(Array.from({ length: 5 }, submit));
  const refused = answers.filter(({ body }) => body.error !== undefined);
  assert.equal(refused.length, 2, 'three jobs wait or run, also of those that come together');
  assert.equal(refused[0]?.body.error.data.code, 'TOO_MANY_JOBS');
  assert.match(refused[0]?.body.error.message, /^The plan worker allows 3 waiting or running jobs/);

  const socket = await openSocket(headers);
  await setPlan(worker.id, 'poor');
  assert.equal(await socket.closed(), 1008);
  assert.equal((await rpc('acp.capabilities', headers)).status, 403);
  assert.equal((await send('GET', '/api/bridge/sessions', bearer(worker.token))).status, 403);
  const asMain = bearer(BRIDGE_TOKEN);
  await until('the jobs to end', async () => {
    const { jobs } = (await rpc('app.jobs.list', asMain, {})).body.result as { jobs: { status: string }[] };
    return jobs.every(({ status }) => status === 'failed' || status === 'completed');
  });
});

test('a new plan of a person or of their team closes the sockets that have the limits of the old one', async () => {
  const [worker, other] = [await newPerson('user', 'worker'), await newPerson('user', 'worker')];
  const team = await newTeam({ plan: 'worker' }, worker);
  const { token } = await newToken(worker, ['bridge']);
  const kept = await openSocket(bearer(other.token));
  const open = () => Promise.all([token, worker.token].map((one) => openSocket(bearer(one))));
  const ofOldPlan = await open();
  await setPlan(worker.id, 'single');
  for (const socket of ofOldPlan) assert.equal(await socket.closed(), 1008);
  const ofOldTeam = [...(await open()), await openSocket({ ...bearer(token), 'x-team': team })];
  const budget = { usd: 1, period: 'day' };
  assert.equal((await send('PATCH', `/api/auth/teams/${team}`, asRoot, { budget })).status, 200);
  for (const socket of ofOldTeam) assert.equal(await socket.closed(), 1008);

  const submit = { ...SLOW, providerId: 'builtin', timeoutMs: 60_000 };
  const socket = await openSocket(bearer(token));
  for (const _ of [1, 2]) socket.call('app.jobs.submit', submit);
  const answers = await until('both answers', () => {
    const found = socket.messages.filter((one) => one.includes('"id"'));
    return found.length === 2 ? found : undefined;
  });
  assert.equal(answers.filter((one) => one.includes('TOO_MANY_JOBS')).length, 1, 'the new plan allows one job');
  kept.call('acp.capabilities', {});
  await until('the socket of someone else to answer', () => kept.messages.length > 0);
  await pause(worker.id);
});

test('the built-in agent charges its owner', async () => {
  const operator = await newPerson('operator');
  await send('POST', `/api/auth/admin/users/${operator.id}/plan`, asRoot, { plan: 'poor' });
  const headers = bearer((await newToken(operator, ['bridge', 'completions'])).token);
  const start = { taskPrompt: 'Hello', routing: { explicitProviderId: 'builtin' } };
  const remaining = async () => {
    const { response } = await send('POST', '/v1/chat/completions', headers, CHAT);
    return Number(response.headers.get('x-ratelimit-remaining-requests'));
  };
  const before = await remaining();
  assert.equal((await rpc('session.start', headers, { sessionId: 'paid', ...start })).body.result.status, 'completed');
  // One call of the turn, and one to look.
  assert.equal(await remaining(), before - 2);
  const paid = { ...start, routing: { ...start.routing, explicitModel: 'lab/of-unknown-price' } };
  const refused = (await rpc('session.start', headers, { sessionId: 'too-dear', ...paid })).body.result;
  assert.deepEqual([refused.status, refused.code], ['failed', 'BUDGET_EXCEEDED'], JSON.stringify(refused));
});

test('people see and revoke keys of their own, and see what they used; administrators see all when they ask', async () => {
  const [ann, bob] = [await newPerson(), await newPerson()];
  const own = async (owner: { readonly token: string }) =>
    (await send('POST', '/api/auth/keys', bearer(owner.token), { name: 'k' })).body as { id: string; key: string };
  const [annsKey, bobsKey] = [await own(ann), await own(bob)];
  const annsToken = (await newToken(ann, ['completions'])).token;
  for (const credential of [annsKey.key, annsToken, ann.token, bobsKey.key])
    assert.equal(await chat(bearer(credential)), 200);

  const listed = (await send('GET', '/keys', bearer(ann.token))).body.data as { id: string }[];
  assert.deepEqual(
    listed.map(({ id }) => id),
    [annsKey.id],
  );
  const others = { 'GET /keys': `/keys?owner=user:${bob.id}`, 'GET /usage': `/usage?owner=user:${bob.id}` };
  for (const path of Object.values(others)) {
    for (const credential of [ann.token, annsToken]) {
      assert.equal((await send('GET', path, bearer(credential))).status, 403, path);
    }
    assert.equal((await send('GET', path, asRoot)).status, 200, path);
  }
  // A key of someone else is not there, and a token removes none at all.
  assert.equal((await send('DELETE', `/keys/${bobsKey.id}`, bearer(ann.token))).status, 404);
  assert.equal((await send('DELETE', `/v1/keys/${annsKey.id}`, bearer(annsToken))).status, 403);
  assert.equal((await send('PATCH', `/keys/${bobsKey.id}`, bearer(ann.token), { enabled: false })).status, 404);
  assert.equal((await send('PATCH', `/keys/${annsKey.id}`, bearer(annsToken), { name: 'x' })).status, 403);
  assert.equal((await send('PATCH', `/keys/${annsKey.id}`, bearer(ann.token), { name: 'own' })).body.name, 'own');
  // A new key needs a fresh login, which accounts knows.
  assert.equal((await send('POST', `/keys/${annsKey.id}/rotate`, bearer(ann.token), {})).status, 403);
  assert.equal((await send('POST', `/api/auth/keys/${bobsKey.id}/rotate`, bearer(ann.token), {})).status, 404);
  assert.equal((await send('POST', '/keys', bearer(ann.token), { name: 'k' })).status, 403);
  assert.equal((await send('GET', '/keys', bearer(annsKey.key))).status, 403);
  assert.equal(await chat(bearer(bobsKey.key)), 200);

  const usage = async (headers: Headers, query = '') => (await send('GET', `/usage${query}`, headers)).body;
  for (const headers of [bearer(ann.token), bearer(annsToken)]) assert.equal((await usage(headers)).total.requests, 3);
  const byKey = (await usage(bearer(ann.token), '?group_by=key')).data as { group: string }[];
  assert.deepEqual(byKey.map(({ group }) => group.split('_')[0]).sort(), ['key', 'login', 'tok']);
  const groups = (body: Json) => (body.data as { group: string }[]).map(({ group }) => group);
  assert.deepEqual(groups(await usage(bearer(ann.token), '?group_by=owner')), [`user:${ann.id}`]);
  const all = groups(await usage(asRoot, '?group_by=owner'));
  assert.ok(all.includes(`user:${ann.id}`) && all.includes(`user:${bob.id}`));
  assert.deepEqual(groups(await usage(bearer(MASTER_KEY), '?group_by=owner')), all);
  // What is not asked for is the own, for administrators too.
  assert.ok(!groups(await usage(asRoot, '?group_by=key')).includes(bobsKey.id));
  assert.equal((await usage(bearer(annsKey.key))).total.requests, 1);

  const rotated = (await send('POST', `/api/auth/keys/${annsKey.id}/rotate`, bearer(ann.token), {})).body;
  assert.equal(await chat(bearer(annsKey.key)), 401);
  assert.equal(await chat(bearer(rotated.key as string)), 200);
  assert.equal((await send('DELETE', `/keys/${annsKey.id}`, bearer(ann.token))).status, 204);
  assert.equal(await chat(bearer(rotated.key as string)), 401);
});
