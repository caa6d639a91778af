import { once } from 'node:events';
import { type AddressInfo, createConnection, createServer, type Socket } from 'node:net';
import type { Scope } from '../e2e/running-program.ts';

/** What happens to one connection. Bytes are counted in both directions together. */
export interface Fault {
  /** Nothing is passed on before this much time. */
  readonly delayMs?: number;
  /** After this many bytes, it is cut, or falls silent for ever. */
  readonly after?: number;
  readonly then?: 'cut' | 'stall';
  /** The connection is not accepted. */
  readonly refuse?: boolean;
}

export interface FaultProxy {
  readonly url: string;
  readonly port: number;
  /** Connections so far, refused ones included. */
  connections(): number;
  /** Where connections lead from now on. */
  setTarget(port: number): void;
  /** Breaks off everything that is open now. */
  cutAll(): void;
}

/** A TCP link on loopback that does to each connection what `faultOf` says; without it, nothing. */
export async function startFaultProxy(
  scope: Scope,
  targetPort: number,
  faultOf: (connection: number) => Fault = () => ({}),
): Promise<FaultProxy> {
  const open = new Set<Socket>();
  let count = 0;
  let target = targetPort;
  const server = createServer((client) => {
    const fault = faultOf(count);
    count += 1;
    if (fault.refuse === true) client.resetAndDestroy();
    else join(client, createConnection(target, '127.0.0.1'), fault, open);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cutAll = () => {
    for (const socket of open) socket.resetAndDestroy();
  };
  scope.after(async () => {
    server.close();
    cutAll();
    await once(server, 'close');
  });
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    connections: () => count,
    setTarget(next) {
      target = next;
    },
    cutAll,
  };
}

function join(client: Socket, upstream: Socket, fault: Fault, open: Set<Socket>): void {
  const { delayMs = 0, after = Number.POSITIVE_INFINITY, then = 'cut' } = fault;
  let passed = 0;
  const both = [client, upstream];
  const end = () => {
    for (const socket of both) socket.destroy();
  };
  const relay = (from: Socket, to: Socket) => {
    from.on('data', (chunk) => {
      const left = after - passed;
      passed += chunk.length;
      if (left > 0) to.write(chunk.subarray(0, left));
      if (passed < after) return;
      if (then === 'cut') for (const socket of both) socket.resetAndDestroy();
      else for (const socket of both) socket.pause();
    });
    from.on('end', () => to.end());
  };
  for (const socket of both) {
    open.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      open.delete(socket);
      end();
    });
    socket.pause();
  }
  relay(client, upstream);
  relay(upstream, client);
  setTimeout(() => {
    for (const socket of both) socket.resume();
  }, delayMs);
}

/** Numbers from 0 up to 1 that are the same for the same seed (mulberry32). */
export function seededNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
