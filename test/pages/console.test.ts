import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { FILE, OLD } from '../kit/scripted-work.ts';
import { until } from '../kit/until.ts';
import { openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const PASSWORD = 'copper kettle 47 over the pass';

async function startWithAgent(scope: Scope) {
  const folder = await temporaryFolder(scope);
  const config = join(folder, 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(scope, { args: ['--config', config] });
  return { program, folder };
}

async function startSession(page: Page, prompt: string, folder: string): Promise<void> {
  await page.getByLabel('What should be done?').fill(prompt);
  await page.getByLabel('Folder').fill(folder);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/console\/sessions\//);
}

const log = (page: Page) => page.getByRole('log');

test('from the empty board to an answered question: an agent is started, asks, and its work is shown', async (t) => {
  const { program, folder } = await startWithAgent(t);
  assert.equal(program.summary.console, `${program.url}/console`);
  const { page, problems } = await openPage(t, `${program.url}/`);
  await page.getByRole('link', { name: 'Open the console' }).click();
  await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
  await startSession(page, 'ask', folder);

  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.getByText('touch made').waitFor();
  await page.getByRole('navigation').getByText('1', { exact: true }).waitFor();
  await card.getByRole('button', { name: 'Allow once' }).click();
  await log(page).getByText('answered selected once').waitFor();
  await card.waitFor({ state: 'detached' });
  assert.equal(existsSync(join(folder, 'made')), true);
  await log(page).getByText('Allowed: touch made').waitFor();

  // A question with a form is answered with values.
  await page.getByLabel('Message').fill('form');
  await page.getByLabel('Message').press('Enter');
  await card.getByLabel('Where').selectOption('live');
  await untilEqual(() => card.getByLabel('count (optional)').inputValue(), '2');
  await card.getByLabel('count (optional)').fill('3');
  await card.getByLabel('sure').selectOption('No');
  await card.getByRole('button', { name: 'Answer' }).click();
  await log(page).getByText('"content":{"place":"live","count":3,"sure":false}').waitFor();
  await log(page).getByText('Answered: Where to deploy?').waitFor();
  await card.waitFor({ state: 'detached' });

  // The next message continues the conversation; a denial by key reaches the agent.
  await page.getByLabel('Message').fill('ask');
  await page.getByLabel('Message').press('Enter');
  await card.waitFor();
  await log(page).focus();
  await page.waitForTimeout(700);
  await page.keyboard.press('d');
  await log(page).getByText('answered selected never').waitFor();

  await page.getByRole('link', { name: 'Board' }).click();
  await page.getByRole('region', { name: 'Done' }).getByRole('link', { name: 'ask' }).waitFor();
  await page.getByRole('button', { name: 'List' }).click();
  await page.getByRole('row', { name: /ask.*idle.*scripted/ }).waitFor();
  assert.deepEqual(problems, []);
});

test('what an agent says is text: no markup, no foreign links, nothing hidden; and a turn is stopped', async (t) => {
  const { program, folder } = await startWithAgent(t);
  const { page, problems } = await openPage(t, `${program.url}/console`);
  const hostile =
    'say <img src=x onerror=alert(1)> **bold** [here](javascript:alert(1)) [web](https://example.com/) \u202eevil';
  await startSession(page, hostile, folder);
  const text = log(page).locator('.markdown').last();
  await text.locator('strong').waitFor();
  await text.getByText('⟨U+202E⟩').waitFor();
  await untilEqual(() => text.locator('img').count(), 0);
  const links = await text.getByRole('link').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
  assert.deepEqual(links, ['https://example.com/']);

  await page.getByLabel('Message').fill('wait');
  await page.getByLabel('Message').press('Enter');
  await log(page).getByText('waiting').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await log(page).getByText('cancelled').first().waitFor();
  await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
  assert.deepEqual(problems, []);
});

test('work is shown as it is: thought, plan, diff, output of commands, tokens and cost; on a phone and in the dark too', async (t) => {
  const { program, folder } = await startWithAgent(t);
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.setViewportSize({ width: 1360, height: 860 });
  await mkdir(dirname(join(folder, FILE)), { recursive: true });
  await writeFile(join(folder, FILE), OLD);
  await startSession(page, 'work on the login: a pasted code with a space in it is refused', folder);
  await page.getByRole('region', { name: 'The agent asks' }).waitFor();
  await log(page).getByText('Thought for').waitFor();
  const side = page.getByRole('complementary');
  await side.getByText('+4').waitFor();
  await side.getByText('const digits').waitFor();
  await side.getByRole('tab', { name: 'Plan 2/3' }).click();
  await side.getByText('Run the tests').waitFor();
  await side.getByRole('tab', { name: 'Terminal 1' }).click();
  await side.getByText('0 problems').waitFor();
  await page.getByText('context 21 %').waitFor();
  await log(page).getByText('npm run check').waitFor();
  await page.getByRole('button', { name: 'Edits' }).click();
  await log(page).getByText('npm run check').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'All', exact: true }).click();
  await side.getByRole('tab', { name: 'Changes 1' }).click();
  await page.setViewportSize({ width: 390, height: 844 });
  const isWide = await page.evaluate('document.documentElement.scrollWidth > document.documentElement.clientWidth');
  assert.equal(isWide, false, 'nothing is wider than the screen of a phone');
  await page.emulateMedia({ colorScheme: 'dark' });
  // On a narrow screen the chosen tab opens and closes the pane.
  await side.getByRole('tab', { name: 'Changes 1' }).click();
  await side.getByText('const digits').waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Deny', exact: false }).first().click();
  await log(page).getByText('answered selected never').waitFor();
  assert.deepEqual(problems, []);
});

