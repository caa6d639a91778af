import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { openBareWebSocket } from '../../test/kit/bare-web-socket.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { residentBytes } from '../../test/kit/resident-bytes.ts';
import { startScriptedBridge } from './scripted-bridge.ts';

const TOKEN = 'bench-token-0123456789abcdef0123456789';
const BATCH = 200;
const SETTLE_MS = 1500;

/** Bytes of resident memory. */
interface SocketMemory {
  /** What one socket adds. */
  readonly each: number;
  /** Of the server, while all are open. */
  readonly total: number;
}

/** What open, idle, authenticated sockets take in the bridge, and in a bare `ws` server. */
export async function benchIdleSockets(sockets: number): Promise<{ raw: SocketMemory; ours: SocketMemory }> {
  return { raw: await costOfRaw(sockets), ours: await costOfOurs(sockets) };
}

async function costOfRaw(sockets: number): Promise<SocketMemory> {
  const server = fork(new URL('../platform/idle-socket-server.ts', import.meta.url), ['raw']);
  try {
    const [port] = (await once(server, 'message')) as [number];
    return await costOf(server.pid ?? 0, port, '/', sockets);
  } finally {
    server.kill();
  }
}

async function costOfOurs(sockets: number): Promise<SocketMemory> {
  const scope = createScope();
  try {
    const { pid, port } = await startScriptedBridge(scope, { BRIDGE_AUTH_TOKEN: TOKEN });
    return await costOf(pid, port, '/acp', sockets);
  } finally {
    await scope.end();
  }
}

async function costOf(pid: number, port: number, path: string, count: number): Promise<SocketMemory> {
  const held: Socket[] = [];
  try {
    // The first sockets load code and fill caches: they are not what a socket costs.
    await openMany(port, path, BATCH, held);
    await sleep(SETTLE_MS);
    const before = await residentBytes(pid);
    await openMany(port, path, count, held);
    await sleep(SETTLE_MS);
    const total = await residentBytes(pid);
    return { each: (total - before) / count, total };
  } finally {
    for (const socket of held) socket.destroy();
  }
}

async function openMany(port: number, path: string, count: number, held: Socket[]): Promise<void> {
  for (let opened = 0; opened < count; opened += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, count - opened) }, () =>
      openBareWebSocket({ port, path, token: TOKEN }),
    );
    held.push(...(await Promise.all(batch)).map((socket) => socket.resume()));
  }
}
