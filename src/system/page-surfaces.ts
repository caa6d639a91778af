import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync } from 'node:zlib';
import { type Static, Type } from 'typebox';
import { bridgeErrors } from '../bridge/errors.ts';
import { bridgeNotifications } from '../bridge/methods.ts';
import { childEnvironment } from '../platform/child-process/child-environment.ts';
import { startProcess } from '../platform/child-process/start-process.ts';
import { type Clock, withinTime } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { platformErrors } from '../platform/errors/error-table.ts';
import { createApiPage, rootRoute } from '../platform/http/api-page/create-api-page.ts';
import { buildOpenApi } from '../platform/http/openapi/build-openapi.ts';
import { pagePolicy, sendPage, storedText } from '../platform/http/page.ts';
import { plainShape } from '../platform/http/refusal.ts';
import { anyone, type Call, defineRoute, type HttpSurface, type Route } from '../platform/http/surface.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { Environment } from '../platform/runtime/runtime.ts';
import { CONTRACT_VERSION, PROGRAM_VERSION } from './environment.ts';
import type { ServiceName } from './settings.ts';

/** The built console: what scripts/build-console.cjs has written. */
interface ConsoleManifest {
  /** Name of the first script; it imports the others. */
  readonly script: string;
  readonly style: string;
  /** What the first script imports. */
  readonly imports: readonly string[];
  /** What each screen needs besides, by its name. */
  readonly screens: Readonly<Record<string, readonly string[]>>;
  readonly files: readonly { readonly name: string; readonly type: string }[];
}

type ContentCoding = 'br' | 'gzip' | 'identity';

interface ConsoleFile {
  readonly type: string;
  bytes(coding: ContentCoding): Promise<Uint8Array>;
}

interface ConsoleFiles extends Omit<ConsoleManifest, 'files'> {
  /** By name. A name from a request is looked up here and never becomes the name of a file. */
  readonly files: ReadonlyMap<string, ConsoleFile>;
}

interface ConsoleFilesOptions {
  readonly environment: Environment;
  readonly clock: Clock;
  readonly logger: Logger;
}

const BUILD_MS = 60_000;
const MAX_OUTPUT = 4096;

/** In a package the built files are beside the program; this folder is the sources in a checkout. */
const CONSOLE_FOLDER = fileURLToPath(new URL('../console/', import.meta.url));
const BUILD_SCRIPT = fileURLToPath(new URL('../../scripts/build-console.cjs', import.meta.url));
const NEWEST = fileURLToPath(new URL('../../node_modules/.cache/trestle/console-newest', import.meta.url));

/**
 * Finds the built console at the first request. In a checkout the build is run then, which takes a second after the sources
 * have changed and nothing otherwise; from then on a newer build is taken as soon as there is one. Resolves to undefined
 * where the console cannot be built: a checkout without the packages for development.
 */
export function createConsoleFiles(options: ConsoleFilesOptions): () => Promise<ConsoleFiles | undefined> {
  let loaded: { readonly folder: string; readonly files: Promise<ConsoleFiles> } | undefined;
  let first: Promise<string | undefined> | undefined;
  return async () => {
    first ??= hasManifest(CONSOLE_FOLDER).then((isPackage) => (isPackage ? CONSOLE_FOLDER : build(options)));
    const found = await first;
    if (found === undefined) {
      // Packages may be installed while the server runs.
      first = undefined;
      return undefined;
    }
    const folder = found === CONSOLE_FOLDER ? found : await newestBuild(found);
    if (loaded?.folder !== folder) loaded = { folder, files: load(folder) };
    return loaded.files;
  };
}

async function hasManifest(folder: string): Promise<boolean> {
  return readFile(join(folder, 'manifest.json')).then(
    () => true,
    () => false,
  );
}

/** Returns the folder of the last build: `node scripts/build-console.cjs` makes another one while the server runs. */
async function newestBuild(fallback: string): Promise<string> {
  const folder = await readFile(NEWEST, 'utf8').catch(() => fallback);
  return (await hasManifest(folder)) ? folder : fallback;
}

