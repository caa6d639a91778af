import { createHmac } from 'node:crypto';
import type { ClientHttp2Session, Http2Server, ServerHttp2Session } from 'node:http2';
import * as http2 from 'node:http2';
import { connect as connectTo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Static, Type } from 'typebox';
import { type Clock, pause, withinTime } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { boundedFetch } from '../../platform/http/bounded-fetch.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { backoffDelay } from '../../platform/retry/retry.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';
import { asObject, objectsIn, textOf } from '../agents/agent-text.ts';
import { readMessage } from '../agents/post-for-events.ts';
import { authorizationOf, type RemoteConnectionOptions } from '../agents/remote/remote-connection.ts';
import type { RunnerRow } from '../storage/bridge-schema.ts';
import type { RunnerStore } from '../storage/instance-and-route-stores.ts';

/**
 * The connection of a runner. The runner opens a WebSocket, and HTTP/2 runs within it in the reverse direction: the instance is
 * its client, and each of its CONNECT requests is a connection to the bridge of the runner. The instance calls that bridge as it
 * calls the bridge of any other remote agent; only the connection differs.
 */

type Through = NonNullable<RemoteConnectionOptions['through']>;

export const RUNNER_PATH = '/acp/runner';
/** What a runner says about itself when it connects, as JSON text. */
export const HELLO_HEADER = 'x-trestle-runner';
export const Hello = Type.Object({
  version: Type.String({ maxLength: 40 }),
  host: Type.String({ maxLength: 255 }),
  slots: Type.Integer({ minimum: 1, maximum: 1024 }),
  /** Names this start of the program, at random: another one with the same key is another runner. Absent in earlier versions. */
  start: Type.Optional(Type.String({ pattern: '^[\\w-]{20,60}$' })),
  /** With `--once`: what names this process, at random. It takes one session. */
  process: Type.Optional(Type.String({ pattern: '^[\\w-]{20,60}$' })),
});
export type Hello = Static<typeof Hello>;

/**
 * Returns the token of the runner's own bridge, which both sides derive from the digest of its key. With a process, it is the
 * token of a runner for one session: a request for an earlier process is refused by the next one.
 */
export function runnerToken(keyHash: string, process = ''): string {
  return createHmac('sha256', keyHash).update(`the bridge of a runner${process}`).digest('base64url');
}

export function keyHashOf(key: string): string {
  return digestToken(key).toString('hex');
}

/** The flow-control windows of one stream, and of all of them. */
const STREAM_WINDOW_BYTES = 1024 * 1024;
const WINDOW_BYTES = 8 * 1024 * 1024;
const MAX_STREAMS = 2_000;
const PING_MS = 10_000;
export const ANSWER_MS = 10_000;

export interface Tunnel {
  /** A connection to the bridge of the runner. Rejects, and gives it up, when the runner does not answer in time. */
  open(): Promise<Duplex>;
  /** Rejects when the runner does not respond. */
  ping(): Promise<void>;
  end(): void;
}

/** The end of the instance. */
export function openTunnel(stream: Duplex, clock: Pick<Clock, 'after'>): Tunnel {
  const session: ClientHttp2Session = http2.connect('http://runner', {
    createConnection: () => stream,
    settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
  });
  stream.on('error', () => undefined);
  session.on('error', () => undefined);
  session.once('connect', () => session.setLocalWindowSize(WINDOW_BYTES));
  return {
    open() {
      const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
      const opened = session.request({ ':method': 'CONNECT', ':authority': 'runner' });
      opened.on('error', reject);
      opened.once('close', () => reject(new Error('the runner has closed the connection')));
      opened.once('response', ({ ':status': status }) => {
        if (status === 200) resolve(opened);
        else opened.close();
      });
      return withinTime(clock, ANSWER_MS, promise, () => {
        opened.close(http2.constants.NGHTTP2_CANCEL);
        throw new Error('the runner does not open a connection');
      });
    },
    async ping() {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      session.ping((error) => (error === null ? resolve() : reject(error)));
      await withinTime(clock, PING_MS, promise, () => {
        throw new Error('the runner does not respond');
      });
    },
    end() {
      session.destroy();
      stream.destroy();
    },
  };
}

/** Sends requests over connections that `connect` opens. */
export async function createPassage(connect: () => Promise<Duplex>): Promise<Through> {
  const { Pool, fetch: send } = await import('undici');
  const dispatcher = new Pool('http://runner', {
    connections: MAX_STREAMS,
    connect(_target, callback) {
      connect().then(
        (stream) => callback(null, stream as never),
        (error: Error) => callback(error, null),
      );
    },
  });
  // The types of undici and of Node describe the same functions by different names.
  const sendThrough = ((url: string, init: object) => send(url, { ...init, dispatcher })) as unknown as typeof fetch;
  return { dispatcher, fetch: sendThrough };
}

