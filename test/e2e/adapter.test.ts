import assert from 'node:assert/strict';
import { mkdir, readFile, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { isAlive } from '../kit/processes.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const ADAPTER_TOKEN = 'adapter-token-0123456789abcdef';
const BRIDGE_TOKEN = 'bridge-token-0123456789abcdef';

/** A host with an agent and its adapter, and a bridge elsewhere that knows the agent by its address only. */
async function startBoth(t: TestContext, name: 'opencode' | 'gemini' = 'opencode') {
  const folder = await realpath(await temporaryFolder(t));
  const work = join(folder, 'work');
  await mkdir(work);
  const there = join(folder, 'there.yaml');
  const program = { command: process.execPath, args: [AGENT, '--state', folder], url: 'http://127.0.0.1:9' };
  await writeFile(there, JSON.stringify({ agents: { [name]: program } }), { mode: 0o600 });
  const adapter = await startProgram(t, {
    command: ['adapter', name],
    args: ['--config', there],
    environment: { BRIDGE_AUTH_TOKEN: ADAPTER_TOKEN },
  });
  const here = join(folder, 'here.yaml');
  const agents = { catalog: ['builtin', name], [name]: { url: adapter.url, token: ADAPTER_TOKEN } };
  await writeFile(here, JSON.stringify({ agents }), { mode: 0o600 });
  const bridge = await startProgram(t, {
    args: ['bridge', '--config', here],
    environment: { BRIDGE_AUTH_TOKEN: BRIDGE_TOKEN },
  });
  return { adapter, bridge, work, config: there };
}

const askAdapter = ({ url }: RunningProgram, method: string, params: object, token = ADAPTER_TOKEN) =>
  fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ jsonrpc: '2.0', id: '1', method, params }),
  });

for (const name of ['opencode', 'gemini'] as const) {
  test(`a bridge uses ${name} on another host through its adapter, one conversation over several turns`, async (t) => {
    const { bridge, work } = await startBoth(t, name);
    const ask = (method: string, taskPrompt: string) => {
      const params = { sessionId: 's', taskPrompt, workingDirectory: work, routing: { explicitProviderId: name } };
      return callBridge(bridge.url, method, params, BRIDGE_TOKEN);
    };
    const first = ask('session.start', 'say one two');
    const { result: said } = await first.answer;
    assert.deepEqual(
      first.updates.flatMap(({ type, delta }) => (type === 'delta' ? [delta] : [])),
      ['one ', 'two'],
    );
    assert.equal(said?.output, 'one two');
    assert.equal(said?.resolvedProviderId, name);
    const { result: allowed } = await ask('session.message', 'ask').answer;
    assert.equal(allowed?.output, 'answered selected once');
    assert.equal(await readFile(join(work, 'made'), 'utf8'), '');
    const { result: recalled } = await ask('session.message', 'recall').answer;
    assert.equal(recalled?.output, 'say one two|ask|recall');
  });
}

test('a turn that is cancelled at the bridge leaves no process of the agent on the other host', async (t) => {
  const { bridge, work } = await startBoth(t);
  const params = { sessionId: 's', workingDirectory: work, routing: { explicitProviderId: 'opencode' } };
  const turn = callBridge(bridge.url, 'session.start', { ...params, taskPrompt: 'child' }, BRIDGE_TOKEN);
  await turn.until(({ type }) => type === 'delta');
  const pid = Number(turn.updates.find(({ type }) => type === 'delta')?.delta);
  assert.equal(isAlive(pid), true);
  await callBridge(bridge.url, 'session.cancel', { sessionId: 's' }, BRIDGE_TOKEN).answer;
  assert.equal((await turn.answer).result?.status, 'cancelled');
  await until('the agent to be gone', () => !isAlive(pid));
});

test('an adapter serves capabilities and session methods of its one agent, to who has its token', async (t) => {
  const { adapter } = await startBoth(t);
  assert.equal((await fetch(`${adapter.url}/healthz`)).status, 200);
  assert.equal((await askAdapter(adapter, 'acp.capabilities', {}, BRIDGE_TOKEN)).status, 401);
  const { result } = (await (await askAdapter(adapter, 'acp.capabilities', {})).json()) as {
    result: { providerCatalog: { providerId: string; enabled: boolean }[]; gatewayProviders: { enabled: boolean }[] };
  };
  assert.deepEqual(
    result.providerCatalog.map(({ providerId, enabled }) => [providerId, enabled]),
    [['opencode', true]],
  );
  // DB-35: it has no gateway, so it does not advertise one.
  assert.deepEqual(result.gatewayProviders, []);
  for (const method of ['app.jobs.submit', 'app.jobs.list', 'app.tools.invoke', 'app.gateway.connect']) {
    const answer = (await (await askAdapter(adapter, method, {})).json()) as { error: { code: number } };
    assert.equal(answer.error.code, -32601, method);
  }
});

test('an adapter runs beside a server that has the same data directory', async (t) => {
  const { bridge, config } = await startBoth(t);
  const { dataDirectory } = bridge;
  const beside = await startProgram(t, { command: ['adapter', 'gemini'], args: ['--config', config], dataDirectory });
  assert.equal(beside.summary.dataDirectory, join(dataDirectory, 'adapters', 'gemini'));
  assert.equal((await fetch(`${beside.url}/readyz`)).status, 200);
});

test('an adapter for an agent that has no adapter, or on an open address without a token, refuses to start', async (t) => {
  const folder = await temporaryFolder(t);
  for (const name of ['builtin', 'codex', 'nobody']) {
    const { code, stderr } = await runProgram(['adapter', name, '--data-dir', folder]);
    assert.equal(code, 1, name);
    assert.match(stderr, /There is no adapter for the agent "\w+". Known agents: opencode, gemini/);
  }
  const open = await runProgram(['adapter', 'opencode', '--data-dir', folder, '--listen', '0.0.0.0:0']);
  assert.equal(open.code, 78);
  assert.match(open.stderr, /BRIDGE_AUTH_TOKEN/);
});
