import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { plainAddress } from './client-address.ts';

/** Closes a new connection at once when its address has too many already. Trusted proxies speak for many: not counted. */
export function limitConnections(
  server: Server,
  perAddress: number,
  isTrustedProxy: (address: string) => boolean,
): void {
  const counts = new Map<string, number>();

  function onClose(this: Socket): void {
    const address = plainAddress(this.remoteAddress);
    const left = (counts.get(address) ?? 1) - 1;
    if (left === 0) counts.delete(address);
    else counts.set(address, left);
  }

  server.on('connection', (socket) => {
    const address = plainAddress(socket.remoteAddress);
    if (isTrustedProxy(address)) return;
    const count = counts.get(address) ?? 0;
    if (count >= perAddress) {
      socket.destroy();
      return;
    }
    counts.set(address, count + 1);
    socket.once('close', onClose);
  });
}
