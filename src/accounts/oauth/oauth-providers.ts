import { createHash } from 'node:crypto';
import type { ClientAuth, Configuration } from 'openid-client';
import { type Static, type TSchema, Type } from 'typebox';
import { Compile } from 'typebox/schema';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';
import { withoutSlash } from '../../platform/network-address/ip-address.ts';
import type { AccountsSettings } from '../settings.ts';

/** A person, as a provider describes them. */
export interface OauthIdentity {
  /** The provider's own, unchanging id of the person. */
  readonly id: string;
  /** Only an address that the provider says it has verified. */
  readonly email: string | undefined;
  readonly name: string;
}

interface OauthRequest {
  readonly redirectUri: string;
  readonly state: string;
  readonly nonce: string;
  readonly codeVerifier: string;
}

interface OauthCallback extends OauthRequest {
  /** The query of the callback, unchanged. */
  readonly query: URLSearchParams;
}

/** Where people can log in with an account from elsewhere. */
export interface OauthProvider {
  /** The namespace of its ids, because two providers may use the same id for different people. */
  readonly namespace: string;
  /** Returns the URL that the browser is redirected to. */
  authorizationUrl(request: OauthRequest): Promise<string>;
  /** Returns the person who logged in. Throws when any check of the callback or of the provider's responses fails. */
  identify(callback: OauthCallback): Promise<OauthIdentity>;
}

const GOOGLE_ISSUER = 'https://accounts.google.com';

/** The providers that are configured now: a client's secret may be replaced while the program runs. */
export interface Providers {
  /** By the name in the login address. Throws PROVIDER_NOT_FOUND for one that is not configured. */
  find(id: string): OauthProvider;
  /** The name of the provider whose ids have this namespace; undefined when none is configured. */
  nameOf(namespace: string): string | undefined;
  /** The names of all, in the order in which they are offered. */
  names(): readonly string[];
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
    names: () => [...configured().keys()],
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

interface GithubSettings {
  readonly client_id: string;
  readonly client_secret: string;
  readonly url: string;
  readonly api_url: string;
}

const Token = Type.Object({ access_token: Type.String({ minLength: 1, maxLength: 4096 }) });
const Person = Type.Object({
  id: Type.Integer({ minimum: 1 }),
  login: Type.String(),
  name: Type.Optional(Type.Union([Type.String(), Type.Null()])),
});
const Emails = Type.Array(Type.Object({ email: Type.String(), primary: Type.Boolean(), verified: Type.Boolean() }));

/** GitHub supports OAuth, but not OpenID Connect, so its API is asked for the person. */
function createGithubProvider(settings: GithubSettings): OauthProvider {
  const url = withoutSlash(settings.url);
  const apiUrl = withoutSlash(settings.api_url);

  async function ask<Schema extends TSchema>(
    schema: Schema,
    address: string,
    init: RequestInit,
  ): Promise<Static<Schema>> {
    const headers = { accept: 'application/json', 'user-agent': 'trestle', ...init.headers };
    const response = await boundedFetch(address, { ...init, headers, redirect: 'manual' });
    if (!response.ok) throw new Error(`GitHub answered with status ${response.status}`);
    const answer: unknown = await response.json();
    if (!Compile(schema).Check(answer)) throw new Error('GitHub answered in an unknown shape');
    return answer as Static<Schema>;
  }

  return {
    namespace: `github:${url}`,
    async authorizationUrl({ redirectUri, state, codeVerifier }) {
      const query = new URLSearchParams({
        client_id: settings.client_id,
        redirect_uri: redirectUri,
        scope: 'read:user user:email',
        state,
        code_challenge: createHash('sha256').update(codeVerifier).digest('base64url'),
        code_challenge_method: 'S256',
      });
      return `${url}/login/oauth/authorize?${query}`;
    },
    async identify({ query, redirectUri, codeVerifier }) {
      const codes = query.getAll('code');
      if (codes.length !== 1) throw new Error('there must be one code');
      // A refusal comes with status 200 and without a token.
      const { access_token: token } = await ask(Token, `${url}/login/oauth/access_token`, {
        method: 'POST',
        body: new URLSearchParams({
          client_id: settings.client_id,
          client_secret: settings.client_secret,
          code: codes[0] ?? '',
          redirect_uri: redirectUri,
          code_verifier: codeVerifier,
        }),
      });
      const headers = { authorization: `Bearer ${token}` };
      const [person, emails] = await Promise.all([
        ask(Person, `${apiUrl}/user`, { headers }),
        ask(Emails, `${apiUrl}/user/emails`, { headers }),
      ]);
      const email = emails.find(({ primary, verified }) => primary && verified)?.email;
      return { id: String(person.id), email, name: person.name || person.login };
    },
  };
}

interface OidcSettings {
  readonly issuer: string;
  readonly client_id: string;
  readonly client_secret: string;
  /** Treats every address from the issuer as verified, also without the claim `email_verified`. */
  readonly trust_email: boolean;
}

const TIMEOUT_SECONDS = 10;
/** The metadata of an issuer is read again after this time. */
const KNOWN_FOR_MS = 3_600_000;

/** Any OpenID Connect issuer. The library is loaded by the first login. */
function createOidcProvider(settings: OidcSettings, clock: Pick<Clock, 'monotonic'>): OauthProvider {
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
        [client.customFetch]: (url, options) => boundedFetch(url, { ...(options as RequestInit), redirect: 'manual' }),
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

/** Sends the secret in the form that the issuer supports: in a header unless its metadata lists other methods only. */
function authentication(client: typeof import('openid-client'), secret: string): ClientAuth {
  if (secret === '') return client.None();
  const inHeader = client.ClientSecretBasic(secret);
  const inBody = client.ClientSecretPost(secret);
  return (server, ...rest) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    (methods.includes('client_secret_basic') ? inHeader : inBody)(server, ...rest);
  };
}
