import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { accountsSettingsOf, type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const TOKEN_1 = 'Vq7xT2mLw9Zk4RfB8sYd';
const TOKEN_2 = 'Hn5cJ8pQe3Gu6WaX1vKt';
const SETTINGS = `{ agents: [
  { id: node-1, name: Node 1, token: ${TOKEN_1}, groups: [eu] },
  { id: node-2, token: ${TOKEN_2}, address: "2001:db8::1", port: 8443, server_name: n2.example.org, path: /x y,
    mode: packet-up, xhttp_port: 8444, tcp_port: 8445 },
  { id: node-3 } ] }`;

const report = (accounts: RunningAccounts, token: string, body: unknown) =>
  accounts.post('/api/agent-server/v1/status', body, { token });

const statuses = async (accounts: RunningAccounts, { token }: { token: string }, path = 'admin/agents/status') =>
  (await accounts.get(path, { token })).body.agents;

for (const engine of engines) {
  describe(`agents of proxy nodes on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('A-59: an agent reports for itself only; after three silent minutes it is stale and not healthy', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: SETTINGS });
      const admin = await loggedInAs(accounts, 'admin');
      const now = new Date(accounts.clock.now()).toISOString();
      const body = {
        agentId: 'node-1',
        healthy: true,
        message: 'fine',
        users: 12,
        syncRevision: 'r7',
        xray: { running: true, clients: 3, lastSync: '2029-12-31T23:59:00Z', extra: 1 },
        updatedAt: '2020-01-01T00:00:00Z',
      };
      const foreign = await report(accounts, TOKEN_2, body);
      assert.deepEqual([foreign.status, foreign.body.error], [403, 'agent_id_mismatch']);
      assert.equal((await report(accounts, TOKEN_1, body)).status, 204);
      const [first, second] = await statuses(accounts, admin);
      assert.deepEqual(first, {
        id: 'node-1',
        name: 'Node 1',
        groups: ['eu'],
        healthy: true,
        message: 'fine',
        users: 12,
        syncRevision: 'r7',
        updatedAt: now,
        stale: false,
        xray: { running: true, clients: 3, lastSync: '2029-12-31T23:59:00.000Z' },
      });
      assert.deepEqual([second.name, second.stale, second.healthy, second.updatedAt], ['node-2', true, false, null]);
      await accounts.clock.advance(3 * 60_000);
      assert.equal((await statuses(accounts, admin))[0].stale, false);
      await accounts.clock.advance(1);
      const [silent] = await statuses(accounts, admin, '/api/admin/agents/status');
      assert.deepEqual([silent.stale, silent.healthy], [true, false]);
    });

    test('an agent that an administrator makes shows its token once, works until it is revoked, and is stored hashed', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: SETTINGS });
      const admin = await loggedInAs(accounts, 'admin');
      const options = { token: admin.token };
      const made = await accounts.post('admin/agents', { id: 'node-9', name: 'Nine', groups: ['us'] }, options);
      assert.deepEqual([made.status, made.body.agent.id, made.body.agent.hasToken], [201, 'node-9', true]);
      const { token } = made.body;
      assert.equal((await report(accounts, token, { agentId: 'node-9', healthy: true })).status, 204);
      const again = await accounts.post('admin/agents', { id: 'node-9' }, options);
      assert.deepEqual([again.status, again.body.error], [409, 'agent_exists']);
      const list = await accounts.get('admin/agents', options);
      assert.deepEqual(
        list.body.agents.map((agent: Record<string, unknown>) => [agent.id, agent.configured, agent.hasToken]),
        [
          ['node-1', true, true],
          ['node-2', true, true],
          ['node-3', true, false],
          ['node-9', false, true],
        ],
      );
      const stored = await accounts.database.read(
        accounts.database.query.selectFrom('proxy_agents').selectAll().compile(),
      );
      for (const secret of [token, TOKEN_1]) {
        for (const text of [JSON.stringify(stored), list.text, accounts.log()]) assert.ok(!text.includes(secret));
      }
      assert.equal((await accounts.call('DELETE', 'admin/agents/node-9', options)).status, 204);
      const gone = await report(accounts, token, { agentId: 'node-9', healthy: true });
      assert.deepEqual([gone.status, gone.body.error], [401, 'invalid_token']);
      assert.equal((await accounts.call('DELETE', 'admin/agents/node-9', options)).body.error, 'agent_not_found');
      // One of the settings without a token gets its token here; one with a token is changed there only.
      const third = await accounts.post('admin/agents', { id: 'node-3' }, options);
      assert.equal((await report(accounts, third.body.token, { agentId: 'node-3', healthy: false })).status, 204);
      for (const answer of [
        await accounts.post('admin/agents', { id: 'node-1' }, options),
        await accounts.call('DELETE', 'admin/agents/node-1', options),
      ]) {
        assert.deepEqual([answer.status, answer.body.error], [409, 'agent_configured']);
      }
      const events = await auditOf(accounts, admin, 'event=agent.revoked');
      assert.deepEqual([events[0]?.subject, events[0]?.actor], ['agent:node-9', admin.id]);
    });

    test('A-60: nodes get the active, verified, unexpired users with three fields each, and 304 while nothing changed', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: SETTINGS });
      const list = async (tag?: string) =>
        accounts.get('/api/agent-server/v1/users', {
          token: TOKEN_1,
          ...(tag === undefined ? {} : { headers: { 'if-none-match': tag } }),
        });
      const empty = await list();
      assert.deepEqual([empty.body.clients, empty.body.total], [[], 0]);
      const admin = await loggedInAs(accounts, 'admin', 'Ada');
      const ben = await loggedInAs(accounts, 'user', 'Ben');
      await accounts.control('users.create', { email: 'new@example.org', name: 'New', role: 'user' });
      const first = await list();
      assert.deepEqual(first.body.clients, [
        { id: admin.answer.body.user.proxyUuid, email: 'ada@example.org', flow: 'xtls-rprx-vision' },
        { id: ben.answer.body.user.proxyUuid, email: 'ben@example.org', flow: 'xtls-rprx-vision' },
      ]);
      assert.deepEqual(Object.keys(first.body), ['clients', 'total', 'generatedAt', 'revision']);
      const tag = first.headers.get('etag') ?? '';
      assert.equal(tag, `"${first.body.revision}"`);
      for (const sent of [tag, `W/${tag}`, `"x", ${tag}`, '*']) {
        const same = await list(sent);
        assert.deepEqual([same.status, same.text], [304, ''], sent);
      }
      const act = (name: string, body = {}) =>
        accounts.post(`admin/users/${ben.id}/${name}`, body, { token: admin.token });
      const total = async () => (await list(tag)).body?.total;
      await act('pause');
      assert.equal(await total(), 1);
      await act('resume');
      assert.equal(await total(), undefined, 'the list is the one that is known');
      await act('renew-uuid', { expires_in_days: 1 });
      assert.equal(await total(), 2);
      accounts.clock.stepWall(24 * 3_600_000);
      assert.equal(await total(), 1);
      const again = (await accounts.login(admin)).body.token;
      await accounts.post(`admin/users/${ben.id}/renew-uuid`, {}, { token: again });
      assert.equal(await total(), 2);
      await accounts.post('admin/blacklist', { email: ben.email }, { token: again });
      assert.equal(await total(), 1);
      const token = (await accounts.control<{ token: string }>('users.resetPassword', { user: 'new@example.org' }))
        .token;
      await accounts.post('password/forgot/confirm', { token, password: ben.password });
      assert.equal(await total(), 2);
    });
  });
}

test('A-59: a megabyte is refused, the future is clamped, and whatever else is wrong is 400', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const admin = await loggedInAs(accounts, 'admin');
  const good = { agentId: 'node-1', healthy: true };
  const large = await report(accounts, TOKEN_1, { ...good, message: 'x'.repeat(1024 * 1024) });
  assert.deepEqual([large.status, large.body.error], [413, 'body_too_large']);
  const future = { running: true, clients: 1, lastSync: '2999-01-01T00:00:00Z' };
  await report(accounts, TOKEN_1, { ...good, message: 'm'.repeat(5000), xray: future });
  const [status] = await statuses(accounts, admin);
  assert.equal(Date.parse(status.xray.lastSync), accounts.clock.now());
  assert.equal(status.message.length, 1000);
  for (const body of [
    { healthy: true },
    { agentId: 'node-1' },
    { ...good, healthy: 'yes' },
    { ...good, users: -1 },
    { ...good, users: 1.5 },
    { ...good, xray: { running: 1 } },
    { ...good, message: 'nul \0' },
    [],
  ]) {
    assert.equal((await report(accounts, TOKEN_1, body)).body.error, 'invalid_request', JSON.stringify(body));
  }
  await report(accounts, TOKEN_1, { ...good, xray: { lastSync: 'never' } });
  assert.equal((await statuses(accounts, admin))[0].xray.lastSync, null);
});

test('A-59, DP-10: a thousand nodes report together, and each is heard', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const nodes = await Promise.all(
    Array.from({ length: 1000 }, async (_, index) => {
      const id = `node-${index}`;
      return { id, ...(await accounts.control<{ token: string }>('agents.create', { id })) };
    }),
  );
  for (let round = 0; round < 2; round += 1) {
    const answers = await Promise.all(
      nodes.map(({ id, token }) => {
        const body = { agentId: id, healthy: true, users: round };
        // A busy machine may take longer than ten seconds for a thousand connections; then a node connects again.
        return report(accounts, token, body).catch(() => report(accounts, token, body));
      }),
    );
    assert.ok(answers.every(({ status }) => status === 204));
  }
  const all = await statuses(accounts, admin);
  assert.deepEqual([all.length, all.every((agent: { users: number }) => agent.users === 1)], [1000, true]);
});

test('the tokens of the settings can be replaced while the program runs', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const body = { agentId: 'node-1', healthy: true };
  assert.equal((await report(accounts, TOKEN_1, body)).status, 204);
  accounts.reload(accountsSettingsOf('{ agents: [ { id: node-1, token: Zd4kP9wLm2Xq7TfR5sBy } ] }'));
  assert.equal((await report(accounts, TOKEN_1, body)).status, 401);
  assert.equal((await report(accounts, 'Zd4kP9wLm2Xq7TfR5sBy', body)).status, 204);
});

test('someone sees all nodes as they connect to them, with defaults and ready URIs', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await loggedInAs(accounts, 'readonly', 'Ann');
  const uuid = ann.answer.body.user.proxyUuid;
  const nodes = await accounts.get('/api/agent-server/v1/nodes', { token: ann.token });
  assert.equal(nodes.status, 200, nodes.text);
  assert.deepEqual(nodes.body[0], {
    name: 'Node 1',
    address: 'node-1',
    port: 443,
    users: [uuid],
    transport: 'xhttp',
    path: '/split',
    mode: 'auto',
    security: 'tls',
    flow: 'xtls-rprx-vision',
    server_name: 'node-1',
    xhttp_port: 443,
    tcp_port: 1443,
    uri_scheme_xhttp: `vless://${uuid}@node-1:443?encryption=none&type=xhttp&security=tls&host=node-1&path=%2Fsplit&mode=auto&sni=node-1&fp=chrome&alpn=h2#Node%201`,
    uri_scheme_tcp: `vless://${uuid}@node-1:1443?encryption=none&type=tcp&security=tls&sni=node-1&fp=chrome&flow=xtls-rprx-vision#Node%201`,
  });
  const { uri_scheme_xhttp: uri, uri_scheme_tcp: tcp, port, mode } = nodes.body[1];
  assert.deepEqual([port, mode], [8443, 'packet-up']);
  assert.ok(uri.startsWith(`vless://${uuid}@[2001:db8::1]:8444?`) && uri.includes('path=%2Fx%20y'), uri);
  assert.ok(tcp.includes(':8445?') && tcp.includes('sni=n2.example.org'), tcp);
  await accounts.post(`admin/users/${ann.id}/renew-uuid`, { expires_in_days: 1 }, { token: admin.token });
  accounts.clock.stepWall(24 * 3_600_000);
  const late = (await accounts.login(ann)).body.token;
  const expired = await accounts.get('/api/agent-server/v1/nodes', { token: late });
  assert.deepEqual([expired.status, expired.body.error], [403, 'proxy_uuid_expired']);
});

