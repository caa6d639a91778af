import assert from 'node:assert/strict';
import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const { program: BUBBLEWRAP, missing } = await findBubblewrap();
const ROOT = join(import.meta.dirname, '..', '..');
const AGENT = join(ROOT, 'test', 'kit', 'scripted-acp-agent.ts');
const TOKEN = 'main-token-0123456789abcdef';
const TOOLS = ['chat', 'ask_agent', 'submit_job', 'get_job', 'send_message'];

/** A server with scripted agents, one of which takes servers over HTTP, and a session of that one with our tools. */
async function startWithTools(t: TestContext, bridge: object) {
  const folder = await realpath(await temporaryFolder(t));
  const work = join(folder, 'work');
  await mkdir(work);
  const config = join(folder, 'trestle.yaml');
  const agents = {
    catalog: ['builtin'],
    custom: [
      { id: 'asking', command: process.execPath, args: [AGENT, '--mcp', 'http'] },
      { id: 'asked', command: process.execPath, args: [AGENT, '--mcp', 'http'] },
    ],
  };
  await writeFile(config, JSON.stringify({ bridge: { workspace_roots: [folder], ...bridge }, agents }));
  const environment = { BRIDGE_AUTH_TOKEN: TOKEN, HOME: folder };
  const server = await startProgram(t, { args: ['--config', config], environment });
  const call = async (method: string, params: object) => {
    const { result, error } = await callBridge(server.url, method, params, TOKEN).answer;
    assert.equal(error, undefined, JSON.stringify(error));
    return result as Readonly<Record<string, unknown>>;
  };
  const start = async (sessionId: string, taskPrompt: string, more: object = {}) => {
    const routing = { explicitProviderId: 'asking' };
    const params = { sessionId, taskPrompt, workingDirectory: work, routing, mcpServers: [{ trestle: true }], ...more };
    return String((await call('session.start', params)).output);
  };
  return { server, work, call, start };
}

/** What a scripted agent is asked in order to call a tool. */
function toolCall(name: string, given: object): string {
  return `tool tools/call ${JSON.stringify({ name, arguments: given })}`;
}

function resultText(said: string): { readonly text: string; readonly failed: boolean } {
  const { content, isError = false } = JSON.parse(said);
  return { text: content[0].text, failed: isError };
}

function namesOf(said: string): readonly string[] {
  return JSON.parse(said).tools.map(({ name }: { readonly name: string }) => name);
}

const SANDBOXED = { sandbox: 'require', sandbox_program: BUBBLEWRAP, sandbox_read_paths: [ROOT] };

for (const [where, bridge, skip] of [
  ['without a sandbox', { sandbox: 'off' }, false],
  ['in the sandbox', SANDBOXED, missing],
] as const) {
  test(`an agent asks another one and submits a job with the tools of this program, ${where}`, { skip }, async (t) => {
    const { work, call, start } = await startWithTools(t, bridge);
    assert.deepEqual(namesOf(await start('s', 'tool tools/list')), TOOLS);
    const say = async (taskPrompt: string) =>
      String((await call('session.message', { sessionId: 's', taskPrompt })).output);
    // A later turn uses the tools with what the conversation was opened with.
    const asked = resultText(await say(toolCall('ask_agent', { provider: 'asked', prompt: 'sh pwd' })));
    assert.deepEqual(asked, { text: `${work}\n[0]`, failed: false });
    const servers = resultText(await say(toolCall('ask_agent', { provider: 'asked', prompt: 'servers' })));
    assert.deepEqual(servers, { text: '[]', failed: false }, 'an agent that is asked cannot ask in turn');
    const job = JSON.parse(resultText(await say(toolCall('submit_job', { provider: 'asked', prompt: 'sh pwd' }))).text);
    await until('the job to be completed', async () => {
      const { text } = resultText(await say(toolCall('get_job', { job_id: job.jobId })));
      const { status, result } = JSON.parse(text);
      return status === 'completed' && result.output === `${work}\n[0]`;
    });
    const chat = resultText(await say(toolCall('chat', { prompt: 'Hello', model: 'demo/echo' })));
    assert.deepEqual(chat, { text: 'Hello', failed: false });
  });
}

