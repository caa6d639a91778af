import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';
import { openAsAda, openInvited, PASSWORD } from './logged-in.ts';
import { type OpenPage, openPage, untilEqual } from './open-page.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

/**
 * The way of a person who has never seen Trestle, by what the pages show: from the printed address on, no other address is
 * typed, and only links, buttons and fields are used that have a name on the screen.
 */
test('from the printed address: an account, an agent that asks, the diff on a phone, two models, the cost, a colleague', async (t) => {
  const folder = join(await temporaryFolder(t), 'work');
  await mkdir(folder);
  const config = join(folder, '..', 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  const dollars = { input: 0.000003, output: 0.000015 };
  const prices = { 'demo/echo': dollars, 'demo/echo?delay=5': dollars };
  await writeFile(
    config,
    JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom }, completions: { prices } }),
  );
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, String(program.summary.firstAdmin).replace('127.0.0.1', 'localhost'));

  // The first account.
  await page.getByLabel('Name', { exact: true }).fill('Ada');
  await page.getByLabel('E-mail address').fill('ada@example.com');
  await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
  await page.getByLabel('Password again').fill(PASSWORD);
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();

  // An agent in a folder, which asks and is answered.
  await page.getByRole('link', { name: 'New session' }).first().click();
  await page.getByLabel('What should be done?').fill('ask');
  await page.getByLabel('Folder').fill(folder);
  await page.getByRole('button', { name: 'Start' }).click();
  const question = page.getByRole('region', { name: 'The agent asks' });
  await question.getByText('touch made').waitFor();
  await question.getByRole('button', { name: /^Allow once/ }).click();
  await page.getByRole('log').getByText('answered selected once').waitFor();
  await question.waitFor({ state: 'detached' });
  assert.equal(await readFile(join(folder, 'made'), 'utf8'), '', 'what was allowed is done');
  await page.getByRole('textbox', { name: 'Message' }).fill('edit notes.txt remember the milk');
  await page.getByRole('textbox', { name: 'Message' }).press('Enter');
  await page.getByRole('tab', { name: 'Changes 2' }).waitFor();

  // The same session on a phone: found on the board, its diff read in a sheet.
  await page.setViewportSize({ width: 390, height: 844 });
  const bar = page.getByRole('navigation', { name: 'Console' });
  await bar.getByRole('link', { name: 'Board' }).click();
  await page.getByRole('link', { name: 'ask' }).first().click();
  const side = page.getByRole('complementary');
  await side.getByRole('tab', { name: 'Changes 2' }).click();
  await side.getByText('notes.txt').first().waitFor();
  await side.getByText('remember the milk').first().waitFor();
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than the phone');
  await side.getByRole('tab', { name: 'Changes 2' }).click();
  await page.setViewportSize({ width: 1280, height: 800 });

  // Two models side by side.
  await bar.getByRole('link', { name: 'Playground' }).click();
  await page.getByRole('region', { name: 'Model 1' }).getByLabel('Model 1', { exact: true }).fill('demo/echo');
  await page.getByRole('button', { name: 'Add a model' }).click();
  const second = page.getByRole('region', { name: 'Model 2' });
  await second.getByLabel('Model 2', { exact: true }).fill('demo/echo?delay=5');
  await page.getByLabel('Message').fill('compare one two three four five six seven');
  await page.getByLabel('Message').press('Enter');
  for (const name of ['Model 1', 'Model 2']) {
    await page
      .getByRole('region', { name })
      .getByText(/\d+ \+ \d+ tokens · \$0\.00\d+/)
      .waitFor();
  }

  // What that has cost.
  await bar.getByRole('link', { name: 'Usage' }).click();
  await page
    .getByRole('row', { name: /demo\/echo/ })
    .first()
    .waitFor();
  const cost = page.locator('.figures div', { hasText: 'Cost' }).locator('dd');
  assert.match(await cost.innerText(), /^\$0\.00\d*[1-9]/);

  // A colleague.
  await bar.getByRole('link', { name: 'Users' }).click();
  const invitations = page.getByRole('region', { name: 'Invitations' });
  await invitations.getByRole('button', { name: 'Invite' }).click();
  const ben = await openInvited(t, await invitations.locator('pre').innerText(), 'Ben');
  await ben.page.getByRole('heading', { level: 1 }).first().waitFor();
  await invitations.getByRole('button', { name: 'Done' }).click();
  await page.getByLabel('Search users').fill('ben@');
  await page.getByRole('row', { name: /Ben.*ben@example\.com/ }).waitFor();
  // The folder of the test is not among those that the field offers.
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('403')),
    [],
  );
});

