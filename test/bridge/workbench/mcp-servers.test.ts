import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Schedule } from '../../../src/bridge/contract/schedules.ts';
import { MAX_MCP_BYTES, MAX_MCP_SERVERS } from '../../../src/bridge/contract/session.ts';
import type { SessionView } from '../../../src/bridge/contract/workbench.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const SECRET = 'very-secret-value-4711';
const SERVERS = [
  { name: 'files', command: 'files-mcp', args: ['--key', SECRET], env: [{ name: 'KEY', value: SECRET }] },
  {
    name: 'web',
    type: 'http',
    url: `https://mcp.test/${SECRET}?k=${SECRET}`,
    headers: [{ name: 'X-Key', value: SECRET }],
  },
];
/** As agents get them. */
const GIVEN = [
  { type: 'stdio', ...SERVERS[0] },
  { type: 'http', ...SERVERS[1] },
];

/** Says the servers of its turn. */
const teller = createScriptedProvider('teller', async ({ mcpServers }) => ({
  kind: 'completed',
  output: JSON.stringify(mcpServers ?? 'none'),
  stopReason: 'end_turn',
}));
const settings = (more: string) =>
  `bridge:\n  auth_token: ${MAIN_TOKEN}\n  review_auth_token: ${REVIEW_TOKEN}\n${more}`;
const rules = '  permission_rules: [{ when: { command: [rm] }, then: deny }]\n';
const bridge = await startBridge({ after }, { providers: [teller], settings: settings(rules) });

const turn = (url: string, method: string, sessionId: string, more: object = {}) =>
  call(url, method, { sessionId, taskPrompt: 'tell', ...more }, main);
async function outputOf(url: string, method: string, sessionId: string, more: object = {}): Promise<unknown> {
  const { result, error } = await turn(url, method, sessionId, more);
  assert.equal(error, undefined, JSON.stringify(error));
  return JSON.parse(String(result?.output));
}
async function view(sessionId: string): Promise<SessionView> {
  const response = await fetch(`${bridge.url}/api/bridge/sessions/${sessionId}`, { headers: main });
  return (await response.json()) as SessionView;
}

test('the servers of a session are those of its start, and its view shows no secret of them', async () => {
  assert.deepEqual(await outputOf(bridge.url, 'session.start', 'kept', { mcpServers: SERVERS }), GIVEN);
  assert.deepEqual(await outputOf(bridge.url, 'session.message', 'kept'), GIVEN);
  const shown = await view('kept');
  assert.deepEqual(shown.mcpServers, [
    { name: 'files', type: 'stdio', target: 'files-mcp' },
    { name: 'web', type: 'http', target: 'https://mcp.test' },
  ]);
  assert.equal(JSON.stringify(shown).includes(SECRET), false);
});

test('the store has the servers encrypted, each session for itself', async () => {
  await outputOf(bridge.url, 'session.start', 'stored', { mcpServers: SERVERS });
  const rows = await bridge.database.query.selectFrom('sessions').selectAll().execute();
  assert.equal(JSON.stringify(rows).includes(SECRET), false);
  const turns = await bridge.database.query.selectFrom('turns').selectAll().execute();
  // Its result has them, because this agent says them.
  assert.equal(JSON.stringify(turns.map(({ outcome: _said, ...rest }) => rest)).includes(SECRET), false);
  const [one, other] = ['kept', 'stored'].map((id) => rows.find((row) => row.session_id === id)?.mcp_servers ?? '');
  assert.match(one ?? '', /^v1\./);
  assert.notEqual(one, other);
});

test('a copy of a session has its servers; a session that starts again has those of the new start', async () => {
  await outputOf(bridge.url, 'session.start', 'copied', { mcpServers: SERVERS });
  const response = await fetch(`${bridge.url}/api/bridge/sessions/copied/fork`, {
    method: 'POST',
    headers: { ...main, 'content-type': 'application/json' },
    body: '{}',
  });
  const { sessionId } = (await response.json()) as { sessionId: string };
  assert.deepEqual(await outputOf(bridge.url, 'session.message', sessionId), GIVEN);
  assert.equal(await outputOf(bridge.url, 'session.start', 'copied'), 'none');
  assert.equal(await outputOf(bridge.url, 'session.message', 'copied'), 'none');
  assert.deepEqual((await view('copied')).mcpServers, []);
});

test('a message cannot change the servers, and its result says so', async () => {
  await outputOf(bridge.url, 'session.start', 'fixed', { mcpServers: [SERVERS[0]] });
  const { result } = await turn(bridge.url, 'session.message', 'fixed', { mcpServers: SERVERS });
  assert.deepEqual(JSON.parse(String(result?.output)), [GIVEN[0]]);
  assert.match(JSON.stringify(result?.warnings), /mcpServers/);
});

