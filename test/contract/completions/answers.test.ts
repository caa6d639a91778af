import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { HELLO, LAB_KEY, labAt, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  chunkOf,
  completionOf,
  eventsOf,
  startScriptedUpstream,
  streams,
  USAGE,
} from '../../kit/scripted-upstream.ts';

test('P-01: an answer passes byte for byte under /v1, and the openai package reads it', async (t) => {
  const body = JSON.stringify(completionOf('Hi "there"', { system_fingerprint: 'fp_1', extra: [1, { deep: null }] }));
  const upstream = await startScriptedUpstream(t, answers(`${body.replace('{', '{ ')}\n`));
  const { url, post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await post('/v1/chat/completions', HELLO);
  assert.equal(response.status, 200);
  assert.equal(await response.text(), `${body.replace('{', '{ ')}\n`);
  assert.equal(response.headers.get('content-type'), 'application/json; charset=utf-8');
  assert.equal(response.headers.get('x-model-api'), 'lab');
  assert.equal(response.headers.get('x-model-id'), 'small');
  assert.equal(response.headers.get('x-attempts'), '1');
  assert.match(response.headers.get('x-request-id') ?? '', /./);

  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries: 0 });
  const completion = await client.chat.completions.create({
    model: 'lab/small',
    messages: [{ role: 'user', content: 'Hello' }],
  });
  assert.equal(completion.choices[0]?.message.content, 'Hi "there"');
  assert.equal(completion.usage?.total_tokens, 18);
  const [seen] = upstream.requests;
  assert.equal(seen?.path, '/v1/chat/completions');
  assert.equal(seen?.headers.authorization, `Bearer ${LAB_KEY}`);
  assert.equal(seen?.headers['accept-encoding'], 'identity');
});

test('P-01: without /v1 an answer has the shape of the document: created as text, content never null', async (t) => {
  const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{}' } };
  const message = { role: 'assistant', content: null, tool_calls: [call] };
  const choices = [{ index: 0, message, finish_reason: 'tool_calls' }];
  const upstream = await startScriptedUpstream(t, answers(completionOf('', { choices })));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const body = (await (await post('/chat/completions', HELLO)).json()) as Record<string, unknown>;
  assert.equal(body.created, '1700000000');
  assert.equal(body.model, 'small-2026');
  assert.deepEqual(body.choices, [
    { index: 0, message: { role: 'assistant', content: '', tool_calls: [call] }, finish_reason: 'tool_calls' },
  ]);
  assert.deepEqual(body.usage, USAGE);
});

test('P-02: a stream passes byte for byte, without the usage chunk that only we asked for', async (t) => {
  const events = eventsOf(['Hel', 'lo', ' "wörld"\n']);
  const upstream = await startScriptedUpstream(t, streams(events));
  const { url, post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await post('/v1/chat/completions', { ...HELLO, stream: true });
  assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
  assert.equal(response.headers.get('cache-control'), 'no-cache');
  assert.equal(response.headers.get('x-accel-buffering'), 'no');
  assert.equal(response.headers.get('x-model-api'), 'lab');
  const withoutUsage = events.filter((event) => !event.includes('prompt_tokens'));
  assert.equal(await response.text(), withoutUsage.join(''));
  assert.deepEqual(upstream.requests[0]?.json.stream_options, { include_usage: true });

  const asked = await post('/chat/completions', { ...HELLO, stream: true, stream_options: { include_usage: true } });
  assert.equal(await asked.text(), events.join(''));

  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused', maxRetries: 0 });
  let text = '';
  const stream = await client.chat.completions.create({
    model: 'lab/small',
    messages: [{ role: 'user', content: 'Hello' }],
    stream: true,
  });
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  assert.equal(text, 'Hello "wörld"\n');
});

test('a stream with a finish reason but no [DONE] gets it added', async (t) => {
  const events = eventsOf(['Hi'], { done: false, usage: false });
  const upstream = await startScriptedUpstream(t, streams(events));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await post('/v1/chat/completions', { ...HELLO, stream: true });
  assert.equal(await response.text(), `${events.join('')}data: [DONE]\n\n`);
});

test('P-34: usage that the upstream does not give is counted and marked', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('four words are here', { usage: undefined })));
  const { post, usage } = await startCompletions(t, { settings: labAt(upstream.url) });
  const whole = (await (await post('/v1/chat/completions', HELLO)).json()) as { usage: Record<string, unknown> };
  assert.equal(whole.usage.estimated, true);
  assert.equal(whole.usage.completion_tokens, 5);

  upstream.script(streams(eventsOf(['a', 'b', 'c'], { usage: false })));
  const body = { ...HELLO, stream: true, stream_options: { include_usage: true } };
  const { events, done } = await readStream(await post('/v1/chat/completions', body));
  assert.equal(done, true);
  const last = JSON.parse(events.at(-2) ?? '');
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.estimated, true);
  assert.ok(last.usage.completion_tokens >= 3);

  upstream.script(streams(eventsOf(['a'])));
  const given = await readStream(await post('/v1/chat/completions', body));
  assert.deepEqual(JSON.parse(given.events.at(-2) ?? '').usage, USAGE);
  const { total } = await usage();
  assert.equal(total.requests, 3);
  assert.ok((total.prompt_tokens ?? 0) >= 11);
});

