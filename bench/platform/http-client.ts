import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AnswerCount } from '../report/take-turns.ts';

/** What the parent process asks for: as many answers as `connections` connections get in `ms`. */
export interface RequestRound {
  readonly port: number;
  readonly path: string;
  readonly ms: number;
  readonly connections: number;
}

const CLOSING_BRACE = 0x7d;
const pools = new Map<number, Promise<Socket[]>>();
let answers = 0;
let under = 0;
let running = false;

/** A plain socket: an HTTP client would be slower than the servers it is to measure. */
async function connect({ port, path }: RequestRound): Promise<Socket> {
  const request = requestFor(path);
  const socket = connectTcp(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setNoDelay();
  socket.on('data', (chunk) => {
    // The one answer under way ends with the last character of its JSON.
    if (chunk[chunk.length - 1] !== CLOSING_BRACE) return;
    answers += 1;
    if (running) socket.write(request);
    else under -= 1;
  });
  return socket;
}

function requestFor(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n`;
}

async function run(round: RequestRound): Promise<AnswerCount> {
  const pool = pools.get(round.port) ?? Promise.all(Array.from({ length: round.connections }, () => connect(round)));
  pools.set(round.port, pool);
  const sockets = await pool;
  answers = 0;
  under = round.connections;
  running = true;
  const started = performance.now();
  for (const socket of sockets) socket.write(requestFor(round.path));
  await sleep(round.ms);
  running = false;
  while (under > 0) await sleep(1);
  return { answers, ms: performance.now() - started };
}

process.on('message', (round: RequestRound) => {
  run(round).then(
    (count) => process.send?.(count),
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());
