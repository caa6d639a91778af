import type { DialectName } from './dialect.ts';
import { createGoogleTokens, type GoogleTokenOptions } from './google/google-tokens.ts';

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
  readonly body: string | Uint8Array;
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
      body: body as string,
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
