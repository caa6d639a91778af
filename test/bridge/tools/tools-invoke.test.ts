import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import {
  createInvokeTool,
  createToolRule,
  createToolsOverHttp,
  matchesToolPattern,
} from '../../../src/bridge/gateway/invoke-tool.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { freePort } from '../../kit/free-port.ts';
import { startProgram } from '../../kit/running-program.ts';
import { startScriptedGateway } from '../../kit/scripted-gateway.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const TOKEN = 'tools-token-4a7f2c9e1b';

interface Asked {
  readonly authorization: string | undefined;
  readonly body: unknown;
}

/** An HTTP endpoint for tools. */
async function startTools(context: TestContext, answer: (asked: Asked) => { status?: number; text: string }) {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    const one = { authorization: request.headers.authorization, body: JSON.parse(await readBody(request)) };
    asked.push(one);
    const { status = 200, text } = answer(one);
    response.writeHead(status, { 'content-type': 'application/json' }).end(text);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(() => server.closeAllConnections());
  context.after(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/tools/invoke`, asked };
}

async function readBody(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return text;
}

async function startWithTools(context: TestContext, toolsUrl: string, more = '') {
  const settings = `gateway: { tools_url: "${toolsUrl}", tools_token: ${TOKEN}${more} }\n`;
  return startBridge(context, { providers: [createScriptedProvider('first')], settings });
}

const SEND = { tool: 'message', action: 'send', args: { channel: 'c', target: 't', message: 'hi' } };

test('over HTTP the call is posted with the bearer, and the answer comes back unchanged', async (context) => {
  const answer = { ok: true, result: { nested: [1, 'two', null] } };
  const tools = await startTools(context, () => ({ text: JSON.stringify(answer) }));
  const bridge = await startWithTools(context, tools.url);
  const { result } = await call(bridge.url, 'app.tools.invoke', SEND);
  assert.deepEqual(result, answer);
  assert.deepEqual(tools.asked, [{ authorization: `Bearer ${TOKEN}`, body: SEND }]);
});

test('an answer that is no object comes as a value', async (context) => {
  const texts = ['[1,2]', '"words"', 'null', '7'];
  const tools = await startTools(context, () => ({ text: texts.shift() ?? '' }));
  const bridge = await startWithTools(context, tools.url);
  for (const value of [[1, 2], 'words', null, 7]) {
    assert.deepEqual((await call(bridge.url, 'app.tools.invoke', SEND)).result, { value });
  }
});

test('a call without a tool is TOOL_REQUIRED', async (context) => {
  const tools = await startTools(context, () => ({ text: '{}' }));
  const bridge = await startWithTools(context, tools.url);
  for (const params of [{}, { tool: ' ' }]) {
    const { error } = await call(bridge.url, 'app.tools.invoke', params);
    assert.equal(error?.code, -32602);
    assert.equal(error?.data.code, 'TOOL_REQUIRED');
  }
  assert.deepEqual(tools.asked, []);
});

test('B-84: a tool outside gateway.tools_allow is -32602 TOOL_NOT_ALLOWED, and is not called', async (context) => {
  const tools = await startTools(context, () => ({ text: '{}' }));
  const bridge = await startWithTools(context, tools.url, ', tools_allow: ["mess*", "web_search"]');
  const refused = await call(bridge.url, 'app.tools.invoke', { ...SEND, tool: 'exec' });
  assert.equal(refused.error?.code, -32602);
  assert.equal(refused.error?.data.code, 'TOOL_NOT_ALLOWED');
  assert.deepEqual(tools.asked, []);
  assert.deepEqual((await call(bridge.url, 'app.tools.invoke', SEND)).result, {});
});

test('B-84: a token that the endpoint repeats is in no result, no error and no log', async (context) => {
  const echo = (asked: Asked) => JSON.stringify({ error: { message: `got ${asked.authorization}` }, [TOKEN]: [TOKEN] });
  let status = 200;
  const tools = await startTools(context, (asked) => ({ status, text: echo(asked) }));
  const program = await startProgram(context, {
    args: ['--log-level', 'debug'],
    environment: { GATEWAY_TOOLS_INVOKE_URL: tools.url, GATEWAY_TOOLS_TOKEN: TOKEN },
  });
  const good = await call(program.url, 'app.tools.invoke', SEND);
  status = 500;
  const bad = await call(program.url, 'app.tools.invoke', SEND);
  assert.equal(tools.asked[0]?.authorization, `Bearer ${TOKEN}`);
  assert.equal(good.ok, true);
  assert.equal(bad.error?.code, -32011);
  await program.stop();
  for (const text of [JSON.stringify(good), JSON.stringify(bad), program.stderr()]) assert.ok(!text.includes(TOKEN));
});

test('a failure is -32011 with code, status and detail', async (context) => {
  const text = JSON.stringify({ ok: false, error: { message: 'no such tool' } });
  const tools = await startTools(context, () => ({ status: 404, text }));
  const bridge = await startWithTools(context, tools.url);
  const { error } = await call(bridge.url, 'app.tools.invoke', SEND);
  assert.equal(error?.code, -32011);
  assert.deepEqual(error?.data, { code: 'TOOLS_INVOKE_FAILED', status: 404, detail: 'no such tool' });
});

test('a redirect is not followed, and an answer that is not JSON is a failure', async (context) => {
  const replies = [
    { status: 302, text: '' },
    { status: 200, text: '<html>' },
  ];
  const tools = await startTools(context, () => replies.shift() ?? { text: '' });
  const bridge = await startWithTools(context, tools.url);
  assert.equal((await call(bridge.url, 'app.tools.invoke', SEND)).error?.data.status, 302);
  assert.equal((await call(bridge.url, 'app.tools.invoke', SEND)).error?.data.detail, 'its answer is not JSON');
});

test('an answer that is too large, too late or never comes is a failure', async (context) => {
  const tools = await startTools(context, () => ({ text: JSON.stringify('x'.repeat(2000)) }));
  const silent = createServer(() => {});
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  context.after(() => silent.closeAllConnections());
  context.after(() => silent.close());
  const silentUrl = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
  const failureAt = async (url: string, timeoutMs = 10_000) => {
    const callTool = createToolsOverHttp({ url, token: () => '', clock: systemClock, timeoutMs, mostBytes: 1000 });
    const invoke = createInvokeTool({ checkTool: createToolRule(['*']), callTool, secrets: () => [] });
    const failure = await invoke('a', 'b', {}, new AbortController().signal).catch((error: unknown) => error);
    return (failure as { details: unknown }).details;
  };
  assert.deepEqual(await failureAt(tools.url), { status: 200, detail: 'its answer is larger than 1000 bytes' });
  assert.deepEqual(await failureAt(silentUrl, 100), { status: 0, detail: 'no answer within 100 ms' });
  assert.deepEqual(await failureAt(`http://127.0.0.1:${await freePort()}/`), {
    status: 0,
    detail: 'the endpoint cannot be reached (ECONNREFUSED)',
  });
});

