import type { Server } from 'node:http';
import { Server as NetServer } from 'node:net';

/**
 * Takes no more connections, and resolves when the last of those that are open has gone. Not `server.close`, which cuts
 * all that wait for their next request: it may be on its way. What the system has accepted and we have not is cut by it,
 * so this waits for a round of the event loop, each of which takes one connection, in which there was none to take.
 */
export function stopListening(server: Server): Promise<void> {
  return new Promise((resolve) => {
    // The round that is under way may have looked before its other work.
    let knocked = true;
    const onConnection = (): void => {
      knocked = true;
    };
    function look(): void {
      if (knocked) {
        knocked = false;
        setImmediate(look);
        return;
      }
      server.off('connection', onConnection);
      NetServer.prototype.close.call(server, () => resolve());
    }
    server.on('connection', onConnection);
    setImmediate(look);
  });
}
