import { unlessConflict } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import { createToken, sameSecret } from '../../platform/secrets/tokens.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { cookieText, OAUTH_COOKIE, readCookie } from '../cookies.ts';
import { FLOW_LIFETIMES, type OpenFlow, tokenKey } from '../flows.ts';
import { byAddress } from '../limiter/limiter.ts';
import { requireFreshLogin } from '../login/session-check.ts';
import { linkSubject } from '../storage/credential-store.ts';
import type { FoundSession } from '../storage/session-store.ts';
import type { OauthAccounts, OauthProblem } from './oauth-accounts.ts';
import type { OauthIdentity, OauthProvider, Providers } from './oauth-providers.ts';

type BrowserCall = Pick<Call, 'head' | 'reply'>;

/** Logins with accounts from elsewhere. */
export interface OauthLogin {
  /** Redirects the browser to the provider. With `user`, the account there is linked to this logged-in user. */
  begin(providerId: string, user: FoundSession | undefined, call: BrowserCall): Promise<unknown>;
  /** Redirects the browser to the web console, with an exchange code or with an error. */
  finish(providerId: string, call: BrowserCall): Promise<unknown>;
}

type Parts = AccountsCore & { readonly providers: Providers; readonly accounts: OauthAccounts };

export function createOauthLogin(parts: Parts): OauthLogin {
  const { database, users, sessions, flows, limiter, audit, accounts, providers, clock, randomness } = parts;
  const redirectUri = (providerId: string) => `${parts.publicUrl()}/api/auth/oauth/callback/${providerId}`;
  const backTo = (result: Readonly<Record<string, string>>) =>
    `${parts.frontendUrl()}/login?${new URLSearchParams(result)}`;

  const cookie = (head: RequestHead, value: string) =>
    cookieText(OAUTH_COOKIE, value, {
      secure: parts.cookiesAreSecure(head),
      maxAgeSeconds: (FLOW_LIFETIMES.oauth_state + FLOW_LIFETIMES.exchange) / 1000,
    });

  async function failed(problem: OauthProblem, providerId: string, head: RequestHead): Promise<string> {
    const details = { provider: providerId.slice(0, 64), problem };
    const entry = audit.statement({ event: 'oauth.failed', head, details });
    try {
      await database.write([limiter.take(byAddress('oauth_failure', head)), entry]);
    } catch (error) {
      // Other failures from the same address reached the limit at the same moment.
      if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      await limiter.refuseWhileLocked(byAddress('oauth_failure', head));
    }
    return backTo({ error: problem });
  }

  /** Returns the login that this browser began with this provider, and ends it, because it can be finished only once. */
  async function takeFlow(
    providerId: string,
    browserToken: string,
    { query }: RequestHead,
  ): Promise<{ readonly flow: OpenFlow; readonly state: string } | undefined> {
    const [state = '', ...others] = query.getAll('state');
    const flow = others.length > 0 ? undefined : await flows.open('oauth_state', state);
    const isOurs =
      flow !== undefined &&
      flow.data.provider === providerId &&
      sameSecret(tokenKey(browserToken), String(flow.data.browser));
    if (!isOurs) return undefined;
    const isFirst = await unlessConflict(database.write([flows.take('oauth_state', state)]));
    return isFirst ? { flow, state } : undefined;
  }

  /** Returns undefined for every failure of the provider, and logs its name. */
  async function identify(
    provider: OauthProvider,
    providerId: string,
    { flow, state }: { readonly flow: OpenFlow; readonly state: string },
    { query }: RequestHead,
  ): Promise<OauthIdentity | undefined> {
    try {
      const { nonce, verifier } = flow.data;
      const request = {
        redirectUri: redirectUri(providerId),
        state,
        nonce: String(nonce),
        codeVerifier: String(verifier),
      };
      return await provider.identify({ ...request, query });
    } catch (error) {
      // Not the error itself, because it may contain the response, and with it tokens.
      const reason = error instanceof Error ? `${error.name} ${errorCode(error)}`.trim() : 'unknown';
      parts.logger.warn({ provider: providerId, reason }, 'a login elsewhere was not accepted');
      return undefined;
    }
  }

  /** Links the account to the user who began this, if the session that began it has not ended. */
  async function link(provider: OauthProvider, identity: OauthIdentity, flow: OpenFlow, head: RequestHead) {
    const user = await users.byId(flow.userId);
    if (user === undefined || user.active !== 1) return { problem: 'invalid_state' as const };
    const session = { id: String(flow.data.session), userId: user.id, epoch: user.access_epoch, now: clock.now() };
    return accounts.link(provider.namespace, identity, { user, isLive: sessions.expectLive(session) }, head);
  }

  return {
    async begin(providerId, user, { head, reply }) {
      if (user !== undefined) {
        refuseForeignStart(head, [parts.publicUrl(), parts.frontendUrl()]);
        if (user.role === 'readonly') throw new AppError('READ_ONLY_ACCOUNT');
        requireFreshLogin(user, clock);
      }
      const provider = providers.find(providerId);
      // For a web console at another address, which has no cookie of ours: the digest of what it shows at the exchange.
      const challenge = head.query.get('challenge') ?? undefined;
      const browserToken = createToken(randomness);
      const [nonce, verifier] = [createToken(randomness), createToken(randomness)];
      const data = {
        provider: providerId,
        browser: tokenKey(browserToken),
        nonce,
        verifier,
        ...(challenge !== undefined && { challenge }),
        ...(user !== undefined && { session: user.session_id }),
      };
      const { token: state, statement } = flows.issue('oauth_state', { userId: user?.id ?? '', data });
      const start = byAddress('oauth_start', head);
      try {
        await database.write([limiter.take(start), statement]);
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') await limiter.refuseWhileLocked(start);
        throw error;
      }
      const request = { redirectUri: redirectUri(providerId), state, nonce, codeVerifier: verifier };
      const location = await provider.authorizationUrl(request).catch((error) => {
        parts.logger.warn({ provider: providerId, reason: errorCode(error) }, 'a provider of logins cannot be reached');
        return failed('provider_failed', providerId, head);
      });
      return reply.code(302).header('location', location).header('set-cookie', cookie(head, browserToken)).send();
    },
    async finish(providerId, { head, reply }) {
      const location = await finish(providerId, readCookie(head, OAUTH_COOKIE), head);
      // The cookie stays: the exchange code is good for the browser that has it.
      return reply.code(302).header('location', location).send();
    },
  };

  /** Returns where the browser goes. */
  async function finish(providerId: string, browserToken: string, head: RequestHead): Promise<string> {
    const provider = providers.find(providerId);
    await limiter.refuseWhileLocked(byAddress('oauth_failure', head));
    const taken = await takeFlow(providerId, browserToken, head);
    if (taken === undefined) return failed('invalid_state', providerId, head);
    const { flow } = taken;
    const refusal = head.query.get('error');
    if (refusal !== null) {
      return failed(refusal === 'access_denied' ? 'access_denied' : 'provider_failed', providerId, head);
    }
    const identity = await identify(provider, providerId, taken, head);
    if (identity === undefined) return failed('provider_failed', providerId, head);
    const isLink = flow.userId !== '';
    const outcome = isLink
      ? await link(provider, identity, flow, head)
      : await accounts.enter(provider.namespace, identity, head);
    if ('problem' in outcome) return failed(outcome.problem, providerId, head);
    if (isLink) return backTo({ linked: providerId });
    const { browser, challenge } = flow.data;
    const { token, statement } = flows.issue('exchange', { userId: outcome.userId, data: { browser, challenge } });
    const details = { provider: providerId };
    const entry = { event: 'oauth.login', actor: outcome.userId, subject: outcome.userId, head, details };
    const used = parts.credentials.noteUse('oauth', linkSubject(provider.namespace, identity.id), clock.now());
    await database.write([statement, used, audit.statement(entry)]);
    return backTo({ exchange_code: token });
  }
}

/**
 * Throws CROSS_SITE_REQUEST when another site starts the linking of an account, because that site may have logged the user
 * in at the provider with an account of its own. A request with a bearer token is allowed: browsers do not add one by themselves.
 */
function refuseForeignStart({ headers }: RequestHead, ownUrls: readonly string[]): void {
  if (headers.authorization !== undefined) return;
  const { 'sec-fetch-site': site, referer } = headers;
  if (site === 'same-origin' || site === 'none') return;
  const origin = referer === undefined ? undefined : URL.parse(referer)?.origin;
  if (origin !== undefined && ownUrls.some((url) => URL.parse(url)?.origin === origin)) return;
  throw new AppError('CROSS_SITE_REQUEST');
}