/** Passes on what either of two streams sends, and ends both when one has ended. */
export function joinStreams(one: Duplex, other: Duplex): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    from.on('error', () => to.destroy());
    from.once('close', () => to.destroy());
    from.pipe(to);
  }
}

const MAX_AGENTS = 100;
const NOTHING = { status: 0, answer: asObject(undefined) };

/** The last report of a runner. */
export interface RunnerReport {
  readonly version: string;
  readonly host: string;
  readonly start: string;
  readonly isLeaving: boolean;
  readonly agents: readonly { readonly id: string; readonly state: string; readonly version: string }[];
}

export interface Connected {
  readonly runner: RunnerRow;
  readonly hello: Hello;
}

interface LookOptions extends Connected {
  readonly tunnel: Tunnel;
  readonly connection: string;
  readonly store: RunnerStore;
  readonly instance: string;
  readonly logger: Logger;
  /** Called when the runner says something new. */
  changed(): void;
}

/** Checks a runner that is connected here: whether it responds, which agents it has, and which of its turns no instance runs any more. */
export function createLook(options: LookOptions): () => Promise<void> {
  const { runner, hello, tunnel, connection, store, instance, logger, changed } = options;
  const { version, host, slots, start = '', process = '' } = hello;
  const token = authorizationOf(runnerToken(runner.key_hash, process));
  let isNoted = false;
  let last = '';
  let suspects: ReadonlySet<string> = new Set();
  let absent = '';
  const passage = createPassage(tunnel.open);

  async function ask(path: string, body?: object) {
    const { fetch: send } = await passage;
    const init = {
      headers: { ...token, 'content-type': 'application/json' },
      ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
    };
    const response = await boundedFetch(`http://runner${path}`, init, { send, timeoutMs: ANSWER_MS });
    return { status: response.status, answer: asObject(readMessage(await response.text())) };
  }

  /** A runner that is stopping accepts no connections, and its turns continue. */
  const askIfServing = (path: string) => ask(path).catch(() => NOTHING);

  const call = (method: string, sessionId: string) =>
    ask('/acp/rpc', { jsonrpc: '2.0', id: 'look', method, params: { sessionId } });

  async function endOrphans(running: readonly string[], known: ReadonlySet<string>): Promise<void> {
    const orphans = running.filter((id) => !known.has(id));
    for (const sessionId of orphans.filter((id) => suspects.has(id))) {
      logger.warn({ runner: runner.name, sessionId }, 'a turn on a runner is stopped: its instance has ended');
      await call('session.cancel', sessionId);
    }
    suspects = new Set(orphans);
  }

  /** Ends a runner whose only session never reached it, because it was refused or its instance has ended: nobody will close that session. */
  async function endAbsent(known: ReadonlySet<string>): Promise<void> {
    const { session = '' } = known.size > 0 ? {} : ((await store.find(runner.id)) ?? {});
    const isAbsent = session !== '' && (await askIfServing(`/api/bridge/sessions/${session}`)).status === 404;
    if (isAbsent && absent === session) {
      logger.warn({ runner: runner.name, sessionId: session }, 'a runner is ended: its session has not come there');
      await call('session.close', session);
    }
    absent = isAbsent ? session : '';
  }

  return async function look() {
    const isThere = await tunnel.ping().then(
      () => true,
      () => false,
    );
    if (!isThere) {
      logger.warn({ runner: runner.name }, 'a runner does not respond');
      tunnel.end();
      return;
    }
    const [ready, agents, sessions] = await Promise.all([
      askIfServing('/readyz'),
      askIfServing('/api/bridge/agents'),
      askIfServing('/api/bridge/sessions?state=running&limit=200'),
    ]);
    const found = objectsIn(agents.answer.agents).slice(0, MAX_AGENTS);
    const listed = found.map((agent) => ({
      id: textOf(agent.providerId),
      state: textOf(agent.state),
      version: textOf(agent.version),
    }));
    const said: RunnerReport = { version, host, start, isLeaving: ready.status !== 200, agents: listed };
    const report = JSON.stringify(said);
    const isKnown = isNoted
      ? await store.report(runner.id, connection, report)
      : await store.connect(runner.id, { instance, connection, slots, report, process });
    if (!isNoted) logger.info({ runner: runner.name, host }, 'a runner is connected');
    isNoted = true;
    if (report !== last) changed();
    last = report;
    // The runner was removed, or has another connection by now.
    if (!isKnown) return tunnel.end();
    const known = await store.turnsOn(runner.id);
    await endOrphans(
      objectsIn(sessions.answer.sessions).map(({ sessionId }) => textOf(sessionId)),
      known,
    );
    if (process !== '') await endAbsent(known);
  };
}