async function load(folder: string): Promise<ConsoleFiles> {
  const manifest = JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')) as ConsoleManifest;
  const { files } = manifest;
  return { ...manifest, files: new Map(files.map((file) => [file.name, consoleFile(folder, file)])) };
}

/** Keeps requested files in memory: all of them together have less than 1 MB. */
function consoleFile(folder: string, { name, type }: ConsoleManifest['files'][number]): ConsoleFile {
  const kept = new Map<ContentCoding, Promise<Uint8Array>>();
  function read(coding: ContentCoding): Promise<Uint8Array> {
    if (coding !== 'identity') return readFile(join(folder, `${name}.${coding === 'br' ? 'br' : 'gz'}`));
    return read('br').then((bytes) => brotliDecompressSync(bytes));
  }
  return {
    type,
    bytes(coding) {
      const bytes = kept.get(coding) ?? read(coding);
      kept.set(coding, bytes);
      return bytes;
    },
  };
}

/** Runs the build in a process of its own, so that the server never loads the bundler. Returns the folder. */
async function build({ environment, clock, logger }: ConsoleFilesOptions): Promise<string | undefined> {
  try {
    const child = await startProcess({
      command: process.execPath,
      args: [BUILD_SCRIPT],
      cwd: fileURLToPath(new URL('../../', import.meta.url)),
      env: childEnvironment(environment, {}),
    });
    child.stdin.end();
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output = (output + text).slice(-MAX_OUTPUT);
    });
    const exit = await withinTime(clock, BUILD_MS, child.exited, () => undefined);
    if (exit === undefined) await child.stop({ graceMs: 1000 });
    if (exit?.code === 0) return output.trim();
    logger.warn({ reason: exit?.stderrTail ?? 'it took longer than a minute' }, 'the console could not be built');
  } catch (error) {
    logger.warn({ err: error }, 'the console could not be built');
  }
  return undefined;
}

interface ConsoleSurfaceOptions {
  /** The services that run. */
  readonly names: readonly ServiceName[];
  /** Whether the screens of the console are served. False: only the pages of accounts. */
  readonly hasConsole: boolean;
  /** Whether the bridge takes callers without any credential. */
  isOpen(): boolean;
  setupNeeded(): Promise<boolean>;
  /** Whether accounts serves proxy nodes. */
  readonly proxyNodes: boolean;
  /** Of the address that browsers use: empty, or a path such as `/trestle` behind a proxy. */
  publicPath(): string;
  findFiles(): Promise<ConsoleFiles | undefined>;
  /** The routes of `/api/system`. */
  readonly statusRoutes: readonly Route[];
}

/** Pictures may be made by the page itself; no script at all may make markup. */
const POLICY = pagePolicy(
  "img-src 'self' data: blob:",
  "font-src 'self'",
  "manifest-src 'self'",
  "trusted-types 'none'",
);

const page = { 200: Type.Unsafe<string>({ type: 'string', contentMediaType: 'text/html' }) };

/** The facts that a page needs before a user has logged in. */
const SystemFacts = Type.Object({
  version: Type.String(),
  contract: Type.String(),
  services: Type.Array(Type.String()),
  signIn: Type.Enum(['open', 'session', 'token'], {
    description: '`open`: no credential is needed. `session`: people log in. `token`: only the token of the bridge.',
  }),
  setupNeeded: Type.Boolean({ description: 'True until the first administrator exists.' }),
  proxyNodes: Type.Boolean({ description: 'Whether this server serves proxy nodes.' }),
  console: Type.Boolean({ description: 'False: only the pages for logging in are served, not the console.' }),
});

/** Where the program, mails and other services send people. The part behind the "#" never reaches a server. */
const PAGES_OF_ACCOUNTS = [
  ...['setup', 'device', 'login', 'register'],
  ...['reset-password', 'set-password', 'accept-invitation', 'console/forgot'],
];

