import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import OpenAI from 'openai';
import { KEY, MODEL, ONCE, startTrestleWithModel } from './trestle-with-model.ts';

const { program, requests } = await startTrestleWithModel({ after });
const client = new OpenAI({ baseURL: `${program.url}/v1`, apiKey: KEY, maxRetries: 0 });
const asking = (content: string) => ({ model: MODEL, messages: [{ role: 'user' as const, content }] });
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

test('P-01: the openai package reads a chat completion of /v1', async () => {
  const completion = await client.chat.completions.create(asking('Hello'));
  assert.equal(completion.object, 'chat.completion');
  assert.equal(typeof completion.created, 'number');
  assert.equal(completion.choices[0]?.message.content, 'You said: Hello');
  assert.equal(completion.choices[0]?.finish_reason, 'stop');
  assert.deepEqual(completion.usage, { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 });
});

test('P-01: the openai package streams a chat completion, with usage when it asks for it', async () => {
  const stream = client.chat.completions.stream({ ...asking('Hello'), stream_options: { include_usage: true } });
  let text = '';
  stream.on('content', (piece) => {
    text += piece;
  });
  const completion = await stream.finalChatCompletion();
  assert.equal(text, 'You said: Hello');
  assert.equal(completion.choices[0]?.message.content, text);
  assert.equal(completion.usage?.total_tokens, 18);
});

test('P-24: the openai package runs a tool through a chat completion', async () => {
  const runner = client.chat.completions.runTools({
    ...asking('WEATHER'),
    tools: [
      {
        type: 'function',
        function: {
          name: 'get_weather',
          description: 'The weather of a city',
          parameters,
          parse: JSON.parse,
          function: ({ city }: { city: string }) => `sun in ${city}`,
        },
      },
    ],
  });
  assert.equal(await runner.finalContent(), 'The tool says: sun in Oslo');
});

test('the openai package lists models and retrieves one', async () => {
  const ids: string[] = [];
  for await (const { id } of client.models.list()) ids.push(id);
  assert.ok(ids.includes('demo/echo'));
  assert.equal((await client.models.retrieve('demo/echo')).id, 'demo/echo');
});

test('the openai package creates and streams a response', async () => {
  const created = await client.responses.create({ model: MODEL, instructions: 'Be short.', input: 'Hello' });
  assert.equal(created.status, 'completed');
  assert.equal(created.output_text, 'You said: Hello');
  assert.equal(created.usage?.total_tokens, 18);
  const stream = client.responses.stream({ model: MODEL, input: 'THINK' });
  let text = '';
  stream.on('response.output_text.delta', ({ delta }) => {
    text += delta;
  });
  const final = await stream.finalResponse();
  assert.equal(text, 'You said: THINK');
  assert.equal(final.output_text, text);
  assert.deepEqual(
    final.output.map(({ type }) => type),
    ['reasoning', 'message'],
  );
});

test('P-24: a tool called in a response gets its result back in the next request', async () => {
  const tools = [{ type: 'function' as const, name: 'get_weather', parameters, strict: false }];
  const question = { role: 'user' as const, content: 'WEATHER' };
  const first = await client.responses.create({ model: MODEL, input: [question], tools });
  const call = first.output.find((item) => item.type === 'function_call');
  assert.ok(call);
  assert.deepEqual([call.name, JSON.parse(call.arguments)], ['get_weather', { city: 'Oslo' }]);
  const result = { type: 'function_call_output' as const, call_id: call.call_id, output: 'rain' };
  const input = [question, ...(first.output as OpenAI.Responses.ResponseInputItem[]), result];
  const second = await client.responses.create({ model: MODEL, input, tools });
  assert.equal(second.output_text, 'The tool says: rain');
  assert.deepEqual(
    (requests.at(-1)?.json.messages as { role: string }[] | undefined)?.map(({ role }) => role),
    ['user', 'assistant', 'tool'],
  );
});

