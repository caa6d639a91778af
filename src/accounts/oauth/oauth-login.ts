import { errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { createToken, sameSecret } from '../../platform/secrets/tokens.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { type OpenFlow, tokenKey } from '../flows.ts';
import { byAddress } from '../limiter/limiter.ts';
import { linkSubject } from '../storage/credential-store.ts';
import type { FoundSession } from '../storage/session-store.ts';
import type { OauthAccounts, OauthProblem } from './oauth-accounts.ts';
import type { OauthIdentity, OauthProvider } from './oauth-provider.ts';
import type { Providers } from './oauth-providers.ts';

/** A login that was begun: where the browser goes, and what it must bring back. */
export interface BegunLogin {
  readonly location: string;
  readonly browserToken: string;
}

/** Logins with accounts from elsewhere (contract/accounts, Beyond the document: OAuth). */
export interface OauthLogin {
  begin(providerId: string, options: BeginOptions, head: RequestHead): Promise<BegunLogin>;
  /** Where the browser goes in the end, whatever happened. */
  finish(providerId: string, browserToken: string, head: RequestHead): Promise<string>;
}

export interface BeginOptions {
  /** Who is logged in and wants to link the account. */
  readonly user: FoundSession | undefined;
  /** For a web console at another address, which has no cookie of ours: the digest of what it shows at the exchange. */
  readonly challenge: string | undefined;
}

type Parts = Pick<
  AccountsCore,
  | 'database'
  | 'users'
  | 'sessions'
  | 'flows'
  | 'limiter'
  | 'credentials'
  | 'audit'
  | 'publicUrl'
  | 'frontendUrl'
  | 'clock'
  | 'randomness'
  | 'logger'
> & { readonly providers: Providers; readonly accounts: OauthAccounts };

export function createOauthLogin(parts: Parts): OauthLogin {
  const { database, users, sessions, flows, limiter, audit, accounts, providers, clock, randomness } = parts;
  const redirectUri = (providerId: string) => `${parts.publicUrl()}/api/auth/oauth/callback/${providerId}`;
  const backTo = (result: Readonly<Record<string, string>>) =>
    `${parts.frontendUrl()}/login?${new URLSearchParams(result)}`;

  async function failed(problem: OauthProblem, providerId: string, head: RequestHead): Promise<string> {
    const details = { provider: providerId.slice(0, 64), problem };
    const entry = audit.statement({ event: 'oauth.failed', head, details });
    try {
      await database.write([limiter.take(byAddress('oauth_failure', head)), entry]);
    } catch (error) {
      // Many at the same moment, and this one was too many.
      if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      await limiter.refuseWhileLocked(byAddress('oauth_failure', head));
    }
    return backTo({ error: problem });
  }

  /** The login that this browser began with this provider; it can be finished once. */
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
    try {
      await database.write([flows.take('oauth_state', state)]);
    } catch (error) {
      if (errorCode(error) === 'STORAGE_CONFLICT') return undefined;
      throw error;
    }
    return { flow, state };
  }

  /** Whatever the provider gets wrong is one thing to us; what it was stays in the log. */
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
      // Not the error itself: it may hold the answer, and with it tokens.
      const reason = error instanceof Error ? `${error.name} ${errorCode(error)}`.trim() : 'unknown';
      parts.logger.warn({ provider: providerId, reason }, 'a login elsewhere was not accepted');
      return undefined;
    }
  }

  /** Links the account to whoever began this, if the session that began it has not ended. */
  async function link(provider: OauthProvider, identity: OauthIdentity, flow: OpenFlow, head: RequestHead) {
    const user = await users.byId(flow.userId);
    if (user === undefined || user.active !== 1) return { problem: 'invalid_state' as const };
    const session = { id: String(flow.data.session), userId: user.id, epoch: user.access_epoch, now: clock.now() };
    return accounts.link(provider.namespace, identity, { user, isLive: sessions.expectLive(session) }, head);
  }

  return {
    async begin(providerId, { user, challenge }, head) {
      const provider = providers.find(providerId);
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
      try {
        return { location: await provider.authorizationUrl(request), browserToken };
      } catch (error) {
        parts.logger.warn({ provider: providerId, reason: errorCode(error) }, 'a provider of logins cannot be reached');
        return { location: await failed('provider_failed', providerId, head), browserToken };
      }
    },
    async finish(providerId, browserToken, head) {
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
    },
  };
}
