import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/create-token.ts';
import { sameSecret } from '../../platform/secrets/token-digest.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { type OpenFlow, tokenKey } from '../flows.ts';
import { addressKey } from '../login/address-key.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import type { OauthAccounts, OauthProblem } from './oauth-accounts.ts';
import type { OauthIdentity, OauthProvider } from './oauth-provider.ts';
import type { FindProvider } from './oauth-providers.ts';

/** A login that was begun: where the browser goes, and what it must bring back. */
export interface BegunLogin {
  readonly location: string;
  readonly browserToken: string;
}

/** Logins with accounts from elsewhere (contract/accounts, Beyond the document: OAuth). */
export interface OauthLogin {
  /** `user`: who is logged in and wants to link the account. */
  begin(providerId: string, user: UserRow | undefined, head: RequestHead): Promise<BegunLogin>;
  /** Where the browser goes in the end, whatever happened. */
  finish(providerId: string, browserToken: string, head: RequestHead): Promise<string>;
}

const STARTS = { kind: 'oauth_starts', limit: 30, windowMs: 60_000 };

type Parts = Pick<
  AccountsCore,
  | 'database'
  | 'users'
  | 'flows'
  | 'counters'
  | 'audit'
  | 'publicUrl'
  | 'frontendUrl'
  | 'clock'
  | 'randomness'
  | 'logger'
> & { readonly findProvider: FindProvider; readonly accounts: OauthAccounts };

export function createOauthLogin(parts: Parts): OauthLogin {
  const { database, users, flows, audit, accounts, findProvider, clock, randomness } = parts;
  const redirectUri = (providerId: string) => `${parts.publicUrl()}/api/auth/oauth/callback/${providerId}`;
  const backTo = (result: Readonly<Record<string, string>>) =>
    `${parts.frontendUrl()}/login?${new URLSearchParams(result)}`;

  async function failed(problem: OauthProblem, providerId: string, head: RequestHead): Promise<string> {
    const details = { provider: providerId.slice(0, 64), problem };
    await audit.record({ event: 'oauth.failed', head, details });
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

  /** Links the account to whoever began this, if they are still logged in. */
  async function link(provider: OauthProvider, identity: OauthIdentity, flow: OpenFlow, head: RequestHead) {
    const user = await users.byId(flow.userId);
    const isCurrent = user !== undefined && user.active === 1 && user.access_epoch === flow.data.epoch;
    return isCurrent ? accounts.link(provider.namespace, identity, user, head) : { problem: 'invalid_state' as const };
  }

  return {
    async begin(providerId, user, head) {
      const provider = findProvider(providerId);
      const browserToken = createToken(randomness);
      const [nonce, verifier] = [createToken(randomness), createToken(randomness)];
      const data = {
        provider: providerId,
        browser: tokenKey(browserToken),
        nonce,
        verifier,
        ...(user !== undefined && { epoch: user.access_epoch }),
      };
      const { token: state, statement } = flows.issue('oauth_state', { userId: user?.id ?? '', data });
      const started = parts.counters.countWithin({ ...STARTS, key: addressKey(head.address) }, clock.now());
      try {
        await database.write([started, statement]);
      } catch (error) {
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
        throw new AppError('RATE_LIMITED', { retryAfterSeconds: STARTS.windowMs / 1000 });
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
      const provider = findProvider(providerId);
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
      const { token, statement } = flows.issue('exchange', { userId: outcome.userId });
      const details = { provider: providerId };
      const entry = { event: 'oauth.login', actor: outcome.userId, subject: outcome.userId, head, details };
      await database.write([statement, audit.statement(entry)]);
      return backTo({ exchange_code: token });
    },
  };
}
