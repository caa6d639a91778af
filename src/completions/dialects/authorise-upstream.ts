import { sign } from 'node:crypto';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { readAtMost } from '../../platform/http/bounded-fetch.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import type { DialectName } from './dialect.ts';
import { asNumber, asObject, asWords, type JsonObject } from './json-value.ts';

/** The credentials of an API. Each dialect uses the part that it needs. */
export interface ApiCredentials {
  /** Sent as the dialect sends keys. Empty: there is none. */
  readonly key: string;
  /** The key is a bearer token, where the dialect would send it otherwise (`ANTHROPIC_AUTH_TOKEN`). */
  readonly isBearer?: true;
  /** For `bedrock` without a key: requests are signed (SigV4). */
  readonly aws?: {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string;
  };
  /** For `bedrock`: the region that a signature names. */
  readonly region?: string;
  /** For `google-vertex` without a key: file of a service account (JSON). */
  readonly googleCredentialsFile?: string;
}

export interface UpstreamCall {
  readonly dialect: DialectName;
  readonly credentials: ApiCredentials;
  /** Complete, as it is sent: a signature covers it. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Text, or parts that follow each other: a signature covers them. */
  readonly body: string | readonly Uint8Array[];
}

type Headers = Readonly<Record<string, string>>;

/** Returns the headers of a call with its credential. Only signatures and access tokens take time. Keys are never in URLs. */
export type AuthoriseUpstream = (call: UpstreamCall) => Headers | Promise<Headers>;

export function createAuthoriseUpstream(options: GoogleTokenOptions): AuthoriseUpstream {
  const { clock } = options;
  const googleTokens = createGoogleTokens(options);
  /** Signing keys that aws4fetch derives: one for each day, region and secret. */
  let signingKeys = new Map<string, ArrayBuffer>();

  async function authoriseVertex({ headers, credentials }: UpstreamCall): Promise<Headers> {
    const { key, googleCredentialsFile: file } = credentials;
    const token = key.startsWith('{')
      ? await googleTokens.fromText(key)
      : file === undefined
        ? key
        : await googleTokens.fromFile(file);
    return bearer(headers, token);
  }

  async function signForAws({ url, headers, body, credentials }: UpstreamCall): Promise<Headers> {
    const { aws } = credentials;
    if (aws === undefined) return headers;
    const { AwsV4Signer } = await import('aws4fetch');
    if (signingKeys.size > 100) signingKeys = new Map();
    const region = credentials.region ?? regionOf(url);
    const signed = await new AwsV4Signer({
      ...aws,
      method: 'POST',
      url,
      headers: { ...headers },
      body: typeof body === 'string' ? body : Buffer.concat(body),
      service: 'bedrock',
      ...(region !== undefined && { region }),
      cache: signingKeys,
      datetime: new Date(clock.now()).toISOString().replaceAll(/[:-]|\.\d{3}/g, ''),
    }).sign();
    return Object.fromEntries(signed.headers);
  }

  return (call) => {
    const { dialect, headers, credentials } = call;
    const { key } = credentials;
    switch (dialect) {
      case 'openai':
      case 'cohere':
        return bearer(headers, key);
      case 'anthropic':
        return credentials.isBearer === true ? bearer(headers, key) : withHeader(headers, 'x-api-key', key);
      case 'azure':
        // A token of Entra ID instead of a key.
        return key.startsWith('eyJ') ? bearer(headers, key) : withHeader(headers, 'api-key', key);
      case 'google':
        return withHeader(headers, 'x-goog-api-key', key);
      case 'google-vertex':
        if (isExpressKey(key)) return withHeader(headers, 'x-goog-api-key', key);
        return authoriseVertex(call);
      case 'bedrock':
        return key === '' ? signForAws(call) : bearer(headers, key);
    }
  };
}

/** Vertex takes keys in its express mode; everything else that can stand there is an access token. */
function isExpressKey(key: string): boolean {
  return key.startsWith('AIza') || key.startsWith('AQ.');
}

function bearer(headers: Headers, token: string): Headers {
  return token === '' ? headers : { ...headers, authorization: `Bearer ${token}` };
}

function withHeader(headers: Headers, name: string, value: string): Headers {
  return value === '' ? headers : { ...headers, [name]: value };
}

/** `bedrock-runtime.eu-west-1.amazonaws.com` */
function regionOf(url: string): string | undefined {
  const words = new URL(url).hostname.split('.');
  return words[0]?.startsWith('bedrock-runtime') === true && words.length > 3 ? words[1] : undefined;
}

