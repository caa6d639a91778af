import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, embedMany, generateImage, generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';
import { CODE } from '../../src/console/data/chat-code.ts';
import { runNode } from '../kit/run-node.ts';
import { KEY, MODEL, startTrestleWithModel } from './trestle-with-model.ts';

const { program, requests } = await startTrestleWithModel({ after });
const trestle = createOpenAICompatible({
  name: 'trestle',
  baseURL: `${program.url}/v1`,
  apiKey: KEY,
  includeUsage: true,
});
const model = trestle(MODEL);
const tools = {
  get_weather: tool({
    description: 'The weather of a city',
    inputSchema: jsonSchema<{ city: string }>({
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
    }),
    execute: async ({ city }) => `sun in ${city}`,
  }),
};

test('the ai package generates text, with its reasoning and its usage', async () => {
  const result = await generateText({ model, prompt: 'THINK' });
  assert.equal(result.text, 'You said: THINK');
  assert.equal(result.finishReason, 'stop');
  assert.equal(result.usage.inputTokens, 11);
});

test('the ai package streams text, with its reasoning and its usage', async () => {
  const result = streamText({ model, prompt: 'THINK' });
  let text = '';
  for await (const piece of result.textStream) text += piece;
  assert.equal(text, 'You said: THINK');
  assert.equal(await result.reasoningText, 'A thought.');
  assert.equal((await result.usage).outputTokens, 7);
});

test('P-24: the ai package runs a tool and gets the answer that follows, streamed and whole', async () => {
  const request = { model, prompt: 'WEATHER', tools, stopWhen: isStepCount(3) };
  const whole = await generateText(request);
  assert.equal(whole.text, 'The tool says: sun in Oslo');
  assert.equal(whole.steps.length, 2);
  const streamed = streamText(request);
  await streamed.consumeStream();
  assert.equal(await streamed.text, 'The tool says: sun in Oslo');
});

test('the code that the playground shows for the ai package runs, with tools and a picture', async () => {
  const url = 'data:image/png;base64,iVBORw0KGgo=';
  const weather = { name: 'get_weather', parameters: { type: 'object' } };
  const code = CODE['AI SDK'](
    {
      model: MODEL,
      messages: [
        { role: 'system', content: 'Be "brief"' },
        { role: 'user', content: 'One' },
        { role: 'assistant', content: 'Two' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Three' },
            { type: 'image_url', image_url: { url } },
          ],
        },
      ],
      max_tokens: 50,
      reasoning_effort: 'low',
      tools: [{ type: 'function', function: weather }],
    },
    `${program.url}/v1`,
  );
  // As a module of this folder, so that it finds the packages.
  const output = await runNode(['--input-type=module', '--eval', code], { OPENAI_API_KEY: KEY }, 'test/clients');
  assert.match(output, /^You said: /);
  const sent = requests.at(-1)?.json as {
    messages: readonly { content: unknown }[];
    tools: readonly { function: { name: string } }[];
    max_tokens: number;
    reasoning_effort: string;
  };
  assert.deepEqual(
    [sent.messages[0]?.content, sent.messages[1]?.content, sent.messages[2]?.content],
    ['Be "brief"', 'One', 'Two'],
  );
  assert.deepEqual(sent.messages[3]?.content, [
    { type: 'text', text: 'Three' },
    { type: 'image_url', image_url: { url } },
  ]);
  assert.equal(sent.tools[0]?.function.name, 'get_weather');
  assert.deepEqual([sent.max_tokens, sent.reasoning_effort], [50, 'low']);
});

test('an error is the package’s own, with our status and message', async () => {
  await assert.rejects(
    generateText({ model: trestle('nobody/nothing'), prompt: 'Hello', maxRetries: 0 }),
    (error) => APICallError.isInstance(error) && error.statusCode === 404 && /no model/.test(error.message),
  );
});

test('P-07: a stream whose upstream dies is an error in the package, never a shorter answer', async () => {
  const errors: unknown[] = [];
  const result = streamText({
    model,
    prompt: 'DIE',
    maxRetries: 0,
    onError: ({ error }) => {
      errors.push(error);
    },
  });
  const finishes: string[] = [];
  for await (const part of result.stream) if (part.type === 'finish') finishes.push(part.finishReason);
  assert.equal(errors.length, 1);
  assert.ok(!finishes.includes('stop'));
});

test('the ai package embeds texts and draws', async () => {
  const { embeddings } = await embedMany({ model: trestle.embeddingModel(MODEL), values: ['Hello', 'Hi'] });
  assert.deepEqual(embeddings, [
    [5, 0.5],
    [2, 0.5],
  ]);
  const { image } = await generateImage({ model: trestle.imageModel('demo/image'), prompt: 'A bridge' });
  assert.match(image.base64, /^iVBORw0KGgo/);
});
