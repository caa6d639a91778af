import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { AccountsSettings } from '../settings.ts';
import { createGithubProvider } from './create-github-provider.ts';
import { createOidcProvider } from './create-oidc-provider.ts';
import type { OauthProvider } from './oauth-provider.ts';

const GOOGLE_ISSUER = 'https://accounts.google.com';

/** The providers that are configured now: a client's secret may be replaced while the program runs. */
export interface Providers {
  /** By the name in the login address. Throws PROVIDER_NOT_FOUND for one that is not configured. */
  find(id: string): OauthProvider;
  /** The name of the provider whose ids have this namespace; undefined when none is configured. */
  nameOf(namespace: string): string | undefined;
}

export function createOauthProviders(
  settings: () => AccountsSettings['oauth'],
  clock: Pick<Clock, 'monotonic'>,
): Providers {
  let current:
    | { readonly settings: AccountsSettings['oauth']; readonly providers: Map<string, OauthProvider> }
    | undefined;
  const configured = (): Map<string, OauthProvider> => {
    const now = settings();
    if (current?.settings !== now) current = { settings: now, providers: createProviders(now, clock) };
    return current.providers;
  };
  return {
    find(id) {
      const provider = configured().get(id);
      if (provider === undefined) throw new AppError('PROVIDER_NOT_FOUND', { provider: id.slice(0, 64) });
      return provider;
    },
    nameOf: (namespace) => [...configured()].find(([, provider]) => provider.namespace === namespace)?.[0],
  };
}

function createProviders({ github, google, oidc }: AccountsSettings['oauth'], clock: Pick<Clock, 'monotonic'>) {
  const providers = new Map<string, OauthProvider>();
  if (github.client_id !== '') providers.set('github', createGithubProvider(github));
  if (google.client_id !== '')
    providers.set('google', createOidcProvider({ issuer: GOOGLE_ISSUER, trust_email: false, ...google }, clock));
  for (const { id, ...issuer } of oidc) providers.set(id, createOidcProvider(issuer, clock));
  return providers;
}
