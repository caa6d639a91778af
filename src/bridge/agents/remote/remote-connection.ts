import type { Dispatcher } from 'undici';
import { type Clock, pause } from '../../../platform/clock/clock.ts';
import type { Randomness } from '../../../platform/clock/randomness.ts';
import { errorCode } from '../../../platform/errors/app-error.ts';
import { backoffDelay } from '../../../platform/retry/retry.ts';
import { QUESTIONS_HEADER } from '../../bridge-client.ts';
import { hopHeader } from '../../forwarding/call-node.ts';
import { asObject } from '../agent-text.ts';
import {
  type BridgeResponse,
  callBridge,
  errorOf,
  failedToConnect,
  networkReason,
  RUNNER_ABSENT,
  readMessage,
  wordOf,
} from '../post-for-events.ts';

/** How a call ended. Nothing is thrown but faults of ours. */
export type RemoteReply =
  | { readonly kind: 'result'; readonly result: Readonly<Record<string, unknown>> }
  | { readonly kind: 'error'; readonly word: string; readonly message: string }
  /** `mayHaveStarted`: the call was sent, and its outcome is unknown. */
  | { readonly kind: 'unreachable'; readonly reason: string; readonly mayHaveStarted: boolean }
  /** The runner of the agent was away for too long. */
  | { readonly kind: 'absent'; readonly mayHaveStarted: boolean }
  | { readonly kind: 'aborted' };

export interface RemoteCall {
  readonly method: string;
  readonly params: object;
  /** Names the call. With `resumable` the call is done only once, however often it is sent. */
  readonly key: string;
  readonly resumable: boolean;
  /** In a row, without anything new having come. */
  readonly attempts: number;
  readonly signal: AbortSignal;
  /** How many bridges the call has passed when it gets there; absent for a program that is not a bridge. */
  readonly hop?: number;
  /** True: open questions of the agent come as updates, too. */
  readonly withQuestions?: boolean;
  /** Each `session.update` of the call once, in order. */
  onUpdate?(params: Readonly<Record<string, unknown>>): Promise<void> | undefined;
}

export type CallRemote = (call: RemoteCall) => Promise<RemoteReply>;

export interface RemoteConnectionOptions {
  /** Of the other bridge, without `/acp/rpc`. */
  readonly url: string;
  /** Empty: none is sent. */
  readonly token: string;
  readonly clock: Pick<Clock, 'after'>;
  readonly randomness: Pick<Randomness, 'below'>;
  readonly limits?: Partial<typeof LIMITS> | undefined;
  /** What sends to an agent on a runner. Undefined: the network. */
  readonly through?: { readonly dispatcher: Dispatcher; readonly fetch: typeof fetch } | undefined;
}

const LIMITS = {
  /** The head comes as soon as the call is accepted, a heartbeat every fifteen seconds. */
  headersMs: 30_000,
  idleMs: 45_000,
  attemptsInAll: 200,
  pauseMs: 200,
  longestPauseMs: 5_000,
};
const MAX_EVENT_CHARACTERS = 32 * 1024 * 1024;
/** Of something between us and the other bridge, or of one that restarts. */
const PASSING_STATUS: ReadonlySet<number> = new Set([502, 503, 504]);

type Attempt = RemoteReply | { readonly kind: 'again'; readonly reason: string; readonly wasSent: boolean };

/**
 * Calls of another bridge over `POST /acp/rpc` as an event stream. A connection that breaks is made again and the same call
 * sent with `Last-Event-ID` and `Idempotency-Key`, which attaches to what runs and never starts it twice.
 */
