import { createHash, createPublicKey, verify } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Scope } from './running-program.ts';

type Members = Record<string, unknown>;

/** A task that the gateway works on. */
export interface ScriptedRun {
  readonly runId: string;
  readonly sessionKey: string;
  readonly message: string;
  /** An `agent` event of this run, to everybody. */
  tell(stream: string, data: Members): void;
  /** An event of any name, with any members. */
  event(name: string, payload: Members): void;
  finish(text: string): void;
  fail(error: string): void;
}

export interface ScriptedGatewayOptions {
  readonly token?: string;
  readonly protocol?: number;
  readonly tickMs?: number;
  onChat?(run: ScriptedRun): void;
  /** Awaited between the beginning of a run and the answer that tells it. */
  beforeSent?(): Promise<void>;
  /** The name of a run, for a gateway that does not take our key for it. */
  nameRun?(key: string): string;
  /** What other methods answer; `undefined` for none at all, an `Error` for a refusal. */
  answer?(method: string, params: Members): unknown;
}

export interface ScriptedGateway {
  readonly url: string;
  /** The parameters of each `connect`, those that were refused too. */
  readonly connects: readonly Members[];
  readonly requests: readonly { readonly method: string; readonly params: Members }[];
  /** Runs that were begun: a repeated key begins none. */
  readonly begun: readonly string[];
  sockets(): number;
  /** Breaks all connections off. */
  drop(): void;
  forgetSessions(): void;
  stop(): Promise<void>;
}

interface Run {
  readonly sessionKey: string;
  end: Members | undefined;
  waiting: ((end: Members) => void)[];
}

