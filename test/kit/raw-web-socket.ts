import type { TestContext } from 'node:test';
import { openRaw, type RawConnection } from './raw-connection.ts';

export interface FrameParts {
  readonly opcode: number;
  readonly payload?: Buffer | string;
  readonly fin?: boolean;
  /** The three reserved bits, as they stand in the first byte. */
  readonly reserved?: number;
  readonly masked?: boolean;
  /** What the header says, when that is not the truth. */
  readonly claimedLength?: number;
}

export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

const KEY = 'dGhlIHNhbXBsZSBub25jZQ==';

/** A WebSocket spoken by hand, for frames that no client would send. */
export async function openRawWebSocket(t: TestContext, port: number, extra = ''): Promise<RawConnection> {
  const connection = await openRaw(t, port);
  connection.socket.write(
    `GET /lab/socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${KEY}\r\n${extra}\r\n`,
  );
  await connection.until('\r\n\r\n');
  return connection;
}

export function frame(parts: FrameParts): Buffer {
  const { opcode, payload = '', fin = true, reserved = 0, masked = true, claimedLength } = parts;
  const data = Buffer.from(payload);
  const length = claimedLength ?? data.length;
  const first = (fin ? 0x80 : 0) | reserved | opcode;
  const mask = masked ? 0x80 : 0;
  // An all-zero mask leaves the payload as it is.
  const key = masked ? Buffer.alloc(4) : Buffer.alloc(0);
  if (length < 126) return Buffer.concat([Buffer.from([first, mask | length]), key, data]);
  const header = Buffer.alloc(length < 65_536 ? 4 : 10);
  header[0] = first;
  if (length < 65_536) {
    header[1] = mask | 126;
    header.writeUInt16BE(length, 2);
  } else {
    header[1] = mask | 127;
    header.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([header, key, data]);
}

/** The code of the close frame that the server sent last; 0 when it sent none. */
export async function closeCodeOf(connection: RawConnection): Promise<number> {
  const all = Buffer.from(await connection.closed(), 'latin1');
  const frames = all.subarray(all.indexOf('\r\n\r\n') + 4);
  let code = 0;
  for (let at = 0; at + 2 <= frames.length; ) {
    const opcode = (frames[at] ?? 0) & 0x0f;
    let length = frames[at + 1] ?? 0;
    let start = at + 2;
    if (length === 126) {
      length = frames.readUInt16BE(at + 2);
      start = at + 4;
    } else if (length === 127) {
      length = Number(frames.readBigUInt64BE(at + 2));
      start = at + 10;
    }
    if (opcode === CLOSE && length >= 2) code = frames.readUInt16BE(start);
    at = start + length;
  }
  return code;
}