test('a closed session leaves nothing of its servers', async () => {
  await outputOf(bridge.url, 'session.start', 'closed', { mcpServers: SERVERS });
  await call(bridge.url, 'session.close', { sessionId: 'closed' }, main);
  const find = bridge.database.query.selectFrom('sessions').selectAll().where('session_id', '=', 'closed');
  assert.equal((await find.executeTakeFirst())?.mcp_servers, '');
});

/** Resolves with what the agent of a job has said: its servers. */
async function saidBy(jobId: unknown): Promise<unknown> {
  const job = await until('the job to end', async () => {
    const { result } = await call(bridge.url, 'app.jobs.get', { jobId }, main);
    return result?.status === 'completed' ? (result as { result?: { output?: string } }) : undefined;
  });
  return JSON.parse(String(job.result?.output));
}
const submit = async (params: object) => {
  const { result, error } = await call(bridge.url, 'app.jobs.submit', params, main);
  return { jobId: result?.jobId, error };
};

test('a job starts its session with its servers, also when it is run again, and keeps them encrypted', async () => {
  const { jobId } = await submit({ taskPrompt: 'tell', mcpServers: SERVERS });
  assert.deepEqual(await saidBy(jobId), GIVEN);
  const again = await submit({ retryOf: jobId });
  assert.deepEqual(await saidBy(again.jobId), GIVEN);
  const rows = await bridge.database.query.selectFrom('jobs').select('request').execute();
  assert.equal(JSON.stringify(rows).includes(SECRET), false);
});

test('a job that continues a session has the servers of the session', async () => {
  await outputOf(bridge.url, 'session.start', 'continued', { mcpServers: [SERVERS[0]] });
  const { jobId } = await submit({ sessionId: 'continued', taskPrompt: 'tell', mcpServers: SERVERS });
  assert.deepEqual(await saidBy(jobId), [GIVEN[0]]);
});

