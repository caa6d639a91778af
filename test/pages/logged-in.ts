import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { freePort } from '../kit/free-port.ts';
import { type RunningProgram, type Scope, startProgram } from '../kit/running-program.ts';
import { type OpenPage, openPage } from './open-page.ts';

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
export async function openAsAda(scope: Scope, path: string): Promise<LoggedIn> {
  const port = await freePort();
  const program = await startProgram(scope, { environment: TOKENS, args: ['--listen', `127.0.0.1:${port}`] });
  const url = `http://localhost:${port}`;
  const token = String(program.summary.firstAdmin).split('#')[1];
  const made = await fetch(`${url}/api/auth/setup`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token, name: 'Ada', email: 'ada@example.com', password: PASSWORD }),
  });
  assert.equal(made.status, 201);
  const opened = await openPage(scope, `${url}/login?next=${encodeURIComponent(path)}`);
  await logIn(opened.page, 'ada@example.com', PASSWORD);
  await opened.page.waitForURL(`${url}${path}`);
  return { program, url, ...opened };
}

export async function logIn(page: Page, name: string, password: string): Promise<void> {
  await page.getByLabel('E-mail address or name').fill(name);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Log in' }).click();
}