/** `/console`, the pages of accounts, and `/api/system`. */
export function createConsoleSurface(options: ConsoleSurfaceOptions): HttpSurface {
  const { names, hasConsole, isOpen, setupNeeded, proxyNodes, publicPath, findFiles } = options;

  function signIn(): 'open' | 'session' | 'token' {
    if (names.includes('bridge') && isOpen()) return 'open';
    return names.includes('accounts') ? 'session' : 'token';
  }

  async function showPage(call: Call<unknown>): Promise<unknown> {
    const { path } = call.head;
    if (path.slice(path.lastIndexOf('/')).includes('.')) throw new AppError('NOT_FOUND');
    const files = await findFiles();
    if (files === undefined) return sendPage(call, POLICY, storedText(NOT_BUILT));
    // Without these facts, the page requests them itself, and shows why that fails.
    const facts = await readFacts().catch(() => undefined);
    return sendPage(call, POLICY, storedText(indexPage(files, { base: publicPath(), path, facts })));
  }

  async function readFacts(): Promise<Static<typeof SystemFacts>> {
    return {
      version: PROGRAM_VERSION,
      contract: CONTRACT_VERSION,
      services: [...names],
      signIn: signIn(),
      setupNeeded: await setupNeeded(),
      proxyNodes,
      console: hasConsole,
    };
  }

  async function showFile({ head, reply, params }: Call<unknown, unknown, unknown, { readonly name: string }>) {
    const file = (await findFiles())?.files.get(params.name);
    if (file === undefined) throw new AppError('NOT_FOUND');
    const coding = codingFor(String(head.headers['accept-encoding'] ?? ''));
    if (coding !== 'identity') reply.header('content-encoding', coding);
    return reply
      .header('vary', 'Accept-Encoding')
      .header('cache-control', 'public, max-age=31536000, immutable')
      .header('x-content-type-options', 'nosniff')
      .type(file.type)
      .send(await file.bytes(coding));
  }

  const shown = { summary: 'The console.', response: page };
  return {
    ...plainShape,
    name: 'console',
    title: 'Console',
    prefixes: ['/console', '/api/system'],
    // The guard of the status rows is the bridge's.
    errors: bridgeErrors,
    routes: [
      ...options.statusRoutes,
      defineRoute(
        'GET /api/system',
        anyone,
        { summary: 'Returns which services run here, and how to log in.', response: { 200: SystemFacts } },
        readFacts,
      ),
      ...(hasConsole
        ? [
            defineRoute('GET /console', anyone, shown, showPage),
            defineRoute('GET /console/*', anyone, { ...shown, unlisted: true }, showPage),
          ]
        : []),
      defineRoute('GET /console/assets/:name', anyone, { summary: 'A part of the console.', unlisted: true }, showFile),
      ...(names.includes('accounts')
        ? PAGES_OF_ACCOUNTS.map((name) => defineRoute(`GET /${name}`, anyone, { ...shown, unlisted: true }, showPage))
        : []),
    ],
    upgrades: [],
    isOpen: () => false,
  };
}

/** The best of the codings that a browser takes; a coding with `q=0` is not taken. */
function codingFor(accepted: string): 'br' | 'gzip' | 'identity' {
  const takes = (coding: string) =>
    accepted.split(',').some((one) => {
      const [name, ...parameters] = one.split(';').map((part) => part.trim());
      return name === coding && !parameters.some((parameter) => Number(parameter.replace('q=', '')) === 0);
    });
  if (takes('br')) return 'br';
  return takes('gzip') ? 'gzip' : 'identity';
}

interface ShownPage {
  readonly base: string;
  readonly path: string;
  /** What `/api/system` answers, so that the page need not ask. */
  readonly facts: Static<typeof SystemFacts> | undefined;
}

/** The screen that a path shows: `/console/jobs` is `jobs`, and `/console/jobs/7` is `job`. */
function screenOf(path: string): string {
  const [first = '', second, ...rest] = path.split('/').filter(Boolean);
  if (first !== 'console') return first;
  if (second === undefined) return 'board';
  return rest.length === 0 ? second : second.replace(/s$/, '');
}

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

/**
 * The page before its script has run: no inline script or style, so that the policy can forbid them all. It names everything
 * that its screen needs, so that a browser loads it together and not one thing after the other.
 */
