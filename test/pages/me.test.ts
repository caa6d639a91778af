import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import jsqr from 'jsqr';
import { Secret, TOTP } from 'otpauth';
import type { Page } from 'playwright-core';
import { PNG } from 'pngjs';
import { startProgram } from '../kit/running-program.ts';
import { addAuthenticator, logIn, openAsAda, openInvited, PASSWORD, TOKENS } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';

const part = (page: Page, name: string) => page.getByRole('region', { name });
const NEW_PASSWORD = `${PASSWORD} again`;

test('the own account: name, password, logins, access tokens', async (t) => {
  const { page, problems, url } = await openAsAda(t, '/console/me');
  const profile = part(page, 'Profile');
  await profile.getByLabel('Name').fill('Ada L.');
  await profile.getByRole('button', { name: 'Save' }).click();
  await profile.getByText('Your name was saved.').waitFor();
  await page.getByRole('navigation').getByText('Ada L.').waitFor();

  // Another browser logs in, is listed, and is ended.
  const other = await openPage(t, `${url}/login`);
  await logIn(other.page, 'ada@example.com', PASSWORD);
  await other.page.getByRole('heading', { name: 'Board' }).waitFor();
  await page.reload();
  const logins = part(page, 'Logins');
  await logins.getByText('this one').waitFor();
  await untilEqual(() => logins.getByRole('listitem').count(), 2);
  await logins.getByRole('button', { name: 'End', exact: true }).click();
  await logins.getByRole('button', { name: 'End', exact: true }).waitFor({ state: 'detached' });
  await untilEqual(() => logins.getByRole('listitem').count(), 1);
  await other.page.goto(`${url}/console/me`);
  await other.page.getByRole('button', { name: 'Log in' }).waitFor();

  const password = part(page, 'Password');
  await password.getByLabel('New password').fill('short');
  await password.getByLabel('Current password').fill(PASSWORD);
  await password.getByRole('button', { name: 'Change the password' }).click();
  await password.getByText('needs at least 8 characters').waitFor();
  assert.equal(problems.join(' '), '', 'until here nothing was refused');
  await password.getByLabel('New password').fill(NEW_PASSWORD);
  await password.getByLabel('Current password').fill('not the password');
  await password.getByRole('button', { name: 'Change the password' }).click();
  await password.getByText('The current password is wrong.').waitFor();
  await password.getByLabel('Current password').fill(PASSWORD);
  await password.getByRole('button', { name: 'Change the password' }).click();
  await password.getByText('Your password was changed').waitFor();

  // The login session was replaced: the page goes on with the new one.
  const tokens = part(page, 'Access tokens');
  await tokens.getByText('There are none yet.').waitFor();
  await tokens.getByLabel('Name of a new token').fill('build server');
  await tokens.getByLabel('completions').uncheck();
  await tokens.getByRole('button', { name: 'Create the token' }).click();
  await tokens.getByText('Choose at least one scope for the token.').waitFor();
  await tokens.getByLabel('account').check();
  await tokens.getByLabel('Ends after').selectOption('30 days');
  await tokens.getByRole('button', { name: 'Create the token' }).click();
  const token = await tokens.locator('pre').innerText();
  const asToken = () => fetch(`${url}/api/auth/session`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal((await asToken()).status, 200);
  await tokens.getByRole('button', { name: 'I have stored it' }).click();
  await tokens.locator('pre').waitFor({ state: 'detached' });
  const row = tokens.getByRole('listitem').filter({ hasText: 'build server' });
  await row.getByText('account · until').waitFor();
  await row.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke it' }).click();
  await tokens.getByText('There are none yet.').waitFor();
  assert.equal((await asToken()).status, 401);

  await page.getByRole('button', { name: 'Log out' }).click();
  await page.waitForURL(`${url}/login`);
  await page.goto(`${url}/login?next=/console/me`);
  await logIn(page, 'ada@example.com', NEW_PASSWORD);
  await page.getByRole('heading', { name: 'Ada L.' }).waitFor();
  assert.deepEqual(
    problems.filter((text) => !text.includes('401')),
    [],
  );
});

test('second factor and passkeys: a login that is not fresh is confirmed by password and code', async (t) => {
  const { page, problems, program, url } = await openAsAda(t, '/console/me');
  await addAuthenticator(page);

  const factor = part(page, 'Second factor');
  await factor.getByRole('button', { name: 'Switch on' }).click();
  await factor.getByRole('img', { name: 'QR code' }).waitFor();
  const key = (await factor.locator('code').innerText()).replaceAll(' ', '');
  // As an app does with the camera of a phone.
  const { data, width, height } = PNG.sync.read(await factor.getByRole('img', { name: 'QR code' }).screenshot());
  const scan = jsqr as unknown as (pixels: Uint8ClampedArray, width: number, height: number) => { data: string } | null;
  const scanned = new URL(scan(new Uint8ClampedArray(data), width, height)?.data ?? '');
  assert.equal(scanned.protocol, 'otpauth:');
  assert.equal(scanned.searchParams.get('secret'), key, 'the picture and the text are the same key');
  const codes = new TOTP({ secret: Secret.fromBase32(key) });
  await factor.getByLabel('Code of the app').fill('000000');
  await factor.getByRole('button', { name: 'Switch on' }).click();
  await factor.getByText('The code is wrong').waitFor();
  await factor.getByLabel('Code of the app').fill(codes.generate());
  await factor.getByRole('button', { name: 'Switch on' }).click();
  const done = factor.getByRole('button', { name: 'Done' });
  await done.waitFor();
  await untilEqual(() => done.isDisabled(), true, 'not before the codes are stored');
  const recovery = (await factor.locator('pre').innerText()).split('\n');
  assert.equal(recovery.length, 10);
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    factor.getByRole('link', { name: 'Download' }).click(),
  ]);
  assert.equal(await readFile(await download.path(), 'utf8'), `${recovery.join('\n')}\n`);
  await factor.getByLabel('I have stored them').check();
  await done.click();
  await factor.getByText('10 recovery codes are left.').waitFor();

  const passkeys = part(page, 'Passkeys and linked logins');
  await passkeys.getByLabel('Name of a new passkey').fill('laptop');
  await passkeys.getByRole('button', { name: 'Add a passkey' }).click();
  await passkeys.getByRole('listitem').filter({ hasText: 'laptop' }).waitFor();
  await passkeys.getByLabel('Name of a new passkey').fill('again');
  await passkeys.getByRole('button', { name: 'Add a passkey' }).click();
  await passkeys.getByText('This device already has a passkey for your account.').waitFor();

  // Six minutes pass, while the page is closed: it would ask a program that is stopping.
  await page.goto('about:blank');
  await program.stop();
  const database = new DatabaseSync(join(program.dataDirectory, 'accounts.db'));
  database.exec(`UPDATE sessions SET created_at = created_at - 360000`);
  database.close();
  await startProgram(t, {
    dataDirectory: program.dataDirectory,
    environment: TOKENS,
    args: ['--listen', new URL(program.url).host],
  });
  await page.goto(`${url}/console/me`);
  await passkeys.getByRole('button', { name: 'Show them' }).click();
  const dialog = page.getByRole('dialog', { name: 'Confirm that it is you' });
  await dialog.getByLabel('Password').fill('not the password');
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await dialog.getByText('The name or the password is wrong.').waitFor();
  await dialog.getByLabel('Password').fill(PASSWORD);
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await dialog.getByLabel('Code of your authenticator app').fill(recovery[0] ?? '');
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await dialog.waitFor({ state: 'detached' });
  const laptop = passkeys.getByRole('listitem').filter({ hasText: 'laptop' });
  await laptop.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove it' }).click();
  await laptop.waitFor({ state: 'detached' });
  const logins = part(page, 'Logins');
  await logins.getByText('this one').waitFor();
  await untilEqual(() => logins.getByRole('listitem').count(), 1, 'the confirmation has replaced the login before');

  await factor.getByRole('button', { name: 'Switch off' }).click();
  const proof = page.getByRole('dialog', { name: 'Switch the second factor off?' });
  await proof.getByLabel('Your password').fill(PASSWORD);
  await proof.getByLabel('Code of the app').fill('123456');
  await proof.getByRole('button', { name: 'Switch it off' }).click();
  await proof.getByText('The password or the code is wrong').waitFor();
  await proof.getByLabel('Code of the app').fill(recovery[1] ?? '');
  await proof.getByRole('button', { name: 'Switch it off' }).click();
  await factor.getByRole('button', { name: 'Switch on' }).waitFor();
  assert.ok(page.url().startsWith(`${url}/console/me`), 'nothing has sent the page to the login');
  assert.deepEqual(
    problems.filter((text) => !/40[01]/.test(text)),
    [],
  );
});

