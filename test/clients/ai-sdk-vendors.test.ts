import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogle } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { APICallError, embedMany, generateText, isStepCount, jsonSchema, streamText, tool } from 'ai';
import { KEY, MODEL, startTrestleWithModel } from './trestle-with-model.ts';

const { program } = await startTrestleWithModel({ after });
const openai = createOpenAI({ baseURL: `${program.url}/v1`, apiKey: KEY });
const anthropic = createAnthropic({ baseURL: `${program.url}/v1`, apiKey: KEY });
const google = createGoogle({ baseURL: `${program.url}/v1beta`, apiKey: KEY });

/** The vendors' own providers of the ai package, each with the path that it calls. */
const PROVIDERS = [
  { name: 'openai, responses', model: (id: string) => openai.responses(id) },
  { name: 'openai, chat', model: (id: string) => openai.chat(id) },
  { name: 'anthropic', model: (id: string) => anthropic(id) },
  // The package puts no `models/` before a name with a slash.
  { name: 'google', model: (id: string) => google(`models/${id}`) },
];
/** The package sends what a tool gave back to Google as an object of its own. */
const SAYS = /^The tool says: (?:sun in Oslo|\{"name":"get_weather","content":"sun in Oslo"\})$/;
/** The scripted model thinks aloud only in fields that OpenAI's chat has no member for. */
const SHOWS_REASONING = new Set(['anthropic', 'openai, responses']);
const tools = {
  get_weather: tool({
    description: 'The weather of a city',
    inputSchema: jsonSchema<{ city: string }>({
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    }),
    execute: async ({ city }) => `sun in ${city}`,
  }),
};

for (const { name, model } of PROVIDERS) {
  test(`${name}: text with usage, whole and streamed`, async () => {
    const whole = await generateText({ model: model(MODEL), prompt: 'THINK' });
    assert.deepEqual([whole.text, whole.finishReason], ['You said: THINK', 'stop']);
    assert.deepEqual([whole.usage.inputTokens, whole.usage.outputTokens], [11, 7]);
    const streamed = streamText({ model: model(MODEL), prompt: 'THINK' });
    let text = '';
    for await (const piece of streamed.textStream) text += piece;
    assert.equal(text, 'You said: THINK');
    assert.deepEqual([(await streamed.usage).inputTokens, (await streamed.usage).outputTokens], [11, 7]);
    if (SHOWS_REASONING.has(name)) assert.equal(await streamed.reasoningText, 'A thought.');
  });

  test(`P-24, ${name}: a tool runs, and the answer follows, whole and streamed`, async () => {
    const request = { model: model(MODEL), prompt: 'WEATHER', tools, stopWhen: isStepCount(3) };
    const whole = await generateText(request);
    assert.match(whole.text, SAYS);
    assert.equal(whole.steps.length, 2);
    const streamed = streamText(request);
    await streamed.consumeStream();
    assert.match(await streamed.text, SAYS);
  });

  test(`${name}: an error is the package’s own, with our status and message`, async () => {
    await assert.rejects(
      generateText({ model: model('nobody/nothing'), prompt: 'Hello', maxRetries: 0 }),
      (error) => APICallError.isInstance(error) && error.statusCode === 404 && /no model/.test(error.message),
    );
  });

  test(`P-07, ${name}: a stream whose upstream dies is an error, never a shorter answer`, async () => {
    const errors: unknown[] = [];
    const result = streamText({
      model: model(MODEL),
      prompt: 'DIE',
      maxRetries: 0,
      onError: ({ error }) => {
        errors.push(error);
      },
    });
    const finishes: string[] = [];
    for await (const part of result.stream) if (part.type === 'finish') finishes.push(part.finishReason);
    assert.notEqual(errors.length, 0);
    assert.ok(!finishes.includes('stop'));
  });
}

test('openai: the package embeds texts', async () => {
  const { embeddings } = await embedMany({ model: openai.embedding(MODEL), values: ['Hello', 'Hi'] });
  assert.deepEqual(embeddings, [
    [5, 0.5],
    [2, 0.5],
  ]);
});
