import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { KEY, MODEL, startTrestleWithModel } from './trestle-with-model.ts';

const { program } = await startTrestleWithModel({ after });
const create = (options: object = {}) =>
  new ChatOpenAI({
    model: MODEL,
    apiKey: KEY,
    maxRetries: 0,
    configuration: { baseURL: `${program.url}/v1` },
    ...options,
  });
const tools = [
  {
    type: 'function' as const,
    function: {
      name: 'get_weather',
      description: 'The weather of a city',
      parameters: { type: 'object', properties: { city: { type: 'string' } } },
    },
  },
];

/** LangChain speaks both dialects. */
const BOTH = [false, true].map((useResponsesApi) => ({ useResponsesApi }));

test('LangChain gets an answer through chat completions and through responses', async () => {
  for (const options of BOTH) {
    const message = await create(options).invoke('Hello');
    assert.equal(message.text, 'You said: Hello');
    assert.equal((message.usage_metadata as { total_tokens?: number } | undefined)?.total_tokens, 18);
  }
});

test('LangChain streams an answer through both', async () => {
  for (const options of BOTH) {
    const pieces: string[] = [];
    for await (const { text } of await create(options).stream('Hello')) if (text !== '') pieces.push(text);
    assert.deepEqual(pieces.join(''), 'You said: Hello');
    assert.ok(pieces.length > 1);
  }
});

test('P-24: LangChain binds a tool and sends its result back through both', async () => {
  for (const options of BOTH) {
    const model = create(options).bindTools(tools);
    const question = new HumanMessage('WEATHER');
    const first = await model.invoke([question]);
    const [call] = first.tool_calls ?? [];
    assert.deepEqual([call?.name, call?.args], ['get_weather', { city: 'Oslo' }]);
    const result = new ToolMessage({ tool_call_id: call?.id ?? '', content: 'rain' });
    const second = await model.invoke([question, first, result]);
    assert.equal(second.text, 'The tool says: rain');
  }
});

test('an unknown model is an error with our status', async () => {
  await assert.rejects(create({ model: 'nobody/nothing' }).invoke('Hello'), { status: 404 });
});

test('P-07: a stream whose upstream dies is an error in LangChain through both', async () => {
  for (const options of BOTH) {
    await assert.rejects(async () => {
      for await (const _ of await create(options).stream('DIE'));
    });
  }
});
