import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { type TestContext, test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { freePort } from '../kit/free-port.ts';
import { isAlive } from '../kit/processes.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { type ModelReply, startScriptedModel } from '../kit/scripted-model.ts';
import { until } from '../kit/until.ts';
import { MAIN, startPiped } from './piped-program.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const TOKENS = {
  BRIDGE_AUTH_TOKEN: 'bridge-token-0123456789abcdef',
  COMPLETIONS_MASTER_KEY: 'master-key-0123456789abcdef',
};

/** A server with a scripted agent, and an agent's connection to its tools. */
async function startTools(t: TestContext, environment: Readonly<Record<string, string>> = {}) {
  const folder = await realpath(await temporaryFolder(t));
  const work = join(folder, 'work');
  await mkdir(work);
  const config = join(folder, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['builtin'], custom } }), { mode: 0o600 });
  const server = await startProgram(t, { args: ['--config', config], environment: { ...TOKENS, ...environment } });
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [MAIN, 'tools', '--url', server.url],
    env: { PATH: process.env.PATH ?? '', ...TOKENS },
    stderr: 'ignore',
  });
  const client = new Client({ name: 'agent', version: '1' });
  await client.connect(transport);
  t.after(() => client.close());
  return { server, work, client, call: (name: string, given: object) => callTool(client, name, given) };
}

async function callTool(client: Client, name: string, given: object) {
  const answer = await client.callTool({ name, arguments: { ...given } });
  const [block] = answer.content as { type: string; text: string }[];
  return { text: block?.text ?? '', failed: answer.isError === true };
}

test('an agent finds the five tools, asks a model and has another agent work over several turns', async (t) => {
  const { client, call, work } = await startTools(t);
  const { tools } = await client.listTools();
  assert.deepEqual(
    tools.map(({ name }) => name),
    ['chat', 'ask_agent', 'submit_job', 'get_job', 'send_message'],
  );
  assert.ok(tools.every(({ inputSchema, description }) => inputSchema.type === 'object' && description !== ''));
  assert.deepEqual(await call('chat', { prompt: 'Hello', model: 'demo/echo' }), { text: 'Hello', failed: false });

  const first = await call('ask_agent', { prompt: 'say done', provider: 'scripted', working_directory: work });
  const [, output, session] = /^(.*)\n\n\[session (tool-[\w-]+)\]$/s.exec(first.text) ?? [];
  assert.equal(output, 'done');
  const second = await call('ask_agent', { prompt: 'recall', session });
  assert.match(second.text, /^say done\|recall\n/);
});

test('a job is submitted and followed to its end', async (t) => {
  const { call } = await startTools(t);
  const submitted = JSON.parse((await call('submit_job', { prompt: 'say finished', provider: 'scripted' })).text);
  assert.match(submitted.jobId, /^job-/);
  const job = await until('the job to be completed', async () => {
    const answer = JSON.parse((await call('get_job', { job_id: submitted.jobId })).text);
    return answer.status === 'completed' ? (answer as { result?: { output?: string } }) : undefined;
  });
  assert.equal(job.result?.output, 'finished');
});

test('a message goes out through the tools proxy', async (t) => {
  const bodies: unknown[] = [];
  const endpoint = createServer(async (request, response) => {
    const chunks = await request.toArray();
    bodies.push(JSON.parse(Buffer.concat(chunks).toString('utf8')));
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"sent":true}');
  }).listen(0, '127.0.0.1');
  await once(endpoint, 'listening');
  t.after(() => endpoint.close());
  const { port } = endpoint.address() as AddressInfo;
  const { call } = await startTools(t, { GATEWAY_TOOLS_INVOKE_URL: `http://127.0.0.1:${port}/tools/invoke` });
  const { text, failed } = await call('send_message', { channel: 'telegram', target: '@me', message: 'Hi' });
  assert.deepEqual([JSON.parse(text), failed], [{ sent: true }, false]);
  const args = { channel: 'telegram', target: '@me', message: 'Hi' };
  assert.deepEqual(bodies, [{ tool: 'message', action: 'send', args }]);
});