test('where the turn may only read, nobody is asked and no job is submitted', async (t) => {
  const { start } = await startWithTools(t, { sandbox: 'off' });
  const routing = { explicitProviderId: 'asking', permissions: 'deny' };
  for (const [name, given] of [
    ['ask_agent', { provider: 'asked', prompt: 'say x' }],
    ['submit_job', { prompt: 'say x' }],
    ['send_message', { target: 'a', message: 'b' }],
  ] as const) {
    const { text, failed } = resultText(await start(`deny-${name}`, toolCall(name, given), { routing }));
    assert.equal(failed, true);
    assert.match(text, /not permitted/);
  }
});

test('the tools end with the turn, and open with the token of their session only', async (t) => {
  const { server, start, call } = await startWithTools(t, { sandbox: 'off' });
  const [given] = JSON.parse(await start('s', 'servers'));
  assert.equal(given.name, 'trestle');
  const send = (authorization: string, method = 'POST') =>
    fetch(given.url, {
      method,
      headers: {
        authorization,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      ...(method === 'POST' && {
        body: JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: { name: 'ask_agent', arguments: { prompt: 'say x' } },
        }),
      }),
    });
  const [{ value }] = given.headers;
  assert.match(await (await send(value)).text(), /no turn of this session is running/);
  assert.equal((await send(value, 'GET')).status, 405);
  for (const wrong of ['', 'Bearer x', `Bearer ${TOKEN}`]) assert.equal((await send(wrong)).status, 401);
  const view = await fetch(`${server.url}/api/bridge/sessions/s`, { headers: { authorization: `Bearer ${TOKEN}` } });
  const shown = await view.text();
  assert.deepEqual(JSON.parse(shown).mcpServers, [{ name: 'trestle', type: 'trestle', target: '' }], shown);
  await call('session.close', { sessionId: 's' });
  await until('the end of the tools', async () => (await send(value)).status === 401);
});

test('a job that has the tools cannot submit jobs', async (t) => {
  const { call, work } = await startWithTools(t, {
    sandbox: 'off',
    mcp_servers: [{ name: 'trestle', trestle: true }],
  });
  const params = { taskPrompt: 'tool tools/list', workingDirectory: work, routing: { explicitProviderId: 'asking' } };
  const { jobId } = await call('app.jobs.submit', params);
  let job: Readonly<Record<string, unknown>> = {};
  await until('the job to be completed', async () => {
    job = await call('app.jobs.get', { jobId });
    return job.status === 'completed';
  });
  const { output } = job.result as { readonly output: string };
  assert.deepEqual(
    namesOf(output),
    TOOLS.filter((name) => name !== 'submit_job'),
  );
});

test('servers that are not described well are refused with the member that is wrong', async (t) => {
  const { server, work } = await startWithTools(t, { sandbox: 'off' });
  for (const [mcpServers, wrong] of [
    [[{ command: 'x' }], /mcpServers\.0\.name is needed/],
    [[{ trestle: true, command: 'x' }], /mcpServers\.0\.command is not for a server of type trestle/],
    [[{ name: 'x', trestle: false, type: 'trestle' }], /mcpServers\.0\.trestle is not for/],
    [
      [{ trestle: true }, { name: 'again', trestle: true }],
      /mcpServers\.1 gives the tools of this program a second time/,
    ],
  ] as const) {
    const params = { sessionId: 'wrong', taskPrompt: 'say x', workingDirectory: work, mcpServers };
    const { error } = await callBridge(server.url, 'session.start', params, TOKEN).answer;
    assert.match(JSON.stringify(error), wrong);
  }
});
