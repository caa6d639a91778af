import assert from 'node:assert/strict';
import { link, mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { isAlive } from '../kit/processes.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { type ModelReply, startScriptedModel } from '../kit/scripted-model.ts';
import { until } from '../kit/until.ts';

const TOKEN = 'e2e-token-0123456789abcdef';
const KEY = 'e2e-model-key-0123456789';

interface Message {
  readonly id?: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly data: Readonly<Record<string, unknown>> };
}

/** One call as the README's curl makes it: every message of the stream, the answer last. */
async function callStream(url: string, method: string, params: object, token = TOKEN): Promise<readonly Message[]> {
  const response = await fetch(`${url}/acp/rpc`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: '1', method, params }),
  });
  assert.equal(response.status, 200);
  return (await response.text())
    .split('\n')
    .flatMap((line) => (line.startsWith('data: {') ? [JSON.parse(line.slice(6))] : []));
}

const resultOf = (messages: readonly Message[]) => messages.at(-1)?.result ?? {};

async function project(context: TestContext): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-project-')));
  context.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function scriptedModel(context: TestContext, answer: Parameters<typeof startScriptedModel>[0]) {
  const model = await startScriptedModel(answer);
  context.after(() => model.stop());
  const environment = {
    BRIDGE_AUTH_TOKEN: TOKEN,
    TRESTLE_AGENTS_BUILTIN_MODEL: 'scripted',
    TRESTLE_AGENTS_BUILTIN_BASE_URL: `${model.url}/v1`,
    TRESTLE_AGENTS_BUILTIN_API_KEY: KEY,
  };
  return { model, environment };
}

test('with no key and no agent installed, the built-in agent says the prompt again, word by word', async (context) => {
  const { url } = await startProgram(context, { args: ['bridge'], environment: { BRIDGE_AUTH_TOKEN: TOKEN } });
  const messages = await callStream(url, 'session.start', {
    sessionId: 's',
    taskPrompt: 'Hello, Trestle, how are you?',
  });
  const words = messages.flatMap(({ params }) => (params?.type === 'delta' ? [params.delta] : []));
  assert.deepEqual(words, ['Hello,', ' Trestle,', ' how', ' are', ' you?']);
  const { status, output, resolvedProviderId } = resultOf(messages);
  assert.deepEqual(
    { status, output, resolvedProviderId },
    { status: 'completed', output: 'Hello, Trestle, how are you?', resolvedProviderId: 'builtin' },
  );
});

test('B-57: it does real work in a folder, and no command sees a secret of the program', async (context) => {
  const folder = await project(context);
  const script: readonly ModelReply[] = [
    { toolCall: { name: 'write_file', arguments: { path: 'notes/a.txt', content: 'made' } } },
    { toolCall: { name: 'run_command', arguments: { command: 'env' } } },
    { text: ['Done.'] },
  ];
  const { model, environment } = await scriptedModel(context, ({ toolResults }) => script[toolResults.length] ?? {});
  const { url } = await startProgram(context, { args: ['bridge'], environment });
  const messages = await callStream(url, 'session.start', {
    sessionId: 's',
    taskPrompt: 'Work',
    workingDirectory: folder,
  });
  assert.equal(resultOf(messages).output, 'Done.');
  assert.equal(await readFile(join(folder, 'notes/a.txt'), 'utf8'), 'made');
  const [, printed = ''] = model.requests.at(-1)?.toolResults ?? [];
  assert.match(printed, /^PATH=/m);
  for (const secret of [TOKEN, KEY, 'TRESTLE_', 'BRIDGE_']) assert.equal(printed.includes(secret), false, secret);
  assert.equal(JSON.stringify(messages).includes(KEY), false);
});

