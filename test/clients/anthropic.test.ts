import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { KEY, MODEL, ONCE, startTrestleWithModel } from './trestle-with-model.ts';

const { program, requests } = await startTrestleWithModel({ after });
const client = new Anthropic({ baseURL: program.url, apiKey: KEY, maxRetries: 0 });
const asking = (content: string) => ({ model: MODEL, max_tokens: 100, messages: [{ role: 'user' as const, content }] });
const tool = {
  name: 'get_weather',
  description: 'The weather of a city',
  input_schema: { type: 'object' as const, properties: { city: { type: 'string' } } },
};

test('the Anthropic package creates a message with its key as x-api-key, and with a bearer token', async () => {
  const bearer = new Anthropic({ baseURL: program.url, authToken: KEY, apiKey: null, maxRetries: 0 });
  for (const each of [client, bearer]) {
    const message = await each.messages.create({ ...asking('Hello'), system: 'Be short.' });
    assert.equal(message.role, 'assistant');
    assert.equal(message.stop_reason, 'end_turn');
    assert.deepEqual(message.content, [{ type: 'text', text: 'You said: Hello' }]);
    assert.deepEqual([message.usage.input_tokens, message.usage.output_tokens], [11, 7]);
    assert.ok(message._request_id);
  }
  assert.deepEqual(requests.at(-1)?.json.messages, [
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'Hello' },
  ]);
});

test('the Anthropic package streams a message with thinking', async () => {
  const stream = client.messages.stream(asking('THINK'));
  let text = '';
  let thinking = '';
  stream.on('text', (piece) => {
    text += piece;
  });
  stream.on('thinking', (piece) => {
    thinking += piece;
  });
  const message = await stream.finalMessage();
  assert.equal(text, 'You said: THINK');
  assert.equal(thinking, 'A thought.');
  assert.deepEqual(
    message.content.map(({ type }) => type),
    ['thinking', 'text'],
  );
  assert.deepEqual([message.stop_reason, message.usage.input_tokens], ['end_turn', 11]);
});

test('P-24: the Anthropic package runs a tool, streamed and whole', async () => {
  for (const streamed of [false, true]) {
    const request = { ...asking('WEATHER'), tools: [tool] };
    const first = streamed
      ? await client.messages.stream(request).finalMessage()
      : await client.messages.create(request);
    assert.equal(first.stop_reason, 'tool_use');
    const call = first.content.find((block) => block.type === 'tool_use');
    assert.ok(call);
    assert.deepEqual([call.name, call.input], ['get_weather', { city: 'Oslo' }]);
    const second = await client.messages.create({
      ...request,
      messages: [
        ...request.messages,
        { role: 'assistant', content: first.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'rain' }] },
      ],
    });
    assert.deepEqual(second.content, [{ type: 'text', text: 'The tool says: rain' }]);
  }
});

test('the Anthropic package gets an estimate of tokens', async () => {
  const { input_tokens: tokens } = await client.messages.countTokens({
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello '.repeat(100) }],
  });
  assert.ok(tokens > 50 && tokens < 1000);
});

test('errors of the service and of the model API are the package’s own classes', async () => {
  const failure = async (run: Promise<unknown>) => {
    const error = await run.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof Anthropic.APIError);
    return error;
  };
  const stranger = new Anthropic({ baseURL: program.url, apiKey: 'wrong', maxRetries: 0 });
  const unknownKey = await failure(stranger.messages.create(asking('Hello')));
  assert.ok(unknownKey instanceof Anthropic.AuthenticationError);
  assert.equal(unknownKey.type, 'authentication_error');
  assert.ok(unknownKey.requestID);
  const unknown = await failure(client.messages.create({ ...asking('Hello'), model: 'nobody/nothing' }));
  assert.ok(unknown instanceof Anthropic.NotFoundError);
  assert.equal(unknown.type, 'not_found_error');
  const invalid = await failure(client.messages.create({ ...asking('Hello'), max_tokens: 0 }));
  assert.ok(invalid instanceof Anthropic.BadRequestError);
  const refused = await failure(client.messages.create(asking('BAD')));
  assert.ok(refused instanceof Anthropic.BadRequestError);
  assert.match(refused.message, /The lab does not like this/);
  const busy = { ...asking('BUSY'), model: ONCE };
  assert.ok((await failure(client.messages.create(busy))) instanceof Anthropic.RateLimitError);
});

test('P-07: a stream whose upstream dies is an error in the package, never a shorter answer', async () => {
  const stream = client.messages.stream(asking('DIE'));
  let text = '';
  stream.on('text', (piece) => {
    text += piece;
  });
  await assert.rejects(stream.finalMessage(), Anthropic.APIError);
  assert.match(text, /^You said: DIE/);
});
