/** Someone as a provider knows them. */
export interface OauthIdentity {
  /** The provider's own, unchanging id of the person. */
  readonly id: string;
  /** Only an address that the provider says it has verified. */
  readonly email: string | undefined;
  readonly name: string;
}

export interface OauthRequest {
  readonly redirectUri: string;
  readonly state: string;
  readonly nonce: string;
  readonly codeVerifier: string;
}

export interface OauthCallback extends OauthRequest {
  /** What came back, as it came. */
  readonly query: URLSearchParams;
}

/** Where people can log in with an account from elsewhere. */
export interface OauthProvider {
  /** The namespace of its ids: the same person elsewhere is someone else (spec/accounts: users matched by provider id). */
  readonly namespace: string;
  /** Where the browser is sent to. */
  authorizationUrl(request: OauthRequest): Promise<string>;
  /** Who came back. Throws when anything about it is not as it should be. */
  identify(callback: OauthCallback): Promise<OauthIdentity>;
}

const TIMEOUT_MS = 10_000;
const MOST_BYTES = 1024 * 1024;

/** As `fetch`, without following redirects, for at most ten seconds in all and a megabyte. */
export async function boundedFetch(url: string, init: RequestInit, timeoutMs = TIMEOUT_MS): Promise<Response> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
  const response = await fetch(url, { ...init, redirect: 'manual', signal });
  const { status, headers, body } = response;
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    length += chunk.length;
    if (length > MOST_BYTES) throw new Error('the answer is too large');
    chunks.push(chunk);
  }
  const mayHaveBody = status !== 204 && status !== 205 && status !== 304;
  return new Response(mayHaveBody ? Buffer.concat(chunks) : null, { status, headers });
}
