import { once } from 'node:events';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** What the parent process asks for: as many answers as `connections` connections get in `ms`. */
export interface CompletionRound {
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly connections: number;
  readonly ms: number;
  /** So many requests a second, whatever the answers do; without it, each connection sends when it has its answer. */
  readonly perSecond?: number;
}

export interface CompletionCount {
  readonly answers: number;
  /** Answers with another status than 200; they do not count. */
  readonly refusals: number;
  readonly ms: number;
  /** From the request to the first piece of the answer, median. */
  readonly firstMs: number;
  /** The same of every request, at a steady rate. */
  readonly allFirstMs: readonly number[];
}

const CLOSING_BRACE = 0x7d;
const LAST_CHUNK = Buffer.from('0\r\n\r\n');
const pools = new Map<string, Promise<Socket[]>>();
let answers = 0;
let refusals = 0;
let under = 0;
let running = false;
let firsts: number[] = [];

async function connect(round: CompletionRound): Promise<Socket> {
  const request = requestFor(round);
  const socket = connectTcp(round.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setNoDelay();
  let chunked: boolean | undefined;
  let refused = false;
  let sentAt = performance.now();
  const send = () => {
    chunked = undefined;
    sentAt = performance.now();
    socket.write(request);
  };
  socket.on('go', send);
  // Better no figure than one that waits for an answer which cannot come.
  socket.on('close', () => process.exit(1));
  socket.on('data', (piece) => {
    if (chunked === undefined) {
      const head = piece.toString('latin1', 0, 2000).toLowerCase();
      refused = !head.startsWith('http/1.1 200');
      chunked = head.includes('transfer-encoding: chunked');
      firsts.push(performance.now() - sentAt);
    }
    const ended = chunked ? piece.subarray(-5).equals(LAST_CHUNK) : piece[piece.length - 1] === CLOSING_BRACE;
    if (!ended) return;
    if (refused) refusals += 1;
    else answers += 1;
    if (running) send();
    else {
      under -= 1;
      socket.emit('answered');
    }
  });
  return socket;
}

function requestFor({ path, headers, body }: CompletionRound): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${lines.join('')}\r\n${body}`;
}

async function run(round: CompletionRound): Promise<CompletionCount> {
  const key = `${round.port} ${round.path} ${round.connections} ${round.body.length}`;
  const pool = pools.get(key) ?? Promise.all(Array.from({ length: round.connections }, () => connect(round)));
  pools.set(key, pool);
  const sockets = await pool;
  answers = 0;
  refusals = 0;
  firsts = [];
  under = round.connections;
  running = true;
  const started = performance.now();
  if (round.perSecond === undefined) {
    for (const socket of sockets) socket.emit('go');
    await sleep(round.ms);
  } else await sendPaced(sockets, round.perSecond, round.ms);
  running = false;
  while (under > 0) await sleep(1);
  const ms = performance.now() - started;
  const sorted = firsts.toSorted((a, b) => a - b);
  const allFirstMs = round.perSecond === undefined ? [] : sorted;
  return { answers, refusals, ms, firstMs: sorted[Math.floor(sorted.length / 2)] ?? Number.NaN, allFirstMs };
}

/** A request waits for no other: one that is due is sent on a connection that is free, and late when none is. */
async function sendPaced(sockets: readonly Socket[], perSecond: number, ms: number): Promise<void> {
  running = false;
  const free = [...sockets];
  under = 0;
  const release = new Map(sockets.map((socket) => [socket, () => void free.push(socket)]));
  for (const [socket, done] of release) socket.on('answered', done);
  const started = performance.now();
  let sent = 0;
  while (performance.now() - started < ms) {
    const due = Math.floor(((performance.now() - started) * perSecond) / 1000);
    for (; sent < due; sent += 1) {
      const socket = free.shift();
      if (socket === undefined) break;
      under += 1;
      socket.emit('go');
    }
    await sleep(1);
  }
  while (under > 0) await sleep(1);
  for (const [socket, done] of release) socket.off('answered', done);
}

process.on('message', (round: CompletionRound) => {
  run(round).then(
    (count) => process.send?.(count),
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());
