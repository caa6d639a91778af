import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';

export interface RawProxy {
  readonly port: number;
  close(): Promise<unknown>;
}

/**
 * The bound: node:http with the request body buffered, relayed by `Pool.dispatch`, and no other work. With `parse`, each
 * event of a stream is parsed and written anew, as the least that a translation must do.
 */
export async function startRawProxy(upstreamPort: number, { parse = false } = {}): Promise<RawProxy> {
  const pool = new Pool(`http://127.0.0.1:${upstreamPort}`, { connections: 1024, pipelining: 1 });
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      const headers = { 'content-type': 'application/json' };
      let held = '';
      pool.dispatch(
        { method: 'POST', path: request.url ?? '/', headers, body },
        {
          onRequestStart: () => undefined,
          onResponseStart(_controller, status, answerHeaders) {
            const { 'content-type': type = '', 'content-length': length } = answerHeaders;
            response.statusCode = status;
            response.setHeader('content-type', type);
            if (length !== undefined) response.setHeader('content-length', length);
          },
          onResponseData(controller, chunk) {
            if (!parse) {
              if (!response.write(chunk)) {
                controller.pause();
                response.once('drain', () => controller.resume());
              }
              return;
            }
            held += chunk.toString('utf8');
            const end = held.lastIndexOf('\n\n');
            if (end === -1) return;
            response.write(rewrite(held.slice(0, end)));
            held = held.slice(end + 2);
          },
          onResponseEnd: () => void response.end(),
          onResponseError: () => void response.destroy(),
        },
      );
    });
  });
  // Connections wait while the others have their turn.
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.closeAllConnections();
      server.close();
      await pool.destroy();
    },
  };
}

function rewrite(events: string): string {
  let text = '';
  for (const event of events.split('\n\n')) {
    const at = event.indexOf('data: ');
    if (at !== -1) text += `data: ${JSON.stringify(JSON.parse(event.slice(at + 6)))}\n\n`;
  }
  return text;
}
