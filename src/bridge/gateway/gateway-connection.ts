import { WebSocket } from 'ws';
import type { Clock } from '../../platform/clock/clock.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import { asObject, textOf } from '../agents/agent-text.ts';
import type { Probe, ProbeResult } from '../agents/probe-board.ts';
import {
  type ConnectOptions,
  connectParams,
  type GatewayEvent,
  type Greeting,
  gatewayFailed,
  readChallenge,
  readGatewayError,
  readGreeting,
} from './gateway-messages.ts';

/** One socket to the gateway, from its greeting to its end. */
export interface GatewayConnection {
  readonly greeting: Greeting;
  /** Resolves with the payload of the first response. Some methods send a second response with the same id, which is ignored. */
  request(method: string, params: unknown, timeoutMs: number, signal?: AbortSignal): Promise<unknown>;
  close(): void;
  /** Resolves when the socket is closed, by either side. */
  readonly closed: Promise<void>;
}

/** Handles an event. If it returns a promise, nothing more is read from the gateway until the promise resolves. */
export type HearEvent = (event: GatewayEvent) => Promise<void> | undefined;

interface ConnectionOptions extends Omit<ConnectOptions, 'challenge'> {
  readonly url: string;
  readonly clock: Pick<Clock, 'after' | 'monotonic'>;
  readonly handshakeMs: number;
  readonly signal?: AbortSignal | undefined;
  readonly onEvent: HearEvent;
}

interface PendingRequest {
  settle(payload: unknown): void;
  fail(error: Error): void;
}

/** Larger than any response that is expected; artifacts are sent in base64. */
const MAX_MESSAGE_BYTES = 96 * 1024 * 1024;
const MAX_PENDING = 256;
/** While more bytes than this wait to be sent, further requests wait too. They are not refused, because the gateway may be about to read. */
const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
const CONNECT_ID = 'connect';

