/** Every call of the console to its server. Cookies go along by themselves; where a token is needed it is kept in memory. */

/** The path of the server behind a proxy, or empty. */
export const BASE = document.querySelector<HTMLMetaElement>('meta[name=base]')?.content ?? '';

/** For queries whose answers say when something was last used: every visit of their screen asks again. */
export const ALWAYS_STALE = { staleTime: 0 } as const;

/** A new id of eight letters and digits. Not by `randomUUID`, which browsers do not offer to pages over plain HTTP. */
export function newId(): string {
  const [number = 0] = crypto.getRandomValues(new Uint32Array(1));
  return number.toString(16).padStart(8, '0');
}

/** A refusal of any service, or a connection that failed, in one shape. */
export class Problem extends Error {
  readonly code: string;
  /** 0: no response came. */
  readonly status: number;
  readonly requestId: string;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(message: string, facts: Partial<Pick<Problem, 'code' | 'status' | 'requestId' | 'details'>> = {}) {
    super(message);
    this.code = facts.code ?? 'problem';
    this.status = facts.status ?? 0;
    this.requestId = facts.requestId ?? '';
    this.details = facts.details ?? {};
  }
}

export interface RequestOptions {
  readonly body?: unknown;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly signal?: AbortSignal;
  /** The id of the team that the request is for. */
  readonly team?: string | undefined;
  /** The response has the cookie of another login session, and the one before ends: other requests wait for it. */
  readonly replacesLogin?: true;
  /** How long the answer is waited for; 30 seconds unless given. */
  readonly timeoutMs?: number;
}

const TIMEOUT_MS = 30_000;
let token = '';
let onSignedOut: () => void = () => undefined;
let replacing: Promise<unknown> | undefined;
let replacements = 0;

/** Refusals with status 401 that do not mean that the login has ended. */
const PROOF_REFUSED: ReadonlySet<string> = new Set([
  'reauthentication_required',
  'invalid_credentials',
  'invalid_mfa_code',
  'invalid_mfa_ticket',
  'invalid_passkey',
]);

/** The token of a bridge without accounts. It ends with the page. */
export function keepToken(given: string): void {
  token = given;
}

export function hasToken(): boolean {
  return token !== '';
}

/** Calls the listener whenever the server says that nobody is signed in. */
export function whenSignedOut(listener: () => void): void {
  onSignedOut = listener;
}

export function authorization(): Record<string, string> {
  return token === '' ? {} : { authorization: `Bearer ${token}` };
}

/** What was asked for before the screen that needs it was there. */
const early = new Map<string, Promise<unknown>>();
/** A screen that takes longer asks again. */
const EARLY_MS = 10_000;

const earlyName = (path: string, query: RequestOptions['query']) => `${path}?${JSON.stringify(query)}`;

/** Begins to read what a screen will ask for; the first `request` of the same takes the answer, or its refusal. */
export function readEarly(path: string, query: NonNullable<RequestOptions['query']>): void {
  const name = earlyName(path, query);
  const answer = send('GET', path, { query });
  answer.catch(() => undefined);
  early.set(name, answer);
  setTimeout(() => early.delete(name), EARLY_MS);
}

export async function request<Value>(method: string, path: string, options: RequestOptions = {}): Promise<Value> {
  if (options.replacesLogin === true) {
    const replacement = send<Value>(method, path, options);
    const ended = replacement.then(
      () => {
        replacements += 1;
      },
      () => undefined,
    );
    replacing = ended;
    await ended;
    return replacement;
  }
  await replacing;
  const before = replacements;
  const name = earlyName(path, options.query);
  const begun = method === 'GET' ? (early.get(name) as Promise<Value> | undefined) : undefined;
  early.delete(name);
  try {
    return await (begun ?? send<Value>(method, path, options));
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401 || PROOF_REFUSED.has(error.code)) throw error;
    // It was sent with the cookie of a login session that another request was replacing.
    await replacing;
    if (before !== replacements) return send<Value>(method, path, options);
    onSignedOut();
    throw error;
  }
}

/** Statuses of a server that is away, or of the proxy before it. */
const AWAY: ReadonlySet<number> = new Set([502, 503, 504]);
let away: Problem | undefined;
const awayListeners = new Set<() => void>();

/** Why the server does not take turns now, while they are tried again; undefined: it does. */
export const whyAway = () => away;

export function onAway(listener: () => void): () => void {
  awayListeners.add(listener);
  return () => awayListeners.delete(listener);
}

