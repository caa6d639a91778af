import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { after, test } from 'node:test';
import { type Envelope, openSocket, postRpc } from '../../kit/bridge/bridge-client.ts';
import { startProgram } from '../../kit/running-program.ts';

const TOKEN = 'main-token-5f1d0c1e9b7a';
const AUTHORIZED = { authorization: `Bearer ${TOKEN}` };
const CALL = { jsonrpc: '2.0', id: 1, method: 'acp.capabilities', params: {} };

const guarded = await startProgram({ after }, { environment: { BRIDGE_AUTH_TOKEN: TOKEN } });
const open = await startProgram({ after }, { args: ['bridge'] });

test('GET / of the bridge alone is one line of plain text, for browsers too', async () => {
  const response = await fetch(open.url, { headers: { accept: 'text/html' } });
  assert.equal(response.headers.get('content-type'), 'text/plain; charset=utf-8');
  assert.match(await response.text(), /^trestle \d+\.\d+\.\d+ is running\n$/);
});

test('GET /api/ping tells release and contract', async () => {
  const response = await fetch(`${guarded.url}/api/ping`, { headers: AUTHORIZED });
  const body = (await response.json()) as Record<string, unknown>;
  assert.deepEqual(Object.keys(body), ['status', 'version', 'contract', 'commit', 'buildDate', 'image', 'tag']);
  assert.equal(body.status, 'ok');
  assert.equal(body.contract, '1.0.0');
});

test('acp.capabilities lists two native agents, two protocol adapters and the gateway, each with its probe', async () => {
  const { json } = await postRpc(open.url, CALL);
  const result = json.result as Record<string, Record<string, unknown>[]>;
  const catalog = result.providerCatalog?.map(({ providerId, category }) => `${providerId} ${category}`);
  assert.deepEqual(catalog, ['builtin native', 'codex native', 'opencode protocol-adapter', 'gemini protocol-adapter']);
  assert.deepEqual(
    result.gatewayProviders?.map(({ providerId, targets }) => [providerId, targets]),
    [['openclaw', ['gateway']]],
  );
  const probes = new Map(result.providerProbeSummary?.map(({ providerId, status }) => [providerId, status]));
  assert.deepEqual([...probes.keys()], ['builtin', 'codex', 'opencode', 'gemini', 'openclaw']);
  assert.equal(probes.get('builtin'), 'ok');
  assert.equal(probes.get('openclaw'), 'not_configured');
});

test('the aliased method prefix and custom agents come from the configuration', async (t) => {
  const custom = '[{"id":"claude","command":"claude-agent-acp-that-is-not-here"}]';
  const program = await startProgram(t, { environment: { TRESTLE_AGENTS_CUSTOM: custom } });
  const { json } = await postRpc(program.url, CALL);
  const catalog = (json.result as Record<string, Record<string, unknown>[]>).providerCatalog ?? [];
  assert.equal(catalog.at(-1)?.providerId, 'claude');
  assert.match(
    String(catalog.at(-1)?.unavailableReason),
    /^not_installed: install "claude-agent-acp-that-is-not-here", or correct the command/,
  );
});

test('B-20: anything but POST on /acp/rpc is 405 with Allow and -32600', async () => {
  for (const method of ['GET', 'PUT', 'DELETE', 'PATCH', 'TRACE']) {
    const { status, headers, body } = await plainRequest(guarded.port, method, '/acp/rpc');
    assert.equal(status, 405, method);
    assert.match(headers.allow ?? '', /POST/);
    const { error } = JSON.parse(body) as Envelope;
    assert.equal(error?.code, -32600);
    assert.equal(error?.data.code, 'INVALID_REQUEST');
  }
  assert.equal((await plainRequest(guarded.port, 'HEAD', '/acp/rpc')).status, 405);
});

test('B-21: a body that is not application/json in UTF-8 is 415 in the envelope', async () => {
  for (const type of ['text/plain', 'application/json; charset=utf-16', 'application/x-www-form-urlencoded']) {
    const { status, json } = await postRpc(guarded.url, CALL, { ...AUTHORIZED, 'content-type': type });
    assert.equal(status, 415, type);
    assert.equal(json.error?.data.code, 'UNSUPPORTED_MEDIA_TYPE');
  }
});

