import assert from 'node:assert/strict';
import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { type Account, call, logIn as loginToken } from '../../examples/whole-story/account.ts';
import { type Hands, type Task, tellWholeStory } from '../../examples/whole-story/the-story.ts';
import { createScope } from '../kit/create-scope.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { startInTerminal } from '../kit/terminal.ts';
import { TOUR, tourPage } from '../kit/tour-page.ts';
import { until } from '../kit/until.ts';
import { logIn } from './logged-in.ts';
import { launchWithFonts } from './picture-screens.ts';

/**
 * Tells the whole story with real agents, a real browser and a real terminal, and writes `tour.md` and its pictures into a folder:
 * `npm run test:console -- record-tour.ts docs`. `test/agents/tour.test.ts` does so with a folder of its own.
 */

const STEP_MS = 120_000;
const SIZE = { width: 1180, height: 740 };
/** Keys that come before the question could be read, within 300 ms, do not count. */
const UNREAD_MS = 350;

const scope = createScope();
const cleanUps: (() => unknown)[] = [];
try {
  const [, , target = ''] = process.argv;
  assert.ok(target !== '', 'the folder for tour.md is missing: npm run test:console -- record-tour.ts docs');
  await record(target);
} finally {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
  await scope.end();
}
// Chromium may leave a handle behind that nothing closes.
process.exit();

async function record(documents: string): Promise<void> {
  const executablePath = process.env.CHROMIUM;
  assert.ok(executablePath, 'CHROMIUM names no browser: run this by npm run test:console -- record-tour.ts docs');
  const images = join(documents, 'images');
  await mkdir(images, { recursive: true });
  const postgres = await startPostgres();
  scope.after(() => postgres.stop());
  // Agents compare paths as text.
  const folder = await realpath(await temporaryFolder(scope));
  const browser = await launchWithFonts(scope, executablePath);
  const hands = createHands(browser, images, await temporaryFolder(scope));
  await tellWholeStory({ database: postgres.url, folder, hasRealAgents: true, hands, cleanUps });
  await writeFile(join(documents, 'tour.md'), tourPage());
}

function createHands(browser: Browser, images: string, home: string): Hands {
  /** A browser of each account, by address. */
  const pages = new Map<string, Page>();
  const problems: string[] = [];

  async function newPage(): Promise<Page> {
    const page = await browser.newPage({ viewport: SIZE });
    page.setDefaultTimeout(STEP_MS);
    page.on('pageerror', (error) => problems.push(error.message));
    return page;
  }

  async function pageOf(url: string, { email, password }: Account): Promise<Page> {
    const known = pages.get(email);
    if (known !== undefined) return known;
    const page = await newPage();
    pages.set(email, page);
    await page.goto(`${url}/login?next=%2Fconsole`);
    await logIn(page, email, password);
    await page.waitForURL(`${url}/console`);
    return page;
  }

  async function take(moment: string, page: Page): Promise<void> {
    assert.deepEqual(problems, [], 'errors of scripts');
    if (!TOUR.some((stop) => stop.moment === moment)) return;
    await page.screenshot({ path: join(images, `tour-${moment}.png`), animations: 'disabled', caret: 'hide' });
  }

  async function allowInConsole({ url, person, agent, folder, prompt }: Task): Promise<string> {
    const page = await pageOf(url, person);
    await page.goto(`${url}/console/new?${new URLSearchParams({ prompt, agent, folder })}`);
    await page.getByRole('button', { name: 'Start' }).click();
    await page.waitForURL(/\/console\/sessions\//);
    const card = page.getByRole('region', { name: 'The agent asks' });
    await card.getByRole('button', { name: 'Allow once' }).waitFor();
    await take('asked', page);
    // As with the keys of a terminal, an answer that comes before the question could be read does not count.
    await pause(UNREAD_MS);
    await card.getByRole('button', { name: 'Allow once' }).click();
    await page.getByRole('log').locator('.turn-end').first().waitFor();
    return new URL(page.url()).pathname.split('/').at(-1) ?? '';
  }

  async function allowInTerminal({ url, person, agent, folder, prompt }: Task): Promise<string> {
    const machine = { environment: { XDG_CONFIG_HOME: home, XDG_DATA_HOME: home }, workingDirectory: home };
    const login = startInTerminal(scope, ['login', url], machine);
    const code = await until('the code', () => /\b[B-Z]{4}-[B-Z]{4}\b/.exec(login.screen())?.[0], STEP_MS);
    await call(`${url}/api/auth/device/approval/${code}`, { credential: person.login, body: { approve: true } });
    assert.equal(await login.ended, 0, login.screen());
    const words = ['run', '--ask', '--agent', agent, '--folder', folder, '--session', 'in-the-terminal', prompt];
    const work = startInTerminal(scope, words, machine);
    await until('the question', () => work.screen().includes('r deny with a reason'), STEP_MS);
    await pause(UNREAD_MS);
    const asked = work.screen();
    work.type('y');
    assert.equal(await work.ended, 0, work.screen());
    await takeTerminal(words, asked);
    return 'in-the-terminal';
  }

  /** What a terminal has shown, as a picture. */
  async function takeTerminal(words: readonly string[], screen: string): Promise<void> {
    const page = await newPage();
    const command = words.map((word) => (/[\s"]/.test(word) ? `'${word}'` : word)).join(' ');
    const text = `$ trestle ${command}\n${stripVTControlCharacters(screen).replaceAll('\r', '')}`;
    await page.setContent(
      '<body style="margin:0;background:#111"><pre style="margin:24px;color:#eee;font:15px/1.5 monospace;white-space:pre-wrap"></pre>',
    );
    await page.locator('pre').evaluate((element, shown) => {
      element.textContent = shown;
    }, text);
    await page.setViewportSize({ width: SIZE.width, height: 420 });
    await take('terminal', page);
    await page.close();
  }

  return {
    async setUp(url, link, admin) {
      const page = await newPage();
      pages.set(admin.email, page);
      await page.goto(link);
      await page.getByText('Create the first account.').waitFor();
      await page.getByLabel('Name', { exact: true }).fill('Root');
      await page.getByLabel('E-mail address').fill(admin.email);
      await page.getByLabel('Password', { exact: true }).fill(admin.password);
      await page.getByLabel('Password again').fill(admin.password);
      await take('set-up', page);
      await page.getByRole('button', { name: 'Create' }).click();
      await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
      return loginToken(url, admin);
    },
    allow: (task) => (task.place === 'console' ? allowInConsole(task) : allowInTerminal(task)),
    async look(moment, url, account, path) {
      const page = await pageOf(url, account);
      await page.goto(`${url}${path}`);
      await page.getByRole('heading', { level: 1 }).first().waitFor();
      const shown = TOUR.find((stop) => stop.moment === moment)?.shown;
      if (shown !== undefined) await page.getByText(shown).first().waitFor();
      await page.getByText('Loading …').first().waitFor({ state: 'detached' });
      await take(moment, page);
    },
  };
}