test('own subscriptions are shown with their state, and cancelled', async (t) => {
  const { page, problems } = await openAsAda(t, '/console/me');
  const claim = { externalId: 'order-1', planId: 'pro <b>' };
  const request = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(claim) };
  const call = `fetch('/api/auth/subscriptions', ${JSON.stringify(request)}).then(({ status }) => status)`;
  assert.equal(await page.evaluate(call), 200);
  await page.reload();
  const row = page.getByRole('region', { name: 'Subscriptions' }).getByRole('listitem').filter({ hasText: 'pro <b>' });
  await row.getByText('pending').waitFor();
  await row.getByRole('button', { name: 'Cancel …' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel it' }).click();
  await row.getByText('cancelled', { exact: true }).waitFor();
  await untilEqual(() => row.getByRole('button').count(), 0, 'nothing is left to cancel');
  assert.deepEqual(problems, []);
});

test('an account is deleted by its owner after typing its address, and kept again with one click', async (t) => {
  const ada = await openAsAda(t, '/console/users');
  const invitations = part(ada.page, 'Invitations');
  await invitations.getByRole('button', { name: 'Invite' }).click();
  const { page, problems } = await openInvited(t, await invitations.locator('pre').innerText(), 'Ben');
  await page.getByRole('link', { name: 'Ben' }).click();
  const exported = page.getByRole('link', { name: 'Download my data' });
  const [download] = await Promise.all([page.waitForEvent('download'), exported.click()]);
  assert.equal(JSON.parse(await readFile(await download.path(), 'utf8')).user.email, 'ben@example.com');

  const region = part(page, 'Delete my account');
  await region.getByText('are deleted after 14 days').waitFor();
  await region.getByRole('button', { name: 'Delete my account …' }).click();
  const dialog = page.getByRole('dialog', { name: 'Delete your account?' });
  const yes = dialog.getByRole('button', { name: 'Delete my account' });
  assert.equal(await yes.isDisabled(), true, 'not before the address is typed');
  await dialog.getByLabel('Type ben@example.com to confirm').fill('ada@example.com');
  assert.equal(await yes.isDisabled(), true, 'not with another address');
  await dialog.getByLabel('Type ben@example.com to confirm').fill('ben@example.com');
  await yes.click();
  await dialog.waitFor({ state: 'detached' });
  const account = () => page.request.get(`${ada.url}/api/auth/session`).then((response) => response.json());
  const { deletesAt } = (await account()).user;
  const days = (Date.parse(deletesAt) - Date.now()) / 86_400_000;
  assert.ok(days > 13.9 && days <= 14, `${days} days are left`);
  const told = region.getByRole('alert');
  assert.equal(await told.locator('time').getAttribute('datetime'), deletesAt);
  await told.getByText('Your account is deleted on').waitFor();

  // It is still said after the page was left, whatever page is opened, and can be undone from there.
  await page.goto(`${ada.url}/console/models`);
  await region.getByRole('button', { name: 'Keep my account' }).click();
  await region.getByRole('button', { name: 'Delete my account …' }).waitFor();
  assert.equal((await account()).user.deletesAt, undefined);
  await page.getByRole('link', { name: 'Models' }).click();
  await page.getByRole('heading', { name: 'Models', level: 1 }).waitFor();
  assert.deepEqual(
    problems.filter((text) => !text.includes('403')),
    [],
  );

  // The last administrator is told why not.
  await ada.page.goto(`${ada.url}/console/me`);
  await part(ada.page, 'Delete my account').getByRole('button').click();
  await ada.page.getByLabel('Type ada@example.com to confirm').fill('ada@example.com');
  await ada.page.getByRole('dialog').getByRole('button', { name: 'Delete my account' }).click();
  await ada.page.getByRole('dialog').getByRole('alert').getByText('This is the last administrator').waitFor();
});
