import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Page } from 'playwright-core';
import { startProgram } from '../kit/running-program.ts';
import { openPage } from './open-page.ts';

const PASSWORD = 'copper kettle 47 over the pass';
const program = await startProgram({ after });
const person = { name: 'Ada', email: 'ada@example.com', password: PASSWORD };

async function post(path: string, body: object) {
  const response = await fetch(`${program.url}/api/auth/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as Record<string, string> };
}
await post('setup', { ...person, token: String(program.summary.firstAdmin).split('#')[1] });

const begin = async () => (await post('device/code', { client_id: 'a <b>program</b>', scope: 'account' })).body;

async function typeCode(page: Page, code: string): Promise<void> {
  await page.getByLabel('Code', { exact: true }).fill(code);
  await page.getByRole('button', { name: 'Continue' }).click();
}

async function logIn(page: Page, password: string): Promise<void> {
  await page.getByLabel('E-mail address or name').fill(person.email);
  await page.getByLabel('Password', { exact: true }).fill(password);
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
}

test('in a real browser a person types the code, logs in, sees who asks, and approves', async (t) => {
  const { device_code, user_code = '', verification_uri = '' } = await begin();
  const { page, problems } = await openPage(t, verification_uri);
  await typeCode(page, user_code.toLowerCase());
  await page.getByText('approving needs a login').waitFor();
  await logIn(page, 'not the password');
  await page.getByText('The name or the password is wrong.').waitFor();
  await logIn(page, PASSWORD);
  await page.getByText('a <b>program</b>').first().waitFor();
  await page.getByText('see your account and its tokens').waitFor();
  assert.equal((await post('device/token', { device_code })).body.error, 'authorization_pending');
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByText('Approved.').waitFor();
  const { status, body } = await post('device/token', { device_code });
  assert.equal(status, 200, JSON.stringify(body));
  assert.deepEqual(
    (await page.context().cookies()).filter(({ name }) => name === 'xc_session'),
    [],
    'the page ends the login that it has opened',
  );
  // The refusals above, as the browser reports them.
  assert.deepEqual(
    problems.filter((problem) => !problem.includes('401')),
    [],
  );
});

test('a code that is not known is said to be so, and a device can be denied', async (t) => {
  const { device_code, user_code = '', verification_uri = '' } = await begin();
  const { page } = await openPage(t, verification_uri);
  await typeCode(page, 'BBBB-BBBB');
  await logIn(page, PASSWORD);
  await page.getByText('No device is waiting for this code').waitFor();
  await typeCode(page, user_code);
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('Denied.').waitFor();
  assert.equal((await post('device/token', { device_code })).body.error, 'access_denied');
});