function indexPage({ script, style, imports, screens }: ConsoleFiles, { base, path, facts }: ShownPage): string {
  const early = [...imports, ...(new Map(Object.entries(screens)).get(screenOf(path)) ?? [])];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="base" content="${base}">
<meta name="system" content="${facts === undefined ? '' : escaped(JSON.stringify(facts))}">
<title>Trestle</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 3h12v2H2zM4 5l-2 9M12 5l2 9M6 5l4 9M10 5l-4 9' stroke='%232f5fd0' fill='none' stroke-width='1.5'/%3E%3C/svg%3E">
<link rel="stylesheet" href="${base}/console/assets/${style}">
<script type="module" src="${base}/console/assets/${script}"></script>
${early.map((name) => `<link rel="modulepreload" href="${base}/console/assets/${name}">`).join('\n')}
</head>
<body>
<div id="root"></div>
<noscript><p>The console needs JavaScript. The same is on the command line: <code>trestle --help</code></p></noscript>
</body>
</html>
`;
}

const NOT_BUILT = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trestle</title>
<link rel="icon" href="data:,">
</head>
<body>
<h1>The console is not built</h1>
<p>This checkout has no packages for development. Run <code>npm install --include=dev</code> in its folder, and load this page again.</p>
<p>Everything else works: <a href="/docs">the API</a>, and the command line (<code>trestle --help</code>). The first administrator is created with <code>trestle user create --email E --name N --role admin</code>.</p>
</body>
</html>
`;

interface ApiSurfaceOptions {
  /** The services that run. */
  readonly names: readonly ServiceName[];
  /** Where the console is; undefined where it is switched off. */
  readonly consolePath: string | undefined;
  /** The methods of the bridge, unless it does not run. */
  readonly methods: readonly MethodRow<never>[] | undefined;
  /** Everything that the listener serves; asked for when the description is first read. */
  readonly surfaces: () => readonly HttpSurface[];
}

const WELCOME =
  'This page describes the API of Trestle, and you can try each call here. To start agents, watch them and answer their questions:';

/** `/`, `/docs` and `/openapi.json`: the API, described from the very tables that serve it. */
export function createApiSurface({ names, consolePath, methods: rows, surfaces }: ApiSurfaceOptions): HttpSurface {
  const links =
    consolePath === undefined ? [] : [{ href: consolePath, name: 'Console', label: 'Open the console', text: WELCOME }];
  const { page, assets } = createApiPage<unknown>({
    ...{ guard: anyone, links, release: PROGRAM_VERSION },
    ...(names.includes('accounts') && { exchange: { prefix: '/acp', path: '/api/auth/token/jwt' } }),
  });
  let description: string | undefined;
  const openApi: Route = {
    method: 'GET',
    path: '/openapi.json',
    guard: anyone,
    summary: 'This description: OpenAPI 3.1.',
    handle({ reply }) {
      description ??= JSON.stringify(
        buildOpenApi({
          title: 'Trestle',
          version: CONTRACT_VERSION,
          surfaces: surfaces().map((surface) =>
            surface === own ? { ...own, routes: [root, page, openApi] } : surface,
          ),
          ...(rows === undefined
            ? {}
            : { methods: { paths: ['/acp/rpc', '/acp'], rows, notifications: bridgeNotifications } }),
        }),
      );
      return reply.type('application/json; charset=utf-8').header('cache-control', 'no-cache').send(description);
    },
  };
  const root = rootRoute({ version: PROGRAM_VERSION, page: page.handle, showPage: pageAtRoot(names) });
  const own: HttpSurface = {
    ...plainShape,
    name: 'api',
    title: 'About this server',
    prefixes: [],
    errors: platformErrors,
    routes: [root, page, ...assets, openApi],
    upgrades: [],
    isOpen: () => false,
  };
  return own;
}

/** Alone, a service's `/` is what its document says: a line of text for the bridge, the page for completions. */
function pageAtRoot(names: readonly ServiceName[]): 'never' | 'browsers' | 'always' {
  if (names.length > 1) return 'browsers';
  return names[0] === 'completions' ? 'always' : 'never';
}
