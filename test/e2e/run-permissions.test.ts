import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Permission } from '../../src/bridge/contract/workbench.ts';
import { createTrestleClient } from '../../src/client/trestle-client.ts';
import { runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal, type Terminal } from '../kit/terminal.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const folder = await temporaryFolder({ after });
const config = join(folder, 'trestle.yaml');
const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
const server = await startProgram({ after }, { args: ['--config', config] });
const data = ['--data-dir', server.dataDirectory, '--config', config];
const made = join(folder, 'made');

const LAST_KEY = 'r deny with a reason';
/** Keys that come before the question could be read, within 300 ms, do not count. */
const UNREAD_MS = 350;

/** Types one key for a question whose keys are shown: once, because one more would be typed into what comes next. */
async function typeAnswer(terminal: Terminal, key: string): Promise<void> {
  await pause(UNREAD_MS);
  terminal.type(key);
}

/** The agent asks whether it may run `touch made`, does it when it may, and says what was answered. */
async function ask(scope: Scope, key: string) {
  await rm(made, { force: true });
  const terminal = startInTerminal(scope, ['run', '--ask', 'ask', ...data], { workingDirectory: folder });
  await terminal.shows(LAST_KEY);
  await typeAnswer(terminal, key);
  return { code: await terminal.ended, screen: terminal.screen() };
}

test('a key on the terminal denies or allows what the agent asks', async (t) => {
  const denied = await ask(t, 'n');
  assert.equal(denied.code, 0, denied.screen);
  assert.match(denied.screen, /execute\?.*touch made/);
  assert.match(denied.screen, /answered selected never/);
  assert.equal(existsSync(made), false);
  const allowed = await ask(t, 'y');
  assert.match(allowed.screen, /answered selected once/);
  assert.equal(existsSync(made), true);
});

test('a person types why something is denied, and the agent gets the reason', async (t) => {
  const terminal = startInTerminal(t, ['run', '--ask', 'ask', ...data], { workingDirectory: folder });
  await terminal.shows(LAST_KEY);
  await typeAnswer(terminal, 'r');
  await terminal.shows('reason: ');
  terminal.type('wrong\x15not on a Friday\r');
  assert.equal(await terminal.ended, 0, terminal.screen());
  assert.match(terminal.screen(), /answered selected never because not on a Friday/);
});

test('a form is filled in on the terminal, wrong values are asked for again, and Ctrl-D declines', async (t) => {
  const terminal = startInTerminal(t, ['run', '--ask', 'form', ...data], { workingDirectory: folder });
  const asked = (field: string, times = 2) =>
    until(`${field} is asked for`, () => terminal.screen().split(`  ${field} (`).length >= times);
  await asked('Where');
  assert.match(terminal.screen(), /question\?.*Where to deploy\?.*1 staging.*2 live/s);
  terminal.type('9\r');
  await asked('Where', 3);
  terminal.type('2\r');
  await asked('count');
  terminal.type('12\r');
  await asked('sure');
  terminal.type('y\r');
  await asked('note');
  terminal.type('\r');
  await terminal.shows('values.count must be at most 9');
  await asked('Where', 4);
  terminal.type('staging\r');
  await asked('count', 3);
  terminal.type('\r');
  await asked('sure', 3);
  terminal.type('n\r');
  await asked('note', 3);
  terminal.type('soonx\x7f\r');
  assert.equal(await terminal.ended, 0, terminal.screen());
  const content = '{"place":"staging","count":2,"sure":false,"note":"soon"}';
  assert.ok(terminal.screen().includes(`{"action":"accept","content":${content}}`), terminal.screen());

  const declining = startInTerminal(t, ['run', '--ask', 'form', ...data], { workingDirectory: folder });
  await declining.shows('Ctrl-D declines');
  declining.type('\x04');
  assert.equal(await declining.ended, 0, declining.screen());
  assert.match(declining.screen(), /\{"action":"decline"\}/);
});