export interface RunnerConnectionOptions {
  /** Of the instances, or of the balancer before them. */
  readonly url: string;
  readonly key: string;
  readonly hello: Hello;
  /** The port of the own bridge, on the loopback address. */
  readonly port: number;
  readonly clock: Pick<Clock, 'after' | 'monotonic'>;
  readonly randomness: Pick<Randomness, 'below'>;
  /** Called when the runner has connected, and with the reason when it has disconnected. */
  onChange(state: { readonly isConnected: boolean; readonly reason: string }): void;
}

export interface RunnerConnection {
  /** Resolves when the runner is stopped; rejects when the key is refused, because a retry would not help. */
  readonly ended: Promise<void>;
  stop(): void;
}

const HANDSHAKE_MS = 10_000;
const RETRY = { baseMs: 200, maxMs: 5_000 };
/** The instance sends a request at least every five seconds. */
const SILENCE_MS = 20_000;

/** It may also be the connection of this machine before a crash, which the server gives up within seconds. */
const TAKEN =
  'another runner is connected with this key; each needs a key of its own: create one with `trestle runner create`';

/** A refusal of the key: the runner gives up. */
export class RunnerRefused extends Error {}

/** The end of the runner: it stays connected until it is stopped. */
export function connectRunner(options: RunnerConnectionOptions): RunnerConnection {
  const { clock, randomness, onChange } = options;
  const stopped = new AbortController();
  const server: Http2Server = http2.createServer({
    settings: { initialWindowSize: STREAM_WINDOW_BYTES, maxConcurrentStreams: MAX_STREAMS },
  });
  let heardAt = clock.monotonic();
  server.on('session', (session: ServerHttp2Session) => {
    session.on('error', () => undefined);
    session.setLocalWindowSize(WINDOW_BYTES);
    session.on('ping', () => {
      heardAt = clock.monotonic();
    });
  });
  server.on('sessionError', () => undefined);
  server.on('stream', (stream, headers) => {
    heardAt = clock.monotonic();
    stream.on('error', () => undefined);
    if (headers[':method'] !== 'CONNECT') {
      stream.close();
      return;
    }
    const socket = connectTo(options.port, '127.0.0.1');
    socket.on('error', () => stream.destroy());
    socket.once('connect', () => {
      if (stream.destroyed || stream.closed || stream.session?.destroyed !== false) {
        socket.destroy();
        return;
      }
      stream.respond({ ':status': 200 });
      joinStreams(stream, socket);
    });
  });

  /** Resolves with the reason when the connection has ended. */
  async function connectOnce(connected: () => void): Promise<string> {
    const { WebSocket, createWebSocketStream } = await import('ws');
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const url = `${options.url.replace(/\/$/, '').replace(/^http/, 'ws')}${RUNNER_PATH}`;
    const socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${options.key}`, [HELLO_HEADER]: JSON.stringify(options.hello) },
      perMessageDeflate: false,
      handshakeTimeout: HANDSHAKE_MS,
    });
    const end = () => socket.terminate();
    stopped.signal.addEventListener('abort', end, { once: true });
    let cancel = (): void => undefined;
    const listen = (): void => {
      const left = heardAt + SILENCE_MS - clock.monotonic();
      if (left <= 0) socket.terminate();
      else cancel = clock.after(left, listen);
    };
    socket.on('unexpected-response', (_request, response) => {
      response.resume();
      const status = response.statusCode ?? 0;
      if (status === 401 || status === 403 || status === 404) reject(new RunnerRefused(refusalOf(status)));
      else resolve(status === 409 ? TAKEN : `the server answered with status ${status}`);
      socket.terminate();
    });
    socket.on('error', (error) => resolve(error.message));
    socket.once('close', (code, reason) => resolve(`closed with ${code} ${String(reason)}`.trim()));
    socket.once('open', () => {
      heardAt = clock.monotonic();
      listen();
      const stream = createWebSocketStream(socket);
      stream.on('error', () => undefined);
      server.emit('connection', stream);
      connected();
    });
    return promise.finally(() => {
      cancel();
      stopped.signal.removeEventListener('abort', end);
    });
  }

  async function run(): Promise<void> {
    for (let failures = 1; !stopped.signal.aborted; failures += 1) {
      const reason = await connectOnce(() => {
        failures = 0;
        onChange({ isConnected: true, reason: '' });
      });
      if (stopped.signal.aborted) return;
      onChange({ isConnected: false, reason });
      await pause(clock, backoffDelay(Math.max(1, failures), RETRY, randomness), stopped.signal);
    }
  }

  return { ended: run(), stop: () => stopped.abort() };
}

function refusalOf(status: number): string {
  if (status === 404) return 'The server has no runners at this address: check --url, and that its version has them.';
  return 'The server refuses the key: create another one with `trestle runner create` there.';
}
