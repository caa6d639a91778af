import type { OutgoingHttpHeaders } from 'node:http';
import type { FastifyReply } from 'fastify';

/** Sends a JSON answer whose bytes are ready, past Fastify's own serialiser. */
export function sendJson(
  reply: FastifyReply,
  headers: Readonly<Record<string, string>>,
  body: Buffer | string,
  status = 200,
): void {
  const response = reply.raw;
  const all = reply.getHeaders() as OutgoingHttpHeaders;
  Object.assign(all, headers);
  all['content-type'] = 'application/json; charset=utf-8';
  all['content-length'] = Buffer.byteLength(body);
  reply.hijack();
  response.writeHead(status, all);
  response.end(body);
}
