import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { until } from './until.ts';

export interface RawConnection {
  readonly socket: Socket;
  /** Everything received so far. */
  text(): string;
  /** Resolves with everything received, when the other side has closed (or reset) the connection. */
  closed(): Promise<string>;
  /** Resolves when what was received contains `part`. */
  until(part: string): Promise<string>;
}

/** A plain TCP connection, for requests that no HTTP client would send. With `keepsSending` the server's end is not ours. */
export async function openRaw(t: TestContext, port: number, keepsSending = false): Promise<RawConnection> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: keepsSending });
  t.after(() => socket.destroy());
  const chunks: Buffer[] = [];
  const text = () => Buffer.concat(chunks).toString('latin1');
  socket.on('data', (chunk) => chunks.push(chunk));
  // A reset after the answer is part of what is tested here.
  socket.on('error', () => {});
  const end = new Promise((resolve) => socket.once('close', resolve));
  await once(socket, 'connect');
  return {
    socket,
    text,
    async closed() {
      await end;
      return text();
    },
    async until(part) {
      await until(`"${part}" on the connection`, () => {
        if (text().includes(part)) return true;
        if (socket.destroyed) throw new Error(`closed before "${part}" came: ${text()}`);
        return false;
      });
      return text();
    },
  };
}

/** Sends `request` and returns what came back until the connection was closed. */
export async function exchange(t: TestContext, port: number, request: string | Buffer): Promise<string> {
  const connection = await openRaw(t, port);
  connection.socket.write(request);
  return connection.closed();
}

export function statusOf(response: string): number {
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(response)?.[1] ?? 0);
}

/** The JSON body of a raw response. */
export function bodyOf(response: string): unknown {
  return JSON.parse(response.slice(response.indexOf('\r\n\r\n') + 4));
}
