import type { SessionResult } from '../bridge/contract/session.ts';
import { type BridgeTransport, createPatience, type MakeCallId, type TurnCall } from './bridge-transport.ts';
import type { HttpExchange } from './http-exchange.ts';
import { type RpcRequest, resultOf, updateOf } from './rpc-message.ts';
import { connectionLost } from './trestle-error.ts';

interface HttpTransportOptions {
  readonly exchange: HttpExchange;
  readonly makeCallId: MakeCallId;
  readonly reconnectMs: number;
  /** Whether turns are answered as streams; without, no update comes, only the result. */
  readonly streamsTurns: boolean;
}

export function createHttpTransport({
  exchange,
  makeCallId,
  reconnectMs,
  streamsTurns,
}: HttpTransportOptions): BridgeTransport {
  async function post(request: RpcRequest, headers: Readonly<Record<string, string>>, signal: AbortSignal) {
    const patience = createPatience(reconnectMs, signal);
    for (;;) {
      try {
        return await exchange.call(request, headers, signal);
      } catch (error) {
        signal.throwIfAborted();
        await patience.failed(error);
      }
    }
  }

  return {
    call({ method, params, isRepeatable }, signal) {
      const request: RpcRequest = { jsonrpc: '2.0', id: makeCallId(), method, params };
      return isRepeatable ? post(request, {}, signal) : exchange.call(request, {}, signal);
    },
    async turn({ method, params, onUpdate }, signal) {
      const idempotencyKey = makeCallId();
      const request: RpcRequest = { jsonrpc: '2.0', id: makeCallId(), method, params };
      if (!streamsTurns) return (await post(request, { 'idempotency-key': idempotencyKey }, signal)) as SessionResult;
      const afterSeq = undefined;
      return runStreamedTurn({ exchange, request, idempotencyKey, afterSeq, reconnectMs, signal, onUpdate });
    },
    close() {},
  };
}

interface StreamedTurnOptions {
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
