import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { inBatches } from '../in-batches.ts';
import type { Dripping, Operation } from './check-operations.ts';
import { measureCalls } from './measured-calls.ts';

const DRIP_MS = 1000;
const SLICES = 10;
const EVERY_MS = 20;
/** Longer than any of them may live. */
const LIMIT_MS = 60_000;

interface Sender {
  readonly what: Dripping;
  readonly socket: Socket;
  readonly openedAt: number;
  closedAfterMs: number | null;
}

const HEAD =
  'POST /acp/rpc HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n';
const BEGINNING: Readonly<Record<Dripping, string>> = { headers: HEAD, body: `${HEAD}\r\n{` };
const DRIP: Readonly<Record<Dripping, string>> = { headers: 'X-Drip: 1\r\n', body: ' ' };

/** Opens so many connections whose requests never come to an end, and goes on calling beside them until all are closed. */
export async function holdSlowSenders(url: string, total: number, note: (operation: Operation) => void): Promise<void> {
  const { port } = new URL(url);
  const senders = await inBatches(total, (index) => openSender(Number(port), index % 2 === 0 ? 'headers' : 'body'));
  let slice = 0;
  const timer = setInterval(() => {
    slice += 1;
    for (let index = slice % SLICES; index < senders.length; index += SLICES) drip(senders[index]);
  }, DRIP_MS / SLICES);
  const limit = new Promise((resolve) => setTimeout(resolve, LIMIT_MS).unref());
  const allClosed = Promise.all(senders.map(({ socket }) => socket.closed || once(socket, 'close')));
  let calls = 0;
  const call = async (): Promise<boolean> => {
    calls += 1;
    // Every other one on a connection of its own.
    const headers: Record<string, string> = calls % 2 === 0 ? { connection: 'close' } : {};
    const response = await fetch(`${url}/api/ping`, { headers });
    await response.text();
    return response.status === 200;
  };
  try {
    await measureCalls({ phase: 'slow senders', everyMs: EVERY_MS, note, call }, Promise.race([allClosed, limit]));
  } finally {
    clearInterval(timer);
    for (const { socket } of senders) socket.destroy();
  }
  for (const { what, closedAfterMs } of senders) note({ kind: 'sender', what, closedAfterMs });
}

async function openSender(port: number, what: Dripping): Promise<Sender> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  // An answer is thrown away, and so is the connection that it closes.
  socket.resume();
  await once(socket, 'connect');
  const sender: Sender = { what, socket, openedAt: performance.now(), closedAfterMs: null };
  const noteEnd = (): void => {
    sender.closedAfterMs ??= performance.now() - sender.openedAt;
  };
  socket.on('end', noteEnd).on('close', noteEnd);
  socket.write(BEGINNING[what]);
  return sender;
}

function drip(sender: Sender | undefined): void {
  if (sender?.closedAfterMs === null && sender.socket.writable) sender.socket.write(DRIP[sender.what]);
}
