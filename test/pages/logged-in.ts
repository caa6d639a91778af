import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Locator, Page } from 'playwright-core';
import { freePort } from '../kit/free-port.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { type OpenPage, openPage, type PageOptions } from './open-page.ts';

export const PASSWORD = 'copper kettle 47 over the pass';
/** With these, people have to log in. */
export const TOKENS = {
  BRIDGE_AUTH_TOKEN: 'a-token-of-the-bridge-0123456789',
  COMPLETIONS_MASTER_KEY: 'sk-master-0123456789',
};

export interface LoggedIn extends OpenPage {
  readonly program: RunningProgram;
  /** Of the program, by a host name: passkeys are for one. */
  readonly url: string;
}

/** A program with Ada as its first administrator, who has logged in and looks at the given path. */
export async function openAsAda(
  scope: Scope,
  path: string,
  settings: object = {},
  options: PageOptions = {},
): Promise<LoggedIn> {
  const port = await freePort();
  const config = join(await temporaryFolder(scope), 'trestle.yaml');
  await writeFile(config, JSON.stringify(settings));
  const args = ['--config', config, '--listen', `127.0.0.1:${port}`];
  const program = await startProgram(scope, { environment: TOKENS, args });
  const url = `http://localhost:${port}`;
  const token = String(program.summary.firstAdmin).split('#')[1];
  const made = await fetch(`${url}/api/auth/setup`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token, name: 'Ada', email: 'ada@example.com', password: PASSWORD }),
  });
  assert.equal(made.status, 201);
  const opened = await openPage(scope, `${url}/login?next=${encodeURIComponent(path)}`, options);
  await logIn(opened.page, 'ada@example.com', PASSWORD);
  await opened.page.waitForURL(`${url}${path}`);
  return { program, url, ...opened };
}

/** Opens the link of an invitation in another browser, and creates the account of it. */
export async function openInvited(scope: Scope, link: string, name: string): Promise<OpenPage> {
  const opened = await openPage(scope, link.replace('127.0.0.1', 'localhost'));
  const { page } = opened;
  await page.getByLabel('Name', { exact: true }).fill(name);
  await page.getByLabel('E-mail address').fill(`${name.toLowerCase()}@example.com`);
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Create my account' }).click();
  await page.getByRole('navigation').getByText(name).waitFor();
  return opened;
}

/** Copies the command that reads what a part of the page shows, and returns what it reads for the person who is logged in. */
export async function readByCurl(page: Page, part: Page | Locator): Promise<string> {
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await part.getByRole('button', { name: 'Copy as curl' }).click();
  await part.getByRole('button', { name: 'Copied' }).waitFor();
  const command = await page.evaluate<string>('navigator.clipboard.readText()');
  const [, address = ''] = /^curl -s '([^']+)' -H "Authorization: Bearer \$TRESTLE_TOKEN"$/.exec(command) ?? [];
  const response = await page.context().request.get(address);
  assert.equal(response.status(), 200, command);
  return response.text();
}

export async function logIn(page: Page, name: string, password: string): Promise<void> {
  await page.getByLabel('E-mail address or name').fill(name);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Log in' }).click();
}

/** A phone or laptop that unlocks itself: discoverable passkeys, with its user verified. */
export async function addAuthenticator(page: Page): Promise<void> {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('WebAuthn.enable');
  await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
}
