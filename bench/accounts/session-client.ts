import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AnswerCount } from '../report/take-turns.ts';

/** What the parent process asks for: as many answers as `connections` connections get in `ms`. */
export interface SessionRound {
  readonly port: number;
  readonly ms: number;
  readonly connections: number;
  /** Used in turn; always the same for one name. */
  readonly tokens: readonly string[];
  /** What is sent; `GET /api/auth/session` unless given. */
  readonly request?: { readonly method: string; readonly path: string; readonly body: string };
  /** Tells rounds on one port apart. */
  readonly name?: string;
}

const CLOSING_BRACE = 0x7d;
const OK = Buffer.from('HTTP/1.1 200 ');
const pools = new Map<string, Promise<(() => void)[]>>();
let answers = 0;
let under = 0;
let running = false;

/** A plain socket: an HTTP client would be slower than the servers it is to measure. Gives what sends the first request. */
async function connect(port: number, requests: readonly Buffer[], first: number): Promise<() => void> {
  const socket: Socket = connectTcp(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setNoDelay();
  let next = first;
  const send = (): void => {
    next = (next + 1) % requests.length;
    socket.write(requests[next] ?? '');
  };
  socket.on('data', (chunk) => {
    // The one answer under way ends with the last character of its JSON.
    if (chunk[chunk.length - 1] !== CLOSING_BRACE) return;
    if (!chunk.subarray(0, OK.length).equals(OK)) throw new Error(`refused: ${chunk.toString('utf8')}`);
    answers += 1;
    if (running) send();
    else under -= 1;
  });
  return send;
}

const CHECK = { method: 'GET', path: '/api/auth/session', body: '' };

function requestFor(token: string, { method, path, body }: NonNullable<SessionRound['request']>): Buffer {
  const type = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return Buffer.from(
    `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAuthorization: Bearer ${token}\r\n${type}\r\n${body}`,
  );
}

function openPool({ port, connections, tokens, request = CHECK }: SessionRound): Promise<(() => void)[]> {
  const requests = tokens.map((token) => requestFor(token, request));
  return Promise.all(Array.from({ length: connections }, (_, index) => connect(port, requests, index)));
}

async function run(round: SessionRound): Promise<AnswerCount> {
  const name = `${round.port} ${round.name ?? ''}`;
  const pool = pools.get(name) ?? openPool(round);
  pools.set(name, pool);
  const senders = await pool;
  answers = 0;
  under = round.connections;
  running = true;
  const started = performance.now();
  for (const send of senders) send();
  await sleep(round.ms);
  running = false;
  while (under > 0) await sleep(1);
  return { answers, ms: performance.now() - started };
}

process.on('message', (round: SessionRound) => {
  run(round).then(
    (count) => process.send?.(count),
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());
