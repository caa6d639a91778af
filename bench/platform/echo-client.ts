import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import type { AnswerCount } from '../report/take-turns.ts';

/** What the parent process asks for: as many echoes from `url` as `connections` sockets get in `ms`. */
export interface EchoRound {
  readonly url: string;
  readonly ms: number;
  readonly connections: number;
  /** Messages under way on each socket. */
  readonly window: number;
  /** Sent again and again; always the same for one url. */
  readonly message?: string;
}

const MESSAGE = JSON.stringify({
  jsonrpc: '2.0',
  id: 'call-000001',
  method: 'echo',
  params: { text: 'The quick brown fox jumps over the lazy dog.', count: 42, list: [1, 2, 3], nested: { ok: true } },
});

const pools = new Map<string, Promise<WebSocket[]>>();
let answers = 0;
let under = 0;
let running = false;

async function connect(url: string, message: string): Promise<WebSocket> {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  socket.on('message', () => {
    answers += 1;
    if (running) socket.send(message);
    else under -= 1;
  });
  return socket;
}

async function run({ url, ms, connections, window, message = MESSAGE }: EchoRound): Promise<AnswerCount> {
  const pool = pools.get(url) ?? Promise.all(Array.from({ length: connections }, () => connect(url, message)));
  pools.set(url, pool);
  const sockets = await pool;
  answers = 0;
  under = connections * window;
  running = true;
  const started = performance.now();
  for (const socket of sockets) {
    for (let sent = 0; sent < window; sent += 1) socket.send(message);
  }
  await sleep(ms);
  running = false;
  while (under > 0) await sleep(1);
  return { answers, ms: performance.now() - started };
}

process.on('message', (round: EchoRound) => {
  run(round).then(
    (count) => process.send?.(count),
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());
