import type { Operation } from './check-operations.ts';
import { MAX_TOKENS } from './counting-upstream.ts';

const LIMIT_MS = 60_000;

export interface IssuedKey {
  readonly id: string;
  readonly key: string;
}

export async function issueKey(url: string, masterKey: string, budgetUsd: number | null): Promise<IssuedKey> {
  const response = await fetch(`${url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${masterKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'load', ...(budgetUsd !== null && { budget: { usd: budgetUsd, period: 'total' } }) }),
    signal: AbortSignal.timeout(LIMIT_MS),
  });
  if (response.status !== 201) throw new Error(`no key: ${response.status} ${await response.text()}`);
  return (await response.json()) as IssuedKey;
}

export interface MeteredCall {
  readonly url: string;
  readonly id: string;
  readonly key: string;
  readonly stream: boolean;
}

/** One completion, and what came of it as its client sees it. */
export async function complete({ url, id, key, stream }: MeteredCall): Promise<Extract<Operation, { kind: 'call' }>> {
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-request-id': id },
      body: JSON.stringify({
        model: 'lab/small',
        max_tokens: MAX_TOKENS,
        stream,
        messages: [{ role: 'user', content: id }],
      }),
      signal: AbortSignal.timeout(LIMIT_MS),
    });
    const text = await response.text();
    if (response.status !== 200) return { kind: 'call', id, outcome: 'fail' };
    return { kind: 'call', id, outcome: stream && !text.endsWith('data: [DONE]\n\n') ? 'unknown' : 'ok' };
  } catch {
    return { kind: 'call', id, outcome: 'unknown' };
  }
}
