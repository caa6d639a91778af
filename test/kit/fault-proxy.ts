import { once } from 'node:events';
import { type AddressInfo, createConnection, createServer, type Server, type Socket } from 'node:net';
import type { Scope } from './running-program.ts';

/** What happens to one connection. Bytes are counted in both directions together. */
export interface Fault {
  /** Nothing is passed on before this much time. */
  readonly delayMs?: number;
  /** After this many bytes it is cut, or falls silent; that much later it is cut all the same. */
  readonly after?: number;
  readonly end?: 'cut' | 'stall';
  readonly stallMs?: number;
  /** The connection is not accepted. */
  readonly refuse?: boolean;
}

export interface FaultProxy {
  readonly url: string;
  readonly port: number;
  /** Connections so far, refused ones included. */
  connections(): number;
  /** Connections that are open now. */
  open(): number;
  /** Where connections lead from now on. */
  setTarget(port: number): void;
  /** Breaks off everything that is open now. */
  cutAll(): void;
  /** Everything that is open now stays open, and carries nothing any more. */
  stallAll(): void;
  /** Nothing listens there any more, until it is raised again. */
  takeDown(): Promise<void>;
  raise(): Promise<void>;
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
  const serve = (client: Socket) => {
    const fault = faultOf(count);
    count += 1;
    if (fault.refuse === true) client.resetAndDestroy();
    else join(client, createConnection(target, '127.0.0.1'), fault, open);
  };
  let server = await listen(serve, 0);
  const cutAll = () => {
    for (const socket of open) socket.resetAndDestroy();
  };
  const takeDown = async () => {
    cutAll();
    if (!server.listening) return;
    server.close();
    await once(server, 'close');
  };
  scope.after(takeDown);
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    connections: () => count,
    // Each has two sockets.
    open: () => open.size / 2,
    setTarget(next) {
      target = next;
    },
    cutAll,
    stallAll() {
      for (const socket of open) socket.pause();
    },
    takeDown,
    async raise() {
      server = await listen(serve, port);
    },
  };
}

async function listen(serve: (client: Socket) => void, port: number): Promise<Server> {
  const server = createServer(serve).listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

function join(client: Socket, upstream: Socket, fault: Fault, open: Set<Socket>): void {
  const { delayMs = 0, after = Number.POSITIVE_INFINITY, end: ending = 'cut', stallMs } = fault;
  let passed = 0;
  const both = [client, upstream];
  const end = () => {
    for (const socket of both) socket.destroy();
  };
  const cut = () => {
    for (const socket of both) socket.resetAndDestroy();
  };
  const stall = () => {
    for (const socket of both) socket.pause();
    if (stallMs !== undefined) setTimeout(cut, stallMs).unref();
  };
  const relay = (from: Socket, to: Socket) => {
    from.on('data', (chunk) => {
      const left = after - passed;
      passed += chunk.length;
      if (left > 0) to.write(chunk.subarray(0, left));
      if (passed < after) return;
      if (ending === 'cut') cut();
      else stall();
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