export function createRemoteConnection(options: RemoteConnectionOptions): CallRemote {
  const { token, clock, randomness } = options;
  const limits = { ...LIMITS, ...options.limits };
  const url = new URL('acp/rpc', options.url.endsWith('/') ? options.url : `${options.url}/`).href;
  const authorization = authorizationOf(token);

  return async function callRemote(call) {
    const progress = createProgress(call);
    let inARow = 0;
    let mayHaveStarted = false;
    for (let attempt = 1; ; attempt += 1) {
      if (call.signal.aborted) return { kind: 'aborted' };
      const before = progress.lastSeq();
      const outcome = await attemptOnce(call, progress);
      if (outcome.kind === 'absent') return { kind: 'absent', mayHaveStarted };
      if (outcome.kind !== 'again') return outcome;
      mayHaveStarted ||= outcome.wasSent;
      inARow = progress.lastSeq() === before ? inARow + 1 : 1;
      if (inARow >= call.attempts || attempt >= limits.attemptsInAll) {
        return { kind: 'unreachable', reason: outcome.reason, mayHaveStarted };
      }
      await pause(
        clock,
        backoffDelay(inARow, { baseMs: limits.pauseMs, maxMs: limits.longestPauseMs }, randomness),
        call.signal,
      );
    }
  };

  async function attemptOnce(call: RemoteCall, progress: Progress): Promise<Attempt> {
    const lastSeq = progress.lastSeq();
    try {
      const response = await callBridge({
        url,
        headers: {
          ...authorization,
          ...(call.hop !== undefined && hopHeader(call.hop)),
          ...(call.resumable && { 'idempotency-key': call.key }),
          ...(call.withQuestions === true && { [QUESTIONS_HEADER]: 'true' }),
          ...(lastSeq > 0 && { 'last-event-id': String(lastSeq) }),
        },
        ...{ id: call.key, method: call.method, params: call.params, signal: call.signal },
        headersTimeoutMs: limits.headersMs,
        idleTimeoutMs: limits.idleMs,
        maxEventCharacters: MAX_EVENT_CHARACTERS,
        ...(options.through !== undefined && { dispatcher: options.through.dispatcher }),
        notified: (method, params) => (method === 'session.update' ? progress.take(asObject(params)) : undefined),
      });
      return readResponse(response);
    } catch (error) {
      if (call.signal.aborted) return { kind: 'aborted' };
      if (errorCode(error) === RUNNER_ABSENT) return { kind: 'absent', mayHaveStarted: false };
      return { kind: 'again', reason: networkReason(error), wasSent: !failedToConnect(error) };
    }
  }
}

/** The header with the token of the other bridge; none where there is no token. */
export function authorizationOf(token: string): Readonly<Record<string, string>> {
  return token === '' ? {} : { authorization: `Bearer ${token}` };
}

interface Progress {
  lastSeq(): number;
  /** Resolves when more may be taken; undefined: now. */
  take(params: Readonly<Record<string, unknown>>): Promise<void> | undefined;
}

/** After a new connection the other side may repeat what we have; each update counts once. */
function createProgress(call: RemoteCall): Progress {
  let lastSeq = 0;
  return {
    lastSeq: () => lastSeq,
    take(params) {
      const { seq } = params;
      if (typeof seq !== 'number' || !Number.isSafeInteger(seq) || seq <= lastSeq) return undefined;
      lastSeq = seq;
      return call.onUpdate?.(params);
    },
  };
}

function readResponse(response: BridgeResponse): Attempt {
  if (response.kind === 'document') return readRefusal(response);
  if (response.kind === 'broken') {
    const { reason, isCut } = response;
    return isCut ? { kind: 'again', reason, wasSent: true } : { kind: 'error', word: '', message: reason };
  }
  const error = errorOf(response.message);
  if (error === undefined) return { kind: 'result', result: asObject(response.message.result) };
  return { kind: 'error', word: wordOf(error), message: error.message };
}

function readRefusal({ status, text }: Extract<BridgeResponse, { kind: 'document' }>): Attempt {
  const error = errorOf(readMessage(text) ?? {});
  const said = error?.message ?? '';
  const reason = said === '' ? `it answered with status ${status}` : said;
  if (PASSING_STATUS.has(status)) return { kind: 'again', reason, wasSent: status !== 503 };
  const isEmpty = status === 200 && said === '';
  return { kind: 'error', word: wordOf(error), message: isEmpty ? 'it did not answer with events' : reason };
}