/** An OpenClaw gateway on loopback that does what the test says; the handshake is checked as the real one does it. */
export async function startScriptedGateway(
  scope: Scope,
  options: ScriptedGatewayOptions = {},
  port = 0,
): Promise<ScriptedGateway> {
  const { token = 'gateway-token-1', protocol = 4, tickMs = 30_000 } = options;
  const server = new WebSocketServer({ port, host: '127.0.0.1' });
  await once(server, 'listening');
  const connects: Members[] = [];
  const requests: { method: string; params: Members }[] = [];
  const begun: string[] = [];
  const runs = new Map<string, Run>();
  const sessions = new Set<string>();
  const numbers = new Map<WebSocket, number>();

  function broadcast(event: string, payload: Members): void {
    for (const [socket, last] of numbers) {
      numbers.set(socket, last + 1);
      socket.send(JSON.stringify({ type: 'event', event, payload, seq: last + 1 }));
    }
  }

  function endRun(run: Run, end: Members): void {
    run.end ??= end;
    for (const resolve of run.waiting) resolve(run.end);
    run.waiting = [];
  }

  function send({ sessionKey, message, idempotencyKey }: Members): Members {
    const runId = options.nameRun?.(String(idempotencyKey)) ?? String(idempotencyKey);
    const known = runs.get(runId);
    if (known !== undefined) return { runId, status: known.end === undefined ? 'in_flight' : 'ok' };
    const run: Run = { sessionKey: String(sessionKey), end: undefined, waiting: [] };
    runs.set(runId, run);
    sessions.add(run.sessionKey);
    begun.push(runId);
    const names = { runId, sessionKey: `agent:main:${run.sessionKey}` };
    const scripted: ScriptedRun = {
      runId,
      sessionKey: run.sessionKey,
      message: String(message),
      tell: (stream, data) => broadcast('agent', { ...names, stream, data }),
      event: (name, payload) => broadcast(name, payload),
      finish(text) {
        broadcast('chat', { ...names, state: 'final', message: { content: [{ type: 'text', text }] } });
        endRun(run, { runId, status: 'ok', terminalReply: { disposition: 'visible', text } });
      },
      fail: (error) => endRun(run, { runId, status: 'error', error }),
    };
    const begin = () => (options.onChat ?? ((one: ScriptedRun) => one.finish(`echo: ${one.message}`)))(scripted);
    // With a name of its own, events may come before the answer that tells it.
    if (options.nameRun === undefined) setImmediate(begin);
    else begin();
    return { runId, status: 'started' };
  }

  async function serve(method: string, params: Members): Promise<unknown> {
    if (method === 'chat.send') {
      const sent = send(params);
      await options.beforeSent?.();
      return sent;
    }
    if (method === 'chat.history')
      return { messages: sessions.has(String(params.sessionKey)) ? [{ role: 'user' }] : [] };
    if (method === 'chat.abort') {
      const run = runs.get(String(params.runId));
      if (run !== undefined) endRun(run, { runId: params.runId, status: 'error', stopReason: 'rpc' });
      return { ok: true, aborted: run !== undefined };
    }
    if (method === 'agent.wait') {
      const run = runs.get(String(params.runId));
      if (run === undefined) return { runId: params.runId, status: 'timeout' };
      return run.end ?? new Promise((resolve) => run.waiting.push(resolve));
    }
    return options.answer?.(method, params) ?? new Error('unknown method');
  }

  server.on('connection', (socket) => {
    const nonce = `nonce-${connects.length}`;
    const ts = Date.now();
    const reply = (id: unknown, value: unknown) => {
      const frame =
        value instanceof Error
          ? { ok: false, error: { code: 'INVALID_REQUEST', message: value.message } }
          : { ok: true, payload: value };
      socket.send(JSON.stringify({ type: 'res', id, ...frame }));
    };
    socket.send(JSON.stringify({ type: 'event', event: 'connect.challenge', payload: { nonce, ts } }));
    socket.on('close', () => numbers.delete(socket));
    socket.on('error', () => {});
    socket.on('message', async (data) => {
      const { id, method, params } = JSON.parse(String(data)) as { id: string; method: string; params: Members };
      if (method === 'connect') {
        connects.push(params);
        const refusal = refusalOf(params, token, nonce, ts);
        if (refusal !== undefined) {
          const error = { code: 'INVALID_REQUEST', message: 'unauthorized', details: { code: refusal } };
          socket.send(JSON.stringify({ type: 'res', id, ok: false, error }));
          socket.close(1008, 'unauthorized');
          return;
        }
        numbers.set(socket, 0);
        reply(id, {
          type: 'hello-ok',
          protocol,
          server: { version: '2026.9.6', name: 'scripted' },
          auth: { role: 'operator', scopes: params.scopes, deviceToken: 'device-token-never-shown' },
          snapshot: { sessionDefaults: { mainSessionKey: 'agent:main:main' } },
          policy: { tickIntervalMs: tickMs },
        });
        return;
      }
      requests.push({ method, params });
      const value = await serve(method, params);
      if (value === SILENCE) return;
      if (socket.readyState !== socket.OPEN) return;
      reply(id, value);
      // The habit of some methods: one answer when the work is taken, one when it is done.
      if (method === 'agent') reply(id, { runId: 'r', status: 'ok', result: {} });
    });
  });

  const stop = async () => {
    for (const socket of server.clients) socket.terminate();
    const closed = once(server, 'close');
    server.close();
    await closed;
  };
  let stopped: Promise<void> | undefined;
  const gateway: ScriptedGateway = {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connects,
    requests,
    begun,
    sockets: () => server.clients.size,
    drop() {
      for (const socket of server.clients) socket.terminate();
    },
    forgetSessions: () => sessions.clear(),
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
  scope.after(gateway.stop);
  return gateway;
}

/** From `answer`: this call gets no answer. */
export const SILENCE = Symbol('silence');

/** The code with which a real gateway refuses, as far as the proof of the device goes. */
function refusalOf(params: Members, token: string, nonce: string, ts: number): string | undefined {
  const { client, role, scopes, auth, device, minProtocol, maxProtocol } = params as Members & {
    client: Record<string, string>;
    scopes: string[];
    auth?: { token?: string };
    device: Record<string, string>;
  };
  if (minProtocol !== 3 || maxProtocol !== 4) return 'PROTOCOL_MISMATCH';
  const given = auth?.token ?? '';
  if (given !== token) return given === '' ? 'AUTH_TOKEN_MISSING' : 'AUTH_TOKEN_MISMATCH';
  const raw = Buffer.from(device.publicKey ?? '', 'base64url');
  if (createHash('sha256').update(raw).digest('hex') !== device.id) return 'DEVICE_AUTH_DEVICE_ID_MISMATCH';
  const head = Buffer.from('302a300506032b6570032100', 'hex');
  const key = createPublicKey({ key: Buffer.concat([head, raw]), format: 'der', type: 'spki' });
  const rights = [role, scopes.join(',')];
  const text = ['v3', device.id, client.id, client.mode, ...rights, ts, given, nonce, client.platform, ''].join('|');
  const isSigned = verify(null, Buffer.from(text), key, Buffer.from(device.signature ?? '', 'base64url'));
  return isSigned ? undefined : 'DEVICE_AUTH_SIGNATURE_INVALID';
}