test('errors of the service and of the model API are the package’s own classes', async () => {
  const stranger = new OpenAI({ baseURL: `${program.url}/v1`, apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  const failure = async (run: Promise<unknown>) => {
    const error = await run.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof OpenAI.APIError);
    return error;
  };
  const unknown = await failure(client.chat.completions.create({ ...asking('Hello'), model: 'nobody/nothing' }));
  assert.ok(unknown instanceof OpenAI.NotFoundError);
  assert.equal(unknown.code, 'model_not_found');
  assert.ok(unknown.requestID);
  const invalid = await failure(client.chat.completions.create({ ...asking('Hello'), n: 1000 }));
  assert.ok(invalid instanceof OpenAI.BadRequestError);
  assert.equal(invalid.param, 'n');
  const refused = await failure(client.responses.create({ model: MODEL, input: 'BAD' }));
  assert.ok(refused instanceof OpenAI.BadRequestError);
  assert.match(refused.message, /The lab does not like this/);
  assert.deepEqual([refused.headers?.get('x-model-api'), refused.headers?.get('x-attempts')], ['lab', '1']);
  const busy = { ...asking('BUSY'), model: ONCE };
  assert.ok((await failure(client.chat.completions.create(busy))) instanceof OpenAI.RateLimitError);
});

test('the package’s retries follow our statuses: 429 is tried again, 400 is not', async () => {
  const retrying = client.withOptions({ maxRetries: 1, timeout: 30_000 });
  const attempts = async (content: string) => {
    const before = requests.length;
    await assert.rejects(retrying.chat.completions.create({ ...asking(content), model: ONCE }));
    return requests.length - before;
  };
  assert.deepEqual([await attempts('BUSY'), await attempts('BAD')], [2, 1]);
});

test('P-07: a stream whose upstream dies is an error in the package, never a shorter answer', async () => {
  let text = '';
  await assert.rejects(async () => {
    for await (const chunk of await client.chat.completions.create({ ...asking('DIE'), stream: true })) {
      text += chunk.choices[0]?.delta.content ?? '';
    }
  }, OpenAI.APIError);
  assert.match(text, /^You said: DIE/);
  const seen: string[] = [];
  await assert.rejects(async () => {
    for await (const { type } of await client.responses.create({ model: MODEL, input: 'DIE', stream: true })) {
      seen.push(type);
    }
  }, OpenAI.APIError);
  assert.equal(seen.at(-1), 'response.failed');
});

test('the openai package draws, speaks, hears and judges', async () => {
  const drawn = await client.images.generate({ model: 'demo/image', prompt: 'A bridge' });
  assert.match(drawn.data?.[0]?.b64_json ?? '', /^iVBORw0KGgo/);
  const drawing = await client.images.generate({ model: 'demo/image', prompt: 'A bridge', stream: true });
  const types: string[] = [];
  for await (const { type } of drawing) types.push(type);
  assert.deepEqual(types, ['image_generation.completed']);
  const image = await OpenAI.toFile(Buffer.from(drawn.data?.[0]?.b64_json ?? '', 'base64'), 'a.png', {
    type: 'image/png',
  });
  const edited = await client.images.edit({ model: 'demo/image', image, prompt: 'Larger' });
  assert.equal(edited.data?.length, 1);
  const spoken = await client.audio.speech.create({ model: 'demo/speech', input: 'Hello there', voice: 'alloy' });
  const sound = Buffer.from(await spoken.arrayBuffer());
  assert.equal(sound.toString('latin1', 0, 4), 'RIFF');
  const file = await OpenAI.toFile(sound, 'a.wav', { type: 'audio/wav' });
  const heard = await client.audio.transcriptions.create({ model: 'demo/transcription', file });
  assert.match(heard.text, /^A recording of about/);
  assert.match((await client.audio.translations.create({ model: 'demo/transcription', file })).text, /^A recording/);
  let words = '';
  for await (const event of await client.audio.transcriptions.create({
    model: 'demo/transcription',
    file,
    stream: true,
  })) {
    if (event.type === 'transcript.text.done') words = event.text;
  }
  assert.equal(words, heard.text);
  const judged = await client.moderations.create({ model: 'demo/moderation', input: 'Hello' });
  assert.equal(judged.results[0]?.flagged, false);
  await assert.rejects(client.images.generate({ model: 'demo/echo', prompt: 'A bridge' }), OpenAI.BadRequestError);
});

test('the openai package stores, lists, reads and deletes files, and runs a batch', async () => {
  const request = { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] };
  const line = { custom_id: 'one', method: 'POST', url: '/v1/chat/completions', body: request };
  const file = await OpenAI.toFile(Buffer.from(JSON.stringify(line)), 'lines.jsonl');
  const stored = await client.files.create({ file, purpose: 'batch' });
  assert.equal(stored.purpose, 'batch');
  const endpoint = '/v1/chat/completions';
  const batch = await client.batches.create({ input_file_id: stored.id, endpoint, completion_window: '24h' });
  const { status, output_file_id: output } = await client.batches.retrieve(batch.id);
  assert.equal(status, 'completed');
  const results = await (await client.files.content(output ?? '')).text();
  const [result] = results.split('\n').map((each) => JSON.parse(each));
  assert.equal(result.response.body.choices[0].message.content, 'Hello');
  const ids: string[] = [];
  for await (const { id } of client.files.list({ limit: 1 })) ids.push(id);
  assert.deepEqual(ids.sort(), [stored.id, output].sort());
  const batches: string[] = [];
  for await (const { id } of client.batches.list()) batches.push(id);
  assert.deepEqual(batches, [batch.id]);
  assert.equal((await client.files.delete(stored.id)).deleted, true);
  await assert.rejects(client.files.retrieve(stored.id), OpenAI.BadRequestError);
});

test('the openai package embeds texts, as numbers and in the form that it asks for itself', async () => {
  for (const form of [{}, { encoding_format: 'float' as const }]) {
    const { data, usage } = await client.embeddings.create({ model: MODEL, input: ['Hello', 'Hi'], ...form });
    assert.deepEqual(
      data.map(({ embedding }) => [...embedding]),
      [
        [5, 0.5],
        [2, 0.5],
      ],
    );
    assert.equal(usage.total_tokens, 3);
  }
});
