import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { ServerKind, ServerMemory } from './idle-socket-server.ts';

export interface IdleSocketOptions {
  readonly sockets?: number;
}

/** Bytes that one open, idle socket adds to a server process. */
export interface SocketCost {
  readonly resident: number;
  /** On the JavaScript heap and in buffers, after a collection: less noisy than what the system counts. */
  readonly used: number;
}

const BATCH = 200;
const HANDSHAKE =
  'GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n';

/** The memory of idle sockets on our listener beside a bare `ws` server, each in a process of its own. */
export async function benchIdleSockets({ sockets = 10_000 }: IdleSocketOptions = {}): Promise<{
  raw: SocketCost;
  ours: SocketCost;
}> {
  return { raw: await costOf('raw', sockets), ours: await costOf('ours', sockets) };
}

async function costOf(kind: ServerKind, count: number): Promise<SocketCost> {
  const server = fork(new URL('./idle-socket-server.ts', import.meta.url), [kind], { execArgv: ['--expose-gc'] });
  const held: Socket[] = [];
  try {
    const [port] = (await once(server, 'message')) as [number];
    // The first sockets load code and fill caches: they are not what a socket costs.
    await openMany(port, BATCH, held);
    const before = await memoryOf(server);
    await openMany(port, count, held);
    const after = await memoryOf(server);
    return { resident: (after.resident - before.resident) / count, used: (after.used - before.used) / count };
  } finally {
    for (const socket of held) socket.destroy();
    server.kill();
  }
}

async function memoryOf(server: ChildProcess): Promise<ServerMemory> {
  server.send('memory');
  const [memory] = await once(server, 'message');
  return memory as ServerMemory;
}

async function openMany(port: number, count: number, held: Socket[]): Promise<void> {
  for (let opened = 0; opened < count; opened += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - opened) }, () => openOne(port));
    held.push(...(await Promise.all(batch)));
  }
}

async function openOne(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.write(HANDSHAKE);
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (!head.toString('latin1').startsWith('HTTP/1.1 101 ')) throw new Error('the server did not open a socket');
  return socket;
}
