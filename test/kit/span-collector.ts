import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Scope } from './running-program.ts';

/** A span as OTLP has it in JSON. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status: { readonly code?: number };
  readonly attributes: { readonly key: string; readonly value: Record<string, unknown> }[];
}

/** An OpenTelemetry collector that keeps the spans it is sent. */
export async function startSpanCollector(scope: Scope, status = 200) {
  const requests: { path: string; spans: CollectedSpan[]; resource: string }[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const [resource] = JSON.parse(text).resourceSpans;
    const spans = resource.scopeSpans.flatMap((part: { spans: CollectedSpan[] }) => part.spans);
    requests.push({ path: request.url ?? '', spans, resource: JSON.stringify(resource.resource) });
    response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}