test('a server that is killed and started again: the page continues where it was, and says so', async (t) => {
  const program = await startProgram(t);
  const { page } = await openPage(t, `${program.url}/console`);
  await page.getByLabel('What should be done?').fill('before the kill');
  await page.getByRole('button', { name: 'Start' }).click();
  await log(page).locator('.markdown').getByText('before the kill').waitFor();
  await log(page).getByText('completed').waitFor();
  await program.stop('SIGKILL');
  await page.getByText('No connection since').waitFor();
  const { host } = new URL(program.url);
  await startProgram(t, { dataDirectory: program.dataDirectory, args: ['--listen', host] });
  await page.getByText('No connection since').waitFor({ state: 'detached' });
  await page.getByLabel('Message').fill('after the kill');
  await page.getByLabel('Message').press('Enter');
  await log(page).locator('.markdown').getByText('after the kill').waitFor();
  const texts = await log(page).locator('.markdown').allInnerTexts();
  assert.deepEqual(texts, ['before the kill', 'after the kill'], 'nothing is lost, nothing comes twice');
});

test('DA-8: mailed links lead to pages: an invitation is accepted, and a forgotten password is set again', async (t) => {
  const program = await startProgram(t, {
    environment: {
      BRIDGE_AUTH_TOKEN: 'a-token-of-the-bridge-0123456789',
      COMPLETIONS_MASTER_KEY: 'sk-master-0123456789',
    },
  });
  const post = (path: string, body: object, headers: Record<string, string> = {}) =>
    fetch(`${program.url}/api/auth/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
  const token = String(program.summary.firstAdmin).split('#')[1];
  assert.equal((await post('setup', { token, name: 'Ada', email: 'ada@example.com', password: PASSWORD })).status, 201);

  const { page, problems } = await openPage(t, `${program.url}/login`);
  await page.getByLabel('E-mail address or name').fill('ada@example.com');
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('heading', { name: 'Board' }).waitFor();
  await page.getByText('Ada').waitFor();

  // Turns take no cookie: the page gets a token of five minutes for them.
  await page.getByLabel('What should be done?').fill('hello from Ada');
  await page.getByRole('button', { name: 'Start' }).click();
  await log(page).locator('.markdown').getByText('hello from Ada').waitFor();
  assert.deepEqual(problems, []);

  // By cookie, from the page itself.
  const invited = await page.evaluate(async () => {
    const response = await fetch('/api/auth/admin/invitations', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ role: 'user' }),
    });
    return (await response.json()) as { link: string };
  });
  const other = await openPage(t, invited.link);
  await other.page.getByLabel('Name', { exact: true }).fill('Ben');
  await other.page.getByLabel('E-mail address').fill('ben@example.com');
  await other.page.getByLabel('Password').fill(PASSWORD);
  await other.page.getByRole('button', { name: 'Create my account' }).click();
  await other.page.getByRole('heading', { name: 'Welcome, Ben' }).waitFor();
  assert.equal(other.page.url().includes('#'), false, 'the token is gone from the address bar');

  const forgot = await openPage(t, `${program.url}/console/forgot`);
  await forgot.page.getByLabel('E-mail address').fill('ada@example.com');
  await forgot.page.getByRole('button', { name: 'Mail me a link' }).click();
  await forgot.page.getByText('a link was mailed to it').waitFor();
  const link = await until('the mail', async () => {
    const outbox = join(program.dataDirectory, 'outbox');
    // A draft gets its final name when the mail is whole: reading it would race with that.
    const names = (await readdir(outbox).catch(() => [])).filter((name) => !name.startsWith('.'));
    const mails = await Promise.all(names.map((name) => readFile(join(outbox, name), 'utf8')));
    return mails
      .map(
        (mail) =>
          /https?:\/\/\S+\/reset-password#token=[\w-]+/.exec(
            mail.replaceAll(/=\r?\n/g, '').replaceAll('=3D', '='),
          )?.[0],
      )
      .find(Boolean);
  });
  const reset = await openPage(t, link);
  await reset.page.getByLabel('New password').fill('short');
  await reset.page.getByRole('button', { name: 'Set the password' }).click();
  await reset.page.getByText('needs at least 8 characters').waitFor();
  await reset.page.getByLabel('New password').fill(`${PASSWORD} again`);
  await reset.page.getByRole('button', { name: 'Set the password' }).click();
  await reset.page.getByRole('heading', { name: 'Your password is set' }).waitFor();
  assert.equal((await post('login', { identifier: 'ada@example.com', password: `${PASSWORD} again` })).status, 200);
  assert.deepEqual([...forgot.problems, ...reset.problems], []);
});

test('messages go with what the session was started with, until someone chooses otherwise; the help has the keys of the navigation', async (t) => {
  const { program, folder } = await startWithAgent(t);
  const { page, problems } = await openPage(t, `${program.url}/console/new`);
  await page.getByRole('button', { name: 'Allow' }).click();
  await startSession(page, 'ask', folder);
  const answers = log(page).getByText('answered selected once');
  await answers.first().waitFor();
  await page.reload();
  const choice = page.getByLabel('Before it runs commands or changes files');
  await untilEqual(() => choice.inputValue(), 'allow');
  await page.getByLabel('Message').fill('ask');
  await page.getByLabel('Message').press('Enter');
  await until('the second turn to be allowed', async () => (await answers.count()) === 2);
  await choice.selectOption('Ask me');
  await page.getByLabel('Message').fill('ask');
  await page.getByLabel('Message').press('Enter');
  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.getByRole('button', { name: 'Allow once' }).click();
  await until('the third turn to be allowed', async () => (await answers.count()) === 3);

  await log(page).focus();
  await page.keyboard.press('?');
  const keys = await page.getByRole('dialog', { name: 'Keys' }).locator('kbd').allInnerTexts();
  assert.deepEqual(
    keys.filter((key) => key.startsWith('g ')),
    ['g b', 'g r', 'g j', 'g a', 'g p', 'g u', 'g c', 'g s'],
    'nobody is logged in: no keys and no account',
  );
  await page.keyboard.press('Escape');
  await log(page).focus();
  await page.keyboard.press('g');
  await page.keyboard.press('j');
  await page.waitForURL(/\/console\/jobs/);
  assert.deepEqual(problems, []);
});

test('the palette goes to screens and sessions and does what keys do; a chord does not answer a question', async (t) => {
  const { program, folder } = await startWithAgent(t);
  const { page, problems } = await openPage(t, `${program.url}/console/new`);
  await startSession(page, 'ask', folder);
  const session = page.url();
  const card = page.getByRole('region', { name: 'The agent asks' });
  await card.waitFor();
  await log(page).focus();
  await page.waitForTimeout(700);
  // `a` alone would allow it.
  await page.keyboard.press('g');
  await page.keyboard.press('a');
  await page.waitForURL(/\/console\/agents$/);
  await page.getByRole('heading', { name: 'Agents' }).waitFor();

  const palette = page.getByRole('dialog', { name: 'Go to' });
  await page.keyboard.press('Control+k');
  await palette.getByRole('option', { name: /Session.*ask/ }).waitFor();
  // The field has the focus, and nothing is wider than the dialog.
  await page.keyboard.type('ask');
  assert.equal(await palette.evaluate((one) => one.scrollWidth <= one.clientWidth), true);
  await palette
    .getByRole('option', { name: /Screen/ })
    .first()
    .waitFor({ state: 'detached' });
  await page.keyboard.press('Enter');
  await page.waitForURL(session);
  await card.getByText('touch made').waitFor();

  // Also from a field; an action of the page behind it.
  await page.getByLabel('Message').focus();
  await page.waitForTimeout(700);
  await page.keyboard.press('Control+k');
  await palette.getByRole('combobox').fill('deny it');
  await page.keyboard.press('Enter');
  await log(page).getByText('answered selected never').waitFor();
  assert.equal(existsSync(join(folder, 'made')), false);

  await page.getByRole('button', { name: 'Go to' }).click();
  await palette.getByRole('combobox').fill('play');
  await palette.getByRole('option', { name: /Screen.*Playground/ }).click();
  await page.waitForURL(/\/console\/playground$/);
  await page.keyboard.press('Control+k');
  await palette.getByRole('combobox').fill('no such thing');
  await palette.getByText('Nothing has this name.').waitFor();
  await page.keyboard.press('Escape');
  await palette.waitFor({ state: 'detached' });
  assert.deepEqual(problems, []);
});
