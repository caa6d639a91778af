import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export interface BareWebSocketOptions {
  readonly port: number;
  readonly path: string;
  readonly token?: string;
}

const END_OF_HEAD = '\r\n\r\n';

/**
 * A WebSocket of which the client does no more than the opening, for thousands that must cost next to nothing. It is
 * paused, with whatever followed the opening still to be read.
 */
export async function openBareWebSocket({ port, path, token = '' }: BareWebSocketOptions): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  const head = [
    `GET ${path} HTTP/1.1`,
    `Host: 127.0.0.1:${port}`,
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ...(token === '' ? [] : [`Authorization: Bearer ${token}`]),
  ];
  socket.write(head.join('\r\n') + END_OF_HEAD);
  const leave = (): void => void socket.destroy(new Error('the server closed the connection'));
  socket.once('end', leave);
  socket.once('data', () => socket.pause());
  const [answer] = (await once(socket, 'data')) as [Buffer];
  socket.off('end', leave);
  const text = answer.toString('latin1');
  if (!text.startsWith('HTTP/1.1 101 ')) {
    socket.destroy();
    throw new Error(`the server did not open a WebSocket: ${text}`);
  }
  const rest = answer.subarray(text.indexOf(END_OF_HEAD) + END_OF_HEAD.length);
  if (rest.length > 0) socket.unshift(rest);
  // A connection that breaks later tells so by its end.
  socket.on('error', () => undefined);
  return socket;
}
