import { connect, type Socket } from 'node:net';
import { systemClock } from '../clock/clock.ts';
import { errorCode } from '../errors/app-error.ts';
import { plainEnvelope } from '../json-rpc/envelope.ts';
import { createLineChannel } from '../json-rpc/line-channel.ts';
import { createPeer } from '../json-rpc/peer.ts';
import { withSocketPath } from './socket-path.ts';

const MAX_LINE_BYTES = 16 * 1024 * 1024;
/** What a socket file that nobody serves answers, or a file that is not there. */
const NOBODY = new Set(['ENOENT', 'ECONNREFUSED', 'ENOTSOCK']);

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
  const channel = createLineChannel({ readable: socket, writable: socket, maxLineBytes: MAX_LINE_BYTES });
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
