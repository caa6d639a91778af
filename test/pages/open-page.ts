import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import type { Scope } from '../kit/running-program.ts';
import { timeLimit } from '../kit/time.ts';

/** No step on a page may take longer, on a machine that does nothing else. */
const STEP_MS = 20_000;
const POLL_MS = 50;

export interface OpenPage {
  readonly page: Page;
  /** What the browser complained about: errors of scripts, breaches of the policy, requests that failed. */
  readonly problems: readonly string[];
}

/** What the browser is like. */
export type PageOptions = Pick<BrowserContextOptions, 'timezoneId'>;

/** Opens an address in a Chromium of its own, which ends with the test. `npm run test:console` says which one it is. */
export async function openPage(scope: Scope, url: string, options: PageOptions = {}): Promise<OpenPage> {
  const executablePath = process.env.CHROMIUM;
  assert.ok(executablePath, 'CHROMIUM names no browser: run this by npm run test:console');
  const browser = await chromium.launch({ executablePath, timeout: timeLimit(STEP_MS) });
  scope.after(() => browser.close());
  const page = await browser.newPage(options);
  page.setDefaultTimeout(timeLimit(STEP_MS));
  const problems: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(`${message.type()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => problems.push(`script: ${error.message}`));
  page.on('requestfailed', (request) => {
    const reason = request.failure()?.errorText;
    // The page itself has ended it: it stops reading a stream, or is left.
    if (reason !== 'net::ERR_ABORTED') problems.push(`request: ${request.url()} ${reason}`);
  });
  await page.exposeFunction('reportBreach', (text: string) => void problems.push(`policy: ${text}`));
  await page.addInitScript(
    `addEventListener('securitypolicyviolation', (e) => reportBreach(e.violatedDirective + ' ' + e.blockedURI))`,
  );
  await page.goto(url);
  return { page, problems };
}

/** Reads from a page until it has what is expected: a page is drawn some time after what has changed it. */
export async function untilEqual<Value>(read: () => Promise<Value>, expected: Value, message?: string): Promise<void> {
  const end = Date.now() + timeLimit(STEP_MS);
  let value = await read();
  while (value !== expected && Date.now() < end) {
    await pause(POLL_MS);
    value = await read();
  }
  assert.equal(value, expected, message);
}
