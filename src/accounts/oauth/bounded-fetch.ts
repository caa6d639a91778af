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
