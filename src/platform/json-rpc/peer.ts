import type { Clock } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import { platformErrors } from '../errors/error-table.ts';
import { type Envelope, toJsonText, toRemoteError } from './envelope.ts';
import {
  type CallLimits,
  createExchange,
  type Exchange,
  type IncomingResponse,
  type ServingOptions,
} from './exchange.ts';
import type { ChannelEnd, MessageChannel } from './message-channel.ts';
import { createDispatch } from './method-table.ts';

interface Connection {
  readonly channel: MessageChannel;
  readonly envelope: Envelope;
  readonly clock: Pick<Clock, 'after'>;
  /** Ids of our own requests count from 1; with a prefix they are strings. */
  readonly idPrefix?: string;
  /** A notification `{requestId}` such as `$/cancel_request`: sent for our own requests, and heeded for the other side's. */
  readonly cancelMethod?: string;
}

interface Serving<Caller> extends ServingOptions<Caller> {
  readonly limits: CallLimits;
}

/** A peer without `dispatch` only calls: the other side's requests find no method. */
export type PeerOptions<Caller> = Connection & (Serving<Caller> | { readonly dispatch?: undefined });

export interface RequestOptions {
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

/** One end of a connection on which both sides may call each other, many calls at the same time. */
export interface Peer {
  /**
   * Rejects with a `RemoteError` when the other side answers with an error, else with CONNECTION_CLOSED, CALL_TIMEOUT or
   * CALL_CANCELLED. `params` may be a `RawJson`, or undefined for none.
   */
  request(method: string, params?: unknown, options?: RequestOptions): Promise<unknown>;
  notify(method: string, params?: unknown): void;
  readonly closed: Promise<ChannelEnd>;
  close(code?: number, reason?: string): void;
}

interface PendingRequest {
  resolve(result: unknown): void;
  reject(error: AppError): void;
  /** Lets go of the timer and of the caller's signal. */
  release(): void;
}

const SERVING_NOTHING: Serving<undefined> = {
  caller: undefined,
  errors: platformErrors,
  limits: { callsInFlight: 1 },
  dispatch: createDispatch({ rows: [] }),
  makeRequestId: () => '',
  onUnexpectedError: () => undefined,
};

export function createPeer<Caller>(options: PeerOptions<Caller>): Peer {
  const { channel, envelope, clock, cancelMethod, idPrefix } = options;
  const pending = new Map<unknown, PendingRequest>();
  const closed = Promise.withResolvers<ChannelEnd>();
  let lastId = 0;
  let ended = false;

  const exchange = options.dispatch === undefined ? openExchange(SERVING_NOTHING) : openExchange(options);

  function openExchange<Someone>(serving: Serving<Someone>): Exchange {
    return createExchange({
      ...serving,
      envelope,
      cancelMethod,
      answer(text, _error, parts) {
        if (text !== undefined) channel.send(text, parts);
      },
      notification: (text) => channel.send(text),
      response: takeResponse,
    });
  }

  /** Drops responses to unknown ids, because answering them could create an endless exchange. */
  function takeResponse(response: IncomingResponse): void {
    const waiting = pending.get(response.id);
    if (waiting === undefined) return;
    pending.delete(response.id);
    waiting.release();
    if (response.error === undefined || response.error === null) waiting.resolve(response.result);
    else waiting.reject(toRemoteError(response.error));
  }

  function request(method: string, params?: unknown, { signal, timeoutMs }: RequestOptions = {}): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (ended) throw new AppError('CONNECTION_CLOSED');
      if (signal?.aborted) throw new AppError('CALL_CANCELLED');
      const number = lastId + 1;
      const id = idPrefix === undefined ? number : idPrefix + number;
      const paramsText = params === undefined ? undefined : toJsonText(params);
      const text = envelope.request(JSON.stringify(id), JSON.stringify(method), paramsText);
      lastId = number;

      const giveUp = (error: AppError): void => {
        pending.delete(id);
        waiting.release();
        if (cancelMethod !== undefined) exchange.notify(cancelMethod, { requestId: id });
        reject(error);
      };
      const onAbort = (): void => giveUp(new AppError('CALL_CANCELLED'));
      const stopTimer =
        timeoutMs === undefined
          ? undefined
          : clock.after(timeoutMs, () => giveUp(new AppError('CALL_TIMEOUT', { timeoutMs })));
      const waiting: PendingRequest = {
        resolve,
        reject,
        release() {
          stopTimer?.();
          signal?.removeEventListener('abort', onAbort);
        },
      };
      signal?.addEventListener('abort', onAbort);
      pending.set(id, waiting);
      channel.send(text);
    });
  }

  channel.onEnd((end) => {
    ended = true;
    exchange.end(new AppError('CONNECTION_CLOSED'));
    for (const waiting of pending.values()) {
      waiting.release();
      waiting.reject(new AppError('CONNECTION_CLOSED'));
    }
    pending.clear();
    closed.resolve(end);
  });
  channel.onMessage(exchange.receive);

  return {
    request,
    notify: exchange.notify,
    closed: closed.promise,
    close: (code, reason) => channel.close(code, reason),
  };
}
