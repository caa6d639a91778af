import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { until } from '../kit/until.ts';
import { openAsAda, openInvited, PASSWORD, readByCurl } from './logged-in.ts';
import { untilEqual } from './open-page.ts';

/** People with the usual plan may use agents here. */
const SETTINGS = {
  plans: { worker: { bridge: true } },
  accounts: { default_plan: 'worker' },
  bridge: { trust_users: true },
};
const TEAM = 'Research <b>';

/** A call of the person who is logged in on the page. */
async function post(page: Page, path: string, body: object): Promise<{ team?: { id: string }; link?: string }> {
  const request = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const call = `fetch('/api/auth/${path}', ${JSON.stringify(request)}).then((response) => response.json())`;
  return (await page.evaluate(call)) as { team?: { id: string }; link?: string };
}

test('an administrator makes a team, says who is in it, changes it and removes it', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console/teams');
  await page.getByRole('heading', { name: 'No teams yet' }).waitFor();
  await page.getByRole('button', { name: 'New team' }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('Name').fill(TEAM);
  await form.getByLabel('Plan').fill('no-such-plan');
  await form.getByLabel('Budget in US dollars').fill('20');
  await form.getByRole('button', { name: 'Create' }).click();
  await form.getByRole('alert').getByText('no-such-plan').waitFor();
  await form.getByLabel('Plan').fill('');
  await form.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('heading', { name: TEAM }).waitFor();
  await page.getByText('no plan · $20.00 a month').waitFor();
  await untilEqual(() => page.getByRole('link', { name: 'Work for this team' }).count(), 0, 'Ada is not in it yet');

  const members = page.getByRole('region', { name: 'Members' });
  await members.getByText('This team has no members yet.').waitFor();
  await members.getByLabel('E-mail address or id').fill('nobody@example.com');
  await members.getByRole('button', { name: 'Add' }).click();
  await members.getByRole('alert').waitFor();
  await members.getByLabel('E-mail address or id').fill('ada@example.com');
  await members.getByLabel('Role in the team').selectOption('owner');
  await members.getByRole('button', { name: 'Add' }).click();
  await members.getByRole('listitem').filter({ hasText: 'Ada this is you' }).getByText('owner · since').waitFor();
  await page.getByRole('link', { name: 'Work for this team' }).waitFor();
  assert.match(await readByCurl(page, page), /"name":"Ada"/);

  // Someone without an account comes into the team by a link.
  const invitations = page.getByRole('region', { name: 'Invitations' });
  await invitations.getByText('There are no open invitations.').waitFor();
  await invitations.getByRole('button', { name: 'Invite' }).click();
  const token = new URL(await invitations.locator('pre').innerText()).hash.replace('#token=', '');
  const accepted = await fetch(`${url}/api/auth/invitations/accept`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token, name: 'Ben', email: 'ben@example.com', password: PASSWORD }),
  });
  assert.equal(accepted.status, 201, await accepted.text());
  await page.reload();
  const ben = members.getByRole('listitem').filter({ hasText: 'Ben' });
  await ben.getByText('member · since').waitFor();
  await ben.getByLabel('Role of Ben').selectOption('owner');
  await ben.getByText('owner · since').waitFor();
  await ben.getByRole('button', { name: 'Remove …' }).click();
  await form.getByRole('button', { name: 'Remove from the team' }).click();
  await ben.waitFor({ state: 'detached' });

  await page.getByRole('button', { name: 'Change …' }).click();
  await form.getByLabel('Budget in US dollars').fill('');
  await form.getByRole('button', { name: 'Save' }).click();
  await page.getByText('no plan · no budget').waitFor();
  await page.locator('header.bar').getByRole('button', { name: 'Remove …' }).click();
  await form.getByRole('button', { name: 'Remove it' }).click();
  await page.getByRole('heading', { name: 'No teams yet' }).waitFor();
  // The plan and the person that are not there.
  assert.deepEqual(
    problems.filter((problem) => !/status of 40[04]/.test(problem)),
    [],
  );
});

test('members work in one session of their team, and see what the team has used', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console', SETTINGS);
  const { team } = await post(page, 'teams', { name: TEAM, budget: { usd: 20, period: 'month' } });
  const { id = '' } = team ?? {};
  await post(page, `teams/${id}/members`, { email: 'ada@example.com', role: 'owner' });
  const { link } = await post(page, 'admin/invitations', { team: id });
  await page.goto(`${url}/console/teams/${id}`);
  await page.getByRole('link', { name: 'Work for this team' }).click();
  const whom = page.getByLabel('For', { exact: true });
  await until('the team to be chosen', async () => (await whom.locator('option:checked').innerText()) === TEAM);
  await page.getByLabel('What should be done?').fill('hello from Ada');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.locator('.session-bar .chip', { hasText: TEAM }).waitFor();
  await page.getByRole('log').locator('.markdown', { hasText: 'hello from Ada' }).waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();

  // Ben finds the session on his board, and continues it.
  const ben = await openInvited(t, link ?? '', 'Ben');
  await ben.page.getByLabel('Whose sessions').selectOption({ label: TEAM });
  await ben.page.waitForURL(/owner=team/);
  const card = ben.page.getByRole('link', { name: /hello from Ada/ });
  await card.getByText(TEAM).waitFor();
  await card.click();
  await ben.page.getByRole('log').locator('.markdown', { hasText: 'hello from Ada' }).waitFor();
  await ben.page.getByLabel('Message').fill('hello from Ben');
  await ben.page.getByRole('button', { name: 'Send' }).click();
  await ben.page.getByRole('log').locator('.markdown', { hasText: 'hello from Ben' }).waitFor();
  await page.getByRole('log').locator('.markdown', { hasText: 'hello from Ben' }).waitFor();
  assert.deepEqual(problems, []);

  // What only administrators may do is not offered to him.
  await ben.page.getByRole('link', { name: 'Teams' }).click();
  await ben.page.getByRole('row', { name: /Research <b>.*member.*none.*\$20.00 a month/ }).waitFor();
  await untilEqual(() => ben.page.getByRole('button', { name: 'New team' }).count(), 0);
  await ben.page.getByRole('link', { name: TEAM }).click();
  await ben.page.getByText('$0.00 of $20.00 a month spent').waitFor();
  await ben.page.getByRole('region', { name: 'Members' }).getByText('Ada').waitFor();
  for (const name of ['Change …', 'Remove …', 'Add', 'Invite']) {
    assert.equal(await ben.page.getByRole('button', { name, exact: true }).count(), 0, name);
  }
  await ben.page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await ben.page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  await ben.page.getByRole('button', { name: 'Leave …' }).click();
  await ben.page.getByRole('dialog').getByRole('button', { name: 'Leave it' }).click();
  await ben.page.getByRole('heading', { name: 'You are not in a team' }).waitFor();
  assert.deepEqual(ben.problems, []);
});
