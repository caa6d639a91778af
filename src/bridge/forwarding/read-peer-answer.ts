import { parseJson } from '../../platform/json/parse-json.ts';
import type { ForeignError } from '../../platform/json-rpc/envelope.ts';
import { asObject, textOf } from '../agents/loose-json.ts';

/** An error that a node has answered with, and the HTTP status it came with. */
export interface PeerError extends ForeignError {
  readonly status: number;
}

/** What came of handing a call to a node. */
export type PeerAnswer =
  | { readonly kind: 'result'; readonly result: unknown }
  /** The node has dealt with the call, and this is its answer. */
  | { readonly kind: 'error'; readonly error: PeerError }
  | PeerFailure;

export interface PeerFailure {
  readonly kind: 'failed';
  readonly code: 'TASK_FORWARD_UNREACHABLE' | 'TASK_FORWARD_ENDPOINT_REFUSED' | 'TASK_FORWARD_FAILED';
  readonly reason: string;
  /** `not_started`: nothing was done, and another node may be asked. */
  readonly outcome: 'not_started' | 'unknown';
  /** Whether other calls would fare no better right now. */
  readonly isDown: boolean;
  /** What the node said, if that is for the caller. */
  readonly error?: PeerError;
}

const FORWARDING_FAILED = -32060;

/** Refusals that come before a call is looked at: of our request, not of the caller's. */
const REFUSALS: Readonly<Record<number, string>> = {
  400: 'it takes our request for malformed',
  401: 'it does not accept our forward token',
  403: 'it does not let us in',
  404: 'it serves nothing at this path',
  405: 'it does not take a POST at this path',
  413: 'the request is too large for it',
  415: 'it does not take our content type',
  421: 'it does not serve the host name of its endpoint',
  426: 'it does not take a POST at this path',
  429: 'it wants fewer requests',
  431: 'our request headers are too large for it',
};

/** Of those, what is not about this one request. */
const STANDING_REFUSALS: ReadonlySet<number> = new Set([401, 403, 421, 429]);

/** The node was reached, and failed. */
export function failed(reason: string, outcome: PeerFailure['outcome'], isDown = false): PeerFailure {
  return { kind: 'failed', code: 'TASK_FORWARD_FAILED', reason, outcome, isDown };
}

/** Reads an answer that is one document. */
export function readPeerDocument(status: number, text: string): PeerAnswer {
  if (status === 204) return { kind: 'result', result: {} };
  const message = readPeerMessage(text);
  const error = message === undefined ? undefined : errorOf(message, status);
  if (status === 503) return { ...failed('it takes no new work', 'not_started', true), ...(error && { error }) };
  if (status === 502 && error?.code === FORWARDING_FAILED) {
    // A node on the way that got no further, and says how far it came.
    if (asObject(error.data).outcome !== 'not_started') return { kind: 'error', error };
    return { ...failed(error.message, 'not_started', true), error };
  }
  const refusal = REFUSALS[status];
  if (refusal !== undefined) return failed(refusal, 'not_started', STANDING_REFUSALS.has(status));
  if (status !== 200 || message === undefined) return failed(`it answered with status ${status}`, 'unknown');
  return readPeerEnvelope(message, status);
}

/** Reads the envelope of an answer. */
export function readPeerEnvelope(message: Readonly<Record<string, unknown>>, status: number): PeerAnswer {
  const error = errorOf(message, status);
  if (error !== undefined) return { kind: 'error', error };
  if (message.result === undefined) return failed('its answer has neither a result nor an error', 'unknown');
  return { kind: 'result', result: message.result };
}

/** Undefined for what is no JSON object. */
export function readPeerMessage(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value = parseJson(text);
    return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : undefined;
  } catch {
    return undefined;
  }
}

function errorOf(message: Readonly<Record<string, unknown>>, status: number): PeerError | undefined {
  if (message.error === undefined || message.error === null) return undefined;
  const { code, message: said, data } = asObject(message.error);
  return { status, code: Number.isSafeInteger(code) ? Number(code) : -32603, message: textOf(said), data };
}
