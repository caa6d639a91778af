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
}

export interface CompletionCount {
  readonly answers: number;
  /** Answers with another status than 200; they do not count. */
  readonly refusals: number;
  readonly ms: number;
  /** From the request to the first piece of the answer, median. */
  readonly firstMs: number;
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
    else under -= 1;
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
  for (const socket of sockets) socket.emit('go');
  await sleep(round.ms);
  running = false;
  while (under > 0) await sleep(1);
  const ms = performance.now() - started;
  const sorted = firsts.toSorted((a, b) => a - b);
  return { answers, refusals, ms, firstMs: sorted[Math.floor(sorted.length / 2)] ?? Number.NaN };
}

process.on('message', (round: CompletionRound) => {
  run(round).then(
    (count) => process.send?.(count),
    () => process.exit(1),
  );
});
process.on('disconnect', () => process.exit());
