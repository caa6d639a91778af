import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, chunkOf, completionOf, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MAIL = 'ada@example.org';
const PII = { name: 'personal', kind: 'pii', action: 'mask' };
const ask = (content: string, extra: object = {}) => ({
  model: 'lab/small',
  messages: [{ role: 'user', content }],
  ...extra,
});

async function start(t: Parameters<typeof startCompletions>[0], guardrails: readonly object[], more: object = {}) {
  const upstream = await startScriptedUpstream(t);
  const lab = { dialect: 'openai', base_url: upstream.url, api_key: 'some-key-1' };
  return { ...(await startCompletions(t, { settings: { guardrails, apis: { lab }, ...more } })), upstream };
}

test('a call that comes in one chunk with its end keeps its order', async (t) => {
  const piece = { index: 0, id: 'call_1', type: 'function', function: { name: 'send', arguments: `{"to":"${MAIL}"}` } };
  const older = { name: 'send', arguments: `{"to":"${MAIL}"}` };
  const { post, upstream } = await start(t, [PII]);
  const whole = (delta: object, reason: string) =>
    streams([`data: ${JSON.stringify(chunkOf({ role: 'assistant', ...delta }, reason))}\n\n`, 'data: [DONE]\n\n']);
  const deltasOf = async (delta: object, reason: string) => {
    upstream.script(whole(delta, reason));
    const answered = await post('/v1/chat/completions', ask('Hi', { stream: true }));
    const lines = (await answered.text()).split('\n').filter((line) => line.startsWith('data: {'));
    return lines.flatMap((line) => (JSON.parse(line.slice(6)) as Json).choices);
  };
  const called = await deltasOf({ content: '', tool_calls: [piece] }, 'tool_calls');
  const calls = called.flatMap(({ delta }: Json) => delta.tool_calls ?? []);
  assert.deepEqual(calls[0], { ...piece, function: { name: 'send', arguments: '' } });
  assert.deepEqual(calls[1]?.function, { arguments: '{"to":"[email]"}' });
  assert.equal(called.at(-1).finish_reason, 'tool_calls');
  assert.equal(called.filter(({ finish_reason: reason }: Json) => reason !== null).length, 1);

  const function_call = await deltasOf({ function_call: older }, 'function_call');
  const pieces = function_call.flatMap(({ delta }: Json) => delta.function_call ?? []);
  assert.deepEqual(pieces, [{ name: 'send', arguments: '' }, { arguments: '{"to":"[email]"}' }]);

  upstream.script(whole({ tool_calls: [piece] }, 'tool_calls'));
  const messages = await post('/v1/messages', { ...ask('Hi'), max_tokens: 9, stream: true });
  const text = await messages.text();
  assert.match(text, /"type":"tool_use","id":"call_1","name":"send".*\[email\].*"stop_reason":"tool_use"/s);
});

