import assert from 'node:assert/strict';
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { readSources } from '../../architecture/source-file.ts';
import { bearer, call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless, telling } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const start = (sessionId: string, more = {}) => ({ sessionId, taskPrompt: 'hello there', ...more });
const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);

describe('who does the work', () => {
  test('B-50: an explicit agent that is unknown or down is a normal result that says so, and no other is taken', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const beta = createScriptedProvider('beta');
    beta.setProbe({ status: 'not_installed', version: '' });
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    for (const explicitProviderId of ['beta', 'nobody']) {
      for (const routingMode of ['auto', 'explicit']) {
        const params = start('s', { routing: { explicitProviderId, routingMode, explicitSkills: ['x'] } });
        for (const method of ['session.start', 'app.routing.resolve']) {
          const { result } = await call(url, method, params);
          assert.equal(result?.status, 'unavailable');
          assert.equal(result?.unavailable, true);
          assert.equal(result?.unavailableCode, 'PROVIDER_UNAVAILABLE');
          assert.match(String(result?.unavailableMessage), new RegExp(explicitProviderId));
          assert.equal(result?.resolvedProviderId, '');
          assert.deepEqual(result?.resolvedSkills, []);
        }
      }
    }
    assert.equal(alpha.asked.length + beta.asked.length, 0);
    assert.equal((await call(url, 'session.message', start('s'))).error?.code, -32002);
  });

  test('a session goes to the default agent, else to the first that is available, and stays there', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const beta = createScriptedProvider('beta');
    alpha.setProbe({ status: 'not_installed', version: '' });
    const { url } = await startBridge(t, { providers: [alpha, beta] });
    assert.equal((await call(url, 'session.start', start('s'))).result?.resolvedProviderId, 'beta');
    const known = { routing: { mode: 'gateway-chat', preferredGatewayProviderId: 'openclaw' }, mode: 'gateway-chat' };
    const { result } = await call(url, 'session.message', start('s', known));
    assert.equal(result?.resolvedProviderId, 'beta');
    assert.equal(result?.mode, 'single-agent');
  });

  test('B-51: a gateway task that asks for several agents is refused on every transport, and nothing is started', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url } = await startBridge(t, { providers: [alpha] });
    const client = await openClient(t, url);
    const routing = { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' };
    for (const method of ['session.start', 'session.message']) {
      for (const several of [{ multiAgent: true }, { mode: 'multi-agent' }]) {
        const params = start('s', { routing, ...several });
        for (const { error } of [
          await call(url, method, params),
          await client.call(method, params),
          (await stream(url, { method, params })).final,
        ]) {
          assert.equal(error?.code, -32602);
          assert.equal(error?.data.code, 'GATEWAY_MULTI_AGENT_CONFLICT');
        }
      }
    }
    assert.equal(alpha.asked.length, 0);
  });

  test('a gateway task needs a gateway, and is unavailable while there is none', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const target = { explicitExecutionTarget: 'gateway' };
    const { error } = await call(url, 'session.start', start('s', { routing: target }));
    assert.equal(error?.data.code, 'GATEWAY_PROVIDER_REQUIRED');
    for (const preferredGatewayProviderId of ['openclaw', 'unknown']) {
      const routing = { ...target, preferredGatewayProviderId };
      const { result } = await call(url, 'session.start', start('s', { routing }));
      assert.deepEqual(
        [result?.status, result?.unavailable, result?.unavailableCode, result?.mode, result?.resolvedExecutionTarget],
        ['unavailable', true, 'GATEWAY_UNAVAILABLE', 'gateway-chat', 'gateway'],
      );
      assert.equal(result?.resolvedGatewayProviderId, '');
    }
  });
});

describe('where the work is done', () => {
  test('B-55: a folder is used when it lies inside the roots by its real path, and refused otherwise', async (t) => {
    const alpha = createScriptedProvider('alpha');
    const { url, root, folder } = await startBridge(t, { providers: [alpha] });
    await mkdir(join(root, 'inside'));
    await writeFile(join(root, 'file'), '');
    await symlink('/etc', join(root, 'out'));
    await symlink(join(root, 'inside'), join(root, 'link'));
    const refused = [
      '../../etc',
      `${root}/../../etc`,
      '/etc',
      join(root, 'out'),
      `${root}\0`,
      `file://${root}`,
      `/${'x'.repeat(5000)}`,
      join(root, 'missing'),
      join(root, 'file'),
      folder,
      `${root}x`,
      '~',
    ];
    for (const workingDirectory of refused) {
      const { error } = await call(url, 'session.start', start('s', { workingDirectory }));
      assert.equal(error?.code, -32602, workingDirectory);
      assert.equal(error?.data.code, 'WORKING_DIRECTORY_REFUSED', workingDirectory);
    }
    assert.equal(alpha.asked.length, 0);
    const { result } = await call(url, 'session.start', start('s', { workingDirectory: join(root, 'link') }));
    assert.equal(result?.resolvedWorkingDirectory, join(root, 'inside'));
    assert.deepEqual(alpha.folders, [join(root, 'inside')]);
  });

  test('B-55: the folder is checked again when the turn that waited begins', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url, root } = await startBridge(t, { providers: [alpha] });
    await mkdir(join(root, 'inside'));
    const client = await openClient(t, url);
    const first = client.call('session.start', start('s'));
    await client.seen(({ type }) => type === 'delta');
    const second = client.call('session.message', start('s', { workingDirectory: join(root, 'inside') }));
    await client.seen(({ event }) => event === 'queued');
    await rename(join(root, 'inside'), join(root, 'was-inside'));
    await symlink('/etc', join(root, 'inside'));
    await alpha.stop();
    assert.equal((await first).result?.status, 'cancelled');
    assert.equal((await second).error?.data.code, 'WORKING_DIRECTORY_REFUSED');
    const last = client.updates.at(-1);
    assert.deepEqual([last?.event, last?.error, last?.pending], ['failed', true, false]);
    assert.deepEqual(alpha.asked.length, 1);
  });
});

