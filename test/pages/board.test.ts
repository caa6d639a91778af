import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import jsqr from 'jsqr';
import { PNG } from 'pngjs';
import { type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

async function startBoard(scope: Scope) {
  const root = await temporaryFolder(scope);
  const [one, other] = [join(root, 'one'), join(root, 'other')];
  await mkdir(one);
  await mkdir(other);
  const config = join(root, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(
    config,
    JSON.stringify({ agents: { catalog: ['scripted', 'builtin'], default: 'scripted', custom } }),
  );
  const program = await startProgram(scope, { args: ['--config', config] });
  /** The answer comes when the turn has ended. */
  const start = (sessionId: string, taskPrompt: string, workingDirectory: string, providerId = 'scripted') =>
    fetch(`${program.url}/acp/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        ...{ jsonrpc: '2.0', id: sessionId, method: 'session.start' },
        params: {
          ...{ sessionId, taskPrompt, workingDirectory },
          routing: { routingMode: 'explicit', explicitProviderId: providerId, permissions: 'ask' },
        },
      }),
    });
  return { program, start, one, other };
}

test('the board: filters and views in the address, a sorted list, and cards that answer, stop, rename and archive', async (t) => {
  const { program, start, one, other } = await startBoard(t);
  await start('done', 'say apple', one);
  // Its title is shown and sorted without the marks.
  await start('echoed', '**zebra**', other, 'builtin');
  const asking = start('asking', 'ask', one);
  const waiting = start('waiting', 'wait', other);
  const { page, problems } = await openPage(t, `${program.url}/console`);
  const needsYou = page.getByRole('region', { name: 'Needs you' });
  const done = page.getByRole('region', { name: 'Done' });
  await needsYou.getByText('touch made').waitFor();
  await until('the title to say it', async () => (await page.title()).startsWith('(1) '));
  await needsYou.getByRole('button', { name: 'Allow once' }).click();
  await done.getByRole('link', { name: /^ask/ }).waitFor();
  await asking;
  assert.equal(existsSync(join(one, 'made')), true);
  await until('the title to be quiet again', async () => !(await page.title()).startsWith('('));

  const running = page.getByRole('region', { name: 'Running' });
  await running.getByLabel('Actions for wait').click();
  await running.getByRole('button', { name: 'Stop' }).click();
  assert.match(await (await waiting).text(), /"status":"cancelled"/);
  // What its user has stopped did not fail.
  await done.getByRole('link', { name: /^wait.*stopped/s }).waitFor();
  await done.getByLabel('Actions for say apple').click();
  await done.getByRole('button', { name: 'Rename' }).click();
  await done.getByLabel('Title').fill('Apples');
  await done.getByLabel('Title').press('Enter');
  await done.getByRole('link', { name: /^Apples/ }).waitFor();

  await page.getByRole('button', { name: 'Folders' }).click();
  await page.waitForURL(/view=folders/);
  const inOther = page.getByRole('region', { name: other });
  await inOther.getByRole('link', { name: /^zebra/ }).waitFor();
  await untilEqual(() => inOther.getByRole('link', { name: /^Apples/ }).count(), 0);

  await page.getByLabel('Agent', { exact: true }).selectOption('builtin');
  await page.getByRole('link', { name: /^Apples/ }).waitFor({ state: 'detached' });
  await page.reload();
  await page.getByRole('link', { name: /^zebra/ }).waitFor();
  await untilEqual(() => page.locator('article.card').count(), 1, 'the address has the filter');
  await page.getByLabel('Agent', { exact: true }).selectOption('any agent');

  await page.getByLabel('Folder', { exact: true }).selectOption(other);
  await page.getByRole('link', { name: /^Apples/ }).waitFor({ state: 'detached' });
  assert.equal(new URL(page.url()).searchParams.get('folder'), other);
  await page.getByRole('link', { name: /^zebra/ }).waitFor();
  await page.getByLabel('Folder', { exact: true }).selectOption('any folder');
  await page.getByRole('link', { name: /^Apples/ }).waitFor();

  await page.getByRole('button', { name: 'List' }).click();
  const titles = () => page.locator('tbody td:first-child').allInnerTexts();
  await page.getByRole('button', { name: 'Session', exact: true }).click();
  await until('it to be sorted', async () => (await titles()).join() === 'Apples,ask,wait,zebra');
  await page.getByRole('button', { name: 'Session ↑' }).click();
  await until('it to be sorted the other way', async () => (await titles()).join() === 'zebra,wait,ask,Apples');
  await untilEqual(() => page.locator('th[aria-sort]').getAttribute('aria-sort'), 'descending');

  await page.getByRole('button', { name: 'Board', exact: true }).click();
  await done.getByLabel('Actions for zebra').click();
  await done.getByRole('button', { name: 'Archive' }).click();
  await done.getByRole('link', { name: /^zebra/ }).waitFor({ state: 'detached' });
  await page.getByLabel('State').selectOption('archived');
  const archived = page.getByRole('region', { name: 'Archived' });
  await archived.getByLabel('Actions for zebra').click();
  await archived.getByRole('button', { name: 'Restore from the archive' }).click();
  await page.getByText('No session matches.').waitFor();
  await page.getByLabel('State').selectOption('any state');
  await done.getByLabel('Actions for Apples').click();
  await done.getByRole('button', { name: 'Close …' }).click();
  const closing = page.getByRole('dialog', { name: 'Close this session?' });
  await closing.getByText('removes “Apples” with its history').waitFor();
  await closing.getByRole('button', { name: 'Remove it' }).click();
  await done.getByRole('link', { name: /^Apples/ }).waitFor({ state: 'detached' });
  assert.equal((await fetch(`${program.url}/api/bridge/sessions/done`)).status, 404);
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');

  // A link fills the form in; the session is handed on as a link, for a shell, and to a phone.
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${program.url}/console/new?prompt=hello&agent=builtin&model=demo/echo`);
  await page.getByText('builtin would do it, with demo/echo.').waitFor();
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByText(/^builtin · demo\/echo/).waitFor();
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const copied = () => page.evaluate<string>('navigator.clipboard.readText()');
  await page.getByLabel('More', { exact: true }).click();
  await page.getByRole('button', { name: 'Copy link' }).click();
  await until('the link', async () => (await copied()) === page.url());
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  await until('the command', async () => (await copied()).startsWith('curl'));
  const address = /^curl -s '([^']+)'$/.exec(await copied())?.[1] ?? '';
  const read = (await (await fetch(address)).json()) as { readonly session: { readonly title: string } };
  assert.equal(read.session.title, 'hello');
  await page.getByRole('button', { name: 'Follow on a phone …' }).click();
  const code = page.getByRole('dialog').getByRole('img', { name: 'QR code' });
  await code.waitFor();
  const { data, width, height } = PNG.sync.read(await code.screenshot());
  const scan = jsqr as unknown as (pixels: Uint8ClampedArray, width: number, height: number) => { data: string } | null;
  assert.equal(scan(new Uint8ClampedArray(data), width, height)?.data, page.url());
  assert.deepEqual(problems, []);
});

