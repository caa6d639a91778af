import { bridgeNotifications } from '../bridge/methods.ts';
import { platformErrors } from '../platform/errors/error-table.ts';
import { createApiPage } from '../platform/http/api-page/create-api-page.ts';
import { buildOpenApi } from '../platform/http/openapi/build-openapi.ts';
import { plainShape } from '../platform/http/refusal.ts';
import { anyone, type HttpSurface, type Route } from '../platform/http/surface.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import { CONTRACT_VERSION, PROGRAM_VERSION } from './environment.ts';
import type { ServiceName } from './settings.ts';

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

/** `/`, `/docs` and `/openapi.json`: the API, described from the very tables that serve it. */
export function createApiSurface({ names, consolePath, methods: rows, surfaces }: ApiSurfaceOptions): HttpSurface {
  const links = consolePath === undefined ? [] : [{ href: consolePath, label: 'Open the console' }];
  const { page, assets } = createApiPage<unknown>({ guard: anyone, links });
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

interface RootRouteOptions {
  readonly version: string;
  /** Sends the API page. */
  readonly page: Route['handle'];
  /** `never`: the plain line for everybody; `browsers`: the page where HTML is asked for; `always`: the page. */
  readonly showPage: 'never' | 'browsers' | 'always';
}

/** `GET /`: what each service's document has there, and both where one listener carries several (design: Listeners). */
function rootRoute({ version, page, showPage }: RootRouteOptions): Route {
  return {
    method: 'GET',
    path: '/',
    guard: anyone,
    summary: 'A line that says what runs here; the API page for browsers.',
    handle(call) {
      const asksForPage = call.head.headers.accept?.includes('text/html') === true;
      if (showPage !== 'never') call.reply.header('vary', 'Accept');
      if (showPage === 'always' || (showPage === 'browsers' && asksForPage)) return page(call);
      return call.reply.type('text/plain; charset=utf-8').send(`trestle ${version} is running\n`);
    },
  };
}