test('what does not go well is an answer that the agent can read, and never a secret', async (t) => {
  const { call, server } = await startTools(t);
  for (const [name, given, expected] of [
    ['ask_agent', { prompt: 'die 3', provider: 'scripted' }, /exit|ended/i],
    ['ask_agent', { prompt: 'x', provider: 'nobody' }, /nobody/],
    ['ask_agent', { prompt: 'x', session: 'unknown' }, /SESSION_CONTINUATION_UNAVAILABLE/],
    ['ask_agent', { prompt: 'wait', provider: 'scripted', timeout_seconds: 1 }, /took too long/],
    ['ask_agent', {}, /prompt/],
    ['chat', { prompt: 'x', model: 'nowhere/nothing' }, /model/i],
    ['submit_job', { prompt: 'x', provider: 'nobody' }, /nobody/],
    ['unheard_of', {}, /There is no tool "unheard_of"/],
  ] as const) {
    const { text, failed } = await call(name, given);
    assert.equal(failed, true, name);
    assert.match(text, expected);
    for (const secret of Object.values(TOKENS)) assert.equal(text.includes(secret), false);
  }
  await server.stop();
  assert.match((await call('get_job', { job_id: 'x' })).text, /cannot be reached/);
});

test('when the agent goes away, what it asked for is called off', async (t) => {
  const { server, call } = await startTools(t);
  const piped = startPiped(t, ['tools', '--url', server.url], TOKENS);
  const send = (message: object) => piped.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const clientInfo = { name: 'raw', version: '1' };
  send({ id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo } });
  const asked = { name: 'ask_agent', arguments: { prompt: 'child', provider: 'scripted' } };
  send({ id: 2, method: 'tools/call', params: { ...asked, _meta: { progressToken: 'p' } } });
  let pid = 0;
  for await (const line of createInterface({ input: piped.child.stdout })) {
    pid = Number(/"message":"(\d+)"/.exec(line)?.[1] ?? 0);
    if (pid > 0) break;
  }
  assert.equal(isAlive(pid), true);
  assert.equal(await piped.end(), 0);
  await until('the program to be gone', () => !isAlive(pid));
  assert.equal((await call('chat', { prompt: 'Still here', model: 'demo/echo' })).text, 'Still here');
});

test('the built-in agent uses the tools of another program: it asks a second agent through them', async (t) => {
  const folder = await realpath(await temporaryFolder(t));
  const script: readonly ModelReply[] = [
    { toolCall: { name: 'trestle__ask_agent', arguments: { prompt: 'say from afar', provider: 'scripted' } } },
    { text: ['Asked.'] },
  ];
  const model = await startScriptedModel(({ toolResults }) => script[toolResults.length] ?? {});
  t.after(() => model.stop());
  const port = await freePort();
  const mcp = [
    {
      name: 'trestle',
      command: process.execPath,
      args: [MAIN, 'tools', '--url', `http://127.0.0.1:${port}`],
      env: TOKENS,
    },
    { name: 'broken', command: process.execPath, args: ['-e', 'process.exit(1)'] },
  ];
  const builtin = { model: 'scripted', base_url: `${model.url}/v1`, mcp };
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ agents: { catalog: ['builtin'], builtin, custom } }), { mode: 0o600 });
  const args = ['bridge', '--config', config, '--listen', `127.0.0.1:${port}`];
  const server = await startProgram(t, { args, environment: TOKENS });
  const response = await fetch(`${server.url}/acp/rpc`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${TOKENS.BRIDGE_AUTH_TOKEN}`,
      'content-type': 'application/json',
      accept: 'text/event-stream',
    },
    body: JSON.stringify({
      jsonrpc: '2.0',
      id: '1',
      method: 'session.start',
      params: { sessionId: 's', taskPrompt: 'Ask', routing: { explicitProviderId: 'builtin' } },
    }),
  });
  const text = await response.text();
  assert.match(text, /"output":"Asked\."/);
  assert.match(text, /The tools of \\?"broken\\?" cannot be used/);
  assert.ok(model.requests[0]?.toolNames.includes('trestle__ask_agent'));
  assert.match(model.requests.at(-1)?.toolResults[0] ?? '', /^from afar\n\n\[session tool-/);
  assert.equal(await server.stop(), 0);
});
