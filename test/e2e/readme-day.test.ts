import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal } from '../kit/terminal.ts';

const README = join(import.meta.dirname, '..', '..', 'README.md');
const LAST_KEY = 'r deny with a reason';
/** Keys that come before the question could be read, within 300 ms, do not count. */
const UNREAD_MS = 350;

/** The commands of the block that begins with the function `trestle`, as the shell would split them. */
async function commandsOfTheDay(folder: string): Promise<readonly (readonly string[])[]> {
  const block = /```sh\ntrestle\(\) [^\n]*\n([\s\S]*?)```/.exec(await readFile(README, 'utf8'))?.[1] ?? '';
  return block
    .split('\n')
    .filter((line) => line.startsWith('trestle '))
    .map((line) => [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? ''))
    .map(([, ...words]) => words.map((word) => word.replace('~/trestle-demo', folder)));
}

test('the day with an agent of the README: asked, allowed, seen, undone, refused with a reason, scheduled', async (t) => {
  const folder = join(await temporaryFolder(t), 'demo');
  await mkdir(folder);
  const config = join(folder, '..', 'trestle.yaml');
  await writeFile(config, JSON.stringify({ bridge: { workspace_roots: [folder] } }));
  const server = await startProgram(t, { args: ['--config', config] });
  const notes = join(folder, 'notes.txt');
  const [write = [], changes = [], undo = [], run = [], ...rest] = await commandsOfTheDay(folder);
  const start = (words: readonly string[]) =>
    startInTerminal(t, [...words, '--data-dir', server.dataDirectory], { workingDirectory: folder });
  const end = async (words: readonly string[]) => {
    const terminal = start(words);
    assert.equal(await terminal.ended, 0, `${words.join(' ')}\n${terminal.screen()}`);
    return terminal.screen();
  };

  const writing = start(write);
  await writing.shows(LAST_KEY);
  assert.match(writing.screen(), /notes\.txt/);
  assert.equal(existsSync(notes), false, 'nothing is written before the answer');
  await pause(UNREAD_MS);
  writing.type('y');
  assert.equal(await writing.ended, 0, writing.screen());
  assert.equal(await readFile(notes, 'utf8'), 'About bridges.\n');

  assert.match(await end(changes), /\+About bridges\./);
  await end(undo);
  assert.equal(existsSync(notes), false, 'undone');

  const refused = start(run);
  await refused.shows(LAST_KEY);
  assert.match(refused.screen(), /touch more-notes\.txt/);
  await pause(UNREAD_MS);
  refused.type('r');
  await refused.shows('reason: ');
  refused.type('one file is enough\r');
  assert.equal(await refused.ended, 0, refused.screen());
  assert.match(refused.screen(), /The tool answered:.*one file is enough/s);
  assert.equal(existsSync(join(folder, 'more-notes.txt')), false);

  assert.deepEqual(
    rest.map(([name = '', what = '']) => `${name} ${what}`.trim()),
    ['schedules add', 'sessions list', 'jobs list', 'usage'],
  );
  const screens = [];
  for (const words of rest) screens.push(await end(words));
  assert.match(screens[0] ?? '', /0 8 \* \* \*/);
  assert.match(screens[1] ?? '', /notes/);
});
