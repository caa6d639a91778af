import { closeSync, openSync } from 'node:fs';
import { chmod, rm } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';
import { type Clock, systemClock } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import type { ErrorTable } from '../errors/error-table.ts';
import { plainEnvelope } from '../json-rpc/envelope.ts';
import { createLineChannel } from '../json-rpc/message-channel.ts';
import type { Dispatch } from '../json-rpc/method-table.ts';
import { createPeer } from '../json-rpc/peer.ts';

export interface ControlSocket {
  close(): Promise<void>;
}

interface ServeControlSocketOptions {
  readonly file: string;
  readonly dispatch: Dispatch<undefined>;
  readonly errors: ErrorTable;
  readonly clock: Clock;
  makeRequestId(): string;
  onUnexpectedError(error: unknown, requestId: string): void;
}

const MAX_LINE_BYTES = 1024 * 1024;
const OWNER_ONLY = 0o177;

/**
 * Serves JSON-RPC to commands on the same machine. Anyone who may open the file (mode 0600) may call: that is the operator.
 * The caller holds the lock of the data, so a socket file that is already there was left by a killed server.
 */
export async function serveControlSocket(options: ServeControlSocketOptions): Promise<ControlSocket> {
  const { file } = options;
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    const channel = createLineChannel({ readable: socket, writable: socket, maxLineBytes: MAX_LINE_BYTES });
    createPeer({ ...options, channel, envelope: plainEnvelope, caller: undefined, limits: { callsInFlight: 16 } });
  });
  await rm(file, { force: true });
  await withSocketPath(file, (path) => listen(server, path));
  await chmod(file, 0o600);
  return {
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
      await rm(file, { force: true });
    },
  };
}

function listen(server: Server, path: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  // The file must not be open to others even for a moment: binding happens inside this call.
  const before = process.umask(OWNER_ONLY);
  try {
    server.listen(path, () => resolve());
  } finally {
    process.umask(before);
  }
  return promise;
}

const MAX_ANSWER_BYTES = 16 * 1024 * 1024;
/** The errors of a socket file without a server, and of a missing file. */
const NOBODY = new Set(['ENOENT', 'ENOTDIR', 'ECONNREFUSED', 'ENOTSOCK']);

/**
 * Calls one method of the server that owns the data. Undefined when no server runs: then the caller opens the files
 * itself. An error that the server answered is thrown.
 */
export async function callControlSocket(
  file: string,
  method: string,
  params: Readonly<Record<string, unknown>>,
  timeoutMs: number,
): Promise<{ readonly result: unknown } | undefined> {
  const socket = await openSocket(file);
  if (socket === undefined) return undefined;
  const channel = createLineChannel({ readable: socket, writable: socket, maxLineBytes: MAX_ANSWER_BYTES });
  const peer = createPeer({ channel, envelope: plainEnvelope, clock: systemClock });
  try {
    return { result: await peer.request(method, params, { timeoutMs }) };
  } finally {
    peer.close();
    socket.destroy();
  }
}

async function openSocket(file: string): Promise<Socket | undefined> {
  try {
    return await withSocketPath(file, (path) => {
      const { promise, resolve, reject } = Promise.withResolvers<Socket>();
      const socket = connect(path, () => resolve(socket));
      socket.once('error', reject);
      return promise;
    });
  } catch (error) {
    if (NOBODY.has(errorCode(error))) return undefined;
    throw error;
  }
}

/** The address of a Unix socket holds about a hundred bytes; this fits every system. */
const MAX_PATH_BYTES = 100;

/**
 * Calls `use` with a path that the operating system takes for `file`. A path that is too long is reached through an
 * open descriptor of its folder, which Linux shows as a short path.
 */
async function withSocketPath<T>(file: string, use: (path: string) => Promise<T>): Promise<T> {
  if (Buffer.byteLength(file) <= MAX_PATH_BYTES) return use(file);
  if (process.platform !== 'linux') throw new AppError('SOCKET_PATH_TOO_LONG', { file, limit: MAX_PATH_BYTES });
  const folder = openSync(dirname(file), 'r');
  try {
    return await use(`/proc/self/fd/${folder}/${basename(file)}`);
  } finally {
    closeSync(folder);
  }
}
