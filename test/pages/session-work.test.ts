import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
/** A picture of one pixel. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** A program with the scripted agent, and an empty folder for it to work in. */
async function startScripted(scope: Scope, args: readonly string[] = []) {
  const folder = join(await temporaryFolder(scope), 'work');
  await mkdir(folder);
  const config = join(folder, '..', 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT, ...args] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(scope, { args: ['--config', config] });
  return { program, folder, config };
}

async function openSession(scope: Scope, url: string, folder: string, prompt: string) {
  const opened = await openPage(scope, `${url}/console/new?folder=${encodeURIComponent(folder)}`);
  const { page } = opened;
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.getByLabel('What should be done?').fill(prompt);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\//);
  return { ...opened, log: page.getByRole('log'), side: page.getByRole('complementary') };
}

async function send(page: Page, text: string, turns: number): Promise<void> {
  await page.getByLabel('Message').fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
  await until(`${turns} turns to end`, async () => (await page.locator('.turn-end').count()) === turns);
}

test('the changes of a session: of all turns or the last, commented on, copied as a patch, and undone', async (t) => {
  const { program, folder } = await startScripted(t);
  await writeFile(join(folder, 'kept.txt'), 'kept\n');
  const { page, problems, log, side } = await openSession(t, program.url, folder, 'edit first.txt one');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await side.getByRole('tab', { name: 'Changes 1' }).waitFor();
  await send(page, 'sh printf "two\\n" > second.txt', 2);
  // What a command has changed is listed too, although no agent has reported it.
  await side.getByRole('tab', { name: 'Changes 2' }).waitFor();
  await side.getByLabel('Changes of').selectOption('Last turn');
  await side.getByRole('tab', { name: 'Changes 1' }).waitFor();
  await side.getByText('second.txt').waitFor();
  await untilEqual(() => side.getByText('first.txt').count(), 0);

  await side.getByRole('button', { name: 'Comment on line 1' }).click();
  await untilEqual(() => page.getByLabel('Message').inputValue(), 'second.txt:1\n> two\n\n');
  await page.keyboard.type('why?');
  assert.match(await page.getByLabel('Message').inputValue(), /why\?$/, 'the cursor is behind the quote');
  await page.getByLabel('Message').fill('');
  await side.getByRole('button', { name: 'Copy patch' }).click();
  await side.getByRole('button', { name: 'Copied' }).waitFor();
  const patch = await page.evaluate<string>('navigator.clipboard.readText()');
  assert.match(patch, /^\+two$/m);
  assert.doesNotMatch(patch, /first\.txt/);
  const wraps = () => page.evaluate(`getComputedStyle(document.querySelector('aside .diff pre')).whiteSpace`);
  for (const expected of ['pre', 'pre-wrap']) {
    await side.getByRole('button', { name: 'Wrap lines' }).click();
    await untilEqual(wraps, expected);
  }

  await side.getByLabel('Changes of').selectOption('Whole session');
  await side.getByRole('button', { name: 'Side by side' }).click();
  const halves = side.locator('.diff', { hasText: 'first.txt' }).locator('.split tr').first();
  await untilEqual(() => halves.locator('td.absent').count(), 1, 'nothing was there before');
  assert.equal((await halves.locator('td.added').last().innerText()).trim(), '+ one');
  await halves.getByRole('button', { name: 'Comment on line 1' }).click();
  await untilEqual(() => page.getByLabel('Message').inputValue(), 'first.txt:1\n> one\n\n');
  await page.getByLabel('Message').fill('');
  await side.getByRole('button', { name: 'Side by side' }).click();
  await untilEqual(() => side.locator('.split').count(), 0);
  await side.getByLabel('Changes of').selectOption('Last turn');

  assert.equal(
    await log.getByRole('button', { name: 'Undo this turn' }).count(),
    1,
    'only the last turn can be undone',
  );
  await writeFile(join(folder, 'second.txt'), 'changed by hand\n');
  await log.getByRole('button', { name: 'Undo this turn' }).click();
  const dialog = page.getByRole('dialog', { name: 'Undo this turn?' });
  await dialog.getByText('second.txt').waitFor();
  await dialog.getByRole('button', { name: 'Undo it' }).click();
  await dialog.getByText('files_changed').waitFor();
  assert.equal(readFileSync(join(folder, 'second.txt'), 'utf8'), 'changed by hand\n', 'nothing was undone');
  await writeFile(join(folder, 'second.txt'), 'two\n');
  await dialog.getByRole('button', { name: 'Undo it' }).click();
  await page.getByText('1 file is as before the turn').waitFor();
  assert.equal(existsSync(join(folder, 'second.txt')), false);
  assert.equal(readFileSync(join(folder, 'first.txt'), 'utf8'), 'one\n');
  await side.getByText('No file was changed.').waitFor();
  await log.getByRole('button', { name: 'Undo this turn' }).waitFor({ state: 'detached' });

  await side.getByRole('tab', { name: 'Events' }).click();
  await side.getByLabel('Kind of updates').selectOption('tool_call');
  await side.locator('.event summary').first().click();
  await side.getByText('"toolKind": "edit"').waitFor();
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('409')),
    [],
  );
});

