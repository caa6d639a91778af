import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import pixelmatch from 'pixelmatch';
import type { Browser, Page } from 'playwright-core';
import { PNG } from 'pngjs';
import { createScope } from '../kit/create-scope.ts';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';
import {
  launchWithFonts,
  ORIGIN,
  PICTURES,
  type PictureScreen,
  questionOf,
  RECORDING,
  type Recording,
  SCREENS,
  settle,
  withoutFacts,
} from './picture-screens.ts';

/**
 * Each screen at three widths and in both schemes, compared with the pictures in `pictures/`. The pages get the answers that
 * `record-pictures.ts` has recorded, at the time of the recording. `npm run test:console -- pictures.test.ts --update` takes
 * the pictures again, with those of docs/console.md.
 */

const UPDATES = process.argv.includes('--update');
const SIZES = [
  { width: 390, height: 844 },
  { width: 820, height: 1180 },
  { width: 1360, height: 860 },
];
const SCHEMES = ['light', 'dark'] as const;
/** The part of the pixels that may differ where the same browser has taken the picture. */
const MAX_DIFFERENT = 0.001;
/** Another version of Chromium, or another kind of processor, draws letters and edges a little differently. */
const MAX_DIFFERENT_ELSEWHERE = 0.03;
const MAX_BYTES = 20_000_000;
const MAX_TRIES = 10;
const MADE_BY = join(PICTURES, 'made-by.json');
const ROUTES = join(import.meta.dirname, '..', '..', 'src', 'console', 'routes.tsx');
const IMAGES = join(import.meta.dirname, '..', '..', 'docs', 'images');
/** What a failed comparison leaves: the picture as it is now, and the difference. */
const FAILED = join(tmpdir(), 'trestle-pictures');
/** Pictures that docs/console.md shows. */
const DOCUMENTED: ReadonlySet<string> = new Set([
  'session-1360-light',
  'session-390-dark',
  'board-1360-light',
  'run-1360-light',
  'usage-1360-dark',
  'new-session-390-light',
]);

/**
 * A conversation follows its end, which is elsewhere after each change of the size, until somebody scrolls. Twice, because it may
 * follow once more after the first time.
 */
const TO_THE_TOP = `(async () => {
  const log = document.querySelector('[role=log]');
  if (log === null) return;
  const drawn = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  for (const top of [log.scrollHeight, 0, 0]) {
    log.scrollTo(0, top);
    log.dispatchEvent(new Event('scroll'));
    await drawn();
  }
})()`;

const recording = JSON.parse(readFileSync(RECORDING, 'utf8')) as Recording;
let program: RunningProgram;
let browser: Browser;
let bound = MAX_DIFFERENT;

const file = createScope();
after(() => file.end());
before(async () => {
  const executablePath = process.env.CHROMIUM;
  assert.ok(executablePath, 'CHROMIUM names no browser: run this by npm run test:console');
  program = await startProgram(file);
  browser = await launchWithFonts(file, executablePath);
  const here = { chromium: browser.version(), processor: process.arch };
  if (UPDATES) writeFileSync(MADE_BY, `${JSON.stringify(here, undefined, 2)}\n`);
  const made = readFileSync(MADE_BY, 'utf8').trim();
  if (made === JSON.stringify(here, undefined, 2)) return;
  bound = MAX_DIFFERENT_ELSEWHERE;
  process.stderr.write(
    `\n!!! The pictures of the console were taken by ${made.replaceAll(/\s+/g, ' ')}, and this is ${JSON.stringify(here)}.\n` +
      `!!! Up to ${MAX_DIFFERENT_ELSEWHERE * 100} % of the pixels may differ here instead of ${MAX_DIFFERENT * 100} %.\n` +
      '!!! Take them again on the machine of the checks: npm run test:console -- pictures.test.ts --update\n\n',
  );
});

test('every screen of the table has pictures', () => {
  const source = readFileSync(ROUTES, 'utf8');
  const paths = [...source.matchAll(/'(\/(?:console|login|register|setup|device|accept|reset|set-)[^']*)'/g)];
  const shown = new Set(SCREENS.map(({ path }) => path));
  const missing = paths.map(([, path = '']) => path).filter((path) => !shown.has(path));
  assert.deepEqual(missing, [], 'screens without a line in picture-screens.ts');
});

