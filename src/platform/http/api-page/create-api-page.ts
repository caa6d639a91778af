import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Call, Guard, Route } from '../surface.ts';

interface ApiPageInput<Caller> {
  readonly guard: Guard<Caller>;
  /** Where the page is served; its scripts and styles lie below. */
  readonly path?: string;
  readonly openApiPath?: string;
}

interface ApiPage<Caller> {
  /** `GET /docs`. Its handler may stand behind other addresses as well. */
  readonly page: Route<Caller>;
  /** One row per file: no name from a request ever becomes a file name. */
  readonly assets: readonly Route<Caller>[];
}

interface StoredText {
  readonly text: string;
  readonly etag: string;
}

const ASSETS = [
  'page.css',
  'page.js',
  'element.js',
  'event-parser.js',
  'example.js',
  'operation-view.js',
  'operations.js',
  'request.js',
  'request-form.js',
  'response-view.js',
  'schema-tree.js',
  'socket-view.js',
  'stream-text.js',
] as const;

/** Trusted types make the browser itself refuse any markup made from data. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

/** The page on which the API can be read and tried out. It needs nothing from any other host. */
export function createApiPage<Caller>(input: ApiPageInput<Caller>): ApiPage<Caller> {
  const { guard, path = '/docs', openApiPath = '/openapi.json' } = input;
  const html = stored(pageHtml({ assetsPath: `${path}/`, openApiPath }));
  return {
    page: {
      method: 'GET',
      path,
      guard,
      summary: 'This page.',
      handle: (call) => {
        call.reply.header('content-security-policy', POLICY);
        call.reply.header('referrer-policy', 'no-referrer');
        call.reply.header('cross-origin-opener-policy', 'same-origin');
        return send(call, 'text/html; charset=utf-8', html);
      },
    },
    assets: ASSETS.map((name) => assetRoute(`${path}/${name}`, name, guard)),
  };
}

function assetRoute<Caller>(path: string, name: (typeof ASSETS)[number], guard: Guard<Caller>): Route<Caller> {
  const contentType = `text/${name.endsWith('.css') ? 'css' : 'javascript'}; charset=utf-8`;
  let loaded: StoredText | undefined;
  return {
    method: 'GET',
    path,
    guard,
    summary: 'A part of the API page.',
    handle: async (call) => {
      loaded ??= stored(await readFile(new URL(`browser/${name}`, import.meta.url), 'utf8'));
      return send(call, contentType, loaded);
    },
  };
}

function stored(text: string): StoredText {
  return { text, etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"` };
}

/** Always asked for again, and answered without a body while it is the same: a new release shows at once. */
function send({ head, reply }: Call<unknown>, contentType: string, { text, etag }: StoredText): unknown {
  reply.header('cache-control', 'no-cache').header('etag', etag).header('x-content-type-options', 'nosniff');
  // The header may be a list, and a proxy that compresses marks the tag as weak.
  if (head.headers['if-none-match']?.includes(etag)) return reply.code(304).send();
  return reply.type(contentType).send(text);
}

interface PageAddresses {
  /** Where scripts and styles are served, with a slash at the end. */
  readonly assetsPath: string;
  readonly openApiPath: string;
}

/** The page before its script has run: no inline script or style, so that the policy can forbid them all. */
function pageHtml({ assetsPath, openApiPath }: PageAddresses): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${assetsPath}page.css">
<link rel="service-desc" type="application/json" href="${openApiPath}">
<script type="module" src="${assetsPath}page.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the operation</a>
<header>
<button type="button" id="menu" aria-expanded="false" aria-controls="menu-panel">Operations</button>
<h1><span id="title">API</span> <small id="version"></small></h1>
<div class="token">
<label for="token">Bearer token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false" placeholder="only kept in this tab">
</div>
</header>
<div class="frame">
<nav id="menu-panel" aria-label="Operations">
<label for="search" class="hidden-label">Search operations</label>
<input id="search" type="search" autocomplete="off" spellcheck="false" placeholder="Search">
<div id="operations"></div>
</nav>
<main id="main" tabindex="-1">
<p>Reading the API description …</p>
<noscript><p>This page needs JavaScript. The API description itself is at <a href="${openApiPath}">${openApiPath}</a>.</p></noscript>
</main>
</div>
</body>
</html>
`;
}
