import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import type { Scope } from '../kit/running-program.ts';
import { openAsAda } from './logged-in.ts';

const ROUTES = join(import.meta.dirname, '..', '..', 'src', 'console', 'routes.tsx');
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
/** So many screens are checked by one test; each test takes a part of the table of screens. */
const PARTS = 5;

/** The paths of the table of screens: a new screen is checked without a word here. */
async function screenPaths(): Promise<readonly string[]> {
  const source = await readFile(ROUTES, 'utf8');
  const found = [...source.matchAll(/path: '(\/[^']*)'/g)].map(([, path = '']) => path);
  return [...new Set(found), '/console/forgot', '/reset-password', '/console/no-such-page'];
}

interface Violation {
  readonly id: string;
  readonly help: string;
  readonly nodes: readonly { readonly html: string }[];
}

declare const axe: { run(options: object): Promise<{ readonly violations: readonly Violation[] }> };

/** What axe finds, in words; `rules` names all rules that count. Undefined: all. */
async function violations(page: Page, rules?: readonly string[]): Promise<readonly string[]> {
  const options = { resultTypes: ['violations'], ...(rules !== undefined && { runOnly: rules }) };
  const found = await page.evaluate(async (given) => (await axe.run(given)).violations, options);
  return found.map(
    ({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ html }) => html.slice(0, 200)).join(' | ')}`,
  );
}

/** Checks what is shown now: everything in the light scheme, colours in the dark one, and that a phone shows it all. */
async function check(page: Page, name: string): Promise<readonly string[]> {
  await page.emulateMedia({ colorScheme: 'light' });
  const light = await violations(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await violations(page, ['color-contrast']);
  await page.setViewportSize({ width: 320, height: 700 });
  const isWide = await page.evaluate('document.documentElement.scrollWidth > document.documentElement.clientWidth');
  await page.setViewportSize({ width: 1280, height: 800 });
  return [
    ...light.map((one) => `${name} (light): ${one}`),
    ...dark.map((one) => `${name} (dark): ${one}`),
    ...(isWide ? [`${name}: wider than 320 pixels`] : []),
  ];
}

async function openWithAxe(scope: Scope) {
  const opened = await openAsAda(scope, '/console');
  await opened.page.addInitScript({ path: AXE });
  return opened;
}

async function show(page: Page, url: string): Promise<void> {
  await page.goto(url);
  await page.getByRole('heading', { level: 1 }).first().waitFor();
  await page.getByText('Loading …').first().waitFor({ state: 'detached' });
}

for (let part = 0; part < PARTS; part += 1) {
  test(`axe finds nothing on the screens of the console, and they fit 320 pixels (${part + 1} of ${PARTS})`, async (t) => {
    const { page, url } = await openWithAxe(t);
    const paths = (await screenPaths()).filter((_, index) => index % PARTS === part);
    const found: string[] = [];
    for (const path of paths) {
      await show(page, `${url}${path.replaceAll(/:\w+/g, 'unknown')}`);
      found.push(...(await check(page, path)));
    }
    assert.deepEqual(found, []);
    await page.evaluate(`document.querySelector('h1').append(document.createElement('img'))`);
    const planted = await violations(page, ['image-alt']);
    assert.equal(planted.length, 1, 'axe finds what is wrong');
  });
}

test('axe finds nothing in a session with work, its panes, the palette, the keys, and on a board with cards', async (t) => {
  const { page, url } = await openWithAxe(t);
  await page.goto(`${url}/console/new`);
  await page.getByLabel('What should be done?').fill('hello');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.locator('.turn-end').waitFor();
  const found: string[] = [];
  for (const tab of ['Changes', 'Plan', 'Terminal', 'Files', 'Events']) {
    await page.getByRole('tab', { name: tab }).click();
    found.push(...(await check(page, `session, ${tab}`)));
  }
  await page.getByLabel('Attach').setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('a') });
  await page.getByRole('button', { name: 'Remove a.txt' }).waitFor();
  found.push(...(await check(page, 'session with a file')));
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog', { name: 'Go to' }).getByRole('option').first().waitFor();
  found.push(...(await check(page, 'palette')));
  await page.keyboard.press('Escape');
  await page.getByRole('log').focus();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  found.push(...(await check(page, 'keys')));
  for (const view of ['', '?view=list&sort=Turns', '?view=folders']) {
    await page.goto(`${url}/console${view}`);
    await page.getByRole('link', { name: /^hello/ }).waitFor();
    found.push(...(await check(page, `board${view}`)));
  }
  assert.deepEqual(found, []);
});