test('accounts.proxy_nodes: false removes every path of proxy nodes, and nothing else', async (t) => {
  const [on, off] = [await startAccounts(t), await startAccounts(t, { settings: '{ proxy_nodes: false }' })];
  const namesOf = ({ routes }: RunningAccounts) => routes.map(({ method, path }) => `${method} ${path}`);
  const without = new Set(namesOf(off));
  assert.deepEqual(
    namesOf(on)
      .filter((name) => !without.has(name))
      .sort(),
    [
      'DELETE /api/auth/admin/agents/:id',
      'GET /api/admin/agents/status',
      'GET /api/agent-server/v1/nodes',
      'GET /api/agent-server/v1/users',
      'GET /api/auth/admin/agents',
      'GET /api/auth/admin/agents/status',
      'POST /api/agent-server/v1/status',
      'POST /api/auth/admin/agents',
      'POST /api/auth/admin/users/:id/renew-uuid',
    ],
  );
  const admin = await loggedInAs(off, 'admin');
  assert.equal((await off.get('admin/agents/status', admin)).status, 404);
  assert.equal((await off.get('/api/agent-server/v1/nodes', admin)).status, 404);
  assert.equal((await off.get('session', admin)).status, 200);
  for (const [method, params] of [
    ['agents.list', {}],
    ['agents.create', { id: 'node-1' }],
    ['agents.revoke', { id: 'node-1' }],
  ] as const) {
    await assert.rejects(off.control(method, params), { code: 'PROXY_NODES_OFF' });
  }
  assert.throws(
    () => accountsSettingsOf('{ proxy_nodes: false, agents: [{ id: node-1 }] }'),
    /agents are listed, and proxy nodes are switched off/,
  );
});