test('a rail that only logs lets calls of any length pass', async (t) => {
  const rail = { name: 'words', kind: 'regex', patterns: ['orion'], action: 'log' };
  const { post, upstream } = await start(t, [rail]);
  const part = 'x'.repeat(1024 * 1024);
  const pieceOf = (text: string) => chunkOf({ tool_calls: [{ index: 0, function: { arguments: text } }] });
  const chunks = [...Array.from({ length: 9 }, () => pieceOf(part)), chunkOf({}, 'tool_calls')];
  upstream.script(streams([...chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`), 'data: [DONE]\n\n']));
  const claude = await post('/v1/messages', { ...ask('Hi'), max_tokens: 9, stream: true });
  const text = await claude.text();
  assert.ok(text.length > 9 * part.length);
  assert.match(text.slice(-200), /message_stop/);
});

test('a call that is nested very deeply is checked like any other', async (t) => {
  const { origin, requests } = await startScriptedUpstream(t, answers({ action: 'allow' }));
  const hook = { name: 'hook', kind: 'webhook', on: 'response', url: `${origin}/check`, token: 'hook-token-1' };
  const deep = `${'['.repeat(20_000)}"${MAIL}"${']'.repeat(20_000)}`;
  const chunk = chunkOf(
    { tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: deep } }] },
    'tool_calls',
  );
  const whole = streams([`data: ${JSON.stringify(chunk)}\n\n`, 'data: [DONE]\n\n']);
  for (const [rail, isBlocked, isMasked] of [
    [{ ...PII, action: 'log' }, false, false],
    [PII, false, true],
    [{ ...PII, action: 'block' }, true, true],
    [{ ...hook, action: 'block' }, false, false],
  ] as const) {
    const { post, upstream } = await start(t, [rail]);
    upstream.script(whole);
    for (const [path, end] of [
      ['/v1/messages', /message_stop/],
      ['/v1/chat/completions', /\[DONE\]/],
    ] as const) {
      const answered = await post(path, { ...ask('Hi'), max_tokens: 9, stream: true });
      const text = await answered.text();
      assert.match(text.slice(-300), isBlocked ? /was blocked/ : end, `${rail.name} ${rail.action} ${path}`);
      assert.equal(text.includes(MAIL), !isMasked, `${rail.name} ${rail.action} ${path}`);
    }
  }
  assert.deepEqual(
    requests.map(({ json }) => JSON.stringify(json).includes(MAIL)),
    [true, true],
  );
});

test('images and documents of many megabytes pass the rails', async (t) => {
  const { post, upstream } = await start(t, [PII]);
  upstream.script(answers(completionOf('A page')));
  const bytes = 'A'.repeat(16 * 1024 * 1024);
  const content = [
    { type: 'text', text: `From ${MAIL}` },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${bytes}` } },
    { type: 'file', file: { filename: 'a.pdf', file_data: bytes } },
  ];
  const answered = await post('/v1/chat/completions', { model: 'lab/small', messages: [{ role: 'user', content }] });
  assert.equal(answered.status, 200);
  const json: Json = upstream.requests[0]?.json;
  const [message] = json.messages;
  assert.equal(message.content[0].text, 'From [email]');
  assert.deepEqual(message.content.slice(1), content.slice(1));
});

test('a stream that a webhook checks as a whole may be as large as a whole response, with its images', async (t) => {
  const hook = await startScriptedUpstream(t, answers({ action: 'allow' }));
  const rail = { name: 'mine', kind: 'webhook', action: 'block', on: 'response', url: `${hook.origin}/check` };
  const { post, upstream } = await start(t, [rail]);
  const url = `data:image/png;base64,${'A'.repeat(12 * 1024 * 1024)}`;
  const image = `data: ${JSON.stringify(chunkOf({ images: [{ type: 'image_url', image_url: { url } }] }))}\n\n`;
  const end = [`data: ${JSON.stringify(chunkOf({}, 'stop'))}\n\n`, 'data: [DONE]\n\n'];
  const drawn = async (count: number) => {
    upstream.script(streams([...Array.from({ length: count }, () => image), ...end]));
    return (await post('/v1/chat/completions', ask('Draw', { stream: true }))).text();
  };
  const two = await drawn(2);
  assert.equal(two.split('"image_url":{').length, 3);
  assert.match(two, /\[DONE\]/);
  const three = await drawn(3);
  assert.doesNotMatch(three, /image_url|\[DONE\]/);
  assert.match(three, /content_blocked/);
});

test('a call that cannot be translated after its check ends like any other', async (t) => {
  const master = 'master-key-of-guards-1';
  const { post, upstream } = await start(t, [PII], { master_key: master });
  upstream.script(answers(completionOf('Hi')));
  const budget = { usd: 1, period: 'day' };
  const created = await post(
    '/v1/keys',
    { name: 'a', max_parallel: 1, budget },
    { headers: { authorization: `Bearer ${master}` } },
  );
  const headers = { authorization: `Bearer ${((await created.json()) as Json).key}` };
  const sent = { ...ask(MAIL), max_tokens: 9 };
  for (let calls = 0; calls < 2; calls += 1) {
    const refused = await post('/v1/messages', { ...sent, stop_sequences: ['1', '2', '3', '4', '5'] }, { headers });
    assert.equal(refused.status, 400);
    assert.equal(refused.headers.get('x-attempts'), '0');
  }
  assert.equal((await post('/v1/messages', sent, { headers })).status, 200);
});
