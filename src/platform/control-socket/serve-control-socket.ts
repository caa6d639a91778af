import { chmod, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import type { Clock } from '../clock/clock.ts';
import type { ErrorTable } from '../errors/error-table.ts';
import { plainEnvelope } from '../json-rpc/envelope.ts';
import { createLineChannel } from '../json-rpc/line-channel.ts';
import type { Dispatch } from '../json-rpc/method-call.ts';
import { createPeer } from '../json-rpc/peer.ts';
import { withSocketPath } from './socket-path.ts';

export interface ControlSocket {
  close(): Promise<void>;
}

export interface ServeControlSocketOptions {
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
 * Serves JSON-RPC to commands on the same machine. Whoever may open the file (mode 0600) may call: it is the operator.
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