test('the pane beside a conversation is resized by dragging and by keys, and stays so; files go with the first message', async (t) => {
  const { program, folder } = await startScripted(t, ['--context']);
  const { page, problems } = await openPage(t, `${program.url}/console/new?folder=${encodeURIComponent(folder)}`);
  await page.setViewportSize({ width: 1360, height: 800 });
  await page.getByLabel('What should be done?').fill('blocks');
  const give = (name: string) =>
    page.getByLabel('Attach').setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from(`this is ${name}`) });
  await give('first.txt');
  await page.getByRole('button', { name: 'Remove first.txt' }).waitFor();
  await give('second.txt');
  await page.getByRole('button', { name: 'Remove second.txt' }).waitFor();
  await page.getByRole('button', { name: 'Remove first.txt' }).click();
  await page.getByRole('button', { name: 'Start' }).click();
  const log = page.getByRole('log');
  await log.getByText('this is second.txt').waitFor();
  await log.getByText('With second.txt').waitFor();
  await untilEqual(() => log.getByText('this is first.txt').count(), 0);

  const divider = page.getByRole('separator', { name: 'Width of the pane' });
  const width = async () => (await page.getByRole('complementary').boundingBox())?.width ?? 0;
  const [usual, whole] = [await width(), (await page.locator('.panes').boundingBox())?.width ?? 0];
  assert.ok(Math.abs(usual - whole * 0.42) < 2, `${usual} of ${whole}`);
  await divider.hover();
  await page.mouse.down();
  await page.mouse.move(700, 400);
  await page.mouse.up();
  assert.ok(Math.abs((await width()) - 660) < 3, 'its edge is where it was dragged to');
  const reads: string[] = [];
  page.on('request', (sent) => void reads.push(new URL(sent.url()).pathname));
  await page.reload();
  await page.locator('.turn-end').waitFor();
  await until('the width that the browser keeps', async () => Math.abs((await width()) - 660) < 3);
  assert.equal(reads.filter((path) => path.endsWith('/updates')).length, 1, 'the end of a session is read once');
  await until('the counts to be read', async () => reads.includes('/api/bridge/sessions'));
  const updates = reads.findIndex((path) => path.endsWith('/updates'));
  assert.ok(
    updates < reads.indexOf('/api/bridge/sessions'),
    'it is read before anything else, while the screen is not drawn yet',
  );
  await divider.focus();
  await page.keyboard.press('ArrowRight');
  assert.ok((await width()) < 650, 'an arrow key moves it');
  await page.keyboard.press('End');
  assert.ok(Math.abs((await width()) - whole * 0.2) < 2, 'it does not disappear');
  await divider.dblclick();
  assert.ok(Math.abs((await width()) - usual) < 2);
  assert.deepEqual(problems, []);
});

test('a session in a worktree of its own leaves the checkout alone until it is merged', async (t) => {
  const { program, folder } = await startScripted(t);
  const git = (...args: string[]) => execFileSync('git', ['-C', folder, ...args], { encoding: 'utf8' });
  git('init', '-q');
  git('config', 'user.name', 'Ada');
  git('config', 'user.email', 'ada@example.com');
  git('commit', '-q', '--allow-empty', '-m', 'first');
  const { page, problems } = await openPage(t, `${program.url}/console/new?folder=${encodeURIComponent(folder)}`);
  await page.getByLabel('Work in a separate worktree').check();
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.getByLabel('What should be done?').fill('edit made.txt apart');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('log').getByText('edited').waitFor();
  await page.locator('.turn-end').waitFor();
  assert.equal(existsSync(join(folder, 'made.txt')), false);
  const menu = page.locator('.session-bar').getByLabel('More', { exact: true });
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await menu.click();
  await page.getByRole('button', { name: 'Merge …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Merge', exact: true }).click();
  await page.getByText(/^Merged into \S+ as [0-9a-f]{10}: 1 files? changed/).waitFor();
  assert.equal(readFileSync(join(folder, 'made.txt'), 'utf8'), 'apart\n');
  assert.equal(git('log', '--oneline').trim().split('\n').length, 2);
  assert.deepEqual(problems, []);
});

