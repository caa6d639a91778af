import { createServer, type IncomingMessage, request as send } from 'node:http';
import { listenOnLoopback } from './loopback-server.ts';
import type { Scope } from './running-program.ts';

/** One request and its response, as they were on the wire. */
export interface TappedCall {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  /** Names in lower case. A header that came twice is there twice. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer;
  status: number;
  answer: Buffer;
  /** The response came to its end. */
  isWhole: boolean;
  /** The client closed the connection before that. */
  wasLeft: boolean;
}

/** Stands between two programs, passes on what they send byte for byte, and records it. */
export interface WireTap {
  readonly url: string;
  readonly calls: readonly TappedCall[];
}

export async function startWireTap(scope: Scope, target: string): Promise<WireTap> {
  const calls: TappedCall[] = [];
  const server = createServer(async (incoming, outgoing) => {
    const { method = '', url: path = '', rawHeaders } = incoming;
    const body = await readAll(incoming);
    const call: TappedCall = {
      ...{ method, path, headers: pairsOf(rawHeaders), body },
      ...{ status: 0, answer: Buffer.alloc(0), isWhole: false, wasLeft: false },
    };
    calls.push(call);
    const onward = send(new URL(path, target), { method, headers: rawHeaders }, (answer) => {
      call.status = answer.statusCode ?? 0;
      outgoing.writeHead(call.status, answer.rawHeaders);
      answer.on('error', () => outgoing.destroy());
      answer.on('data', (piece: Buffer) => {
        call.answer = Buffer.concat([call.answer, piece]);
        outgoing.write(piece);
      });
      answer.on('end', () => {
        call.isWhole = answer.complete;
        outgoing.end();
      });
    });
    onward.on('error', () => outgoing.destroy());
    const leave = () => {
      call.wasLeft = !call.isWhole;
      onward.destroy();
    };
    // The client may have gone while its body was read.
    if (outgoing.closed) leave();
    else outgoing.on('close', leave);
    onward.end(body);
  });
  const { url, close } = await listenOnLoopback(server);
  scope.after(close);
  return { url, calls };
}

async function readAll(incoming: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

function pairsOf(raw: readonly string[]): (readonly [string, string])[] {
  return raw.flatMap((name, index) => (index % 2 === 0 ? [[name.toLowerCase(), raw[index + 1] ?? ''] as const] : []));
}
