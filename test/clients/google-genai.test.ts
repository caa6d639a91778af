import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ApiError, FunctionCallingConfigMode, GoogleGenAI, Type } from '@google/genai';
import { KEY, MODEL, ONCE, startTrestleWithModel } from './trestle-with-model.ts';

const { program, requests } = await startTrestleWithModel({ after });
const clientWith = (apiKey: string) => new GoogleGenAI({ apiKey, httpOptions: { baseUrl: program.url } });
const client = clientWith(KEY);
const asking = (contents: string, model = MODEL) => ({ model, contents });
const weather = {
  name: 'get_weather',
  description: 'The weather of a city',
  parameters: { type: Type.OBJECT, properties: { city: { type: Type.STRING, nullable: true } } },
};
const tools = [{ functionDeclarations: [weather] }];

test('Google’s package generates content, with instructions and a schema', async () => {
  const response = await client.models.generateContent({
    ...asking('Hello'),
    config: {
      systemInstruction: 'Be short.',
      temperature: 0.5,
      maxOutputTokens: 100,
      responseMimeType: 'application/json',
      responseSchema: { type: Type.OBJECT, properties: { a: { type: Type.STRING } } },
    },
  });
  assert.equal(response.text, 'You said: Hello');
  assert.equal(response.candidates?.[0]?.finishReason, 'STOP');
  const { promptTokenCount, candidatesTokenCount, totalTokenCount } = response.usageMetadata ?? {};
  assert.deepEqual([promptTokenCount, candidatesTokenCount, totalTokenCount], [11, 7, 18]);
  const { messages, temperature, response_format: format } = requests.at(-1)?.json ?? {};
  assert.deepEqual(messages, [
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'Hello' },
  ]);
  assert.equal(temperature, 0.5);
  assert.deepEqual(format, {
    type: 'json_schema',
    json_schema: { name: 'answer', schema: { type: 'object', properties: { a: { type: 'string' } } } },
  });
});

test('Google’s package streams thoughts and text', async () => {
  const config = { thinkingConfig: { includeThoughts: true } };
  let text = '';
  let thoughts = '';
  let finish: string | undefined;
  for await (const chunk of await client.models.generateContentStream({ ...asking('THINK'), config })) {
    text += chunk.text ?? '';
    for (const part of chunk.candidates?.[0]?.content?.parts ?? []) if (part.thought === true) thoughts += part.text;
    finish = chunk.candidates?.[0]?.finishReason ?? finish;
  }
  assert.deepEqual([text, thoughts, finish], ['You said: THINK', 'A thought.', 'STOP']);
  const hidden = await client.models.generateContent(asking('THINK'));
  assert.deepEqual(hidden.candidates?.[0]?.content?.parts, [{ text: 'You said: THINK' }]);
});

test('Google’s package runs a tool, streamed and whole', async () => {
  for (const streamed of [false, true]) {
    const chat = client.chats.create({
      model: MODEL,
      config: { tools, toolConfig: { functionCallingConfig: { mode: FunctionCallingConfigMode.ANY } } },
    });
    const calls = [];
    if (streamed) {
      for await (const chunk of await chat.sendMessageStream({ message: 'WEATHER' })) {
        calls.push(...(chunk.functionCalls ?? []));
      }
    } else calls.push(...((await chat.sendMessage({ message: 'WEATHER' })).functionCalls ?? []));
    assert.deepEqual(calls, [{ id: 'call_1', name: 'get_weather', args: { city: 'Oslo' } }]);
    const result = { functionResponse: { id: 'call_1', name: 'get_weather', response: { output: 'rain' } } };
    assert.equal((await chat.sendMessage({ message: [result] })).text, 'The tool says: rain');
    const { tool_choice: choice, messages = [] } = requests.at(-1)?.json ?? {};
    assert.equal(choice, 'required');
    assert.deepEqual(
      (messages as { role: string; tool_call_id?: string }[]).map(({ role, tool_call_id: id }) => [role, id]),
      [
        ['user', undefined],
        ['assistant', undefined],
        ['tool', 'call_1'],
      ],
    );
  }
});

test('Google’s package counts tokens, and lists and finds models', async () => {
  const { totalTokens = 0 } = await client.models.countTokens({ model: MODEL, contents: 'Hello '.repeat(100) });
  assert.ok(totalTokens > 50 && totalTokens < 1000);
  const names: (string | undefined)[] = [];
  for await (const { name } of await client.models.list({ config: { pageSize: 1 } })) names.push(name);
  assert.deepEqual(names.slice(0, 2), [`models/${ONCE}`, 'models/demo/echo']);
  assert.equal((await client.models.get({ model: 'demo/echo' })).displayName, 'demo/echo');
});

test('errors of the service and of the model API are the package’s own class, with their status', async () => {
  const failure = async (run: Promise<unknown>): Promise<ApiError> => {
    const error = await run.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof ApiError, String(error));
    return error;
  };
  const unknownKey = await failure(clientWith('wrong').models.generateContent(asking('Hello')));
  assert.equal(unknownKey.status, 401);
  assert.match(unknownKey.message, /UNAUTHENTICATED.*INVALID_API_KEY/);
  assert.equal((await failure(client.models.generateContent(asking('Hello', 'nobody/nothing')))).status, 404);
  const refused = await failure(client.models.generateContent(asking('BAD')));
  assert.deepEqual([refused.status, /The lab does not like this/.test(refused.message)], [400, true]);
  assert.equal((await failure(client.models.generateContentStream(asking('BUSY', ONCE)))).status, 429);
});

test('P-07: a stream whose upstream dies is an error in the package, never a shorter answer', async () => {
  const stream = await client.models.generateContentStream(asking('DIE'));
  let text = '';
  // Where the last pieces of the stream arrive together, the package calls the error an incomplete segment.
  await assert.rejects(async () => {
    for await (const chunk of stream) text += chunk.text ?? '';
  }, /"status":"INTERNAL"|Incomplete JSON segment/);
  assert.match(text, /^You said: DIE/);
});