test('a folder shows its branch and its changes, is offered again, and is refused at its field; the address keeps tab and filter', async (t) => {
  const { program, folder } = await startScripted(t);
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', folder, '-c', 'user.name=Ada', '-c', 'user.email=ada@example.com', ...args]);
  git('init', '-q', '-b', 'topic');
  await writeFile(join(folder, 'kept.txt'), 'kept\n');
  git('add', '.');
  git('commit', '-q', '-m', 'first');
  await writeFile(join(folder, 'kept.txt'), 'changed\n');
  const { page, problems } = await openPage(t, `${program.url}/console/new`);
  const field = page.getByLabel('Folder', { exact: true });
  await page.getByLabel('What should be done?').fill('work reads');
  await field.fill(join(folder, 'missing'));
  await page.getByRole('button', { name: 'Start' }).click();
  const note = page.locator('.field', { has: field }).getByRole('alert');
  await note.getByText('there is no such folder').waitFor();
  assert.equal(await field.getAttribute('aria-invalid'), 'true');
  assert.equal(await page.getByRole('alert').count(), 1, 'it is said once');
  await note.getByText(/^Agents may work in \//).waitFor();
  await field.fill(folder);
  await page.getByText(/^Branch topic/).waitFor();
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\//);

  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByRole('button', { name: 'Commands' }).click();
  await page.waitForURL(/\?pane=events&show=commands$/);
  await page.reload();
  await page.getByRole('tab', { name: 'Events', selected: true }).waitFor();
  await page.getByRole('button', { name: 'Commands', pressed: true }).waitFor();
  await page.getByRole('tab', { name: 'Changes' }).click();
  await page.getByRole('button', { name: 'All', exact: true }).click();
  await page.waitForURL(/\/sessions\/[^?]+$/);

  await page.goto(`${program.url}/console/new`);
  await untilEqual(() => field.inputValue(), folder);
  assert.equal(await page.locator('datalist option').first().getAttribute('value'), folder);
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('403')),
    [],
  );
});

test('keys move through a conversation; a message is called back; files go with it by button, paste and drop', async (t) => {
  const { program, folder } = await startScripted(t, ['--context', '--image']);
  const { page, problems, log } = await openSession(t, program.url, folder, 'edit first.txt one');
  await page.locator('.turn-end').waitFor();
  await send(page, 'say second', 2);
  await log.focus();
  const focused = () => page.evaluate<string>('document.activeElement?.textContent ?? ""');
  await page.keyboard.press('[');
  await until('the second turn', async () => (await focused()).includes('say second'));
  await page.keyboard.press('[');
  await until('the first turn', async () => (await focused()).includes('edit first.txt one'));
  await page.keyboard.press('e');
  await until('the change', async () => (await focused()).includes('Edit first.txt'));
  await page.keyboard.press('j');
  await until('the text after it', async () => (await focused()) === 'edited');
  await page.keyboard.press('k');
  await until('the change again', async () => (await focused()).includes('Edit first.txt'));
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.keyboard.press('c');
  await page.getByText('Copied', { exact: true }).waitFor();
  assert.match(await page.evaluate<string>('navigator.clipboard.readText()'), /^Edit first\.txt/);
  await page.keyboard.press('m');

  const field = page.getByLabel('Message');
  assert.equal(await page.evaluate('document.activeElement?.tagName'), 'TEXTAREA');
  await page.keyboard.press('ArrowUp');
  await untilEqual(() => field.inputValue(), 'say second');
  await page.keyboard.press('ArrowUp');
  await untilEqual(() => field.inputValue(), 'edit first.txt one');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await untilEqual(() => field.inputValue(), '');

  await field.fill('blocks');
  await page
    .getByLabel('Attach')
    .setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('by button') });
  const files = page.getByRole('list', { name: 'Files of this message' }).getByRole('listitem');
  await files.getByText('notes.txt').waitFor();
  // As a browser does with a picture in the clipboard, and with a file that is dropped.
  await page.evaluate(`
    const give = (member, file, event) => {
      const data = new DataTransfer();
      data.items.add(file);
      document.querySelector(member).dispatchEvent(event(data));
    };
    const bytes = Uint8Array.from(atob('${DOT}'), (one) => one.charCodeAt(0));
    give('.composer textarea', new File([bytes], 'dot.png', { type: 'image/png' }),
      (clipboardData) => new ClipboardEvent('paste', { clipboardData, bubbles: true }));
    give('.composer', new File(['dropped'], 'dropped.txt', { type: 'text/plain' }),
      (dataTransfer) => new DragEvent('drop', { dataTransfer, bubbles: true }));
  `);
  await until('three files', async () => (await files.count()) === 3);
  await untilEqual(() => files.locator('img[src^="blob:"]').count(), 1, 'the picture is shown');
  await page.getByRole('button', { name: 'Remove dropped.txt' }).click();
  await until('two files', async () => (await files.count()) === 2);
  await page.getByRole('button', { name: 'Send' }).click();
  await log.getByText('by button').waitFor();
  await log.getByText('image/png').waitFor();
  await log.getByText(/With notes\.txt, dot\.png|With dot\.png, notes\.txt/).waitFor();
  await untilEqual(() => log.getByText('dropped').count(), 0);
  await untilEqual(() => files.count(), 0);

  // Reads in a row are one line, which opens.
  await field.fill('work reads');
  await page.getByRole('button', { name: 'Send' }).click();
  await log.getByText('12 reads').waitFor();
  await untilEqual(() => log.getByText('Read file-12.ts').isVisible(), false);
  await log.getByText('12 reads').click();
  await log.getByText('Read file-12.ts').waitFor();
  assert.deepEqual(problems, []);
});

