import type { SessionResult } from '../bridge/contract/session.ts';
import type { BridgeTransport } from './bridge-transport.ts';
import type { HttpExchange } from './http-exchange.ts';
import type { MakeCallId } from './make-call-id.ts';
import { createPatience } from './patience.ts';
import type { RpcRequest } from './rpc-message.ts';
import { runStreamedTurn } from './run-streamed-turn.ts';

export interface HttpTransportOptions {
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