function setAway(problem: Problem | undefined): void {
  if (problem === away) return;
  away = problem;
  for (const listener of awayListeners) listener();
}

/** As `fetch`, for a caller that tries again by itself: notes whether the server is away. */
export async function fetchNoting(input: RequestInfo | URL, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(input, init);
    setAway(AWAY.has(response.status) ? problemOf(response, readJson(await response.clone().text())) : undefined);
    return response;
  } catch (error) {
    if (init.signal?.aborted !== true) setAway(unreachable());
    throw error;
  }
}

const unreachable = () => new Problem('The server cannot be reached.', { code: 'connection_lost' });

/** Sends a body and returns the response as soon as it begins. The caller reads its stream, and ends it by the signal. */
export async function openStream(path: string, body: unknown, signal: AbortSignal): Promise<Response> {
  await replacing;
  const response = await open('POST', path, { body, signal }, signal);
  if (response.ok) return response;
  const problem = problemOf(response, readJson(await response.text()));
  if (problem.status === 401) onSignedOut();
  throw problem;
}

async function send<Value>(method: string, path: string, options: RequestOptions): Promise<Value> {
  const { signal, timeoutMs = TIMEOUT_MS } = options;
  const limit = AbortSignal.timeout(timeoutMs);
  const response = await open(method, path, options, signal === undefined ? limit : AbortSignal.any([signal, limit]));
  if (response.status === 204) return undefined as Value;
  const text = await response.text();
  const document = readJson(text);
  if (!response.ok) throw problemOf(response, document);
  if (document === undefined) throw new Problem('The response could not be read.', { status: response.status });
  return document as Value;
}

type Sent = Pick<RequestOptions, 'body' | 'query' | 'signal' | 'team'>;

/** A body that is sent as it is, with its name, instead of as JSON. */
const headersOf = (body: unknown): Record<string, string> =>
  body instanceof File
    ? { 'content-type': body.type || 'application/octet-stream', 'x-file-name': encodeURIComponent(body.name) }
    : { 'content-type': 'application/json' };

/** `signal` ends the request; the one of the options says that the caller wanted that. */
async function open(method: string, path: string, options: Sent, signal: AbortSignal): Promise<Response> {
  const { body, query = {}, team } = options;
  const address = new URL(`${BASE}${path}`, location.origin);
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) address.searchParams.set(name, `${value}`);
  try {
    return await fetch(address, {
      method,
      headers: {
        ...authorization(),
        ...(body !== undefined && headersOf(body)),
        ...(team !== undefined && { 'x-team': team }),
      },
      ...(body !== undefined && { body: body instanceof File ? body : JSON.stringify(body) }),
      signal,
    });
  } catch (error) {
    if (options.signal?.aborted === true) throw error;
    throw unreachable();
  }
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

interface InnerError {
  /** A number in an error of JSON-RPC, whose `data` has the code. */
  readonly code?: string | number;
  readonly message?: string;
  readonly requestId?: string;
  readonly data?: { readonly code?: string; readonly requestId?: string };
}

interface ErrorDocument {
  readonly error?: string | InnerError;
  readonly message?: string;
  readonly requestId?: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** Reads the error of accounts and workbench (`{error, message}`), completions, JSON-RPC and the platform (`{error: {...}}`). */
function problemOf(response: Response, document: unknown): Problem {
  const { error, message, requestId, details } = (document ?? {}) as ErrorDocument;
  const inner = typeof error === 'object' ? error : undefined;
  const code = inner?.data?.code ?? inner?.code ?? (typeof error === 'string' ? error : `http_${response.status}`);
  return new Problem(message ?? inner?.message ?? `The server answered with status ${response.status}.`, {
    code: `${code}`,
    status: response.status,
    requestId: requestId ?? inner?.requestId ?? inner?.data?.requestId ?? response.headers.get('x-request-id') ?? '',
    ...(details !== undefined && { details }),
  });
}

/** The call that reads a thing, for a shell. Where nobody logs in, no token is needed. */
export function curlOf(path: string, isOpen: boolean, body?: unknown): string {
  const parts = [`curl -s '${location.origin}${BASE}${path}'`];
  if (!isOpen) parts.push('-H "Authorization: Bearer $TRESTLE_TOKEN"');
  // A quote ends the text, stands for itself, and begins it again.
  const quoted = body === undefined ? '' : JSON.stringify(body).replaceAll("'", `'\\''`);
  if (quoted !== '') parts.push(`-H 'content-type: application/json' -d '${quoted}'`);
  return parts.join(' ');
}