test('Ctrl-C cancels a turn that waits for an answer', async (t) => {
  const { code, screen } = await ask(t, '\x03');
  assert.equal(code, 130, screen);
  assert.equal(existsSync(made), false);
  const afterKeys = screen.slice(screen.lastIndexOf(LAST_KEY) + LAST_KEY.length);
  assert.equal(afterKeys, ' ^C\r\ncancelled\r\n', 'one line says how it ended');
});

test('run says what it waits for: a permission, or the turn that runs in its session', async (t) => {
  const trestle = createTrestleClient({ url: server.url });
  t.after(() => trestle.close());
  const openQuestion = (sessionId: string) =>
    until('the question', async () =>
      (await trestle.permissions.list()).find((question) => question.sessionId === sessionId),
    );
  const deny = (permissionId: string) => trestle.permissions.answer(permissionId, { decision: 'deny' });
  const held = trestle.session('held', { routing: { permissions: 'ask' } }).start('ask', { workingDirectory: folder });
  const question = await openQuestion('held');
  const next = startInTerminal(t, ['run', '--session', 'held', 'say hello', ...data], { workingDirectory: folder });
  await next.shows('waiting for the turn that runs in this session, which waits for permission: touch made');
  await next.shows('answer with: trestle sessions follow held --ask');
  const quiet = runProgram(['run', '--json', '--session', 'held', 'say hello', ...data], { workingDirectory: folder });
  await until('the quiet one to wait', async () => (await trestle.sessions.get('held')).queued.length === 2);
  await deny(question.permissionId);
  assert.equal((await held.result).status, 'completed');
  assert.equal(await next.ended, 0, next.screen());
  assert.equal(next.screen().split('which waits for').length, 2, 'each reason is said once');
  assert.equal((await quiet).stderr, '');
});

test('chat asks too: a denial takes a reason, and the next turn is asked again', async (t) => {
  await rm(made, { force: true });
  const terminal = startInTerminal(t, ['chat', '--ask', '--session', 'asked', ...data], { workingDirectory: folder });
  await terminal.shows('> ');
  terminal.type('ask\r');
  await terminal.shows(LAST_KEY);
  await typeAnswer(terminal, 'r');
  await terminal.shows('reason: ');
  terminal.type('not nowx\x7f\r');
  await terminal.shows('answered selected never');
  assert.equal(existsSync(made), false);
  const { permissions } = (await fetch(`${server.url}/api/bridge/permissions?state=all&sessionId=asked`).then(
    (response) => response.json(),
  )) as { permissions: Permission[] };
  assert.deepEqual(
    permissions.map(({ state, reason }) => [state, reason]),
    [['denied', 'not now']],
  );
  terminal.type('ask\r');
  await until('the second question', () => terminal.screen().split(LAST_KEY).length === 3);
  await typeAnswer(terminal, 'y');
  await terminal.shows('answered selected once');
  assert.equal(existsSync(made), true);
  terminal.type('\x04');
  assert.equal(await terminal.ended, 0, terminal.screen());
});

test('Ctrl-C in a chat cancels a turn that asks; a second one, while a turn does not end, ends the command', async (t) => {
  const terminal = startInTerminal(t, ['chat', '--ask', ...data], { workingDirectory: folder });
  await terminal.shows('> ');
  terminal.type('ask\r');
  await terminal.shows(LAST_KEY);
  terminal.type('\x03');
  await terminal.shows('cancelled');
  await until('the next line to be asked for', () => plain(terminal.screen()).endsWith('> '));
  terminal.type('ignore\r');
  await terminal.shows('deaf');
  terminal.type('\x03');
  terminal.type('\x03');
  assert.equal(await terminal.ended, 130, terminal.screen());
});

