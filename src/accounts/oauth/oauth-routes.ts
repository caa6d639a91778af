import { Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Guard, RequestHead, Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { cookieText, OAUTH_COOKIE, readCookie } from '../cookies.ts';
import { FLOW_LIFETIMES } from '../flows.ts';
import { requireFreshLogin } from '../login/session-check.ts';
import type { OauthLogin } from './oauth-login.ts';

const Redirect = Type.Null({ description: 'The browser is sent on.' });
const LoginQuery = Type.Object({
  link: Type.Optional(Type.Literal('1')),
  challenge: Type.Optional(
    Type.String({
      pattern: '^[A-Za-z0-9_-]{43}$',
      description:
        'For a web console at another address: base64url(SHA-256(verifier)); it sends the verifier with the exchange code.',
    }),
  ),
});

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
      maxAgeSeconds: (FLOW_LIFETIMES.oauth_state + FLOW_LIFETIMES.exchange) / 1000,
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
      if (user !== undefined) requireFreshLogin(user, parts.clock);
      const challenge = head.query.get('challenge') ?? undefined;
      const { location, browserToken } = await login.begin(params.provider ?? '', { user, challenge }, head);
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
      // The cookie stays: the exchange code is good for the browser that has it.
      return reply.code(302).header('location', location).send();
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
