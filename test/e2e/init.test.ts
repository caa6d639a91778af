import assert from 'node:assert/strict';
import { readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal } from '../kit/terminal.ts';

test('DU-20: init finds keys, a model server and agents, and writes a file that the server accepts', async (t) => {
  const folder = await temporaryFolder(t);
  const environment = {
    OPENAI_API_KEY: 'sk-test-0123456789abcdef',
    OLLAMA_HOST: await modelServer(t),
  };
  const options = { environment, workingDirectory: folder };
  const data = ['--data-dir', join(folder, 'data')];
  const { code, stdout, stderr } = await runProgram(['init', '--yes', ...data], options);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /openai: key in OPENAI_API_KEY, \d+ models/);
  assert.match(stdout, /ollama: .*127\.0\.0\.1:\d+\/v1, 2 models/);
  assert.match(stdout, /no agent {3}codex: not installed: trestle agents install codex/);
  const text = await readFile(join(folder, 'trestle.yaml'), 'utf8');
  assert.match(text, /model: "openai\/gpt-5\.1"/);
  assert.ok(!text.includes(environment.OPENAI_API_KEY), 'a key from the environment stays there');
  const program = await startProgram(t, options);
  const builtin = (program.summary.agents as { id: string; model?: string }[]).find(({ id }) => id === 'builtin');
  assert.equal(builtin?.model, 'openai/gpt-5.1');

  const again = await runProgram(['init', '--yes', ...data], options);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /trestle\.yaml already exists; use --force to replace it/);
  assert.equal(await readFile(join(folder, 'trestle.yaml'), 'utf8'), text);
});

test('DU-20: with nothing but a model server on this machine, init offers its first model', async (t) => {
  const folder = await temporaryFolder(t);
  const environment = { OLLAMA_HOST: await modelServer(t) };
  const args = ['init', '--yes', '--data-dir', join(folder, 'data')];
  const { code, stderr } = await runProgram(args, { environment, workingDirectory: folder });
  assert.equal(code, 0, stderr);
  assert.match(await readFile(join(folder, 'trestle.yaml'), 'utf8'), /model: "ollama\/qwen3:8b"/);
});

test('DU-20: init asks on a terminal, hides the key, and keeps the file to its owner', async (t) => {
  const folder = await temporaryFolder(t);
  const terminal = startInTerminal(t, ['init', '--data-dir', join(folder, 'data')], { workingDirectory: folder });
  const key = 'sk-ant-0123456789abcdef';
  await terminal.shows('Key of a model API');
  terminal.type(`${key}\r`);
  await terminal.shows('Model of the built-in agent [anthropic/claude-sonnet');
  terminal.type('anthropic/claude-opus-4-5\r');
  await terminal.shows('Folders in which agents may work');
  terminal.type(`${folder}\r`);
  await terminal.shows('without asking?');
  terminal.type('n\r');
  assert.equal(await terminal.ended, 0, terminal.screen());
  assert.ok(!terminal.screen().includes(key), 'the key is not shown');
  const path = join(folder, 'trestle.yaml');
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const { stdout } = await runProgram(['config', 'print', '--json', '--config', path]);
  const { agents, bridge, completions } = JSON.parse(stdout);
  assert.equal(agents.builtin.model, 'anthropic/claude-opus-4-5');
  assert.equal(bridge.permissions, 'deny');
  assert.deepEqual(bridge.workspace_roots, [folder]);
  assert.deepEqual(Object.keys(completions.apis), ['anthropic']);
  assert.ok(!stdout.includes(key), 'config print masks the key');
});

test('DU-20: Ctrl-C writes nothing, and init without a terminal names the option that asks nothing', async (t) => {
  const folder = await temporaryFolder(t);
  const args = ['init', '--data-dir', join(folder, 'data')];
  const terminal = startInTerminal(t, args, { workingDirectory: folder });
  await terminal.shows('Key of a model API');
  terminal.type('\x03');
  assert.equal(await terminal.ended, 130, terminal.screen());
  assert.match(terminal.screen(), /Stopped\. Nothing was written\./);
  await assert.rejects(stat(join(folder, 'trestle.yaml')));
  const piped = await runProgram(args, { workingDirectory: folder });
  assert.equal(piped.code, 2);
  assert.match(piped.stderr, /use --yes to accept what is found/);
});

/** A server with the list of models that Ollama gives. */
async function modelServer(scope: Scope): Promise<string> {
  const models = JSON.stringify({ object: 'list', data: [{ id: 'qwen3:8b' }, { id: 'llama3.3' }] });
  const server = createServer((_request, response) =>
    response.setHeader('content-type', 'application/json').end(models),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  scope.after(() => server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the server has no port');
  return `http://127.0.0.1:${address.port}`;
}
