import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startGatedModel } from './gated-model.ts';
import { openAsAda } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

/** Finds an operation as a reader does: by searching, and choosing what is left. */
async function choose(page: Page, words: string, path: string): Promise<void> {
  await page.getByLabel('Search operations').fill(words);
  await page.getByRole('navigation').getByRole('link').filter({ hasText: path }).first().click();
  await page.getByRole('heading', { level: 2 }).filter({ hasText: path }).waitFor();
}

test('a completion is sent from the page at the root, and its text is seen while the model still writes', async (t) => {
  const model = await startGatedModel(t, 'The <b>first</b> half ', 'and the second.');
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  await writeFile(
    config,
    JSON.stringify({ completions: { apis: { lab: { dialect: 'openai', base_url: model.baseUrl } } } }),
  );
  const program = await startProgram(t, { args: ['completions', '--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/`);
  await choose(page, 'post chat completions', '/v1/chat/completions');

  const body = { model: 'lab/small', messages: [{ role: 'user', content: 'Write.' }] };
  await page.getByLabel('Body').fill(JSON.stringify(body));
  await page.getByLabel('Ask for an event stream').check();
  await page.getByRole('button', { name: 'Send' }).click();

  const text = page.getByLabel('Text so far');
  await text.filter({ hasText: 'The <b>first</b> half' }).waitFor();
  const status = page.getByRole('region', { name: 'Response' }).getByRole('status');
  assert.match(await status.innerText(), /^200 .* receiving/);
  await untilEqual(() => text.locator('b').count(), 0, 'what a model says never becomes markup');

  model.sendRest();
  await status.filter({ hasText: /events$/ }).waitFor();
  assert.equal((await text.innerText()).trim(), 'The <b>first</b> half and the second.');
  assert.deepEqual(problems, []);
});

test('the page of all services lists their operations, and a call and a message get their answers', async (t) => {
  const program = await startProgram(t);
  const { page, problems } = await openPage(t, `${program.url}/docs`);
  await page.getByRole('navigation').getByRole('link').first().waitFor();
  const links = await page.getByRole('navigation').getByRole('link').allInnerTexts();
  for (const path of ['session.start', '/v1/chat/completions', '/api/auth/login']) {
    assert.ok(
      links.some((link) => link.includes(path)),
      `${path} is listed`,
    );
  }

  assert.deepEqual(
    links.filter((link) => link.startsWith('OPTIONS')),
    [],
  );
  assert.match(await page.locator('#version').innerText(), /^\d+\.\d+\.\d+ · contract \d+\.\d+\.\d+$/);
  const welcome = page.getByRole('complementary', { name: 'Where to begin' });
  await untilEqual(() => welcome.getByRole('link', { name: 'Open the console' }).getAttribute('href'), '/console');
  const plain = page.getByRole('navigation').getByText('/chat/completions', { exact: true });
  await untilEqual(() => plain.isVisible(), false, 'what is there with /v1 is folded');
  await page.getByText('The same without /v1').click();
  await untilEqual(() => plain.isVisible(), true);

  await page.getByLabel('Search operations').fill('post acp.capabilities');
  await page.getByRole('navigation').getByRole('link').filter({ hasText: 'acp.capabilities' }).first().click();
  await page.getByRole('heading', { level: 2 }).filter({ hasText: '/acp/rpc' }).waitFor();
  await untilEqual(() => welcome.count(), 0, 'who has chosen an operation needs no welcome');
  const call = JSON.stringify({ jsonrpc: '2.0', id: 'one', method: 'acp.capabilities', params: {} });
  await page.getByLabel('Body').fill(call);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByLabel('Response body').filter({ hasText: '"one"' }).waitFor();

  await choose(page, 'ws acp', '/acp');
  await page.getByRole('button', { name: 'Connect' }).click();
  await page.getByRole('status').filter({ hasText: 'Connected.' }).waitFor();
  await page.getByLabel('Message', { exact: true }).fill(call.replace('one', 'two'));
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByLabel('Messages').getByRole('listitem').filter({ hasText: 'received' }).first().waitFor();
  assert.deepEqual(problems, []);
});

test('a person who is logged in to the console calls methods and routes without a token', async (t) => {
  const { page, url } = await openAsAda(t, '/console');
  await page.goto(`${url}/docs`);
  await page.getByLabel('Search operations').fill('post acp.capabilities');
  await page.getByRole('navigation').getByRole('link').filter({ hasText: 'acp.capabilities' }).first().click();
  await page.getByRole('heading', { level: 2 }).filter({ hasText: '/acp/rpc' }).waitFor();
  const call = { jsonrpc: '2.0', id: 'mine', method: 'acp.capabilities', params: {} };
  await page.getByLabel('Body').fill(JSON.stringify(call));
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByLabel('Response body').filter({ hasText: '"providerCatalog"' }).waitFor();
  await choose(page, 'get api auth session', '/api/auth/session');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByLabel('Response body').filter({ hasText: 'ada@example.com' }).waitFor();
});

test('what is not JSON is said beside the form before it is sent', async (t) => {
  const program = await startProgram(t, { args: ['completions'] });
  const { page, problems } = await openPage(t, `${program.url}/`);
  await choose(page, 'post chat completions', '/v1/chat/completions');
  await page.getByLabel('Body').fill('{ "model": ');
  await page.getByRole('status').filter({ hasText: 'Not valid JSON' }).waitFor();
  assert.deepEqual(problems, []);
});
