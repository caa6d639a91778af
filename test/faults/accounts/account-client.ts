import type { Outcome } from './check-operations.ts';

export interface Answered {
  readonly startedAt: number;
  readonly endedAt: number;
  readonly outcome: Outcome;
  /** Empty unless it went well. */
  readonly body: Readonly<Record<string, unknown>>;
}

export interface Sent {
  readonly body?: object;
  readonly token?: string;
  /** The client's address, as a trusted proxy gives it. */
  readonly from: string;
}

const LIMIT_MS = 10_000;

/** One call, and what is known after it: an answer that never came says nothing about what was done. */
export async function ask(url: string, method: string, path: string, { body, token, from }: Sent): Promise<Answered> {
  const startedAt = Date.now();
  try {
    const response = await fetch(`${url}/api/auth/${path}`, {
      method,
      signal: AbortSignal.timeout(LIMIT_MS),
      headers: {
        'x-forwarded-for': from,
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    const outcome = response.ok ? 'ok' : response.status < 500 ? 'fail' : 'unknown';
    const answer = outcome !== 'unknown' && text !== '' ? (JSON.parse(text) as Readonly<Record<string, unknown>>) : {};
    return { startedAt, endedAt: Date.now(), outcome, body: answer };
  } catch {
    return { startedAt, endedAt: Date.now(), outcome: 'unknown', body: {} };
  }
}
