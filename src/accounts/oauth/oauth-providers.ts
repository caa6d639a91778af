import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { AccountsSettings } from '../settings.ts';
import { createGithubProvider } from './create-github-provider.ts';
import { createOidcProvider } from './create-oidc-provider.ts';
import type { OauthProvider } from './oauth-provider.ts';

const GOOGLE_ISSUER = 'https://accounts.google.com';

/** The provider of a login address. Throws PROVIDER_NOT_FOUND for one that is not configured. */
export type FindProvider = (id: string) => OauthProvider;

/** Made anew when the settings change: a client's secret may be replaced while the program runs. */
export function createFindProvider(
  settings: () => AccountsSettings['oauth'],
  clock: Pick<Clock, 'monotonic'>,
): FindProvider {
  let current:
    | { readonly settings: AccountsSettings['oauth']; readonly providers: Map<string, OauthProvider> }
    | undefined;
  return (id) => {
    const now = settings();
    if (current?.settings !== now) current = { settings: now, providers: createProviders(now, clock) };
    const provider = current.providers.get(id);
    if (provider === undefined) throw new AppError('PROVIDER_NOT_FOUND', { provider: id.slice(0, 64) });
    return provider;
  };
}

function createProviders({ github, google, oidc }: AccountsSettings['oauth'], clock: Pick<Clock, 'monotonic'>) {
  const providers = new Map<string, OauthProvider>();
  if (github.client_id !== '') providers.set('github', createGithubProvider(github));
  if (google.client_id !== '') providers.set('google', createOidcProvider({ issuer: GOOGLE_ISSUER, ...google }, clock));
  for (const { id, ...issuer } of oidc) providers.set(id, createOidcProvider(issuer, clock));
  return providers;
}