test('without an endpoint the connected gateway is asked, with the action among the arguments', async (context) => {
  const gateway = await startScriptedGateway(context, {
    answer: (_method, params) =>
      params.name === 'message'
        ? { ok: true, toolName: 'message', output: { sent: true } }
        : { ok: false, toolName: 'nope', error: { code: 'not_found', message: 'Tool not available: nope' } },
  });
  const settings = `gateway: { url: "${gateway.url}", token: gateway-token-1 }\n`;
  const bridge = await startBridge(context, { providers: [createScriptedProvider('first')], settings });
  const { result } = await call(bridge.url, 'app.tools.invoke', SEND);
  assert.deepEqual(result, { ok: true, toolName: 'message', output: { sent: true } });
  assert.deepEqual(gateway.requests.at(-1), {
    method: 'tools.invoke',
    params: { name: 'message', args: { ...SEND.args, action: 'send' } },
  });
  const { error } = await call(bridge.url, 'app.tools.invoke', { tool: 'nope' });
  assert.deepEqual(error?.data, { code: 'TOOLS_INVOKE_FAILED', status: 0, detail: 'Tool not available: nope' });
});

test('with neither endpoint nor gateway a call fails and says OFFLINE', async (context) => {
  const bridge = await startBridge(context, { providers: [createScriptedProvider('first')] });
  const { error } = await call(bridge.url, 'app.tools.invoke', SEND);
  assert.equal(error?.code, -32011);
  assert.match(String(error?.data.detail), /^OFFLINE/);
});