test('a turn that the end of the server has interrupted is continued by a button', async (t) => {
  const { program, folder, config } = await startScripted(t, ['--state', await temporaryFolder(t)]);
  const { page, log } = await openSession(t, program.url, folder, 'wait');
  await log.getByText('waiting').waitFor();
  await program.stop('SIGKILL');
  const { host } = new URL(program.url);
  await startProgram(t, { dataDirectory: program.dataDirectory, args: ['--config', config, '--listen', host] });
  await log.getByText('TURN_INTERRUPTED').waitFor();
  await log.getByRole('button', { name: 'Continue' }).click();
  await log.locator('.prompt', { hasText: 'You were interrupted. Continue' }).waitFor();
  await until('the second turn to end', async () => (await page.locator('.turn-end').count()) === 2);
  await untilEqual(() => log.getByRole('button', { name: 'Continue' }).count(), 0, 'it was continued');
});

const WORDS = Array.from({ length: 120 }, (_, index) => `word${index}`).join(' ');

/** The page of a session whose turn takes some twelve seconds. */
async function openBusy(scope: Scope) {
  const config = join(await temporaryFolder(scope), 'trestle.yaml');
  await writeFile(
    config,
    JSON.stringify({ agents: { default: 'builtin', builtin: { model: 'demo/echo?delay=100' } } }),
  );
  const program = await startProgram(scope, { args: ['--config', config] });
  const opened = await openPage(scope, `${program.url}/console/new?prompt=${encodeURIComponent(WORDS)}`);
  const { page } = opened;
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\//).catch(async (error: unknown) => {
    throw new Error(`the session was not opened: ${await page.locator('body').innerText()}`, { cause: error });
  });
  return { ...opened, log: page.getByRole('log') };
}

test('three messages wait; one is removed while the turn runs, and only the others are sent', async (t) => {
  const { page, problems, log } = await openBusy(t);
  const waiting = page.getByRole('list', { name: 'Waiting messages' });
  for (const text of ['first of three', 'second of three', 'third of three']) {
    await page.getByRole('textbox', { name: 'Message' }).fill(text);
    await page.getByRole('button', { name: 'Queue' }).click();
    await waiting.getByText(text).waitFor();
  }
  await waiting.getByRole('button', { name: 'Remove the message second of three' }).click();
  await waiting.getByText('second of three').waitFor({ state: 'detached' });
  await log.getByText('The message was removed before its turn began.').waitFor();
  assert.deepEqual(await waiting.locator('li span').allInnerTexts(), ['first of three', 'third of three']);
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  // By keyboard alone.
  await page.getByRole('textbox', { name: 'Message' }).focus();
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Enter');
  await waiting.getByText('third of three').waitFor({ state: 'detached' });
  await until('two turns to end', async () => (await page.locator('.turn-end').count()) === 2);
  const told = (await log.innerText()).replaceAll(/\s+/g, ' ');
  assert.ok(told.includes(WORDS), 'the note has not cut the answer in two');
  assert.deepEqual(await log.locator('.unsent').allInnerTexts(), ['second of three', 'third of three']);
  assert.deepEqual((await log.locator('.prompt').allInnerTexts()).slice(1), ['first of three']);
  assert.deepEqual(problems, []);
});

test('Stop shows the messages that waited, and the arrow up calls them back', async (t) => {
  const { page, problems, log } = await openBusy(t);
  const field = page.getByRole('textbox', { name: 'Message' });
  for (const text of ['first that waits', 'second that waits']) {
    await field.fill(text);
    await page.getByRole('button', { name: 'Queue' }).click();
    await page.getByRole('list', { name: 'Waiting messages' }).getByText(text).waitFor();
  }
  await page.getByRole('button', { name: 'Stop' }).click();
  const unsent = log.locator('.unsent');
  await until('both messages', async () => (await unsent.count()) === 2);
  assert.deepEqual(await unsent.allInnerTexts(), ['first that waits', 'second that waits']);
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await field.press('ArrowUp');
  await untilEqual(() => field.inputValue(), 'second that waits');
  await field.press('ArrowUp');
  await untilEqual(() => field.inputValue(), 'first that waits');
  assert.deepEqual(problems, []);
});
