import { createHash } from 'node:crypto';
import type { ClientAuth, Configuration } from 'openid-client';
import type { Clock } from '../../platform/clock/clock.ts';
import { boundedFetch, type OauthIdentity, type OauthProvider } from './oauth-provider.ts';

export interface OidcSettings {
  readonly issuer: string;
  readonly client_id: string;
  readonly client_secret: string;
  /** Takes the issuer's word for every address, also where it does not say that it has verified it. */
  readonly trust_email: boolean;
}

const TIMEOUT_SECONDS = 10;
/** What an issuer says of itself is asked again after this time. */
const KNOWN_FOR_MS = 3_600_000;

/** Any OpenID Connect issuer. The library is loaded by the first login. */
export function createOidcProvider(settings: OidcSettings, clock: Pick<Clock, 'monotonic'>): OauthProvider {
  let known: { readonly configuration: Configuration; readonly since: number } | undefined;

  async function configure(): Promise<Configuration> {
    if (known !== undefined && clock.monotonic() - known.since < KNOWN_FOR_MS) return known.configuration;
    const client = await import('openid-client');
    const isPlain = URL.parse(settings.issuer)?.protocol === 'http:';
    const configuration = await client.discovery(
      new URL(settings.issuer),
      settings.client_id,
      {},
      authentication(client, settings.client_secret),
      {
        timeout: TIMEOUT_SECONDS,
        // Only a loopback issuer may be plain: the settings are checked for that.
        execute: isPlain ? [client.allowInsecureRequests] : [],
        [client.customFetch]: (url, options) => boundedFetch(url, options as RequestInit),
      },
    );
    // The signature is checked even though the token comes straight from the issuer (ASVS 6.8.2).
    client.enableNonRepudiationChecks(configuration);
    known = { configuration, since: clock.monotonic() };
    return configuration;
  }

  return {
    namespace: `oidc:${settings.issuer}`,
    async authorizationUrl({ redirectUri, state, nonce, codeVerifier }) {
      const [client, configuration] = await Promise.all([import('openid-client'), configure()]);
      const url = client.buildAuthorizationUrl(configuration, {
        redirect_uri: redirectUri,
        scope: 'openid email profile',
        state,
        nonce,
        code_challenge: createHash('sha256').update(codeVerifier).digest('base64url'),
        code_challenge_method: 'S256',
      });
      return url.href;
    },
    async identify({ query, redirectUri, state, nonce, codeVerifier }) {
      const [client, configuration] = await Promise.all([import('openid-client'), configure()]);
      const tokens = await client.authorizationCodeGrant(configuration, new URL(`${redirectUri}?${query}`), {
        expectedState: state,
        expectedNonce: nonce,
        pkceCodeVerifier: codeVerifier,
        idTokenExpected: true,
      });
      const claims = tokens.claims();
      if (claims === undefined) throw new Error('the issuer sent no ID token');
      if (claims.email !== undefined || configuration.serverMetadata().userinfo_endpoint === undefined) {
        return identityOf(claims.sub, claims, settings.trust_email);
      }
      const userInfo = await client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
      return identityOf(claims.sub, userInfo, settings.trust_email);
    },
  };
}

function identityOf(id: string, claims: Readonly<Record<string, unknown>>, trustEmail: boolean): OauthIdentity {
  const { email, email_verified: verified, name, preferred_username: username } = claims;
  // The claim is a boolean, but Apple and Amazon Cognito send it as a string.
  const isVerified = verified === true || verified === 'true';
  return {
    id,
    email: typeof email === 'string' && (isVerified || trustEmail) ? email : undefined,
    name: typeof name === 'string' ? name : typeof username === 'string' ? username : '',
  };
}

/** As the issuer wants the secret: in a header unless it says otherwise. */
function authentication(client: typeof import('openid-client'), secret: string): ClientAuth {
  if (secret === '') return client.None();
  const inHeader = client.ClientSecretBasic(secret);
  const inBody = client.ClientSecretPost(secret);
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    (methods.includes('client_secret_basic') ? inHeader : inBody)(server, ...rest);
  };
}
