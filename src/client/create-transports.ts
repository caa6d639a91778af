import type { SessionResult } from '../bridge/contract/session.ts';
import type { SessionUpdate } from '../bridge/contract/session-update.ts';
import {
  type BridgeTransport,
  createRetries,
  type MakeCallId,
  type RpcMessage,
  type RpcRequest,
  resultOf,
  type TurnCall,
  updateOf,
} from './bridge-transport.ts';
import type { HttpExchange } from './http-exchange.ts';
import type { OpenLink, SocketLink } from './socket-link.ts';
import { connectionLost, TrestleError } from './trestle-error.ts';

interface SocketTransportOptions {
  readonly openLink: OpenLink;
  /** Takes up the turns of a connection that broke. */
  readonly exchange: Pick<HttpExchange, 'stream'>;
  readonly makeCallId: MakeCallId;
  readonly reconnectMs: number;
}

interface Listener {
  readonly sessionId: string;
  receive(update: SessionUpdate): void;
}

/** One connection for everything, opened with the first call, and again with the next one after it was lost. */
export function createSocketTransport(options: SocketTransportOptions): BridgeTransport {
  const { openLink, exchange, makeCallId, reconnectMs } = options;
  const listeners = new Set<Listener>();
  let current: Promise<SocketLink> | undefined;

  function onMessage(message: RpcMessage): void {
    const update = updateOf(message);
    if (update === undefined) return;
    for (const { sessionId, receive } of listeners) if (sessionId === update.sessionId) receive(update);
  }

  /** Returns the connection. Concurrent calls without one open it together. */
  function connected(): Promise<SocketLink> {
    if (current !== undefined) return current;
    const opening = openLink('', onMessage);
    current = opening;
    const forget = () => {
      if (current === opening) current = undefined;
    };
    opening.then(({ closed }) => closed).then(forget, forget);
    return opening;
  }

  /** Retries a call that was not sent, and a repeatable one that was. */
  async function exchangeMessage(request: RpcRequest, isRepeatable: boolean, signal: AbortSignal): Promise<RpcMessage> {
    const retries = createRetries(reconnectMs, signal);
    for (;;) {
      let isSent = false;
      try {
        const link = await orAborted(connected(), signal);
        const answer = link.send(request);
        isSent = true;
        return await orAborted(answer, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (isSent && !isRepeatable) throw error;
        await retries.failed(error);
      }
    }
  }

  async function turn(call: TurnCall, signal: AbortSignal): Promise<SessionResult> {
    const { method, params } = call;
    const request: RpcRequest = { jsonrpc: '2.0', id: makeCallId(), method, params };
    let last = 0;
    const receive = (update: SessionUpdate) => {
      if (update.seq <= last) return;
      last = update.seq;
      call.onUpdate(update);
    };
    const listener = { sessionId: params.sessionId, receive };
    listeners.add(listener);
    try {
      return resultOf(await exchangeMessage(request, false, signal)) as SessionResult;
    } catch (error) {
      if (!isLost(error) || signal.aborted) throw error;
      listeners.delete(listener);
      return await takeUp(request, last, receive, error, signal);
    } finally {
      listeners.delete(listener);
    }
  }

  /** Repeats the call over HTTP, which returns updates and result; a new WebSocket would get only the updates. */
  async function takeUp(
    request: RpcRequest,
    afterSeq: number,
    receive: Listener['receive'],
    lost: unknown,
    signal: AbortSignal,
  ): Promise<SessionResult> {
    const options = { exchange, request, idempotencyKey: '', afterSeq, reconnectMs, signal, onUpdate: receive };
    return runStreamedTurn(options).catch((error) => {
      // The call may not have arrived, or not have begun, so the app gets the lost connection as the error.
      throw error instanceof TrestleError && error.code === 'RESUME_NOT_FOUND' ? lost : error;
    });
  }

  return {
    async call({ method, params, isRepeatable }, signal) {
      const request: RpcRequest = { jsonrpc: '2.0', id: makeCallId(), method, params };
      return resultOf(await exchangeMessage(request, isRepeatable, signal));
    },
    turn,
    close() {
      void current?.then((link) => link.close(), ignore);
    },
  };
}

function isLost(error: unknown): boolean {
  return error instanceof TrestleError && error.code === 'CONNECTION_LOST';
}

/** Ignores a response that still arrives. */
function orAborted<Value>(value: Promise<Value>, signal: AbortSignal): Promise<Value> {
  value.catch(ignore);
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    const unhook = () => signal.removeEventListener('abort', stop);
    value.then(resolve, reject).then(unhook, unhook);
  });
}

function ignore(): void {}

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
    const retries = createRetries(reconnectMs, signal);
    for (;;) {
      try {
        return await exchange.call(request, headers, signal);
      } catch (error) {
        signal.throwIfAborted();
        await retries.failed(error);
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

/** Runs a turn over HTTP streaming, and resumes it after a broken connection. */
async function runStreamedTurn(options: StreamedTurnOptions): Promise<SessionResult> {
  const { exchange, request, idempotencyKey, signal, onUpdate } = options;
  const retries = createRetries(options.reconnectMs, signal);
  let last = options.afterSeq;
  for (;;) {
    const headers = {
      ...(idempotencyKey === '' ? {} : { 'idempotency-key': idempotencyKey }),
      ...(last === undefined ? {} : { 'last-event-id': String(last) }),
    };
    try {
      for await (const message of exchange.stream(request, headers, signal)) {
        retries.progressed();
        const update = updateOf(message);
        if (update === undefined) return resultOf(message) as SessionResult;
        if (last !== undefined && update.seq <= last) continue;
        last = update.seq;
        onUpdate(update);
      }
      throw connectionLost('the connection was closed before the answer');
    } catch (error) {
      signal.throwIfAborted();
      await retries.failed(error);
    }
  }
}