test('invited people see what their plan includes: models without agents, then a session of their own', async (t) => {
  const root = await temporaryFolder(t);
  const { page, problems, url } = await openAsAda(t, '/console/users', {
    agents: { builtin: { model: 'demo/echo' } },
    bridge: { trust_users: true, user_root: join(root, '{user}') },
    plans: { crew: { models: ['demo/*'], bridge: true } },
  });
  const invitations = page.getByRole('region', { name: 'Invitations' });
  const plan = invitations.getByLabel('Plan of the new account');
  async function inviteWith(option: string, name: string): Promise<OpenPage> {
    await plan.getByRole('option', { name: option }).waitFor({ state: 'attached' });
    await plan.selectOption({ label: option });
    await invitations.getByRole('button', { name: 'Invite' }).click();
    const invited = await openInvited(t, await invitations.locator('pre').innerText(), name);
    await invitations.getByRole('button', { name: 'Done' }).click();
    return invited;
  }
  async function work({ page: own }: OpenPage, word: string): Promise<void> {
    await own.getByRole('heading', { name: 'No sessions yet' }).waitFor();
    await own.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'New session' }).click();
    await own.getByLabel('What should be done?').fill(word);
    await own.getByRole('button', { name: 'Start' }).click();
    await own.getByRole('log').getByText(word).nth(1).waitFor();
    await own.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Board' }).click();
    await own.getByRole('link', { name: word }).waitFor();
  }

  // The default plan includes no agents: no screen of theirs is offered, and nothing is asked that would be refused.
  const ben = await inviteWith('the default, without agents', 'Ben');
  await ben.page.getByRole('heading', { name: 'Welcome, Ben' }).waitFor();
  await ben.page.getByText('Your plan does not include agents.').waitFor();
  const links = ben.page.getByRole('navigation', { name: 'Console' }).getByRole('link');
  for (const name of ['Board', 'New session', 'Runs', 'Jobs', 'Agents']) {
    assert.equal(await links.filter({ hasText: name }).count(), 0, name);
  }
  await ben.page.goto(`${url}/console/jobs`);
  await ben.page.getByText('Your plan does not include agents.').waitFor();
  await ben.page.getByRole('main').getByRole('link', { name: 'playground' }).click();
  await ben.page.getByRole('region', { name: 'Model 1' }).getByLabel('Model 1', { exact: true }).fill('demo/echo');
  await ben.page.getByLabel('Message').fill('hello from Ben');
  await ben.page.getByLabel('Message').press('Enter');
  await ben.page
    .getByRole('region', { name: 'Model 1' })
    .getByText(/tokens/)
    .first()
    .waitFor();
  assert.deepEqual(ben.problems, []);

  const cleo = await inviteWith('crew, with agents', 'Cleo');
  await work(cleo, 'heron');

  // An administrator gives Ben the plan: from the next load on he works, too, and sees his own work only.
  await page.reload();
  await page.getByRole('button', { name: 'Ben' }).click();
  const dialog = page.getByRole('dialog', { name: 'Ben' });
  await dialog.getByLabel('New plan').fill('crew');
  await dialog.getByRole('button', { name: 'Give' }).click();
  await dialog.getByText('The plan was changed.').waitFor();
  await ben.page.goto(`${url}/console`);
  await work(ben, 'bittern');
  await untilEqual(() => ben.page.getByText('heron').count(), 0);
  await page.goto(`${url}/console`);
  for (const word of ['heron', 'bittern']) await page.getByRole('link', { name: word }).waitFor();
  for (const one of [problems, ben.problems, cleo.problems]) assert.deepEqual(one, []);
});