test('older sessions come by a button, keys go through the rows, Escape leaves a title, and a task that is written stays', async (t) => {
  const { program, start, one } = await startBoard(t);
  for (const word of ['apple', 'banana', 'cherry']) await start(word, `say ${word}`, one);
  const { page, problems } = await openPage(t, 'about:blank');
  // Pages of one session, as a server with many of them has larger ones.
  await page.route('**/api/bridge/sessions?*limit=200*', async (route) => {
    const address = new URL(route.request().url());
    address.searchParams.set('limit', '1');
    await route.fulfill({ response: await route.fetch({ url: `${address}` }) });
  });
  await page.goto(`${program.url}/console?view=list`);
  const titles = () => page.locator('tbody td:first-child').allInnerTexts();
  await until('the newest', async () => (await titles()).join() === 'say cherry');
  await page.getByRole('button', { name: 'Older sessions' }).click();
  await until('the one before', async () => (await titles()).join() === 'say cherry,say banana');
  await page.getByRole('button', { name: 'Older sessions' }).click();
  await until('all of them', async () => (await titles()).join() === 'say cherry,say banana,say apple');
  await page.getByRole('button', { name: 'Older sessions' }).waitFor({ state: 'detached' });

  const focused = () => page.evaluate<string>('document.activeElement.textContent');
  for (const [key, expected] of [
    ['j', 'say cherry'],
    ['j', 'say banana'],
    ['j', 'say apple'],
    ['k', 'say banana'],
  ] as const) {
    await page.keyboard.press(key);
    assert.equal(await focused(), expected);
  }
  // A search is cleared first, and left then.
  await page.keyboard.press('/');
  await page.keyboard.type('app');
  await until('the search', async () => (await titles()).join() === 'say apple');
  await page.keyboard.press('Escape');
  await until('the address to be as before', async () => !page.url().includes('search'));
  assert.equal(await page.evaluate('document.activeElement.type'), 'search');
  await page.keyboard.press('Escape');
  await until(
    'the field to be left',
    async () => (await page.evaluate('document.activeElement === document.body')) === true,
  );
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/console\/sessions\//);

  // The title is a field that has the focus; afterwards the title has it.
  const heading = page.getByRole('heading', { level: 1 }).getByRole('button');
  await untilEqual(() => heading.innerText(), 'say cherry');
  await heading.click();
  await page.keyboard.type('not this');
  await page.keyboard.press('Escape');
  await untilEqual(focused, 'say cherry');
  await page.keyboard.press('Enter');
  await page.keyboard.type('Renamed');
  await page.keyboard.press('Enter');
  await untilEqual(() => heading.innerText(), 'Renamed');
  await untilEqual(focused, 'Renamed');

  // What is being written outlives a look at another screen; a link with a task does not touch it.
  await page.getByRole('link', { name: 'New session' }).click();
  const task = page.getByLabel('What should be done?');
  await task.fill('a long task');
  await page.getByRole('link', { name: 'Agents' }).click();
  await page.getByRole('heading', { name: 'Agents' }).waitFor();
  await page.goto(`${program.url}/console/new?prompt=other`);
  await untilEqual(() => task.inputValue(), 'other');
  await task.fill('changed');
  await page.goto(`${program.url}/console/new`);
  await untilEqual(() => task.inputValue(), 'a long task');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\/s-/);
  await page.getByRole('link', { name: 'New session' }).click();
  await untilEqual(() => task.inputValue(), '');
  assert.deepEqual(problems, []);
});

