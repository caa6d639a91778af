import { readFile } from 'node:fs/promises';
import { pagePolicy, type StoredText, sendPage, sendText, storedText } from '../page.ts';
import { anyone, type Guard, type Route } from '../surface.ts';

interface PageLink {
  readonly href: string;
  /** In the header, always. */
  readonly name: string;
  /** On the card of those who have chosen nothing yet, after `text`. */
  readonly label: string;
  readonly text: string;
}

interface ApiPageInput<Caller> {
  readonly guard: Guard<Caller>;
  /** Where the page is served; its scripts and styles lie below. */
  readonly path?: string;
  readonly openApiPath?: string;
  /** Other pages of this server, offered to those who come here first. All are texts of the program. */
  readonly links?: readonly PageLink[];
  /** The release of the program, shown before the version of the contract. */
  readonly release?: string;
  /** Paths that take no cookies, and where a person who is logged in gets a short token for them. */
  readonly exchange?: { readonly prefix: string; readonly path: string };
}

interface ApiPage<Caller> {
  /** `GET /docs`. Its handler may stand behind other addresses as well. */
  readonly page: Route<Caller>;
  /** One row per file: no name from a request ever becomes a file name. */
  readonly assets: readonly Route<Caller>[];
}

const ASSETS = [
  'page.css',
  'page.js',
  'element.js',
  'operations.js',
  'request.js',
  'response-view.js',
  'schema-tree.js',
] as const;

/** Pictures of the description itself. */
const POLICY = pagePolicy("img-src 'self' data:");

/** The page on which the API can be read and tried out. It needs nothing from any other host. */
export function createApiPage<Caller>(input: ApiPageInput<Caller>): ApiPage<Caller> {
  const { guard, path = '/docs', openApiPath = '/openapi.json', links = [], release = '', exchange } = input;
  const html = storedText(pageHtml({ assetsPath: `${path}/`, openApiPath, links, release, exchange }));
  return {
    page: {
      method: 'GET',
      path,
      guard,
      summary: 'This page.',
      handle: (call) => sendPage(call, POLICY, html),
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
      loaded ??= storedText(await readFile(new URL(`browser/${name}`, import.meta.url), 'utf8'));
      return sendText(call, contentType, loaded);
    },
  };
}

interface PageAddresses extends Required<Pick<ApiPageInput<unknown>, 'links' | 'release'>> {
  readonly exchange: ApiPageInput<unknown>['exchange'];
  /** Where scripts and styles are served, with a slash at the end. */
  readonly assetsPath: string;
  readonly openApiPath: string;
}

/** The page before its script has run: no inline script or style, so that the policy can forbid them all. */
function pageHtml({ assetsPath, openApiPath, links, release, exchange }: PageAddresses): string {
  const cards = links.map(({ href, label, text }) => `<p>${text} <a class="open" href="${href}">${label}</a></p>\n`);
  const welcome =
    links.length === 0 ? '' : `<aside id="welcome" aria-label="Where to begin">\n${cards.join('')}</aside>\n`;
  const others = links.map(({ href, name }) => `<a href="${href}">${name}</a>\n`).join('');
  const session =
    exchange === undefined ? '' : ` data-exchange-prefix="${exchange.prefix}" data-exchange-path="${exchange.path}"`;
  const hint = exchange === undefined ? 'only kept in this tab' : 'empty: your login of the console';
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
<h1><span id="title">API</span> <small id="version" data-release="${release}"></small></h1>
${others}<button type="button" id="token-toggle" aria-expanded="false" aria-controls="token-panel">Token</button>
<div class="token" id="token-panel">
<label for="token">Bearer token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false" placeholder="${hint}"${session}>
</div>
</header>
<div class="frame">
<nav id="menu-panel" aria-label="Operations">
<label for="search" class="hidden-label">Search operations</label>
<input id="search" type="search" autocomplete="off" spellcheck="false" placeholder="Search">
<div id="operations"></div>
</nav>
<main id="main" tabindex="-1">
${welcome}<p>Reading the API description …</p>
<noscript><p>This page needs JavaScript. The API description itself is at <a href="${openApiPath}">${openApiPath}</a>.</p></noscript>
</main>
</div>
</body>
</html>
`;
}

interface RootRouteOptions {
  readonly version: string;
  /** Sends the API page. */
  readonly page: Route['handle'];
  /** `never`: the plain line for everybody; `browsers`: the page where HTML is asked for; `always`: the page. */
  readonly showPage: 'never' | 'browsers' | 'always';
}

/** `GET /`: what each service's document has there, and both where one listener carries several (design: Listeners). */
export function rootRoute({ version, page, showPage }: RootRouteOptions): Route {
  return {
    method: 'GET',
    path: '/',
    guard: anyone,
    summary: 'Returns one line about what runs here; browsers get the API page.',
    handle(call) {
      const asksForPage = call.head.headers.accept?.includes('text/html') === true;
      if (showPage !== 'never') call.reply.header('vary', 'Accept');
      if (showPage === 'always' || (showPage === 'browsers' && asksForPage)) return page(call);
      return call.reply.type('text/plain; charset=utf-8').send(`trestle ${version} is running\n`);
    },
  };
}