test('P-24: unknown fields travel on untouched, to the last byte', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const body =
    '{ "seed":123, "zzz" : {"b":[1.50,2e3],"a":"é\\n"},"model": "lab/small","messages":[{"role":"user","content":"the model"}]}';
  assert.equal((await post('/v1/chat/completions', body)).status, 200);
  assert.equal(upstream.requests[0]?.text, body.replace('"model": "lab/small"', '"model":"small"'));
  const twice =
    '{"model":"lab/other","model":"lab/small","messages":[{"role":"user","content":"\\"model\\""}],"zzz":1}';
  await post('/v1/chat/completions', twice);
  assert.equal(upstream.requests[1]?.json.model, 'small');
  assert.equal(upstream.requests[1]?.json.zzz, 1);
});

test('P-22: a __proto__ key changes nothing but is passed on', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const body =
    '{"model":"lab/small","messages":[{"role":"user","content":"x"}],"logit_bias":{"__proto__":5,"1":2},"__proto__":{"n":9}}';
  assert.equal((await post('/v1/chat/completions', body)).status, 200);
  assert.equal(({} as Record<string, unknown>).n, undefined);
  assert.match(upstream.requests[0]?.text ?? '', /"logit_bias":\{"__proto__":5,"1":2\}/);
});

test('P-24: the older functions become tools, and the answer is turned back', async (t) => {
  const call = { id: 'call_9', type: 'function', function: { name: 'look', arguments: '{"a":1}' } };
  const message = { role: 'assistant', content: null, tool_calls: [call] };
  const choices = [{ index: 0, message, finish_reason: 'tool_calls' }];
  const upstream = await startScriptedUpstream(t, answers(completionOf('', { choices })));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const parameters = { type: 'object', properties: { a: { type: 'number' } } };
  const body = {
    ...HELLO,
    messages: [
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: null, function_call: { name: 'look', arguments: '{}' } },
      { role: 'function', name: 'look', content: 'seen' },
    ],
    // As the document has it: the choice is a text inside the definition.
    functions: [{ name: 'look', description: 'Looks.', parameters, function_call: 'auto' }],
  };
  const whole = (await (await post('/v1/chat/completions', body)).json()) as { choices: unknown[] };
  const mapped = { role: 'assistant', content: null, function_call: { name: 'look', arguments: '{"a":1}' } };
  assert.deepEqual(whole.choices, [{ index: 0, message: mapped, finish_reason: 'function_call' }]);
  const sent = upstream.requests[0]?.json ?? {};
  assert.equal(sent.functions, undefined);
  assert.deepEqual(sent.tools, [{ type: 'function', function: { name: 'look', description: 'Looks.', parameters } }]);
  assert.equal(sent.tool_choice, 'auto');
  const [, asked, told] = sent.messages as Record<string, unknown>[];
  const [{ id } = { id: '' }] = (asked?.tool_calls ?? []) as { id: string }[];
  assert.deepEqual(told, { role: 'tool', content: 'seen', tool_call_id: id });

  const pieces = [
    chunkOf({
      role: 'assistant',
      tool_calls: [{ index: 0, id: 'c', type: 'function', function: { name: 'look', arguments: '' } }],
    }),
    chunkOf({ tool_calls: [{ index: 0, function: { arguments: '{"a":2}' } }] }),
    chunkOf({}, 'tool_calls'),
  ].map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`);
  upstream.script(streams([...pieces, 'data: [DONE]\n\n']));
  const { events, done } = await readStream(await post('/v1/chat/completions', { ...body, stream: true }));
  const deltas = events.slice(0, -1).map((data) => JSON.parse(data).choices[0]);
  assert.equal(deltas.map((choice) => choice.delta.function_call?.arguments ?? '').join(''), '{"a":2}');
  assert.equal(deltas.at(-1).finish_reason, 'function_call');
  assert.equal(done, true);
});

test('what an upstream cannot take is dropped and named, or refused with x-strict-params', async (t) => {
  const { post } = await startCompletions(t);
  const body = { ...HELLO, model: 'demo/echo', tools: [{ type: 'function', function: { name: 'f' } }] };
  const response = await post('/v1/chat/completions', body);
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('x-dropped-params'), 'tools');
  const strict = await post('/v1/chat/completions', body, { headers: { 'x-strict-params': 'true' } });
  assert.equal(strict.status, 400);
  const { error } = (await strict.json()) as { error: Record<string, unknown> };
  assert.equal(error.code, 'unsupported_parameter');
  assert.equal(error.param, 'tools');
});