/** Opens a socket, answers the challenge, and resolves when the gateway has accepted the connection. Rejects with GATEWAY_FAILED. */
export async function openGatewayConnection(options: ConnectionOptions): Promise<GatewayConnection> {
  const { url, clock, signal } = options;
  const welcome = Promise.withResolvers<Greeting>();
  const closed = Promise.withResolvers<void>();
  const pending = new Map<string, PendingRequest>();
  /** Sends the requests that wait until the gateway has taken what was sent before, in their order. */
  const waiting: (() => void)[] = [];
  let lastId = 0;
  let lastSeq = 0;
  let lastSign = clock.monotonic();
  let isOpen = true;
  /** Events whose handlers have not finished: reading is paused while there are any. */
  let holds = 0;
  let stopTicks = (): void => undefined;

  const socket = new WebSocket(url, {
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE_BYTES,
    followRedirects: false,
    handshakeTimeout: options.handshakeMs,
  });
  const giveUp = (error: Error): void => {
    welcome.reject(error);
    socket.terminate();
  };
  const stopTimer = clock.after(options.handshakeMs, () =>
    giveUp(gatewayFailed('OFFLINE', 'no greeting came in time')),
  );
  const onAbort = (): void => giveUp(gatewayFailed('OFFLINE', 'the attempt was given up'));
  signal?.addEventListener('abort', onAbort, { once: true });
  if (signal?.aborted) onAbort();

  socket.on('error', (error) => {
    const reason = 'code' in error ? String(error.code) : 'it refused the connection';
    welcome.reject(gatewayFailed('OFFLINE', `cannot connect (${reason})`));
  });
  socket.on('close', () => {
    isOpen = false;
    stopTicks();
    welcome.reject(gatewayFailed('OFFLINE', 'the gateway closed the connection before it greeted'));
    const error = gatewayFailed('SOCKET_CLOSED', 'the connection was lost before the answer came');
    for (const { fail } of [...pending.values()]) fail(error);
    closed.resolve();
  });
  socket.on('message', (data) => {
    lastSign = clock.monotonic();
    const frame = readFrame(String(data));
    if (frame.type === 'res') answer(frame);
    else if (frame.type === 'event') notice(frame);
  });

  function answer({ id, ok, payload, error }: Frame): void {
    if (id === CONNECT_ID) {
      const greeting = ok === true ? readGreeting(payload) : undefined;
      if (greeting !== undefined) welcome.resolve(greeting);
      else if (ok === true) giveUp(gatewayFailed('PROTOCOL_MISMATCH', 'it speaks another protocol', true));
      else giveUp(readGatewayError(error));
      return;
    }
    // An unknown id belongs to the second response to a call, or to one that came after its timeout.
    const waiting = pending.get(textOf(id));
    if (ok === true) waiting?.settle(payload);
    else waiting?.fail(readGatewayError(error));
  }

  function notice({ event, payload, seq }: Frame): void {
    if (event === 'connect.challenge') {
      const challenge = readChallenge(payload);
      if (challenge === undefined) giveUp(gatewayFailed('PROTOCOL_MISMATCH', 'its challenge cannot be read', true));
      else send(CONNECT_ID, 'connect', connectParams({ ...options, challenge }));
      return;
    }
    // Numbers increase on one connection: a repeated event is ignored.
    if (typeof seq === 'number') {
      if (seq <= lastSeq) return;
      lastSeq = seq;
    }
    const room = options.onEvent({ name: textOf(event), payload: asObject(payload) });
    if (room !== undefined) holdBack(room);
  }

  function holdBack(until: Promise<void>): void {
    holds += 1;
    if (socket.readyState === WebSocket.OPEN) socket.pause();
    void until.then(() => {
      holds -= 1;
      lastSign = clock.monotonic();
      if (holds === 0 && socket.isPaused) socket.resume();
    });
  }

  function send(id: string, method: string, params: unknown): void {
    socket.send(JSON.stringify({ type: 'req', id, method, params }), sendWaiting);
  }

  function sendWaiting(): void {
    while (isOpen && socket.bufferedAmount <= MAX_BUFFERED_BYTES && waiting.length > 0) waiting.shift()?.();
  }

  /** Treats a gateway that was silent for more than two of its ticks as disconnected, even while TCP is up. */
  function watchTicks(tickMs: number): void {
    stopTicks = clock.after(tickMs, () => {
      if (holds === 0 && clock.monotonic() - lastSign > 2.5 * tickMs) socket.terminate();
      else watchTicks(tickMs);
    });
  }

  function request(method: string, params: unknown, timeoutMs: number, abort?: AbortSignal): Promise<unknown> {
    if (!isOpen) return Promise.reject(gatewayFailed('SOCKET_CLOSED', 'the connection is closed'));
    if (pending.size >= MAX_PENDING) {
      return Promise.reject(gatewayFailed('OVERLOADED', 'too many requests to the gateway are under way'));
    }
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    lastId += 1;
    const id = `r${lastId}`;
    let stop = clock.after(timeoutMs, expire);
    // While reading is paused, the response may be behind events that are not read yet.
    function expire(): void {
      if (holds > 0) stop = clock.after(timeoutMs, expire);
      else fail(gatewayFailed('RPC_TIMEOUT', `no answer within ${timeoutMs} ms`));
    }
    const cancel = (): void => fail(gatewayFailed('CANCELLED', 'the call was cancelled'));
    const done = (): void => {
      stop();
      abort?.removeEventListener('abort', cancel);
      pending.delete(id);
    };
    function fail(error: Error): void {
      done();
      reject(error);
    }
    pending.set(id, {
      settle(payload) {
        done();
        resolve(payload);
      },
      fail,
    });
    abort?.addEventListener('abort', cancel, { once: true });
    if (abort?.aborted) cancel();
    // A request that has timed out or was cancelled while it waited is not sent.
    waiting.push(() => pending.has(id) && send(id, method, params));
    sendWaiting();
    return promise;
  }

  try {
    const greeting = await welcome.promise;
    watchTicks(greeting.tickMs);
    return { greeting, request, close: () => socket.terminate(), closed: closed.promise };
  } finally {
    stopTimer();
    signal?.removeEventListener('abort', onAbort);
  }
}

type Frame = Readonly<Record<string, unknown>>;

function readFrame(text: string): Frame {
  try {
    return asObject(parseJson(text));
  } catch {
    // Not a frame of the protocol; the next one may be.
    return {};
  }
}

/** Checks that a gateway answers with its challenge. No credential is sent. */
export function createGatewayProbe(url: string): Probe {
  if (url === '') return () => Promise.resolve({ status: 'not_configured', version: '' });
  return (signal) => {
    const { promise, resolve, reject } = Promise.withResolvers<ProbeResult>();
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 64 * 1024, followRedirects: false });
    const stop = (): void => reject(new Error('timed out'));
    signal.addEventListener('abort', stop, { once: true });
    socket.on('error', (error) => reject(new Error(`cannot connect (${'code' in error ? error.code : 'refused'})`)));
    socket.on('close', () => reject(new Error('closed without a greeting')));
    socket.on('message', (data) => {
      if (isChallenge(String(data))) resolve({ status: 'ok', version: '' });
      else reject(new Error('not a gateway'));
    });
    return promise.finally(() => {
      signal.removeEventListener('abort', stop);
      socket.terminate();
    });
  };
}

function isChallenge(text: string): boolean {
  try {
    const frame: unknown = JSON.parse(text);
    return typeof frame === 'object' && frame !== null && 'event' in frame && frame.event === 'connect.challenge';
  } catch {
    return false;
  }
}
