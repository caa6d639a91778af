import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCallSpans } from '../../../src/completions/metering/call-telemetry.ts';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { startSpanCollector } from '../../kit/span-collector.ts';
import { until } from '../../kit/until.ts';
import { holderOf, outcomeOf } from '../keys/calls.ts';

const call = (changes: Parameters<typeof outcomeOf>[0] = {}) => ({
  holder: holderOf(),
  outcome: outcomeOf(changes),
  promptTokens: 10,
  completionTokens: 5,
  costNano: 250_000_000,
  priceKnown: true,
});

test('each call becomes a span with the names of GenAI, and a stop sends what is left', async (t) => {
  const { url, requests } = await startSpanCollector(t);
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
  const { url, requests } = await startSpanCollector(t);
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

test('a call is part of the trace that its traceparent names, whichever API it speaks', async (t) => {
  const { url, requests } = await startSpanCollector(t);
  const running = await startCompletions(t, { otlpEndpoint: url });
  const [trace, parent] = ['0af7651916cd43dd8448eb211c80319c', 'b7ad6b7169203331'];
  const messages = [{ role: 'user', content: 'Hello' }];
  const ask = async (path: string, traceparent: string, name: string) => {
    const headers = { traceparent, 'x-request-id': name };
    const response = await running.post(path, { model: 'demo/echo', messages, max_tokens: 9 }, { headers });
    assert.equal(response.status, 200, name);
    await response.text();
  };
  await ask('/v1/chat/completions', `00-${trace}-${parent}-01`, 'chat');
  await ask('/v1/messages', `cc-${trace}-${parent}-01-later`, 'messages');
  await ask('/v1/chat/completions', `00-${trace}-${parent}-00`, 'unsampled');
  const wrong = [
    `00-${'0'.repeat(32)}-${parent}-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
    `00-${trace}-${parent}-01-x`,
    `ff-${trace}-${parent}-01`,
    'x',
  ];
  for (const [index, header] of wrong.entries()) await ask('/v1/chat/completions', header, `wrong-${index}`);
  const spansSoFar = () => requests.flatMap((request) => request.spans);
  await until('the spans have come', () => spansSoFar().length >= 2 + wrong.length);
  const spans = spansSoFar();
  const named = new Map(
    spans.map((span) => [
      Object.values(span.attributes.find(({ key }) => key === 'trestle.request.id')?.value ?? {})[0],
      span,
    ]),
  );
  for (const name of ['chat', 'messages']) {
    assert.deepEqual([named.get(name)?.traceId, named.get(name)?.parentSpanId], [trace, parent], name);
  }
  assert.equal(named.has('unsampled'), false, 'the caller decides what is sampled');
  for (const index of wrong.keys()) {
    const span = named.get(`wrong-${index}`);
    assert.ok(span !== undefined && span.traceId !== trace && !span.parentSpanId, wrong[index]);
  }
});