test('after kill -9 in the middle of a turn its command is gone and the session goes on', async (context) => {
  const folder = await project(context);
  const { model, environment } = await scriptedModel(context, ({ userTexts, toolResults }) => {
    if (userTexts.at(-1) === 'And now?') return { text: ['Here again.'] };
    if (toolResults.length > 0) return { text: ['never'] };
    return {
      toolCall: { name: 'run_command', arguments: { command: 'sh', args: ['-c', 'echo $$ > pid; sleep 600'] } },
    };
  });
  const dataDirectory = await temporaryFolder(context);
  const options = { args: ['bridge'], environment, dataDirectory };
  const session = { sessionId: 's', workingDirectory: folder };
  const first = await startProgram(context, options);
  const cut = callStream(first.url, 'session.start', { ...session, taskPrompt: 'Wait' }).catch(() => undefined);
  await until('the command to run', async () => (await readdir(folder)).includes('pid'));
  await pause(50);
  const pid = Number(await readFile(join(folder, 'pid'), 'utf8'));
  await first.stop('SIGKILL');
  await cut;
  const second = await startProgram(context, options);
  await until('the command to be gone', () => !isAlive(pid));
  const messages = await callStream(second.url, 'session.message', { ...session, taskPrompt: 'And now?' });
  assert.equal(resultOf(messages).output, 'Here again.');
  assert.deepEqual(model.requests.at(-1)?.userTexts, ['Wait', 'And now?']);
});

test('a command in the background ends when its session is closed, and is gone after kill -9', async (context) => {
  const folder = await project(context);
  const { environment } = await scriptedModel(context, ({ userTexts, toolResults }) => {
    if (toolResults.length > 0) return { text: ['Started.'] };
    const line = `echo $$ > ${userTexts.at(-1)}; sleep 600`;
    return { toolCall: { name: 'start_command', arguments: { command: 'sh', args: ['-c', line] } } };
  });
  const dataDirectory = await temporaryFolder(context);
  const options = { args: ['bridge'], environment, dataDirectory };
  const program = await startProgram(context, options);
  const start = async (sessionId: string) => {
    const params = { sessionId, taskPrompt: sessionId, workingDirectory: folder };
    assert.equal(resultOf(await callStream(program.url, 'session.start', params)).output, 'Started.');
    return until('the command to run', async () => {
      const text = await readFile(join(folder, sessionId), 'utf8').catch(() => '');
      return text.endsWith('\n') && Number(text);
    });
  };
  const [closed, killed] = [await start('closed'), await start('killed')];
  assert.deepEqual([isAlive(closed), isAlive(killed)], [true, true]);
  await callStream(program.url, 'session.close', { sessionId: 'closed' });
  await until('the command of the closed session to be gone', () => !isAlive(closed));
  assert.equal(isAlive(killed), true);
  await program.stop('SIGKILL');
  await startProgram(context, options);
  await until('the command of the killed program to be gone', () => !isAlive(killed));
});

test('DB-1: with the default folders and the review token, no turn reads the secret key', async (context) => {
  const home = await project(context);
  const work = join(home, 'work');
  await mkdir(work);
  const dataDirectory = join(home, '.local', 'share', 'trestle');
  const script = ['../.local/share/trestle/secret.key', 'link', 'second-name'].map(
    (path): ModelReply => ({ toolCall: { name: 'read_file', arguments: { path } } }),
  );
  const { model, environment } = await scriptedModel(
    context,
    ({ toolResults }) => script[toolResults.length] ?? { text: ['Done.'] },
  );
  const review = 'e2e-review-token-0123456789';
  const { url } = await startProgram(context, {
    args: ['bridge'],
    dataDirectory,
    environment: {
      ...environment,
      HOME: home,
      BRIDGE_REVIEW_AUTH_TOKEN: review,
      TRESTLE_BRIDGE_PERMISSIONS: 'deny',
    },
  });
  const key = await readFile(join(dataDirectory, 'secret.key'), 'utf8');
  await symlink(join(dataDirectory, 'secret.key'), join(work, 'link'));
  await link(join(dataDirectory, 'secret.key'), join(work, 'second-name'));
  for (const workingDirectory of [home, join(home, '.local'), dataDirectory, '/']) {
    const messages = await callStream(
      url,
      'session.start',
      { sessionId: 's', taskPrompt: 'Read', workingDirectory },
      review,
    );
    assert.equal(messages.at(-1)?.error?.data.code, 'WORKING_DIRECTORY_REFUSED', workingDirectory);
  }
  const messages = await callStream(
    url,
    'session.start',
    { sessionId: 's', taskPrompt: 'Read', workingDirectory: work },
    review,
  );
  assert.equal(resultOf(messages).output, 'Done.');
  const results = model.requests.at(-1)?.toolResults ?? [];
  assert.equal(results.length, 3);
  for (const result of results) assert.match(result, /^Error: .*(?:outside the working directory|the bridge itself)/);
  assert.ok(!JSON.stringify(messages).includes(key.trim()));
});
