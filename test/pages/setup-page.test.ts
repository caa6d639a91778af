import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { startProgram } from '../kit/running-program.ts';
import { openPage, untilEqual } from './open-page.ts';

const PASSWORD = 'copper kettle 47 over the pass';

async function fill(page: Page, again: string): Promise<void> {
  await page.getByLabel('Name', { exact: true }).fill('Ada');
  await page.getByLabel('E-mail address').fill('ada@example.com');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByLabel('Password again').fill(again);
  await page.getByRole('button', { name: 'Create' }).click();
}

test('DU-8: the first administrator is made on the set-up page, whose link works once and shows its token to nobody', async (t) => {
  const program = await startProgram(t);
  const link = String(program.summary.firstAdmin);
  const { page, problems } = await openPage(t, link);
  await page.getByText('Create the first account.').waitFor();
  assert.equal(page.url(), `${program.url}/setup`, 'the token is gone from the address bar');

  await fill(page, 'another one');
  await page.getByRole('alert').filter({ hasText: 'The two passwords differ.' }).waitFor();
  await page.getByLabel('Password', { exact: true }).fill('short');
  await page.getByText('The password needs at least 8 characters.').waitFor();
  await fill(page, PASSWORD);
  await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
  assert.equal(page.url(), `${program.url}/console`, 'the new administrator is logged in');

  const step = page.getByRole('article').filter({ hasText: 'Connect a model' });
  await step.getByText('OPENAI_API_KEY=… npm start').waitFor();
  await page.getByRole('article').filter({ hasText: 'Install an agent' }).waitFor();
  await step.getByRole('button', { name: 'Dismiss: Connect a model' }).click();
  await page.reload();
  await page.getByRole('article').filter({ hasText: 'Install an agent' }).waitFor();
  await untilEqual(() => step.isVisible(), false, 'a step that was dismissed does not return');
  await page.getByRole('link', { name: 'What is in this folder?' }).click();
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('log').getByText('What is in this folder?').nth(1).waitFor();
  assert.deepEqual(problems, []);

  const login = await fetch(`${program.url}/api/auth/login`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ email: 'ada@example.com', password: PASSWORD }),
  });
  assert.equal(login.status, 200);

  const second = await openPage(t, link);
  await second.page.getByText('An administrator exists already').waitFor();
  await untilEqual(() => second.page.getByRole('button', { name: 'Create' }).isVisible(), false);
  const again = await fetch(`${program.url}/api/auth/setup`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token: link.split('#')[1], name: 'Eve', email: 'eve@example.com', password: PASSWORD }),
  });
  assert.equal(again.status >= 400 && again.status < 500, true, `status ${again.status}`);
});

test('the set-up page offers who may register and which plan is the default, unless the configuration says so', async (t) => {
  const plans = JSON.stringify({ pro: { models: ['*'], budget: { usd: 5 } } });
  const environment = { TRESTLE_PLANS: plans, TRESTLE_ACCOUNTS_REGISTRATION: 'invite' };
  const program = await startProgram(t, { environment });
  const { page, problems } = await openPage(t, String(program.summary.firstAdmin));
  const plan = page.getByLabel('Plan of new users');
  await plan.selectOption('pro (paid models)');
  const registration = page.getByLabel('Who may create an account');
  assert.deepEqual([await registration.isDisabled(), await registration.inputValue()], [true, 'invite']);
  await fill(page, PASSWORD);
  await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
  assert.deepEqual(problems, []);
  const audit = await page.evaluate(
    `fetch('/api/auth/admin/audit?event=user.created').then((response) => response.json())`,
  );
  assert.deepEqual((audit as { entries: { details: object }[] }).entries[0]?.details, {
    ...{ how: 'setup', role: 'root' },
    default_plan: 'pro',
  });
});

test('without its token the set-up page says where the link is, and offers no form', async (t) => {
  const program = await startProgram(t, { args: ['accounts'], environment: { TRESTLE_CONSOLE_ENABLED: 'false' } });
  const { page, problems } = await openPage(t, `${program.url}/setup`);
  await page.getByText('Open the complete link that the program printed').waitFor();
  await untilEqual(() => page.getByRole('button', { name: 'Create' }).isVisible(), false);
  assert.equal(
    (await fetch(`${program.url}/console`)).status,
    404,
    'the console is switched off, its pages for accounts are not',
  );
  const other = await openPage(t, String(program.summary.firstAdmin));
  await fill(other.page, PASSWORD);
  await other.page.getByText('The console is switched off on this server.').waitFor();
  assert.deepEqual([...problems, ...other.problems], []);
});
