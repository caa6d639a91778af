import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { setImmediate as turn } from 'node:timers/promises';
import { Type } from 'typebox';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { platformErrors } from '../../../src/platform/errors/error-table.ts';
import { answerHttp } from '../../../src/platform/json-rpc/answer-http.ts';
import { hybridEnvelope } from '../../../src/platform/json-rpc/envelope.ts';
import type { MessageChannel } from '../../../src/platform/json-rpc/message-channel.ts';
import {
  createDispatch,
  type Dispatch,
  defineMethod,
  type MethodRow,
} from '../../../src/platform/json-rpc/method-table.ts';
import { createPeer, type Peer } from '../../../src/platform/json-rpc/peer.ts';
import { createMemoryChannels } from '../../kit/memory-channel.ts';

/** Any message that came back, with its members as the tests look at them. */
export interface Message {
  readonly jsonrpc?: string;
  readonly id?: unknown;
  readonly result?: unknown;
  readonly error?: {
    readonly code: number;
    readonly message: string;
    readonly data: Readonly<Record<string, unknown>>;
  };
  readonly ok?: boolean;
  readonly type?: string;
  readonly payload?: unknown;
  readonly method?: string;
  readonly params?: unknown;
  readonly event?: string;
  readonly seq?: number;
}

export const rows: readonly MethodRow[] = [
  defineMethod({
    name: 'echo',
    summary: 'Gives its parameters back.',
    params: Type.Object({}),
    result: Type.Object({}),
    handle: (params) => params,
  }),
  defineMethod({
    name: 'later',
    summary: 'Gives its parameters back, not at once.',
    params: Type.Object({}),
    result: Type.Object({}),
    handle: async (params) => params,
  }),
  defineMethod({
    name: 'subtract',
    summary: 'Takes one number from another.',
    params: Type.Object({ minuend: Type.Number(), subtrahend: Type.Number() }),
    result: Type.Object({ difference: Type.Number() }),
    handle: ({ minuend, subtrahend }) => ({ difference: minuend - subtrahend }),
  }),
  defineMethod({
    name: 'announce',
    summary: 'Notifies its caller twice.',
    params: Type.Object({}),
    result: Type.Object({}),
    handle(params, call) {
      call.notify('news', params, 1);
      call.notify('news', params, 2);
      return params;
    },
  }),
  defineMethod({
    name: 'crowded',
    summary: 'Has no room.',
    params: Type.Object({}),
    result: Type.Object({}),
    handle() {
      throw new AppError('OVERLOADED');
    },
  }),
  defineMethod({
    name: 'break',
    summary: 'Fails in a way that no table knows.',
    params: Type.Object({}),
    result: Type.Object({}),
    handle() {
      throw new TypeError('a secret of the library');
    },
  }),
];

/** What serving needs, with the method table above unless another dispatch is given. */
export function serving(dispatch: Dispatch<string> = createDispatch({ rows })) {
  const unexpected: { error: unknown; requestId: string }[] = [];
  return {
    unexpected,
    caller: 'someone',
    dispatch,
    envelope: hybridEnvelope,
    errors: platformErrors,
    clock: systemClock,
    limits: { callsInFlight: 1000 } as { callsInFlight: number; batch?: number },
    makeRequestId: () => 'req-1',
    onUnexpectedError: (error: unknown, requestId: string) => void unexpected.push({ error, requestId }),
  };
}

/** The other end of a served channel, by hand: raw text in, all messages out. */
export interface RawClient {
  readonly peer: Peer;
  readonly channel: MessageChannel;
  /** All that came back so far, batches as arrays. */
  readonly received: unknown[];
  send(message: unknown): void;
  /** Sends, lets everything that is ready happen, and takes what came back. */
  exchange(message: unknown): Promise<unknown[]>;
}

export function openRawClient(
  options: Partial<ReturnType<typeof serving>> & { cancelMethod?: string } = {},
): RawClient {
  const [near, far] = createMemoryChannels();
  const peer = createPeer({ ...serving(), ...options, channel: near });
  const received: unknown[] = [];
  far.onMessage((text) => received.push(JSON.parse(text)));
  const send = (message: unknown): void => far.send(toText(message));
  return {
    peer,
    channel: far,
    received,
    send,
    async exchange(message) {
      send(message);
      await turn();
      return received.splice(0);
    },
  };
}

/** A way to send one message and get what it is answered with: undefined when nothing is. */
export interface Carrier {
  readonly name: string;
  readonly isHttp: boolean;
  /** A connection, as far as the carrier has them. */
  open(dispatch?: Dispatch<string>): (message: unknown) => Promise<unknown>;
}

export const carriers: readonly Carrier[] = [
  {
    name: 'a channel',
    isHttp: false,
    open(dispatch) {
      const client = openRawClient(dispatch && { dispatch });
      return async (message) => {
        const answers = await client.exchange(message);
        assert.ok(answers.length <= 1, 'one message gets at most one answer');
        return answers[0];
      };
    },
  },
  { name: 'HTTP', isHttp: true, open: (dispatch) => (message) => post(toText(message), dispatch) },
  {
    name: 'HTTP, as bytes',
    isHttp: true,
    open: (dispatch) => (message) => post(Buffer.from(toText(message)), dispatch),
  },
];

async function post(body: string | Uint8Array, dispatch?: Dispatch<string>): Promise<unknown> {
  const answer = await answerHttp({ ...serving(dispatch), body, requestId: 'http-1' });
  if (answer.body === undefined) {
    assert.equal(answer.status, 204);
    return undefined;
  }
  return JSON.parse(answer.body);
}

/** Strings are sent as they stand. */
export function toText(message: unknown): string {
  return typeof message === 'string' ? message : JSON.stringify(message);
}

export function call(id: unknown, method: string, params?: unknown) {
  return params === undefined ? { jsonrpc: '2.0', id, method } : { jsonrpc: '2.0', id, method, params };
}

export function assertFailure(answer: unknown, rpc: number, code: string, id: unknown = null): void {
  const { error, ...rest } = answer as Message;
  assert.equal(error?.code, rpc);
  assert.equal(error.data.code, code);
  assert.equal(typeof error.message, 'string');
  assert.deepEqual(rest, { jsonrpc: '2.0', id, ok: false, type: 'res', payload: null, seq: rest.seq });
  assert.ok(Number.isSafeInteger(rest.seq));
}
