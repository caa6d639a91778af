import type { Duplex } from 'node:stream';
import type { Clock } from '../clock/clock.ts';

/**
 * Writes the last words to a connection and closes it, but goes on throwing away what still comes for a moment: closing
 * on unread bytes makes the system send a reset, which can destroy the answer before the peer has read it.
 */
export function endSocket(socket: Duplex, lastWords: string, clock: Pick<Clock, 'after'>, lingerMs: number): void {
  if (socket.writableEnded) return;
  if (socket.destroyed) return;
  socket.end(lastWords);
  socket.resume();
  const cancel = clock.after(lingerMs, () => socket.destroy());
  socket.once('close', cancel);
}