test('B-22: the served methods are exactly those of the table, on both transports', async (t) => {
  const served = ['session.start', 'session.message', 'session.cancel', 'session.close', 'app.routing.resolve'];
  const others = ['session.list', 'session.update', 'app.nothing', 'echo', 'status', 'backup', 'acp.capabilities.x'];
  const socket = await openSocket(t, open.url);
  const codes = async (method: string, params: unknown) => {
    const call = { jsonrpc: '2.0', id: method, method, params };
    return [(await postRpc(open.url, call)).json.error?.code, (await socket.call(call)).error?.code];
  };
  assert.equal((await socket.call(CALL)).ok, true);
  // An array is refused by the method itself, once it was found.
  for (const method of served) assert.deepEqual(await codes(method, []), [-32602, -32602], method);
  for (const method of others) assert.deepEqual(await codes(method, {}), [-32601, -32601], method);
});

test('an alias prefix serves the same methods', async (t) => {
  const environment = { TRESTLE_BRIDGE_METHOD_PREFIX_ALIASES: 'acme' };
  const { url } = await startProgram(t, { args: ['bridge'], environment });
  for (const method of ['app.routing.resolve', 'acme.routing.resolve']) {
    const { json } = await postRpc(url, { jsonrpc: '2.0', id: 1, method, params: { taskPrompt: 'x' } });
    assert.equal(json.result?.resolvedProviderId, 'builtin', method);
  }
});

test('B-23: nothing is served under /acp-server, however it is spelled', async () => {
  const paths = ['/acp-server/x', '/acp-server', '/%2facp-server', '//acp-server', '/acp/../acp-server/x'];
  for (const path of [...paths, '/acp-server%2fx', '/jobs', '/gateway/openclaw']) {
    for (const method of ['GET', 'POST']) {
      assert.equal((await plainRequest(guarded.port, method, path)).status, 404, `${method} ${path}`);
    }
  }
});

test('B-33: a Host that is no loopback name is refused while no token is configured', async () => {
  assert.equal((await plainRequest(open.port, 'GET', '/api/ping', { host: 'evil.example' })).status, 421);
  assert.equal((await plainRequest(open.port, 'GET', '/api/ping', { host: 'localhost:1' })).status, 200);
});

test('B-34, B-42: a message over the configured limit closes the socket with 1009, and a body gets 413', async (t) => {
  const program = await startProgram(t, { environment: { TRESTLE_BRIDGE_LIMITS_MESSAGE_BYTES: '2048' } });
  const large = { ...CALL, extra: 'x'.repeat(2048) };
  const { status, json } = await postRpc(program.url, large);
  assert.equal(status, 413);
  assert.equal(json.error?.data.code, 'BODY_TOO_LARGE');
  const socket = await openSocket(t, program.url);
  socket.send(large);
  assert.equal(await socket.closed(), 1009);
});

test('GET /acp without an upgrade is 426 and -32600', async () => {
  const response = await fetch(`${guarded.url}/acp`, { headers: AUTHORIZED });
  assert.equal(response.status, 426);
  assert.equal(((await response.json()) as Envelope).error?.code, -32600);
});

test('with Accept: text/event-stream the answer comes as one event and then [DONE]', async () => {
  const { text, headers } = await postRpc(guarded.url, CALL, { ...AUTHORIZED, accept: 'text/event-stream' });
  assert.match(headers.get('content-type') ?? '', /^text\/event-stream/);
  const events = text.split('\n\n').filter((event) => event !== '');
  assert.equal(events.length, 2);
  assert.equal((JSON.parse(events[0]?.replace(/^(id: .*\n)?data: /, '') ?? '') as Envelope).ok, true);
  assert.equal(events[1], 'data: [DONE]');
});

interface PlainAnswer {
  readonly status: number | undefined;
  readonly headers: Record<string, string | undefined>;
  readonly body: string;
}

/** A request whose path and Host go out exactly as given. */
async function plainRequest(port: number, method: string, path: string, headers = {}): Promise<PlainAnswer> {
  const message = request({ host: '127.0.0.1', port, method, path, headers, agent: false });
  message.end();
  const [response] = await once(message, 'response');
  let body = '';
  for await (const chunk of response) body += String(chunk);
  return { status: response.statusCode, headers: response.headers, body };
}
