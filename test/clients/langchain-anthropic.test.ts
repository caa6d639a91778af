import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { KEY, MODEL, startTrestleWithModel } from './trestle-with-model.ts';

const { program } = await startTrestleWithModel({ after });
const create = (model = MODEL) =>
  new ChatAnthropic({ model, apiKey: KEY, anthropicApiUrl: program.url, maxTokens: 100, maxRetries: 0 });
const weather = {
  name: 'get_weather',
  description: 'The weather of a city',
  input_schema: { type: 'object' as const, properties: { city: { type: 'string' } } },
};

test('LangChain gets a message with its usage, whole and streamed', async () => {
  const message = await create().invoke('Hello');
  assert.equal(message.text, 'You said: Hello');
  assert.equal((message.usage_metadata as { total_tokens?: number } | undefined)?.total_tokens, 18);
  const pieces: string[] = [];
  for await (const { text } of await create().stream('Hello')) if (text !== '') pieces.push(text);
  assert.equal(pieces.join(''), 'You said: Hello');
  assert.ok(pieces.length > 1);
});

test('P-24: LangChain binds a tool and sends its result back', async () => {
  const model = create().bindTools([weather]);
  const question = new HumanMessage('WEATHER');
  const first = await model.invoke([question]);
  const [call] = first.tool_calls ?? [];
  assert.deepEqual([call?.name, call?.args], ['get_weather', { city: 'Oslo' }]);
  const result = new ToolMessage({ tool_call_id: call?.id ?? '', content: 'rain' });
  const second = await model.invoke([question, first, result]);
  assert.equal(second.text, 'The tool says: rain');
});

test('an unknown model is an error with our status', async () => {
  await assert.rejects(create('nobody/nothing').invoke('Hello'), { status: 404 });
});

test('P-07: a stream whose upstream dies is an error in LangChain', async () => {
  await assert.rejects(async () => {
    for await (const _ of await create().stream('DIE'));
  });
});
