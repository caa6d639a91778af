import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as an upstream reads them
type Json = any;

const MASTER = 'master-key-of-the-cache-1';
const CLAUDE = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'big',
  content: [{ type: 'text', text: 'Hi' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 1, output_tokens: 1 },
};
const tool = (name: string) => ({ type: 'function', function: { name, parameters: { type: 'object' } } });
const ASK = {
  model: 'claude/big',
  messages: [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'One' },
    { role: 'assistant', content: 'Two' },
    { role: 'user', content: 'Three' },
    { role: 'assistant', content: 'Four' },
    { role: 'user', content: 'Five' },
  ],
  tools: [tool('a'), tool('b')],
};

async function start(t: Parameters<typeof startCompletions>[0], settings: object) {
  const upstream = await startScriptedUpstream(t, answers(CLAUDE));
  const at = { base_url: upstream.url, api_key: 'some-key-1' };
  const apis = { claude: { dialect: 'anthropic', ...at }, lab: { dialect: 'openai', ...at } };
  const running = await startCompletions(t, { settings: { master_key: MASTER, apis, ...settings } });
  const post = (path: string, body: object, key = MASTER) =>
    running.post(path, body, { headers: { authorization: `Bearer ${key}` } });
  const sent = () => upstream.requests.at(-1)?.json as Json;
  return { ...running, upstream, post, sent };
}

/** The texts and names that have a marker. */
function marked(body: Json): string[] {
  const blocks = [...[body.system ?? []].flat(), ...body.messages.flatMap(({ content }: Json) => content)];
  return [...blocks, ...(body.tools ?? [])]
    .filter((block) => block.cache_control !== undefined)
    .map((block) => block.text ?? block.name);
}

test('the stable part of a prompt is marked for everybody with `auto`, and the header reports it', async (t) => {
  const { post, sent, upstream } = await start(t, { prompt_cache: 'auto' });
  const response = await post('/v1/chat/completions', ASK);
  assert.equal(response.status, 200);
  assert.deepEqual(marked(sent()), ['Be brief.', 'Three', 'b']);
  assert.equal(response.headers.get('x-prompt-cache'), 'auto');

  const short = await post('/v1/chat/completions', {
    model: 'claude/big',
    messages: [{ role: 'user', content: 'Hi' }],
  });
  assert.equal(short.status, 200);
  assert.deepEqual(marked(sent()), []);

  const own = [{ type: 'text', text: 'Mine', cache_control: { type: 'ephemeral' } }];
  const given = await post('/v1/chat/completions', {
    ...ASK,
    messages: [{ role: 'user', content: own }, ...ASK.messages],
  });
  assert.equal(given.headers.get('x-prompt-cache'), null);
  assert.deepEqual(marked(sent()), ['Mine'], 'the caller knows better');

  const lane = { model: 'claude/big', max_tokens: 9, system: 'Be brief.', messages: ASK.messages.slice(1) };
  assert.equal((await post('/v1/messages', lane)).headers.get('x-prompt-cache'), null);
  assert.doesNotMatch(upstream.requests.at(-1)?.text ?? '', /cache_control/, 'bytes stay as they are');

  upstream.script(answers(completionOf('Hi')));
  const elsewhere = await post('/v1/chat/completions', { ...ASK, model: 'lab/small' });
  assert.equal(elsewhere.headers.get('x-prompt-cache'), null);
  assert.doesNotMatch(upstream.requests.at(-1)?.text ?? '', /cache_control/);
});

test('without a setting only the agents of Trestle get it, and with `off` nobody', async (t) => {
  for (const [settings, expected] of [
    [{}, [0, 3]],
    [{ prompt_cache: 'off' }, [0, 0]],
  ] as const) {
    const { post, sent, completions } = await start(t, settings);
    const counts: number[] = [];
    for (const key of [MASTER, completions.keyForProgram({ owner: 'user:usr_1' }).key]) {
      assert.equal((await post('/v1/chat/completions', ASK, key)).status, 200);
      counts.push(marked(sent()).length);
    }
    assert.deepEqual(counts, expected);
  }
});