test('a board that is being read says so, and fields beside a note keep their places', async (t) => {
  const { program, one } = await startBoard(t);
  execFileSync('git', ['init', '--quiet', '--initial-branch=main', one]);
  const { page, problems } = await openPage(t, 'about:blank');
  const gate = Promise.withResolvers<void>();
  await page.route(/\/api\/bridge\/sessions\?/, async (route) => {
    await gate.promise;
    await route.continue();
  });
  await page.goto(`${program.url}/console`);
  await page.getByRole('main').getByText('Loading …').waitFor();
  assert.equal(await page.getByRole('region', { name: 'Running' }).count(), 0);
  gate.resolve();
  await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
  await page.getByLabel('Folder').fill(one);
  await page.getByText('Branch main').waitFor();
  const tops = ['Agent', 'Model', 'Folder'].map((name) =>
    page
      .getByRole('main')
      .locator('form')
      .getByLabel(name, { exact: true })
      .evaluate((field) => field.getBoundingClientRect().top),
  );
  const [first, ...others] = await Promise.all(tops);
  for (const top of others) assert.ok(Math.abs(top - (first ?? 0)) < 2, `${top} beside ${first}`);
  assert.deepEqual(problems, []);
});

test('a hidden page notifies about a question when the person has switched it on, and a click leads to it', async (t) => {
  const { program, start, one } = await startBoard(t);
  const { page, problems } = await openPage(t, 'about:blank');
  await page.context().grantPermissions(['notifications'], { origin: program.url });
  // The browser here shows no notifications, and no page is behind another one.
  await page.addInitScript(`
    const shown = [];
    class Shown {
      static permission = 'granted';
      static requestPermission = async () => 'granted';
      constructor(title, { body }) {
        Object.assign(this, { title, body });
        shown.push(this);
      }
      close() {}
    }
    Object.assign(window, { shown, isAway: false, Notification: Shown });
    Object.defineProperty(document, 'hidden', { get: () => window.isAway });
  `);
  await page.goto(`${program.url}/console/agents`);
  const hide = (isAway: boolean) => page.evaluate(`window.isAway = ${isAway}`);
  const shown = () => page.evaluate<string[]>('shown.map(({ title, body }) => title + ": " + body)');
  await hide(true);
  // The turns end with the program.
  start('first', 'ask', one).catch(() => undefined);
  await until('the question', async () => (await page.title()).startsWith('(1) '));
  assert.deepEqual(await shown(), [], 'it is off until somebody switches it on');
  await page.getByRole('button', { name: 'Notify me' }).click();
  await page.getByRole('button', { name: 'Notifications are on' }).waitFor();
  await hide(false);
  start('second', 'ask', one).catch(() => undefined);
  await until('two questions', async () => (await page.title()).startsWith('(2) '));
  assert.deepEqual(await shown(), [], 'the page is seen');
  await hide(true);
  start('third', 'ask', one).catch(() => undefined);
  await until('a notification', async () => (await shown()).length === 1);
  assert.deepEqual(await shown(), ['An agent asks: touch made']);
  await page.evaluate('shown[0].onclick()');
  await page.waitForURL(/\/console\/sessions\/third$/);
  await page.reload();
  await page.getByRole('button', { name: 'Notifications are on' }).click();
  await page.getByRole('button', { name: 'Notify me' }).waitFor();
  assert.deepEqual(problems, []);
});
