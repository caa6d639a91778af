import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TransportName } from '../../src/client/trestle-client.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { startBridge } from '../kit/bridge/start-bridge.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { createScriptedProvider } from '../kit/scripted-provider.ts';
import { until } from '../kit/until.ts';

const transports: readonly TransportName[] = ['sse', 'websocket', 'http'];

for (const transport of transports) {
  test(`over ${transport} every method of the family can be called`, async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const client = clientOf(t, { url, transport });
    const { providerCatalog, gatewayProviders } = await client.capabilities();
    assert.deepEqual(
      providerCatalog.map(({ providerId }) => providerId),
      ['alpha'],
    );
    assert.equal((await client.resolve({ taskPrompt: 'x' })).resolvedProviderId, 'alpha');
    const session = client.session('s');
    await session.start('hello').result;
    await session.cancel();
    await session.close();
    await assert.rejects(session.message('again').result, { code: 'SESSION_CONTINUATION_UNAVAILABLE' });

    const { jobId, status } = await client.jobs.submit({ taskPrompt: 'in the background' });
    assert.equal(status, 'pending');
    const job = await until('the job to end', async () => {
      const current = await client.jobs.get(jobId);
      return current.status === 'pending' || current.status === 'running' ? undefined : current;
    });
    assert.ok(job.status === 'completed');
    assert.equal(job.result?.output, 'in the background');
    assert.deepEqual(
      (await client.jobs.list({ status: 'completed' })).jobs.map((one) => one.jobId),
      [jobId],
    );
    assert.equal((await client.jobs.stats()).summary.completed, 1);
    assert.deepEqual(await client.jobs.get('job-none'), { jobId: 'job-none', status: 'not_found' });
    assert.equal(gatewayProviders.length, 1);
  });

  test(`over ${transport} a submit whose answer is lost becomes one job`, async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const port = Number(new URL(url).port);
    const client = clientOf(t, { url, transport: 'http' });
    let jobs = 0;
    // Cut after more and more bytes: before the call, in the middle of it, and in the middle of the answer.
    for (const after of [10, 300, 500, 700, 900]) {
      const proxy = await startFaultProxy(t, port, (count) => (count < 2 ? { after } : {}));
      const through = clientOf(t, { url: proxy.url, transport });
      const { jobId } = await through.jobs.submit({ taskPrompt: 'once' });
      jobs += 1;
      assert.notEqual((await client.jobs.get(jobId)).status, 'not_found');
      assert.equal((await client.jobs.stats()).summary.total, jobs);
    }
  });
}

test('a call that may not be repeated is not: its connection is lost with it', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  for (const transport of transports) {
    const proxy = await startFaultProxy(t, Number(new URL(url).port), () => ({ after: 250 }));
    const client = clientOf(t, { url: proxy.url, transport, reconnectMs: 200 });
    await assert.rejects(client.tools.invoke({ tool: 'message', action: 'send' }), { code: 'CONNECTION_LOST' });
    if (transport !== 'websocket') assert.equal(proxy.connections(), 1);
  }
});

test('sessions are listed, shown, changed and read back', async (t) => {
  const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const { session, sessions } = clientOf(t, { url });
  await session('a/b c').start('hello there').result;
  const { counts, nextCursor, ...page } = await sessions.list({ state: 'idle', limit: 5 });
  assert.deepEqual([page.sessions[0]?.title, counts.idle, nextCursor], ['hello there', 1, null]);
  assert.equal((await sessions.get('a/b c')).session.providerId, 'alpha');
  assert.equal((await sessions.update('a/b c', { title: 'greeting' })).title, 'greeting');
  assert.equal((await sessions.turns('a/b c')).turns[0]?.output, 'hello there');
  const { updates } = await sessions.updates('a/b c', { kinds: 'text' });
  assert.deepEqual(
    updates.map((update) => 'text' in update && update.text),
    ['hello ', 'there'],
  );
  await assert.rejects(sessions.get('none'), { name: 'TrestleError', code: 'SESSION_NOT_FOUND', status: 404 });
  const nowhere = clientOf(t, { url: 'http://127.0.0.1:1' });
  await assert.rejects(nowhere.sessions.list(), { code: 'CONNECTION_LOST' });
});

