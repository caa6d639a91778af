import type { SessionResult } from '../bridge/contract/session.ts';
import type { TurnCall } from './bridge-transport.ts';
import type { HttpExchange } from './http-exchange.ts';
import { createPatience } from './patience.ts';
import { type RpcRequest, resultOf, updateOf } from './rpc-message.ts';
import { connectionLost } from './trestle-error.ts';

export interface StreamedTurnOptions {
  readonly exchange: Pick<HttpExchange, 'stream'>;
  readonly request: RpcRequest;
  /** With a key the call may be sent again although nothing of it was seen; empty for a call that was made elsewhere. */
  readonly idempotencyKey: string;
  /** The last update that was seen, when the call was made before. */
  readonly afterSeq: number | undefined;
  readonly reconnectMs: number;
  readonly signal: AbortSignal;
  readonly onUpdate: TurnCall['onUpdate'];
}

/** A turn over HTTP streaming: a broken connection is taken up where it broke (contract/bridge 1, Resume). */
export async function runStreamedTurn(options: StreamedTurnOptions): Promise<SessionResult> {
  const { exchange, request, idempotencyKey, signal, onUpdate } = options;
  const patience = createPatience(options.reconnectMs, signal);
  let last = options.afterSeq;
  for (;;) {
    const headers = {
      ...(idempotencyKey === '' ? {} : { 'idempotency-key': idempotencyKey }),
      ...(last === undefined ? {} : { 'last-event-id': String(last) }),
    };
    try {
      for await (const message of exchange.stream(request, headers, signal)) {
        patience.progressed();
        const update = updateOf(message);
        if (update === undefined) return resultOf(message) as SessionResult;
        if (last !== undefined && update.seq <= last) continue;
        last = update.seq;
        onUpdate(update);
      }
      throw connectionLost('the connection was closed before the answer');
    } catch (error) {
      signal.throwIfAborted();
      await patience.failed(error);
    }
  }
}
