/** Limits of a call whose response is small: more than any of them needs. */
const MAX_BYTES = 1024 * 1024;
const TIMEOUT_MS = 10_000;

export interface FetchLimits {
  readonly maxBytes?: number;
  /** For the whole call, until the last byte of the response. */
  readonly timeoutMs?: number;
  /** Sends the request in the place of `fetch`. */
  readonly send?: typeof fetch;
}

/** As `fetch`, with a limit on time and size: resolves when the whole response has been read. Redirects are errors unless `init` has them. */
export async function boundedFetch(
  url: string,
  init: RequestInit = {},
  { maxBytes = MAX_BYTES, timeoutMs = TIMEOUT_MS, send = fetch }: FetchLimits = {},
): Promise<Response> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
  const { status, headers, body } = await send(url, { redirect: 'error', ...init, signal });
  const bytes = await readAtMost(body, maxBytes);
  if (bytes === undefined) throw new Error(`the response is larger than ${maxBytes} bytes`);
  const mayHaveBody = status !== 204 && status !== 205 && status !== 304;
  return new Response(mayHaveBody ? bytes : null, { status, headers });
}

/** Reads the body of a response; undefined, and the rest is not read, when it is larger than `maxBytes`. */
export async function readAtMost(
  body: AsyncIterable<Uint8Array> | null,
  maxBytes = MAX_BYTES,
): Promise<Buffer<ArrayBuffer> | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    length += chunk.length;
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}
