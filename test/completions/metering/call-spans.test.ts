import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { createCallSpans } from '../../../src/completions/metering/call-telemetry.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { holderOf, outcomeOf } from '../keys/calls.ts';

interface Span {
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status: { readonly code?: number };
  readonly attributes: { readonly key: string; readonly value: Record<string, unknown> }[];
}

/** A collector that keeps the spans it is sent. */
async function startCollector(t: TestContext, status = 200) {
  const requests: { path: string; spans: Span[]; resource: string }[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const [resource] = JSON.parse(text).resourceSpans;
    const spans = resource.scopeSpans.flatMap((scope: { spans: Span[] }) => scope.spans);
    requests.push({ path: request.url ?? '', spans, resource: JSON.stringify(resource.resource) });
    response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

const call = (changes: Parameters<typeof outcomeOf>[0] = {}) => ({
  holder: holderOf(),
  outcome: outcomeOf(changes),
  promptTokens: 10,
  completionTokens: 5,
  costNano: 250_000_000,
  priceKnown: true,
});

test('each call becomes a span with the names of GenAI, and a stop sends what is left', async (t) => {
  const { url, requests } = await startCollector(t);
  const clock = createFakeClock(Date.UTC(2030, 0, 1));
  const spans = createCallSpans({
    endpoint: url,
    version: '1.2.3',
    clock,
    onError: (error) => assert.fail(String(error)),
  });
  spans.observe(call({ api: 'google', model: 'google/gemini', upstreamModel: 'gemini' }));
  spans.observe(call({ outcome: 'partial', status: 502, operation: 'text_completion' }));
  await spans.stop();
  assert.equal(requests.length, 1);
  assert.equal(requests[0]?.path, '/v1/traces');
  assert.match(requests[0]?.resource ?? '', /"service.name".*"trestle".*"1.2.3"/);
  const [first, second] = requests[0]?.spans ?? [];
  assert.ok(first !== undefined && second !== undefined);
  assert.equal(first.name, 'chat google/gemini');
  const attributes = Object.fromEntries(first.attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
  assert.equal(attributes['gen_ai.operation.name'], 'chat');
  assert.equal(attributes['gen_ai.provider.name'], 'gcp.gemini');
  assert.equal(attributes['gen_ai.request.model'], 'google/gemini');
  assert.equal(attributes['gen_ai.response.model'], 'gemini');
  assert.equal(Number(attributes['gen_ai.usage.input_tokens']), 10);
  assert.equal(Number(attributes['gen_ai.usage.output_tokens']), 5);
  assert.equal(Number(BigInt(first.endTimeUnixNano) - BigInt(first.startTimeUnixNano)), 120_000_000);
  assert.equal(BigInt(first.endTimeUnixNano), BigInt(Date.UTC(2030, 0, 1)) * 1_000_000n);
  assert.equal(second.name, 'text_completion lab/small');
  assert.equal(second.status.code, 2);
  assert.ok(second.attributes.some(({ key }) => key === 'error.type'));
});

test('without calls nothing is loaded or sent, and a collector that is away does not hold up the stop', async (t) => {
  const { url, requests } = await startCollector(t);
  const idle = createCallSpans({ endpoint: url, version: '1', clock: createFakeClock(), onError: () => {} });
  await idle.stop();
  assert.equal(requests.length, 0);
  const away = createCallSpans({
    endpoint: 'http://127.0.0.1:9',
    version: '1',
    clock: createFakeClock(),
    onError: () => {},
  });
  away.observe(call());
  const startedAt = Date.now();
  await away.stop();
  assert.ok(Date.now() - startedAt < 20_000);
});