test('what a session asks is answered from another terminal with sessions follow --ask', async (t) => {
  const running = runProgram(['run', '--ask', '--session', 'elsewhere', 'ask', ...data], { workingDirectory: folder });
  await until('a question', async () => {
    const response = await fetch(`${server.url}/api/bridge/permissions?sessionId=elsewhere`);
    return ((await response.json()) as { permissions?: Permission[] }).permissions?.[0];
  });
  const args = ['sessions', 'follow', 'elsewhere', '--ask', ...data];
  const terminal = startInTerminal(t, args, { workingDirectory: folder });
  await terminal.shows(LAST_KEY);
  await typeAnswer(terminal, 'n');
  await terminal.shows('answered selected never');
  const { stdout, stderr } = await running;
  assert.equal(stdout, 'answered selected never\n');
  assert.match(stderr, /waiting for an answer: trestle sessions follow elsewhere --ask/);
  terminal.type('\x03');
  assert.equal(await terminal.ended, 130, terminal.screen());
});

test('a narrow window and one that changes its size lose nothing, and NO_COLOR shows no escape sequences', async (t) => {
  const file = join(folder, 'wide.txt');
  await writeFile(file, 'before\n');
  const long = 'a line of sixty-four characters, which is wider than the window 🙂';
  const narrow = { workingDirectory: folder, columns: 30 };
  const terminal = startInTerminal(t, ['chat', '--session', 'narrow', ...data], narrow);
  await terminal.shows('> ');
  terminal.type(`edit wide.txt ${long}\r`);
  await terminal.shows('edited');
  assert.ok(terminal.screen().includes(`\u001b[32m+${long}\u001b[39m`), JSON.stringify(terminal.screen()));
  terminal.type('wait\r');
  await terminal.shows('waiting');
  terminal.type('say typed while the turn runs');
  await terminal.resize(20);
  terminal.type('\x03');
  await terminal.shows('cancelled');
  await until('the line that was typed', () => plain(terminal.screen()).replaceAll(/\s/g, '').endsWith('turnruns'));
  assert.match(plain(terminal.screen()), /waiting\s+cancelled/, 'the editor draws nothing over the answer');
  terminal.type('\r');
  await until('the answer', () => plain(terminal.screen()).split(/typed\s+while/).length > 2);
  terminal.type('\x04');
  assert.equal(await terminal.ended, 0, terminal.screen());
  assert.equal(plain(terminal.screen()).includes('\u001b'), false, 'every escape sequence is whole');

  const colourless = startInTerminal(t, ['run', `edit wide.txt ${long} again`, ...data], {
    ...narrow,
    environment: { NO_COLOR: '1' },
  });
  assert.equal(await colourless.ended, 0, colourless.screen());
  assert.match(colourless.screen(), /wide\.txt \+1 -1\r\nedited/);
  assert.equal(colourless.screen().includes('\u001b'), false, JSON.stringify(colourless.screen()));
});

/** What a terminal has shown, without its escape sequences. */
function plain(screen: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is removed
  return screen.replaceAll(/\u001b\[[\d;?]*[A-Za-z]/g, '');
}

test('without a terminal the question is answered over HTTP, and options that exclude each other are refused', async () => {
  const running = runProgram(['run', '--ask', 'ask', ...data], { workingDirectory: folder });
  const question = await until('a question', async () => {
    const response = await fetch(`${server.url}/api/bridge/permissions`);
    return ((await response.json()) as { permissions: Permission[] }).permissions[0];
  });
  await fetch(`${server.url}/api/bridge/permissions/${question.permissionId}/answer`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ decision: 'deny' }),
  });
  const { code, stdout, stderr } = await running;
  assert.deepEqual([code, stdout], [0, 'answered selected never\n'], stderr);
  const denied = await runProgram(['run', '--deny', 'ask', ...data], { workingDirectory: folder });
  assert.equal(denied.stdout, 'answered selected never\n', denied.stderr);
  const both = await runProgram(['run', '--ask', '--deny', 'ask', ...data], { workingDirectory: folder });
  assert.equal(both.code, 2);
  assert.match(both.stderr, /exclude each other/);
});
