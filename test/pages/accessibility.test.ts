import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Page } from 'playwright-core';
import { type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { openAsAda } from './logged-in.ts';
import { openPage } from './open-page.ts';

const ROUTES = join(import.meta.dirname, '..', '..', 'src', 'console', 'routes.tsx');
const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
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

/**
 * Checks what is shown now in both schemes, that Tab goes through it in the order in which it is written, that a phone shows
 * it all, and so does a page that is enlarged to 200 %: it has half as many pixels.
 */
async function check(page: Page, name: string): Promise<readonly string[]> {
  await page.emulateMedia({ colorScheme: 'light' });
  const light = await violations(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await violations(page);
  const moved = await page.evaluate<number>(
    `[...document.querySelectorAll('[tabindex]')].filter((one) => one.tabIndex > 0).length`,
  );
  const wide: number[] = [];
  for (const width of [320, 640]) {
    await page.setViewportSize({ width, height: width === 320 ? 700 : 400 });
    const isWide = 'document.documentElement.scrollWidth > document.documentElement.clientWidth';
    if (await page.evaluate(isWide)) wide.push(width);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  return [
    ...light.map((one) => `${name} (light): ${one}`),
    ...dark.map((one) => `${name} (dark): ${one}`),
    ...(moved === 0 ? [] : [`${name}: ${moved} elements are out of the order of Tab`]),
    ...wide.map((width) => `${name}: wider than ${width} pixels`),
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

test('by keys alone: a session is started, its question answered, its pane chosen, and the next message sent; focus is always seen', async (t) => {
  const config = join(await temporaryFolder(t), 'trestle.yaml');
  const custom = [{ id: 'scripted', command: process.execPath, args: [AGENT] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['scripted'], default: 'scripted', custom } }));
  const program = await startProgram(t, { args: ['--config', config] });
  const { page, problems } = await openPage(t, `${program.url}/console`);
  await page.emulateMedia({ forcedColors: 'active', reducedMotion: 'reduce' });
  await page.getByRole('heading', { level: 1 }).waitFor();
  /** Presses Tab until an element of that name has the focus. Each one on the way must show that it has it. */
  async function tabTo(name: RegExp): Promise<void> {
    const passed: string[] = [];
    for (let count = 0; count < 80; count += 1) {
      await page.keyboard.press('Tab');
      const [text, isSeen] = await page.evaluate<[string, boolean]>(`(() => {
        const one = document.activeElement;
        const label = one.labels?.[0]?.textContent ?? '';
        const { outlineStyle, outlineWidth, borderColor, backgroundColor } = getComputedStyle(one);
        const isOutlined = outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
        return [[one.getAttribute('aria-label') ?? '', label, one.textContent].join(' ').trim(), isOutlined || one === document.body];
      })()`);
      assert.ok(isSeen, `${text} has the focus, and nothing shows it`);
      if (name.test(text)) return;
      passed.push(text.slice(0, 30));
    }
    assert.fail(`${name} is not reached: ${passed.join(', ')}`);
  }
  await page.keyboard.press('n');
  await page.getByLabel('What should be done?').waitFor();
  await tabTo(/What should be done/);
  await page.keyboard.type('ask');
  await tabTo(/^Start/);
  await page.keyboard.press('Enter');
  await page.getByRole('region', { name: 'The agent asks' }).waitFor();
  await page.getByRole('log').focus();
  // A key counts when the question has been seen for half a second.
  await page.waitForTimeout(700);
  await page.keyboard.press('y');
  await page.getByRole('log').getByText('answered selected once').waitFor();
  await tabTo(/^Plan/);
  await page.keyboard.press('Enter');
  await page.getByText('The agent has no plan.').waitFor();
  await page.getByRole('log').focus();
  await page.keyboard.press('m');
  await page.keyboard.type('say by keys');
  await page.keyboard.press('Enter');
  await page.getByRole('log').getByText('by keys', { exact: true }).waitFor();
  assert.deepEqual(problems, []);
});

/** The names of what Tab reaches, in order, until it comes back to the first or leaves the page. */
async function tabOrder(page: Page): Promise<readonly string[]> {
  await page.evaluate(`document.activeElement?.blur()`);
  const names: string[] = [];
  for (let count = 0; count < 100; count += 1) {
    await page.keyboard.press('Tab');
    const name = await page.evaluate<string>(`(() => {
      const one = document.activeElement;
      if (one === null || one === document.body) return '';
      const text = one.getAttribute('aria-label') ?? one.labels?.[0]?.textContent ?? one.textContent;
      return text.replaceAll(/\\s+/g, ' ').trim().slice(0, 40);
    })()`);
    if (name === '' || (count > 0 && name === names[0])) return names;
    names.push(name);
  }
  return names;
}

/** Of a screen: what comes after the navigation. */
async function tabOrderOfScreen(page: Page): Promise<readonly string[]> {
  const names = await tabOrder(page);
  const navigation = names.indexOf('Notify me') + 1;
  assert.deepEqual(names.slice(0, 4), ['Skip to the content', 'Go to Ctrl K', 'Board', 'New session']);
  return names.slice(navigation);
}

test('Tab goes through the navigation, then through the screen from its top to its end', async (t) => {
  const program = await startProgram(t);
  const { page } = await openPage(t, `${program.url}/console/new`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  assert.deepEqual(await tabOrderOfScreen(page), [
    ...[
      'What should be done?',
      'Agent',
      'Model',
      'Folder',
      'Ask me',
      'Allow',
      'Read only',
      'Attach',
      'Start Ctrl Enter',
    ],
  ]);
  await page.getByLabel('What should be done?').fill('hello');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.locator('.turn-end').waitFor();
  assert.deepEqual(await tabOrderOfScreen(page), [
    ...['hello', 'More', 'All', 'Edits', 'Commands', 'Failed', 'Updates', 'Fork from here', 'Message', 'Attach'],
    ...['Before it runs commands or changes files', 'Mode', 'Model', 'Thinking', 'Width of the pane'],
    ...['Changes', 'Plan', 'Terminal', 'Files', 'Events', 'Changes of', 'Wrap lines', 'Side by side'],
  ]);
  await page.getByRole('link', { name: 'Board' }).first().click();
  await page.getByLabel('Actions for hello').waitFor();
  const board = await tabOrderOfScreen(page);
  assert.deepEqual(board.slice(0, 7), [
    'Board',
    'List',
    'Folders',
    'Agent',
    'State',
    'Search sessions',
    'New session n',
  ]);
  assert.match(board.at(-2) ?? '', /^hello/);
  assert.equal(board.at(-1), 'Actions for hello');
});
