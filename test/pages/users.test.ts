import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { logIn, openAsAda, openInvited, PASSWORD, readByCurl } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

test('administrators invite, change, pause and remove people, and see what happened; others see none of it', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console/users');
  await page.getByRole('row', { name: /Ada.*ada@example.com.*root.*active.*off/ }).waitFor();
  const invitations = page.getByRole('region', { name: 'Invitations' });
  await invitations.getByText('There are no open invitations.').waitFor();
  await invitations.getByRole('button', { name: 'Invite' }).click();
  const link = await invitations.locator('pre').innerText();
  await invitations.getByRole('button', { name: 'Done' }).click();
  await invitations.getByText('anyone who has the link').first().waitFor();

  // This invitation names no address: the field is required from the refusal on.
  const stranger = await openPage(t, link.replace('127.0.0.1', 'localhost'));
  const email = stranger.page.getByLabel('E-mail address');
  await stranger.page.getByLabel('Name', { exact: true }).fill('Ben');
  await stranger.page.getByLabel('Password').fill(PASSWORD);
  await untilEqual(() => email.getAttribute('required'), null);
  await stranger.page.getByRole('button', { name: 'Create my account' }).click();
  await stranger.page.getByRole('alert').getByText('the invitation names no address').waitFor();
  assert.notEqual(await email.getAttribute('required'), null);

  const ben = await openInvited(t, link, 'Ben');
  await untilEqual(() => ben.page.getByRole('link', { name: 'Users' }).count(), 0);
  await ben.page.goto(`${url}/console/users`);
  await ben.page.getByText('forbidden').first().waitFor();

  // Another one is made, listed and revoked.
  await page.reload();
  await invitations.getByText('There are no open invitations.').waitFor();
  await invitations.getByLabel('E-mail address').fill('cleo@example.com');
  await invitations.getByLabel('Mail the link').uncheck();
  await invitations.getByLabel('Role of the new account').selectOption('operator');
  await invitations.getByRole('button', { name: 'Invite' }).click();
  await invitations.getByText('It is not shown again').waitFor();
  const cleo = invitations.getByRole('listitem').filter({ hasText: 'cleo@example.com as operator' });
  await cleo.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke it' }).click();
  await invitations.getByText('There are no open invitations.').waitFor();

  await page.getByLabel('Search users').fill('ben@');
  await page.getByRole('row', { name: /Ada/ }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Ben' }).click();
  const dialog = page.getByRole('dialog', { name: 'Ben' });
  assert.match(await readByCurl(page, dialog), /"email":"ben@example\.com"/);
  await dialog.getByLabel('Role').selectOption('readonly');
  await dialog.getByText('The role was changed.').waitFor();
  await dialog.getByLabel('New plan').fill('no-such-plan');
  await dialog.getByRole('button', { name: 'Give' }).click();
  await dialog.getByRole('alert').getByText('no-such-plan').waitFor();
  await dialog.getByLabel('New plan').fill('free');
  await dialog.getByRole('button', { name: 'Give' }).click();
  await dialog.getByText('The plan was changed.').waitFor();
  await page.getByRole('row', { name: /Ben.*readonly/, includeHidden: true }).waitFor();
  await dialog.getByRole('button', { name: 'Pause' }).click();
  await dialog.getByText('Paused: all logins have ended.').waitFor();
  await ben.page.goto(`${url}/login?next=/console/me`);
  await logIn(ben.page, 'ben@example.com', PASSWORD);
  await ben.page.getByText('This account is suspended.').waitFor();
  await dialog.getByRole('button', { name: 'Resume' }).click();
  await dialog.getByText('May log in again.').waitFor();
  await logIn(ben.page, 'ben@example.com', PASSWORD);
  await ben.page.getByRole('heading', { name: 'Ben' }).waitFor();
  await dialog.getByRole('button', { name: 'End all logins' }).click();
  await dialog.getByText('All logins have ended.').waitFor();
  await ben.page.reload();
  await ben.page.getByRole('button', { name: 'Log in' }).waitFor();

  // What was done is recorded, and filters are in the address.
  await dialog.getByRole('link', { name: 'Audit entries of this account' }).click();
  await page.getByRole('row', { name: /role\.changed.*before: user · after: readonly/ }).waitFor();
  await page.getByRole('button', { name: 'user.paused' }).click();
  await page.getByRole('row', { name: /role\.changed/ }).waitFor({ state: 'detached' });
  assert.equal(new URL(page.url()).searchParams.get('event'), 'user.paused');
  await page.getByLabel('Event').fill('no.such');
  await page.getByText('No entry matches.').waitFor();

  await page.getByRole('link', { name: 'Users' }).click();
  await page.getByRole('button', { name: 'Ben' }).click();
  await dialog.getByText('Remove this account').click();
  await dialog.getByLabel('Type the e-mail address').fill('ben@example.co');
  await untilEqual(() => dialog.getByRole('button', { name: 'Remove it' }).isDisabled(), true);
  await dialog.getByLabel('Type the e-mail address').fill('ben@example.com');
  await dialog.getByRole('button', { name: 'Remove it' }).click();
  await page.getByRole('row', { name: /Ben/ }).waitFor({ state: 'detached' });
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  // The plan that is not there.
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('400')),
    [],
  );
});

