import type { SessionUpdate } from '../bridge/contract/session-update.ts';
import { clientError, TrestleError } from './trestle-error.ts';

/** A call on its way (spec/bridge 4.2). */
export interface RpcRequest {
  readonly jsonrpc: '2.0';
  readonly id: string;
  readonly method: string;
  readonly params: object;
}

/** What comes back: an answer, or a notification. */
export interface RpcMessage {
  readonly id?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
  readonly method?: string;
  readonly params?: unknown;
}

/** The largest message that is taken: a result stands twice in its envelope. */
export const MAX_MESSAGE_CHARACTERS = 64 * 1024 * 1024;

export function parseMessage(text: string, status?: number): RpcMessage {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch (cause) {
    throw badAnswer(status, cause);
  }
  if (typeof message !== 'object' || message === null) throw badAnswer(status);
  return message;
}

export function updateOf({ method, params }: RpcMessage): SessionUpdate | undefined {
  return method === 'session.update' ? (params as SessionUpdate) : undefined;
}

/** The result of an answer; throws its error. */
export function resultOf({ result, error }: RpcMessage, status?: number): unknown {
  if (error !== undefined) {
    const { code: rpcCode, message, data = {} } = error;
    const code = typeof data.code === 'string' ? data.code : 'RPC_ERROR';
    throw new TrestleError(code, message, { rpcCode, data, ...(status === undefined ? {} : { status }) });
  }
  if (result === undefined) throw badAnswer(status);
  return result;
}

function badAnswer(status: number | undefined, cause?: unknown): TrestleError {
  const facts = { ...(status === undefined ? {} : { status }), ...(cause === undefined ? {} : { cause }) };
  return clientError('BAD_ANSWER', 'The response did not come from a Trestle bridge; check `url`.', facts);
}