test('the jobs of a schedule have its servers, which a change keeps, replaces or removes', async () => {
  const send = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${bridge.url}/api/bridge/schedules${path}`, {
      method,
      headers: { ...main, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    assert.equal(text.includes(SECRET), false, 'a secret is shown');
    return JSON.parse(text) as { schedule: Schedule; jobId: string; error?: string; message?: string };
  };
  const task = { taskPrompt: 'tell' };
  const made = await send('POST', '', { name: 'n', every: '1d', task: { ...task, mcpServers: SERVERS } });
  const { scheduleId } = made.schedule;
  const run = async () => saidBy((await send('POST', `/${scheduleId}/run`)).jobId);
  assert.deepEqual(
    made.schedule.task.mcpServers?.map(({ name, target }) => [name, target]),
    [
      ['files', 'files-mcp'],
      ['web', 'https://mcp.test'],
    ],
  );
  assert.deepEqual(await run(), GIVEN);
  await send('PATCH', `/${scheduleId}`, { task: { taskPrompt: 'tell again' } });
  assert.deepEqual(await run(), GIVEN);
  await send('PATCH', `/${scheduleId}`, { task: { ...task, mcpServers: [SERVERS[0]] } });
  assert.deepEqual(await run(), [GIVEN[0]]);
  const { schedule } = await send('PATCH', `/${scheduleId}`, { task: { ...task, mcpServers: [] } });
  assert.equal(schedule.task.mcpServers, undefined);
  assert.equal(await run(), 'none');
  const rows = await bridge.database.query.selectFrom('schedules').select('task').execute();
  assert.equal(JSON.stringify(rows).includes(SECRET), false);
  const refused = await send('PATCH', `/${scheduleId}`, { task: { ...task, mcpServers: [{ name: 'a' }] } });
  assert.match(JSON.stringify(refused), /mcpServers\.0\.command is needed/);
});

const many = Array.from({ length: MAX_MCP_SERVERS + 1 }, (_none, index) => ({ name: `n${index}`, command: 'x' }));
const large = Array.from({ length: 6 }, (_none, index) => ({
  name: `n${index}`,
  command: 'x',
  args: ['y'.repeat(8192), 'y'.repeat(MAX_MCP_BYTES / 16)],
}));
for (const [title, mcpServers, expected] of [
  ['two servers of one name', [SERVERS[0], SERVERS[0]], /mcpServers\.1\.name is the name of another server/],
  ['a program without a command', [{ name: 'a' }], /mcpServers\.0\.command is needed/],
  ['an address without http', [{ name: 'a', type: 'http', url: 'file:///etc' }], /mcpServers\.0\.url is needed/],
  ['a password in an address', [{ name: 'a', type: 'http', url: 'https://u:p@h.test' }], /url must not have a user/],
  [
    'a program with an address',
    [{ name: 'a', command: 'x', url: 'https://h.test' }],
    /url is not for a server of type/,
  ],
  ['a line break in a header', [{ ...SERVERS[1], headers: [{ name: 'a', value: 'b\r\nc' }] }], /headers/],
  ['a wrong variable', [{ ...SERVERS[0], env: [{ name: 'A=B', value: '' }] }], /env/],
  ['too many servers', many, /mcpServers/],
  ['servers that are too large', large, /at most 65536 bytes/],
  [
    'a command that a rule denies',
    [{ name: 'gone', command: '/bin/rm', args: ['-r'] }],
    /gone.* cannot be used: a rule/,
  ],
] as const) {
  test(`neither a session nor a job is started with ${title}`, async () => {
    const { error } = await turn(bridge.url, 'session.start', 'wrong', { mcpServers });
    assert.match(JSON.stringify(error), expected);
    assert.equal(JSON.stringify(error).includes(SECRET), false);
    assert.equal((await fetch(`${bridge.url}/api/bridge/sessions/wrong`, { headers: main })).status, 404);
    const job = await submit({ sessionId: 'wrong', taskPrompt: 'tell', mcpServers });
    assert.match(JSON.stringify(job.error), expected);
  });
}

const CONFIGURED = `  mcp_servers:
    - { name: own, command: own-mcp, args: [--fast], env: { KEY: ${SECRET} } }
    - { name: files, command: shared-mcp, owners: ["*"] }
    - { name: web, owners: [review], url: "https://shared.test/mcp", headers: { X-Key: ${SECRET} } }
`;

test('sessions and jobs have the servers that the settings give to their owner, unless the call names its own', async (t) => {
  const { url } = await startBridge(t, { providers: [teller], settings: settings(CONFIGURED) });
  const targetsOf = async (headers: typeof main, sessionId: string, method = 'session.start', more = {}) => {
    const { result } = await call(url, method, { sessionId, taskPrompt: 'tell', ...more }, headers);
    return (JSON.parse(String(result?.output)) as { name: string; command?: string; url?: string }[]).map(
      ({ name, command, url: address }) => `${name} ${command ?? address}`,
    );
  };
  const review = bearer(REVIEW_TOKEN);
  assert.deepEqual(await targetsOf(main, 'm'), ['own own-mcp', 'files shared-mcp']);
  assert.deepEqual(await targetsOf(main, 'm', 'session.message'), ['own own-mcp', 'files shared-mcp']);
  assert.deepEqual(await targetsOf(review, 'r'), ['files shared-mcp', 'web https://shared.test/mcp']);
  const given = await targetsOf(main, 'g', 'session.start', { mcpServers: [SERVERS[0]] });
  assert.deepEqual(given, ['own own-mcp', 'files files-mcp']);
  const { output } = (await turn(url, 'session.start', 'whole')).result ?? {};
  assert.deepEqual(JSON.parse(String(output))[0], {
    ...{ type: 'stdio', name: 'own', command: 'own-mcp', args: ['--fast'] },
    env: [{ name: 'KEY', value: SECRET }],
  });
  const shown = await fetch(`${url}/api/bridge/sessions/r?owner=review`, { headers: main });
  const text = await shown.text();
  assert.match(text, /"target":"https:\/\/shared\.test"/);
  // The turn says the servers; the view of the session does not have what the turn says.
  assert.equal(JSON.stringify((JSON.parse(text) as SessionView).mcpServers).includes(SECRET), false);
});

test('where agents may only read, the servers of the settings are left out', async (t) => {
  const only = settings(`${CONFIGURED}  permissions: deny\n`);
  const { url } = await startBridge(t, { providers: [teller], settings: only });
  assert.equal(await outputOf(url, 'session.start', 's'), 'none');
});

test('where agents may only read, a session has no servers', async (t) => {
  const { url } = await startBridge(t, {
    providers: [createScriptedProvider('one')],
    settings: settings('  permissions: deny\n'),
  });
  const { error } = await turn(url, 'session.start', 's', { mcpServers: SERVERS });
  assert.match(JSON.stringify(error), /cannot be used: agents may only read here.*MCP_SERVER_REFUSED/);
});

test('after a restart the session has its servers again', async () => {
  await outputOf(bridge.url, 'session.start', 'lasting', { mcpServers: SERVERS });
  await bridge.stop();
  const next = await startBridge({ after }, { providers: [teller], settings: settings(rules), after: bridge });
  assert.deepEqual(await outputOf(next.url, 'session.message', 'lasting'), GIVEN);
});