test('questions of agents are listed, answered and remembered', async (t) => {
  const asker = createScriptedProvider('asker', async ({ ask, signal, prompt }) => {
    const options = [
      { optionId: 'yes', name: 'Yes', kind: 'allow_once' },
      { optionId: 'no', name: 'No', kind: 'reject_once' },
    ];
    const input = { command: prompt };
    const chosen = await ask?.({ toolCallId: 't', title: prompt, toolKind: 'execute', input, options }, signal);
    return { kind: 'completed', output: `chosen: ${chosen?.optionId}`, stopReason: 'end_turn' };
  });
  const { url } = await startBridge(t, { providers: [asker] });
  const { session, permissions } = clientOf(t, { url });
  const turn = session('asks', { routing: { permissions: 'ask' } }).start('make all');
  const question = await until(
    'a question',
    async () => (await permissions.list({ sessionId: 'asks' }).catch(() => []))[0],
  );
  assert.equal(question.title, 'make all');
  const answered = await permissions.answer(question.permissionId, { decision: 'allow', scope: 'session' });
  assert.equal(answered.state, 'allowed');
  assert.equal((await turn.result).output, 'chosen: yes');
  await assert.rejects(permissions.answer(question.permissionId, { decision: 'deny' }), {
    code: 'PERMISSION_ANSWERED',
    status: 409,
  });
  const [rule] = await permissions.rules();
  assert.deepEqual(rule?.when.command, ['make', 'all']);
  await permissions.forget(rule?.ruleId ?? '');
  assert.deepEqual(await permissions.rules(), []);
});

/** Rows of the bridge that no function of the client calls, and why. */
const NOT_FOR_APPS: readonly (readonly [row: RegExp, reason: string])[] = [
  [/^GET \/api\/ping$/, 'for monitors'],
  [/^OPTIONS /, 'browsers send it'],
  [/^POST \/gateway\//, 'other bridges send it'],
  [/^GET \/artifacts\//, 'its links stand in results'],
  [/^GET \/api\/bridge\/nodes/, 'for operators: trestle nodes'],
];

test('every row of the bridge has a function of the client, or a reason', async (t) => {
  const { url, bridge } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
  const called: string[] = [];
  const client = clientOf(t, {
    url,
    fetch: (input, init) => {
      called.push(`${init?.method ?? 'GET'} ${new URL(String(input)).pathname}`);
      return fetch(input, init);
    },
  });
  await client.session('s').start('hello').result;
  const ignored = () => undefined;
  const { scheduleId } = await client.schedules.create({ name: 'n', every: '1d', task: { taskPrompt: 'x' } });
  const { sessions, permissions, schedules, attachments } = client;
  const texts: string[] = [];
  for await (const part of sessions.export('s', { form: 'json' })) texts.push(part);
  assert.equal(JSON.parse(texts.join('')).session.sessionId, 's');
  await assert.rejects(
    async () => {
      for await (const part of sessions.export('none')) assert.fail(part);
    },
    { code: 'SESSION_NOT_FOUND' },
  );
  assert.deepEqual(
    (await client.agents.list()).map(({ providerId, state, steer }) => [providerId, state, steer]),
    [['alpha', 'ok', 'no']],
  );
  assert.deepEqual(await client.agents.test('alpha').then(({ status, output }) => [status, output]), [
    'completed',
    'Say OK',
  ]);
  await assert.rejects(client.agents.install('nobody'), { code: 'AGENT_UNKNOWN', status: 404 });
  await assert.rejects(client.agents.login('alpha', { methodId: 'key' }), { code: 'AGENT_WITHOUT_LOGIN', status: 409 });
  await client.folders();
  await client.audit();
  await Promise.all([
    sessions.list(),
    sessions.get('s'),
    sessions.update('s', { pinned: true }),
    sessions.turns('s'),
    sessions.updates('s'),
    sessions.changes('s').catch(ignored),
    sessions.diff('s', 'x').catch(ignored),
    sessions.undo('s', 'x').catch(ignored),
    sessions.file('s', 'x').catch(ignored),
    sessions.steer('s', 'x').catch(ignored),
    sessions.withdraw('s', 'x').catch(ignored),
    sessions.fork('s').catch(ignored),
    sessions.merge('s').catch(ignored),
    permissions.list(),
    permissions.answer('x', { decision: 'deny' }).catch(ignored),
    permissions.rules(),
    permissions.forget('x').catch(ignored),
    attachments.upload(new Uint8Array(1), { name: 'a' }),
    schedules.list(),
    schedules.get(scheduleId),
    schedules.update(scheduleId, { enabled: false }),
    schedules.run(scheduleId),
  ]);
  await schedules.remove(scheduleId);
  const missing = bridge.surface.routes
    .map(({ method, path }) => `${method} ${path}`)
    .filter((row) => !NOT_FOR_APPS.some(([pattern]) => pattern.test(row)))
    .filter((row) => {
      const pattern = new RegExp(`^${row.replaceAll(/:\w+/g, '[^/]+')}$`);
      return !called.some((one) => pattern.test(one));
    });
  assert.deepEqual(missing, []);
});
