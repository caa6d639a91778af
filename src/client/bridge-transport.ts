import type { SessionResult, StartParams } from '../bridge/contract/session.ts';
import type { SessionUpdate } from '../bridge/contract/session-update.ts';
import { clientError, connectionLost, TrestleError } from './trestle-error.ts';

/** One way of talking to a bridge. */
export interface BridgeTransport {
  call(call: PlainCall, signal: AbortSignal): Promise<unknown>;
  /** Runs a turn to its end, over broken connections if need be. Every update comes once, in order. */
  turn(call: TurnCall, signal: AbortSignal): Promise<SessionResult>;
  /** Closes open connections. */
  close(): void;
}

interface PlainCall {
  readonly method: string;
  readonly params: object;
  /** Whether the call is idempotent: only then it is retried when the connection breaks. */
  readonly isRepeatable: boolean;
}

export interface TurnCall {
  readonly method: 'session.start' | 'session.message';
  readonly params: StartParams;
  onUpdate(update: SessionUpdate): void;
}

/** Makes one call, within the limits of the client. */
export type CallBridge = <Result>(
  call: { readonly method: string; readonly params: object; readonly isRepeatable?: boolean },
  options: CallOptions | undefined,
) => Promise<Result>;

/** Options of every call. */
export interface CallOptions {
  /** Ends the wait. The turn continues at the bridge; `cancel` stops it. */
  readonly signal?: AbortSignal;
  /** How long the answer may take; 30 s for calls, no limit for turns, unless given. */
  readonly timeoutMs?: number;
}

/** A promise with its two ends. */
export interface Deferred<Value> {
  readonly promise: Promise<Value>;
  resolve(value: Value): void;
  reject(error: unknown): void;
}

/** Does the same as `Promise.withResolvers`, which Node 20 does not have. */
export function defer<Value>(): Deferred<Value> {
  let resolve: Deferred<Value>['resolve'] = () => undefined;
  let reject: Deferred<Value>['reject'] = () => undefined;
  const promise = new Promise<Value>((onValue, onError) => {
    resolve = onValue;
    reject = onError;
  });
  return { promise, resolve, reject };
}

/** The longest time of a timer; Node and browsers end a longer one immediately. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** When to stop waiting. */
interface CallLimits {
  /** Its reason is the error to end with. */
  readonly signal: AbortSignal;
  release(): void;
}

/** Returns a signal that aborts when the caller aborts, the time is over or the client is closed. */
export function createCallLimits({ signal, timeoutMs }: CallOptions, closed: AbortSignal): CallLimits {
  const stop = new AbortController();
  const onAbort = () => stop.abort(clientError('ABORTED', 'The call was aborted.', { cause: signal?.reason }));
  const onClose = () => stop.abort(clientError('CLIENT_CLOSED', 'The client was closed.'));
  const onTimeout = () => stop.abort(clientError('TIMEOUT', `There was no answer within ${timeoutMs} ms.`));
  const isLimited = timeoutMs !== undefined && timeoutMs <= MAX_TIMER_MS;
  const timer = isLimited ? setTimeout(onTimeout, timeoutMs) : undefined;
  signal?.addEventListener('abort', onAbort);
  closed.addEventListener('abort', onClose);
  if (closed.aborted) onClose();
  if (signal?.aborted) onAbort();
  return {
    signal: stop.signal,
    release() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      closed.removeEventListener('abort', onClose);
    },
  };
}

/** Runs a call. After an abort, it throws the reason of the abort instead of the resulting error. */
export async function withinLimits<Result>(
  options: CallOptions,
  closed: AbortSignal,
  run: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const { signal, release } = createCallLimits(options, closed);
  try {
    signal.throwIfAborted();
    return await run(signal);
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    release();
  }
}

/** How long a broken connection is tried again, and how often. */
interface Retries {
  /** Restarts the time, because something arrived. */
  progressed(): void;
  /** Waits before the next attempt. Throws the error when it does not pass by itself, or has lasted too long. */
  failed(error: unknown): Promise<void>;
  /** A connection has ended that was open for this long. A short one counts as a failure, because the next one may end as soon. */
  ended(openMs: number): Promise<void>;
}

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5000;
const SHORT_MS = 1000;

export function createRetries(limitMs: number, signal: AbortSignal): Retries {
  let since: number | undefined;
  let attempts = 0;
  function progressed(): void {
    since = undefined;
    attempts = 0;
  }

  async function failed(error: unknown): Promise<void> {
    if (!isPassing(error)) throw error;
    const now = performance.now();
    since ??= now;
    const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempts) * (0.5 + randomFraction() / 2);
    attempts += 1;
    if (now + pauseMs - since > limitMs) throw error;
    if (await sleep(pauseMs, signal)) attempts = 0;
  }

  return {
    progressed,
    failed,
    async ended(openMs) {
      if (openMs < SHORT_MS) await failed(connectionLost('the connection was closed as soon as it was open'));
      else progressed();
    },
  };
}

/** Returns whether an error is temporary: the bridge is away, or too busy to accept the call. */
function isPassing(error: unknown): boolean {
  return error instanceof TrestleError && (error.code === 'CONNECTION_LOST' || error.status === 503);
}

/** Spreads reconnections, because many apps lose the same bridge at the same moment. */
function randomFraction(): number {
  return (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) / 2 ** 32;
}

/** Browsers report when their network is back. Other runtimes have no such events. */
const network = globalThis as Partial<Pick<EventTarget, 'addEventListener' | 'removeEventListener'>>;

/** Resolves with true when the network came back before the time was over. */
function sleep(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    function end(): void {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
      network.removeEventListener?.('online', wake);
    }
    function stop(): void {
      end();
      reject(signal.reason);
    }
    function wake(): void {
      end();
      resolve(true);
    }
    const timer = setTimeout(() => {
      end();
      resolve(false);
    }, milliseconds);
    signal.addEventListener('abort', stop);
    network.addEventListener?.('online', wake);
  });
}

/** Creates ids that no other client uses, by which the bridge recognizes a repeated call. */
export type MakeCallId = () => string;

export function createCallIds(): MakeCallId {
  // Not randomUUID, which browsers do not offer to pages over plain HTTP.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const client = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  let count = 0;
  return () => {
    count += 1;
    return `${client}-${count}`;
  };
}

/** A call on its way. */
export interface RpcRequest {
  readonly jsonrpc: '2.0';
  readonly id: string;
  readonly method: string;
  readonly params: object;
}

/** A received message: a response, or a notification. */
export interface RpcMessage {
  readonly id?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
  readonly method?: string;
  readonly params?: unknown;
}

/** The limit of a message. A result occurs twice in its envelope. */
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

/** Returns the result of a response, or throws its error. */
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