describe('whose work it is', () => {
  test('B-27: the review token has sessions of its own, cannot touch others, and main can', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha], isGuarded: true });
    const owner = await openClient(t, url, { headers: main });
    const other = await openClient(t, url, { headers: review });
    const turn = owner.call('session.start', start('s', { threadId: 'th' }));
    await owner.seen(({ type }) => type === 'delta');
    assert.equal((await other.call('session.message', start('s'))).error?.code, -32002);
    for (const name of [{ sessionId: 's' }, { threadId: 'th' }]) {
      assert.deepEqual((await other.call('session.cancel', name)).result, { accepted: true });
      assert.deepEqual((await other.call('session.close', name)).result, { accepted: true });
    }
    assert.equal(alpha.running(), 1);
    const own = other.call('session.start', start('s'));
    await other.seen(({ type }) => type === 'delta');
    assert.equal(alpha.running(), 2);
    await owner.call('session.cancel', { sessionId: 's' });
    assert.equal((await turn).result?.status, 'cancelled');
    assert.equal(alpha.running(), 1);
    await owner.call('session.close', { sessionId: 's' });
    await owner.call('session.cancel', { sessionId: 's' });
    assert.equal((await own).result?.status, 'cancelled');
    assert.deepEqual(new Set(owner.updates.map(({ turnId }) => turnId)), new Set([(await turn).result?.turnId]));
    assert.deepEqual(new Set(other.updates.map(({ turnId }) => turnId)), new Set([(await own).result?.turnId]));
  });

  test('updates go to every client of the session and to nobody else', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    const [first, second, stranger] = [await openClient(t, url), await openClient(t, url), await openClient(t, url)];
    await first.call('session.start', start('s'));
    await second.call('session.message', start('s'));
    await stranger.call('session.start', start('other'));
    await first.call('session.message', start('s'));
    const all = first.updates.map(({ seq }) => seq);
    assert.deepEqual(
      all,
      all.map((_, index) => index + 1),
    );
    await second.seen(({ seq }) => seq === all.length);
    const from = second.updates[0]?.seq ?? 0;
    assert.deepEqual(second.updates, first.updates.slice(from - 1));
    assert.ok(stranger.updates.every(({ sessionId }) => sessionId === 'other'));
    const numbers = first.messages.map(({ seq }) => seq);
    assert.deepEqual(
      numbers,
      numbers.map((_, index) => index + 1),
    );
  });

  test('B-63: each permission that was answered is shown as a status and has an audit record', async (t) => {
    const events = [
      { kind: 'permission', title: 'Run "ls"', decision: 'allowed', toolCallId: 'c1' },
      { kind: 'permission', title: 'Delete all', decision: 'denied' },
    ] as const;
    const end = { kind: 'completed', output: 'done', stopReason: 'end_turn' } as const;
    const alpha = createScriptedProvider('alpha', telling(events, end));
    const { url, database } = await startBridge(t, { providers: [alpha] });
    const { updates, final } = await stream(url, { method: 'session.start', params: start('s') });
    const shown = updates.filter(({ event }) => event === 'status').map(({ structuredEvent }) => structuredEvent?.text);
    assert.deepEqual(shown, ['Allowed: Run "ls"', 'Denied: Delete all']);
    const rows = await database.query.selectFrom('audit_records').selectAll().orderBy('id').execute();
    assert.deepEqual(
      rows.map((row) => [row.action, row.decision, row.session_id, row.turn_id, row.provider_id, row.owner]),
      ['allowed', 'denied'].map((decision) => ['permission', decision, 's', final.result?.turnId, 'alpha', 'main']),
    );
    assert.deepEqual(JSON.parse(rows[0]?.subject ?? ''), { title: 'Run "ls"', toolCallId: 'c1' });
  });

  test('names that cannot be stored as they are, or reach a header, are refused', async (t) => {
    const { url } = await startBridge(t, { providers: [createScriptedProvider('alpha')] });
    for (const sessionId of ['', 'a\nb', 'a\0', '\ud800', 'x'.repeat(257), 7]) {
      const { error } = await call(url, 'session.start', { sessionId, taskPrompt: 'x' });
      assert.equal(error?.code, -32602, JSON.stringify(sessionId));
    }
    assert.equal((await call(url, 'session.start', start('ünï — ☃ 😀'))).result?.status, 'completed');
  });
});

