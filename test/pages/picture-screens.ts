import { copyFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { type Scope, temporaryFolder } from '../kit/running-program.ts';

/** A screen, or a state of one, of which pictures are kept. */
export interface PictureScreen {
  /** Of its pictures. */
  readonly name: string;
  /** As in the table of screens; its parameters are filled in by `shown`. */
  readonly path: string;
  /** What is opened, where that is not the path. */
  readonly shown?: string;
  /** A text that is there when the screen is complete. Undefined: its heading. */
  readonly text?: string;
  /** Shown before anyone has logged in. */
  readonly isPublic?: true;
}

/** Names that the recording gives to what is made for the pictures. */
export const SESSION = 's-1a2b3c4d';
export const RUN = 's-5e6f7a8b';
export const JOB = 'job-of-the-pictures';
export const TEAM = 'team-of-the-pictures';

const SESSION_PATH = '/console/sessions/:sessionId';

export const SCREENS: readonly PictureScreen[] = [
  { name: 'board', path: '/console', text: 'needs you' },
  { name: 'board-list', path: '/console', shown: '/console?view=list' },
  { name: 'new-session', path: '/console/new' },
  { name: 'session', path: SESSION_PATH, shown: `/console/sessions/${SESSION}`, text: 'const digits' },
  { name: 'session-unknown', path: SESSION_PATH, shown: '/console/sessions/unknown', text: 'There is no session' },
  { name: 'runs', path: '/console/runs' },
  { name: 'run-new', path: '/console/runs/new' },
  { name: 'run', path: '/console/runs/:sessionId', shown: `/console/runs/${RUN}` },
  { name: 'jobs', path: '/console/jobs' },
  { name: 'job', path: '/console/jobs/:jobId', shown: `/console/jobs/${JOB}`, text: 'completed' },
  { name: 'schedules', path: '/console/schedules', text: 'nightly' },
  { name: 'agents', path: '/console/agents', text: 'scripted' },
  { name: 'playground', path: '/console/playground' },
  { name: 'models', path: '/console/models', text: 'demo/echo' },
  { name: 'keys', path: '/console/keys', text: 'laptop' },
  { name: 'usage', path: '/console/usage', text: 'demo/echo' },
  { name: 'calls', path: '/console/calls', text: 'demo/echo' },
  { name: 'teams', path: '/console/teams', text: 'Checkout' },
  { name: 'team', path: '/console/teams/:teamId', shown: `/console/teams/${TEAM}`, text: 'Ben' },
  { name: 'users', path: '/console/users', text: 'ben@example.com' },
  { name: 'subscriptions', path: '/console/subscriptions', text: 'order-1' },
  { name: 'roles', path: '/console/roles' },
  { name: 'proxy-nodes', path: '/console/proxy-nodes', text: 'edge-1' },
  { name: 'audit', path: '/console/audit', text: 'Ada' },
  { name: 'system', path: '/console/system' },
  { name: 'me', path: '/console/me', text: 'Ada' },
  { name: 'login', path: '/login', isPublic: true },
  { name: 'register', path: '/register', isPublic: true },
  { name: 'setup', path: '/setup', shown: '/setup#token', isPublic: true },
  { name: 'device', path: '/device', isPublic: true },
  { name: 'accept-invitation', path: '/accept-invitation', shown: '/accept-invitation#token=t', isPublic: true },
  { name: 'reset-password', path: '/reset-password', shown: '/reset-password#token=t', isPublic: true },
  { name: 'set-password', path: '/set-password', shown: '/set-password#token=t', isPublic: true },
  { name: 'forgot', path: '/console/forgot', isPublic: true },
];

/** An answer of the server, by what was asked: `GET /api/system`, or the method of a JSON-RPC call. */
export interface Recording {
  /** The time on the clock of the page, in milliseconds. */
  readonly now: number;
  /** By the name of a screen and what was asked, the place of the answer in `answers`. */
  readonly screens: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly answers: readonly { readonly status: number; readonly body: unknown }[];
}

export const PICTURES = join(import.meta.dirname, 'pictures');
export const RECORDING = join(PICTURES, 'recorded.json');
/** The address of the recorded pages: their own pictures show it. */
export const ORIGIN = 'https://trestle.example';

const DATA = /^\/(?:api|v1|acp)(?:\/|$)/;

/** What a request asks for. Undefined: a page, a script or a style. */
export function questionOf(method: string, url: string, body: string | null): string | undefined {
  const { pathname, search } = new URL(url);
  if (!DATA.test(pathname)) return undefined;
  if (!pathname.startsWith('/acp')) return `${method} ${pathname}${search}`;
  const { method: called, params } = JSON.parse(body ?? '{}') as { method?: string; params?: unknown };
  return `${called} ${JSON.stringify(params)}`;
}

/** A page without the facts of the server that it came from: it asks for them, and gets those of the recording. */
export const withoutFacts = (page: string) => page.replace(/(<meta name="system" content=")[^"]*/, '$1');

const FONTS = ['Sans', 'Sans-Bold', 'Sans-Oblique', 'SansMono', 'SansMono-Bold'];

/** Chromium with one set of fonts, whatever is installed: DejaVu, from the lockfile of this folder. */
export async function launchWithFonts(scope: Scope, executablePath: string): Promise<Browser> {
  const { resolve } = createRequire(import.meta.url);
  const folder = await temporaryFolder(scope);
  // No other font is in the folder, so that any other family becomes DejaVu Sans.
  for (const font of FONTS) {
    const name = `DejaVu${font}.ttf`;
    await copyFile(resolve(`dejavu-fonts-ttf/ttf/${name}`), join(folder, name));
  }
  const monospaced = ['ui-monospace', 'monospace']
    .map(
      (family) =>
        `<alias binding="same"><family>${family}</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>`,
    )
    .join('');
  const look =
    '<edit name="hinting" mode="assign"><bool>false</bool></edit><edit name="rgba" mode="assign"><const>none</const></edit>';
  const file = join(folder, 'fonts.conf');
  await writeFile(
    file,
    `<?xml version="1.0"?><fontconfig><dir>${folder}</dir><cachedir>${folder}</cachedir>${monospaced}<match target="font">${look}</match></fontconfig>`,
  );
  const browser = await chromium.launch({
    executablePath,
    env: { ...(process.env as Record<string, string>), FONTCONFIG_FILE: file },
    args: ['--font-render-hinting=none', '--disable-lcd-text', '--disable-gpu', '--force-color-profile=srgb'],
  });
  scope.after(() => browser.close());
  return browser;
}

/** Waits until a screen shows everything that it was given. */
export async function settle(page: Page, { text }: PictureScreen): Promise<void> {
  await page.getByRole('heading', { level: 1 }).first().waitFor();
  await page.getByText('Loading …').first().waitFor({ state: 'detached' });
  if (text !== undefined) await page.getByText(text).first().waitFor({ state: 'attached' });
}