/** Access tokens for what Google calls application default credentials: a service account, or a person's login. */
export interface GoogleTokens {
  fromFile(path: string): Promise<string>;
  fromText(credentials: string): Promise<string>;
}

export interface GoogleTokenOptions {
  readonly clock: Clock;
  /** Fetches the tokens. */
  readonly fetch: typeof globalThis.fetch;
  readonly readFile: (path: string) => Promise<string>;
}

const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';
const TOKEN_URL = 'https://oauth2.googleapis.com/token';
const TIMEOUT_MS = 10_000;
const MAX_CACHED = 100;
/** A token is replaced this long before it ends, so that none ends on its way. */
const SPARE_MS = 5 * 60_000;

interface CachedToken {
  readonly token: Promise<string>;
  /** On the monotonic clock; infinite while the token is being fetched. */
  replaceAt: number;
}

export function createGoogleTokens({ clock, fetch, readFile }: GoogleTokenOptions): GoogleTokens {
  const cache = new Map<string, CachedToken>();

  /** Calls at the same time share one fetch. A failure is not kept. */
  function cached(name: string, read: () => Promise<string>): Promise<string> {
    const known = cache.get(name);
    if (known !== undefined && known.replaceAt > clock.monotonic()) return known.token;
    if (cache.size >= MAX_CACHED) cache.clear();
    const fetched = requestToken(read);
    const entry: CachedToken = { token: fetched.then(({ token }) => token), replaceAt: Number.POSITIVE_INFINITY };
    cache.set(name, entry);
    fetched.then(
      ({ lifetimeMs }) => {
        entry.replaceAt = clock.monotonic() + Math.max(lifetimeMs - SPARE_MS, lifetimeMs / 2);
      },
      () => {
        if (cache.get(name) === entry) cache.delete(name);
      },
    );
    return entry.token;
  }

  async function requestToken(read: () => Promise<string>): Promise<{ token: string; lifetimeMs: number }> {
    try {
      const credentials = asObject(parseJson(await read())) ?? {};
      const answer = await postForm(asWords(credentials.token_uri) ?? TOKEN_URL, grant(credentials));
      const token = asWords(answer.access_token);
      if (token === undefined) throw new Error('the answer of the token server has no access_token');
      return { token, lifetimeMs: (asNumber(answer.expires_in) ?? 3600) * 1000 };
    } catch (error) {
      throw new AppError('UPSTREAM_AUTHENTICATION', { status: 401 }, { cause: error });
    }
  }

  function grant(credentials: JsonObject): Record<string, string> {
    const { refresh_token: refreshToken, client_id: clientId, client_secret: clientSecret } = credentials;
    if (credentials.type === 'authorized_user') {
      return {
        grant_type: 'refresh_token',
        refresh_token: String(refreshToken),
        client_id: String(clientId),
        client_secret: String(clientSecret),
      };
    }
    return {
      grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
      assertion: assertion(credentials, Math.floor(clock.now() / 1000)),
    };
  }

  async function postForm(url: string, form: Record<string, string>): Promise<JsonObject> {
    const abort = new AbortController();
    const answer = async (): Promise<JsonObject> => {
      const response = await fetch(url, {
        method: 'POST',
        body: new URLSearchParams(form),
        redirect: 'error',
        signal: abort.signal,
      });
      if (!response.ok) throw new Error(`the token server answered with status ${response.status}`);
      const text = await readAtMost(response.body);
      return asObject(parseJson(String(text ?? ''))) ?? {};
    };
    return withinTime(clock, TIMEOUT_MS, answer(), () => {
      abort.abort();
      throw new Error('the token server did not answer in time');
    });
  }

  return {
    fromFile: (path) => cached(`file:${path}`, () => readFile(path)),
    fromText: (credentials) => cached(credentials, async () => credentials),
  };
}

/** A signed claim of a service account (RFC 7523), good for an hour. */
function assertion(
  { client_email: email, private_key: key, private_key_id: keyId, token_uri: url }: JsonObject,
  now: number,
) {
  if (typeof email !== 'string' || typeof key !== 'string') {
    throw new Error('the credentials have no client_email and private_key: a service account has both');
  }
  const header = { alg: 'RS256', typ: 'JWT', ...(typeof keyId === 'string' && { kid: keyId }) };
  const claims = { iss: email, scope: SCOPE, aud: asWords(url) ?? TOKEN_URL, iat: now, exp: now + 3600 };
  const signed = `${encode(header)}.${encode(claims)}`;
  return `${signed}.${sign('RSA-SHA256', Buffer.from(signed), key).toString('base64url')}`;
}

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
