import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { Permission } from '../../../../src/bridge/contract/workbench.ts';
import { scriptedAgent } from '../../../kit/bridge/builtin-agent.ts';
import { bearer, call } from '../../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, startBridge } from '../../../kit/bridge/start-bridge.ts';
import { until } from '../../../kit/until.ts';

const main = bearer(MAIN_TOKEN);

/** Greets first; then it writes the file that a message names, by a tool and by a command. */
const { agent, requests } = scriptedAgent((_index, { messages }) => {
  const at = messages.findLastIndex(({ role }) => role === 'user');
  const name = String(messages[at]?.content);
  const isDone = name === 'Hello' || messages.length > at + 1;
  const command = { command: 'sh', args: ['-c', `touch ${name}.command`] };
  const calls = [
    { name: 'write_file', input: { path: name, content: 'x' }, id: 'w' },
    { name: 'run_command', input: command, id: 'r' },
  ];
  return isDone ? { text: ['done'] } : { calls };
});
const settings = `bridge:\n  auth_token: ${MAIN_TOKEN}\n`;
const { url, root } = await startBridge({ after }, { providers: [agent], settings });

async function request<Shape>(method: string, path: string, body?: unknown): Promise<Shape> {
  const response = await fetch(`${url}/api/bridge/${path}`, {
    method,
    headers: { ...main, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  assert.equal(response.ok, true, `${method} ${path}: ${response.status}`);
  return (await response.json()) as Shape;
}

/** Opens a session in a mode, and sends the message that makes the agent write. */
async function write(mode: string, name: string) {
  const routing = { routingMode: 'explicit', explicitProviderId: 'builtin' };
  const params = { sessionId: name, workingDirectory: root, routing };
  await call(url, 'session.start', { ...params, taskPrompt: 'Hello' }, main);
  await request('PATCH', `sessions/${name}`, { mode });
  return call(url, 'session.message', { ...params, taskPrompt: name }, main).then(({ result }) => result?.output);
}

const made = (name: string) => [existsSync(join(root, name)), existsSync(join(root, `${name}.command`))];
const offered = () => requests.at(-1)?.tools?.map((tool) => tool.function.name) ?? [];

test('mode edit: change files and run commands without a question', async () => {
  assert.equal(await write('edit', 'one'), 'done');
  assert.deepEqual(made('one'), [true, true]);
});

test('mode plan: change nothing, offer nothing that could, and say so in the prompt', async () => {
  assert.equal(await write('plan', 'two'), 'done');
  assert.deepEqual(made('two'), [false, false]);
  const reading = ['read_file', 'list_files', 'find_files', 'search_files', 'update_plan'];
  assert.deepEqual(offered(), reading);
  assert.match(String(requests.at(-1)?.messages[0]?.content), /Here you may only read/);
  const refusals = requests.at(-1)?.messages.filter(({ role }) => role === 'tool') ?? [];
  assert.equal(refusals.length, 2);
  for (const { content } of refusals) assert.match(String(content), /^Refused: here you may not change files/);
});

test('mode ask: ask before each change, and do what the person decides', async () => {
  const answers = ['allow', 'reject'];
  const ended = write('ask', 'three');
  for (const decision of answers) {
    const { permissionId, options } = await until('a question', async () => {
      const { permissions } = await request<{ permissions: Permission[] }>('GET', 'permissions');
      return permissions.find(({ sessionId }) => sessionId === 'three');
    });
    const optionId = options.find(({ kind }) => kind === `${decision}_once`)?.optionId;
    await request('POST', `permissions/${permissionId}/answer`, { optionId });
    await until('the question to be closed', async () => {
      const { permissions } = await request<{ permissions: Permission[] }>('GET', 'permissions');
      return !permissions.some((one) => one.permissionId === permissionId);
    });
  }
  assert.equal(await ended, 'done');
  assert.deepEqual(made('three'), [true, false]);
});

test('the model is asked to think as much as was chosen, until the choice is taken back', async () => {
  const params = { sessionId: 'four', taskPrompt: 'Hello', workingDirectory: root };
  await call(url, 'session.start', params, main);
  assert.equal(requests.at(-1)?.reasoning_effort, undefined);
  for (const thinking of ['high', '']) {
    await request('PATCH', 'sessions/four', { thinking });
    await call(url, 'session.message', params, main);
    assert.equal(requests.at(-1)?.reasoning_effort, thinking === '' ? undefined : thinking);
  }
});