test('an administrator sees who asks for which plan, approves it, and finds everyone who has the plan', async (t) => {
  const settings = { plans: { pro: { models: ['*'], budget: { usd: 50, period: 'month' } } } };
  const { page, problems, url } = await openAsAda(t, '/console/subscriptions', settings);
  await page.getByText('No subscription matches.').waitFor();
  await page.getByText('models * · no limit of requests a minute').waitFor();
  const claim = { externalId: 'order-1', planId: 'pro', provider: 'bank' };
  const asked = await page.request.post(`${url}/api/auth/subscriptions`, {
    data: claim,
    headers: { origin: url },
  });
  assert.equal(asked.status(), 200);
  await page.reload();
  await page.getByRole('row', { name: /order-1.*Ada.*pending.*none.*pro/ }).waitFor();
  await page.getByRole('button', { name: 'order-1' }).click();
  const dialog = page.getByRole('dialog', { name: 'order-1' });
  await dialog.getByText('bank').waitFor();
  await dialog.getByLabel('Status').selectOption('active');
  await dialog.getByLabel('Plan of the subscription').selectOption('pro');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('row', { name: /order-1.*Ada.*active.*pro/ }).waitFor();

  const free = page.getByRole('listitem').filter({ hasText: 'free' });
  await free.getByRole('button', { name: 'Who has it' }).click();
  await page.getByText('No subscription matches.').waitFor();
  assert.equal(new URL(page.url()).searchParams.get('plan'), 'free');
  await page.getByLabel('Plan', { exact: true }).selectOption('pro');
  await page.getByRole('row', { name: /order-1/ }).waitFor();
  await page.getByLabel('Status').selectOption('cancelled');
  await page.getByText('No subscription matches.').waitFor();
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390, 'nothing is wider than a phone');
  assert.deepEqual(problems, []);
});

test('the palette finds users and keys by name, for those who may see them', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console/users');
  const invitations = page.getByRole('region', { name: 'Invitations' });
  await invitations.getByRole('button', { name: 'Invite' }).click();
  const ben = await openInvited(t, await invitations.locator('pre').innerText(), 'Ben');
  const made = await page.request.post(`${url}/api/auth/keys`, {
    data: { name: 'laptop <b>' },
    headers: { origin: url },
  });
  assert.equal(made.status(), 201);
  const paletteOf = (opened: Page) => opened.getByRole('dialog', { name: 'Go to' });
  await page.keyboard.press('Control+k');
  const search = paletteOf(page).getByRole('combobox');
  await search.fill('lapt');
  await paletteOf(page)
    .getByRole('option', { name: /^Key laptop <b>/ })
    .click();
  await page.waitForURL(`${url}/console/keys`);
  await page.keyboard.press('Control+k');
  await search.fill('ben@exam');
  await paletteOf(page).getByRole('option', { name: 'User Ben ben@example.com' }).waitFor();
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/console\/users\?search=ben%40example\.com$/);
  await page.getByRole('row', { name: /Ben/ }).waitFor();
  assert.deepEqual(problems, []);

  // Ben may not see users, and is not asked to: nothing is refused.
  await ben.page.keyboard.press('Control+k');
  await paletteOf(ben.page).getByRole('combobox').fill('ada');
  await paletteOf(ben.page).getByText('Nothing has this name.').waitFor();
  assert.deepEqual(ben.problems, []);
});