test('a pattern fits whole names, with * for any characters', () => {
  const fits = (pattern: string, ...names: string[]) => names.map((name) => matchesToolPattern(pattern, name));
  assert.deepEqual(fits('*', '', 'any'), [true, true]);
  assert.deepEqual(fits('message', 'message', 'messages', 'a message'), [true, false, false]);
  assert.deepEqual(fits('web_*', 'web_', 'web_search', 'xweb_'), [true, true, false]);
  assert.deepEqual(fits('a*b*c', 'abc', 'aXbXc', 'ac', 'abcb', 'abbc'), [true, true, false, false, true]);
  assert.deepEqual(fits('ab*ba', 'aba', 'abba'), [false, true]);
});

test('DB-2: a tool outside gateway.tools_allow is refused on every path to a tool, for the main token too', async (context) => {
  const gateway = await startScriptedGateway(context, { answer: () => ({ ok: true, output: 'ran' }) });
  const settings = `gateway: { url: "${gateway.url}", token: gateway-token-1, tools_allow: ["web_*"] }\n`;
  const bridge = await startBridge(context, {
    providers: [createScriptedProvider('first')],
    settings,
    isGuarded: true,
  });
  const main = bearer(MAIN_TOKEN);
  const request = (params: unknown, method = 'tools.invoke') =>
    call(bridge.url, 'app.gateway.request', { method, params }, main);
  const refused = {
    'app.tools.invoke': () => call(bridge.url, 'app.tools.invoke', SEND, main),
    'app.gateway.request': () => request({ name: 'message', args: {} }),
    'app.gateway.request with two names': () => request({ name: 'web_search', tool: 'message', args: {} }),
    'app.gateway.request with the other name': () => request({ tool: 'message', args: {} }),
    'app.gateway.request in other letters': () => request({ name: 'message', args: {} }, ' Tools.Invoke'),
  };
  for (const [path, ask] of Object.entries(refused)) {
    assert.equal((await ask()).error?.data?.code, 'TOOL_NOT_ALLOWED', path);
  }
  assert.equal((await request({})).error?.data?.code, 'TOOL_REQUIRED');
  assert.equal((await request({ name: ['message'] })).error?.data?.code, 'TOOL_REQUIRED');
  const job = await call(bridge.url, 'app.jobs.submit', { taskPrompt: 'work', target: 'somebody' }, main);
  await until('the job to end', async () => {
    const { result } = await call(bridge.url, 'app.jobs.get', { jobId: job.result?.jobId }, main);
    return result?.status === 'completed';
  });
  await call(bridge.url, 'app.tools.invoke', { tool: 'web_search' }, main);
  assert.deepEqual((await request({ name: 'web_search', args: {} })).result?.payload, { ok: true, output: 'ran' });
  const called = gateway.requests.filter(({ method }) => /tools/i.test(method)).map(({ params }) => params.name);
  assert.deepEqual(called, ['web_search', 'web_search']);
});

test('DB-2: only main calls every gateway method; others call those of chat tasks, or what gateway.methods_allow says', async (context) => {
  const gateway = await startScriptedGateway(context, { answer: (method) => ({ method }) });
  const start = (more: string) =>
    startBridge(context, {
      providers: [createScriptedProvider('first')],
      settings: `gateway: { url: "${gateway.url}", token: gateway-token-1${more} }\n`,
      isGuarded: true,
    });
  const ask = async ({ url }: { readonly url: string }, token: string, method: string) => {
    const { result, error } = await call(url, 'app.gateway.request', { method, params: {} }, bearer(token));
    return error?.data?.code ?? result?.ok;
  };
  const byDefault = await start('');
  for (const method of ['config.set', 'sessions.delete', 'tools.invoke', 'node.invoke', 'chat.sendx', '*']) {
    assert.equal(await ask(byDefault, REVIEW_TOKEN, method), 'GATEWAY_METHOD_NOT_ALLOWED', method);
  }
  assert.equal(await ask(byDefault, REVIEW_TOKEN, 'chat.history'), true);
  assert.equal(await ask(byDefault, MAIN_TOKEN, 'config.set'), true);
  const configured = await start(', methods_allow: { main: ["health"], "rev*": ["config.*"] }');
  assert.equal(await ask(configured, REVIEW_TOKEN, 'config.set'), true);
  assert.equal(await ask(configured, REVIEW_TOKEN, 'chat.history'), 'GATEWAY_METHOD_NOT_ALLOWED');
  assert.equal(await ask(configured, MAIN_TOKEN, 'health'), true);
  assert.equal(await ask(configured, MAIN_TOKEN, 'config.set'), 'GATEWAY_METHOD_NOT_ALLOWED');
  assert.ok(!gateway.requests.some(({ method }) => ['sessions.delete', 'node.invoke', '*'].includes(method)));
});
