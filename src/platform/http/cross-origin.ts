import { AppError } from '../errors/app-error.ts';
import { anyone, type HttpSurface, type RequestHead, type Route } from './surface.ts';

type Headers = Readonly<Record<string, string>>;
type Head = Pick<RequestHead, 'headers'>;

/** What a browser sends for requests that a page of ours makes, or that its user makes directly. */
const OWN_SITES: ReadonlySet<string> = new Set(['same-origin', 'none']);
const NONE: Headers = {};
/** Caches must not give the response for one origin to another. */
const VARY: Headers = { vary: 'Origin' };
/** Scripts may read every header. The star counts because credentials are never allowed; old browsers need the names. */
const EXPOSED = 'X-Request-Id, Retry-After, *';
const MAX_AGE_SECONDS = '600';
/** Names of headers, as browsers list them. */
const HEADER_NAMES = /^[a-z0-9-]+(?:, ?[a-z0-9-]+)*$/i;
const MAX_HEADER_NAMES_LENGTH = 1000;

/**
 * Returns whether the page that sent a request may call us: a page of our own origin, or of a listed one. Requests of
 * programs, which have no origin, may too. `own` lists our origins besides the one that the Host header gives.
 */
export function originAllowed({ headers }: Head, listed: readonly string[], own: readonly string[] = []): boolean {
  const { origin, host, 'sec-fetch-site': site } = headers;
  // Programs send neither header; a browser that omits the origin still sends the site.
  if (origin === undefined || origin === '') return typeof site !== 'string' || OWN_SITES.has(site);
  return isOwnOrigin(origin, host) || own.includes(origin) || matchesOrigin(origin, listed);
}

/** Throws ORIGIN_NOT_ALLOWED. */
export function refuseOrigin({ headers }: Head): never {
  throw new AppError('ORIGIN_NOT_ALLOWED', { origin: (headers.origin ?? '').slice(0, 200) });
}

/**
 * Throws CROSS_SITE_REQUEST for a request whose cookie must not count, because a page of another origin may have caused it.
 * Another port of this host is another origin, although browsers send it the same cookies. Changes and upgrades must say that
 * they come from us; a read must not say that it comes from elsewhere. `publicUrl` is our address for browsers.
 */
export function refuseCrossSite(head: RequestHead, publicUrl: string): void {
  const { origin, host = '', upgrade, 'sec-fetch-site': site } = head.headers;
  const own = [URL.parse(publicUrl)?.origin, `${head.secure ? 'https' : 'http'}://${host}`];
  const isOwnPage = origin !== undefined && own.includes(origin);
  const isForeign = (site !== undefined && !OWN_SITES.has(String(site))) || (origin !== undefined && !isOwnPage);
  const isRead = (head.method === 'GET' || head.method === 'HEAD') && upgrade === undefined;
  const saysSo = isOwnPage || (upgrade === undefined && site === 'same-origin');
  if (isForeign || (!isRead && !saysSo)) throw new AppError('CROSS_SITE_REQUEST');
}

/** Whether a page was loaded from the address that it calls. TLS may end before us, so both schemes count. */
function isOwnOrigin(origin: string, host: string | undefined): boolean {
  return host !== undefined && host !== '' && (origin === `http://${host}` || origin === `https://${host}`);
}

/** Compares exactly; an entry that ends in `:*` matches any port. `null` never matches, because nobody can list it. */
export function matchesOrigin(origin: string, listed: readonly string[]): boolean {
  if (origin === 'null') return false;
  return listed.some((pattern) => {
    if (pattern === '') return false;
    if (!pattern.endsWith(':*')) return origin === pattern;
    const base = pattern.slice(0, -2);
    return origin === base || (origin.startsWith(`${base}:`) && /^\d{1,5}$/.test(origin.slice(base.length + 1)));
  });
}

/** The headers of every response of a surface, refusals included, that let a page of an allowed origin read it. */
export function crossOriginHeaders({ crossOrigin }: Pick<HttpSurface, 'crossOrigin'>, head: RequestHead): Headers {
  if (crossOrigin === undefined || !head.path.startsWith(crossOrigin.below ?? '')) return NONE;
  const { origin } = head.headers;
  if (origin === undefined || origin === '' || !crossOrigin.allows(head)) return VARY;
  return { ...VARY, 'access-control-allow-origin': origin, 'access-control-expose-headers': EXPOSED };
}

/** The further headers of the response to a preflight of an allowed origin. */
export function preflightHeaders(methods: readonly string[], headers: string): Headers {
  return {
    'access-control-allow-methods': methods.join(', '),
    'access-control-allow-headers': headers,
    'access-control-max-age': MAX_AGE_SECONDS,
  };
}

/** One row for preflights at each path of a surface that pages of other origins may call, unless the table has its own. */
export function preflightRoutes({ crossOrigin, routes }: Pick<HttpSurface, 'crossOrigin' | 'routes'>): Route[] {
  if (crossOrigin === undefined) return [];
  const listed = routes.filter(({ path, unlisted }) => !unlisted && path.startsWith(crossOrigin.below ?? ''));
  const methodsByPath = Map.groupBy(listed, ({ path }) => path);
  return [...methodsByPath].flatMap(([path, rows]) => {
    const methods: string[] = rows.map(({ method }) => method);
    if (methods.includes('OPTIONS')) return [];
    if (methods.includes('GET')) methods.push('HEAD');
    methods.sort();
    const route: Route = {
      method: 'OPTIONS',
      path,
      guard: anyone,
      summary: 'CORS preflight.',
      unlisted: true,
      handle({ head, reply }) {
        const {
          origin,
          'access-control-request-method': method,
          'access-control-request-headers': asked,
        } = head.headers;
        const isPreflight = origin !== undefined && method !== undefined;
        if (!isPreflight) throw new AppError('METHOD_NOT_ALLOWED', { allow: methods.join(', ') });
        if (!crossOrigin.allows(head)) return refuseOrigin(head);
        reply.header('vary', 'Origin, Access-Control-Request-Headers');
        return reply
          .code(204)
          .headers(preflightHeaders(methods, namesIn(asked)))
          .send();
      },
    };
    return [route];
  });
}

/** A listed page may send any header: what a header is worth is decided where it is read. */
function namesIn(asked: string | undefined): string {
  const isList = asked !== undefined && asked.length <= MAX_HEADER_NAMES_LENGTH && HEADER_NAMES.test(asked);
  return isList ? asked : 'Authorization, Content-Type';
}
