import { Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Guard, RequestHead, Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { cookieText, readCookie } from '../cookies.ts';
import { FLOW_LIFETIMES } from '../flows.ts';
import type { OauthLogin } from './oauth-login.ts';

/** What ties a login elsewhere to the browser that began it. */
const OAUTH_COOKIE = 'xc_oauth';

const Redirect = Type.Null({ description: 'The browser is sent on.' });
const LoginQuery = Type.Object({ link: Type.Optional(Type.Literal('1')) });

/** A way to log in is not added by a session that may have been left open somewhere (ASVS 7.5.1). */
const FRESH_LOGIN_MS = 15 * 60_000;

type Parts = Pick<AccountsCore, 'access' | 'cookiesAreSecure' | 'publicUrl' | 'frontendUrl' | 'clock'>;

export function oauthRoutes(parts: Parts, login: OauthLogin): readonly Route[] {
  const { access } = parts;
  const anyone = access.anyone();
  const isLink = (head: RequestHead) => head.query.get('link') === '1';
  /** Linking is for those who are logged in; logging in is for everyone. */
  const guard: Guard<UserCaller | undefined> = (head) => (isLink(head) ? access.user(head) : anyone(head));

  const cookie = (head: RequestHead, value: string) =>
    cookieText(OAUTH_COOKIE, value, {
      secure: parts.cookiesAreSecure(head),
      maxAgeSeconds: value === '' ? 0 : FLOW_LIFETIMES.oauth_state / 1000,
    });

  const begin: Route<UserCaller | undefined> = {
    method: 'GET',
    path: '/api/auth/oauth/login/:provider',
    guard,
    summary: 'Sends the browser to a provider to log in; with link=1, to link the account there to the own one.',
    schema: { query: LoginQuery, response: { 302: Redirect } },
    async handle({ caller, params, head, reply }) {
      const user = isLink(head) ? caller?.user : undefined;
      if (user !== undefined) refuseForeignStart(head, [parts.publicUrl(), parts.frontendUrl()]);
      if (user?.role === 'readonly') throw new AppError('READ_ONLY_ACCOUNT');
      if (user !== undefined && parts.clock.now() - user.session_created_at > FRESH_LOGIN_MS) {
        throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'a login from the last 15 minutes' });
      }
      const { location, browserToken } = await login.begin(params.provider ?? '', user, head);
      return reply.code(302).header('location', location).header('set-cookie', cookie(head, browserToken)).send();
    },
  };
  const finish: Route = {
    method: 'GET',
    path: '/api/auth/oauth/callback/:provider',
    guard: access.anyone('code', 'state', 'session_state'),
    summary: 'Where a provider sends the browser back to; ends at the web console with a code to exchange.',
    schema: { response: { 302: Redirect } },
    async handle({ params, head, reply }) {
      const location = await login.finish(params.provider ?? '', readCookie(head, OAUTH_COOKIE), head);
      return reply.code(302).header('location', location).header('set-cookie', cookie(head, '')).send();
    },
  };
  return [begin, finish];
}

/**
 * Another site must not make someone link an account: it might have logged them in there as somebody else before. A
 * browser says where a navigation comes from; a bearer token is sent by nobody's accident.
 */
function refuseForeignStart({ headers }: RequestHead, ownUrls: readonly string[]): void {
  if (headers.authorization !== undefined) return;
  const { 'sec-fetch-site': site, referer } = headers;
  if (site === 'same-origin' || site === 'none') return;
  const origin = referer === undefined ? undefined : URL.parse(referer)?.origin;
  if (origin !== undefined && ownUrls.some((url) => URL.parse(url)?.origin === origin)) return;
  throw new AppError('CROSS_SITE_REQUEST');
}