describe('DB-5: where owners use the same name, the caller means its own', () => {
  const statusOf = async (url: string, jobId: unknown) => {
    const { result } = await call(url, 'app.jobs.get', { jobId }, main);
    return result?.errorCode ?? result?.status;
  };

  for (const [what, name] of [
    ['session', { sessionId: 'same' }],
    ['thread', { threadId: 'same' }],
  ] as const) {
    for (const method of ['session.cancel', 'session.close']) {
      test(`DB-5: ${method} of a ${what} by main leaves the jobs and sessions of other owners alone`, async (t) => {
        const { url } = await startBridge(t, {
          providers: [createScriptedProvider('alpha', endless)],
          isGuarded: true,
          settings: 'jobs: { max_running: 1 }\n',
        });
        const submit = async (headers: typeof main) =>
          (await call(url, 'app.jobs.submit', start('same'), headers)).result?.jobId;
        const theirs = await submit(review);
        await until('the job to run', async () => (await statusOf(url, theirs)) === 'running');
        const own = await submit(main);
        assert.deepEqual((await call(url, method, name, main)).result, { accepted: true });
        await until('the own job to end', async () => (await statusOf(url, own)) === 'JOB_CANCELLED');
        assert.equal(await statusOf(url, theirs), 'running');
        // With nothing of its own left, main means what it sees of others.
        await call(url, 'session.cancel', name, main);
        await until('the other job to end', async () => (await statusOf(url, theirs)) === 'JOB_CANCELLED');
      });
    }
  }

  test('DB-5: an own session without a job keeps main from ending the job of another owner', async (t) => {
    const alpha = createScriptedProvider('alpha', endless);
    const { url } = await startBridge(t, { providers: [alpha], isGuarded: true });
    const theirs = (await call(url, 'app.jobs.submit', start('same'), review)).result?.jobId;
    await until('the job to run', async () => (await statusOf(url, theirs)) === 'running');
    const turn = call(url, 'session.start', start('same'), main);
    await until('both turns to run', () => alpha.asked.length === 2);
    await call(url, 'session.cancel', { sessionId: 'same' }, main);
    assert.equal((await turn).result?.status, 'cancelled');
    assert.equal(await statusOf(url, theirs), 'running');
  });

  for (const [what, name] of [
    ['session', { sessionId: 'same' }],
    ['thread', { threadId: 'same' }],
  ] as const) {
    for (const method of ['session.cancel', 'session.close']) {
      test(`DB-5: ${method} of a ${what} with an owner ends the work of that owner alone`, async (t) => {
        const alpha = createScriptedProvider('alpha', endless);
        const { url } = await startBridge(t, { providers: [alpha], isGuarded: true });
        const own = call(url, 'session.start', start('same'), main);
        await until('the own turn to run', () => alpha.asked.length === 1);
        const turn = call(url, 'session.start', start('same'), review);
        await until('both turns to run', () => alpha.asked.length === 2);
        const job = (await call(url, 'app.jobs.submit', start('same'), review)).result?.jobId;
        assert.equal((await call(url, method, { ...name, owner: 'main' }, review)).error?.data.code, 'FORBIDDEN');
        assert.equal((await call(url, method, { ...name, owner: 7 }, main)).error?.data.code, 'INVALID_PARAMS');
        assert.deepEqual((await call(url, method, { ...name, owner: 'nobody' }, main)).result, { accepted: true });
        assert.equal(alpha.running(), 2);
        assert.deepEqual((await call(url, method, { ...name, owner: 'review' }, main)).result, { accepted: true });
        assert.equal((await turn).result?.status, 'cancelled');
        await until('the job to end', async () => (await statusOf(url, job)) === 'JOB_CANCELLED');
        assert.equal(alpha.running(), 1);
        // Nothing of the owner is left, and the own turn is not meant instead.
        await call(url, method, { ...name, owner: 'review' }, main);
        assert.equal(alpha.running(), 1);
        await call(url, method, { ...name, owner: 'main' }, main);
        assert.equal((await own).result?.status, 'cancelled');
      });
    }
  }

  test('DB-5: who sees what is decided in one file', () => {
    const scattered = readSources(['src/bridge'])
      .filter(({ path, text }) => path !== 'src/bridge/principal.ts' && /'main'/.test(text))
      .map(({ path }) => path);
    assert.deepEqual(scattered, [], 'ask sees() or may() of src/platform/identity instead');
  });
});