for (const screen of SCREENS) {
  test(`the pictures of ${screen.name}`, async (t) => {
    const page = await openRecorded(t, screen);
    const found: string[] = [];
    for (const scheme of SCHEMES) {
      for (const size of SIZES) {
        await page.setViewportSize(size);
        await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
        await page.evaluate(TO_THE_TOP);
        const name = `${screen.name}-${size.width}-${scheme}`;
        // A picture like the kept one needs no second look; any other may be one of a page that is not ready yet.
        const first = UPDATES ? undefined : await page.screenshot({ animations: 'disabled' });
        if (first !== undefined && compare(name, first) === undefined) continue;
        const taken = await takePicture(page);
        const difference = UPDATES ? keep(name, taken) : compare(name, taken);
        if (difference !== undefined) found.push(difference);
      }
    }
    assert.deepEqual(found, []);
  });
}

test('the pictures are small enough for a repository', () => {
  const sizes = readdirSync(PICTURES).map((name) => statSync(join(PICTURES, name)).size);
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(bytes <= MAX_BYTES, `${bytes} bytes`);
});

/** Opens a screen that gets recorded answers, and its page and scripts from the real program. */
async function openRecorded(scope: TestContext, screen: PictureScreen): Promise<Page> {
  const context = await browser.newContext({ baseURL: ORIGIN, locale: 'en-GB', timezoneId: 'UTC', bypassCSP: true });
  scope.after(() => context.close());
  const page = await context.newPage();
  await page.clock.setFixedTime(recording.now);
  const unknown: string[] = [];
  await page.routeWebSocket('**/api/bridge/live', () => undefined);
  await page.route(`${ORIGIN}/**`, async (route) => {
    const request = route.request();
    const question = questionOf(request.method(), request.url(), request.postData());
    if (question === undefined) {
      const { pathname } = new URL(request.url());
      const response = await route.fetch({ url: `${program.url}${pathname}` });
      const isPage = request.resourceType() === 'document';
      await route.fulfill({ response, ...(isPage && { body: withoutFacts(await response.text()) }) });
      return;
    }
    const answer = recording.answers[recording.screens[screen.name]?.[question] ?? -1];
    if (answer === undefined) {
      unknown.push(question);
      await route.abort();
      return;
    }
    const { id } = JSON.parse(request.postData() ?? '{}') as { id?: unknown };
    const body = id === undefined ? answer.body : { ...(answer.body as object), id };
    await route.fulfill({ status: answer.status, json: body });
  });
  await page.goto(screen.shown ?? screen.path);
  await settle(page, screen);
  assert.deepEqual(
    unknown,
    [],
    'not recorded: npm run test:console -- record-pictures.ts, then the pictures with --update',
  );
  return page;
}

/** Takes pictures until two are the same: then everything is drawn. */
async function takePicture(page: Page): Promise<Buffer> {
  let last: Buffer | undefined;
  for (let count = 0; count < MAX_TRIES; count += 1) {
    const taken = await page.screenshot({ animations: 'disabled' });
    if (last?.equals(taken)) return taken;
    last = taken;
  }
  throw new Error('The page changes from picture to picture.');
}

function keep(name: string, taken: Buffer): undefined {
  // Without the channel for transparency, and packed as pictures of text are packed best.
  const packed = PNG.sync.write(PNG.sync.read(taken), {
    colorType: 2,
    deflateLevel: 9,
    deflateStrategy: 0,
    filterType: 0,
  });
  writeFileSync(join(PICTURES, `${name}.png`), packed);
  if (DOCUMENTED.has(name)) writeFileSync(join(IMAGES, `console-${name}.png`), packed);
  return undefined;
}

/** Says what is different. Undefined: nothing. */
function compare(name: string, taken: Buffer): string | undefined {
  const place = join(PICTURES, `${name}.png`);
  if (!existsSync(place)) return `${name}: there is no picture yet; take it with --update`;
  const stored = readFileSync(place);
  const [kept, now] = [PNG.sync.read(stored), PNG.sync.read(taken)];
  const { width, height } = now;
  if (kept.width !== width || kept.height !== height) return `${name}: ${kept.width}x${kept.height} pixels before`;
  const shown = new PNG({ width, height });
  const part = pixelmatch(kept.data, now.data, shown.data, width, height) / (width * height);
  if (part <= bound) return undefined;
  mkdirSync(FAILED, { recursive: true });
  writeFileSync(join(FAILED, `${name}.png`), taken);
  writeFileSync(join(FAILED, `${name}-difference.png`), PNG.sync.write(shown));
  return `${name}: ${(part * 100).toFixed(2)} % of the pixels differ, see ${join(FAILED, name)}-difference.png`;
}
