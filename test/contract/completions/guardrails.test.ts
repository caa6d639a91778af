import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settingsOf, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  type Behaviour,
  chunkOf,
  completionOf,
  eventsOf,
  startScriptedUpstream,
  streams,
} from '../../kit/scripted-upstream.ts';
import { until } from '../../kit/until.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;
type Scope = Parameters<typeof startCompletions>[0];

const MAIL = 'ada@example.org';
const CARD = '4111 1111 1111 1111';

async function start(t: Scope, guardrails: readonly object[], ...behaviours: Behaviour[]) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const at = { base_url: upstream.url, api_key: 'some-key-1' };
  const running = await startCompletions(t, {
    settings: {
      guardrails,
      store_content: true,
      apis: {
        lab: { dialect: 'openai', responses: true, ...at },
        claude: { dialect: 'anthropic', ...at },
        gem: { dialect: 'google', ...at },
      },
    },
  });
  const get = async (path: string): Promise<Json> => (await fetch(`${running.url}${path}`)).json();
  return { ...running, upstream, get };
}

const PII = { name: 'personal', kind: 'pii', action: 'mask' };
const ask = (content: string, extra: object = {}) => ({
  model: 'lab/small',
  messages: [{ role: 'user', content }],
  ...extra,
});

/** All texts of a stream of chat chunks, by their kind. */
function readChunks(text: string) {
  const said = { content: '', reasoning_content: '', calls: '', finish: '', ended: text.includes('data: [DONE]') };
  for (const line of text.split('\n')) {
    if (!line.startsWith('data: {')) continue;
    const { choices = [], error } = JSON.parse(line.slice(6)) as Json;
    if (error !== undefined) return { ...said, error };
    for (const { delta, finish_reason: reason } of choices) {
      said.content += delta.content ?? '';
      said.reasoning_content += delta.reasoning_content ?? '';
      for (const call of delta.tool_calls ?? []) said.calls += call.function?.arguments ?? '';
      said.finish += reason ?? '';
    }
  }
  return said;
}

test('what is masked reaches neither the model, the caller nor the log of calls', async (t) => {
  const { post, upstream, get, log } = await start(t, [PII], answers(completionOf(`Write to ${MAIL}`)));
  const answer = (await (await post('/v1/chat/completions', ask(`I am ${MAIL}, ${CARD}`))).json()) as Json;
  assert.equal(
    upstream.requests[0]?.json.messages && (upstream.requests[0].json.messages as Json)[0].content,
    'I am [email], [card]',
  );
  assert.equal(answer.choices[0].message.content, 'Write to [email]');
  assert.equal(answer.usage.prompt_tokens, 11);
  const { data } = await get('/v1/usage/calls');
  const { content } = await get(`/v1/usage/calls/${data[0].id}`);
  assert.doesNotMatch(`${content.request}${content.response}`, /ada@|4111/);
  assert.match(content.request, /\[card\]/);
  assert.match(log(), /"guardrail":"personal","action":"mask","stage":"request","count":2/);
  assert.doesNotMatch(log(), /ada@example/);
});

test('in a stream, the words of a source are masked, and follow the text that names it', async (t) => {
  const source = { url: 'https://a.example/', title: 'A', cited_text: `Ask ${MAIL}` };
  const pieces = [
    chunkOf({ content: 'Here ' }),
    chunkOf({ annotations: [{ type: 'url_citation', url_citation: source }] }),
    chunkOf({ content: `is ${MAIL}.` }),
    chunkOf({}, 'stop'),
  ].map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`);
  const { post } = await start(t, [PII], streams([...pieces, 'data: [DONE]\n\n']));
  const text = await (await post('/v1/chat/completions', ask('Go', { stream: true }))).text();
  assert.equal(readChunks(text).content, 'Here is [email].');
  assert.match(text, /"cited_text":"Ask \[email\]"/);
  assert.doesNotMatch(text, /ada@/);
  assert.ok(text.indexOf('annotations') > text.indexOf('is [email]'));
});

test('in a stream, text, reasoning and calls are masked wherever they are cut', async (t) => {
  const filler = 'and so on, '.repeat(40);
  const letters = [...`${filler}mail ${MAIL} now. ${filler}`];
  const call = [...`{"to":"${MAIL}","n":4111111111111111}`];
  const pieces = [
    chunkOf({ role: 'assistant', content: '' }),
    ...[...`hm, ${MAIL}`].map((letter) => chunkOf({ reasoning_content: letter })),
    ...letters.map((letter) => chunkOf({ content: letter })),
    chunkOf({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'send', arguments: '' } }] }),
    ...call.map((letter) => chunkOf({ tool_calls: [{ index: 0, function: { arguments: letter } }] })),
    chunkOf({}, 'tool_calls'),
  ].map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`);
  const { post, upstream } = await start(t, [PII], streams([...pieces, 'data: [DONE]\n\n']));
  const text = await (await post('/v1/chat/completions', ask('Go', { stream: true }))).text();
  assert.deepEqual(readChunks(text), {
    content: `${filler}mail [email] now. ${filler}`,
    reasoning_content: 'hm, [email]',
    calls: '{"to":"[email]","n":"[card]"}',
    finish: 'tool_calls',
    ended: true,
  });

  upstream.script(streams([...pieces, 'data: [DONE]\n\n']));
  const messages = await post('/v1/messages', { ...ask('Go', { stream: true }), max_tokens: 100 });
  const events = await messages.text();
  assert.doesNotMatch(events, /ada|4111/);
  assert.match(events, /"text":"[^"]*\[email\]/);
  assert.match(events, /event: message_stop/);
});

test('in a stream, nothing beside texts and calls says what is masked', async (t) => {
  const { post, upstream } = await start(t, [PII]);
  const tokens = { content: [{ token: MAIL, logprob: 0 }] };
  const withTokens = { ...chunkOf({}), choices: [{ index: 0, delta: { content: MAIL }, logprobs: tokens }] };
  const patch = (custom: object, more: object = {}) => chunkOf({ tool_calls: [{ index: 0, ...more, custom }] });
  const answers: readonly (readonly [chunks: readonly object[], expected: RegExp])[] = [
    [
      [
        patch({ name: 'patch', input: 'To ada' }, { id: 'call_1', type: 'custom' }),
        patch({ input: '@example' }),
        patch({ input: '.org' }),
        chunkOf({}, 'tool_calls'),
      ],
      /"custom":\{"input":"To \[email\]"\}/,
    ],
    [
      [chunkOf({ function_call: { name: 'send', arguments: `{"to":"${MAIL}"}` } }), chunkOf({}, 'function_call')],
      /"function_call":\{"arguments":"\{\\"to\\":\\"\[email\]\\"\}"\}/,
    ],
    [[chunkOf({ audio: { id: 'a', transcript: MAIL } }), chunkOf({ content: 'Hi' }, 'stop')], /"content":"Hi"/],
    [[chunkOf({ reasoning_details: [{ type: 'reasoning.text', text: MAIL }] }), chunkOf({}, 'stop')], /"stop"/],
    [[withTokens, { ...withTokens, choices: [{ ...withTokens.choices[0], finish_reason: 'stop' }] }], /\[email\]/],
    [[chunkOf({ role: 'assistant', content: 'Hi' }, 'stop', { search_results: [{ snippet: MAIL }] })], /"Hi"/],
  ];
  for (const [chunks, expected] of answers) {
    upstream.script(streams([...chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`), 'data: [DONE]\n\n']));
    const text = await (await post('/v1/chat/completions', ask('Go', { stream: true }))).text();
    assert.doesNotMatch(text, /ada/);
    assert.match(text, expected);
    assert.match(text, /data: \[DONE\]/);
  }
});

test('a proof in the middle of a text does not part what is masked', async (t) => {
  const parts = [{ text: 'Mail ada@exam', thoughtSignature: 'c2ln' }, { text: 'ple.org now' }];
  const events = parts.map((part, at) => {
    const end = at === 1 ? { finishReason: 'STOP' } : {};
    return `data: ${JSON.stringify({ candidates: [{ content: { role: 'model', parts: [part] }, ...end }] })}\r\n\r\n`;
  });
  const { post } = await start(t, [PII], streams(events));
  const text = await (
    await post('/v1/chat/completions', { ...ask('Go', { stream: true }), model: 'gem/flash' })
  ).text();
  assert.equal(readChunks(text).content, 'Mail [email] now');
  assert.match(text, /"reasoning_signature":"google:p:c2ln;"/);
});

test('an answer that is masked does not repeat its text token by token, nor beside its choices', async (t) => {
  const tokens = ['ada', '@example', '.org'].map((token) => ({ token, logprob: 0 }));
  const choice = { index: 0, message: { role: 'assistant', content: MAIL }, finish_reason: 'stop' };
  const beside = { search_results: [{ title: 'A', snippet: MAIL }] };
  const whole = { choices: [{ ...choice, logprobs: { content: tokens } }], ...beside };
  const { post, upstream, url } = await start(t, [PII], answers(completionOf('', whole)));
  const masked = (await (await post('/v1/chat/completions', ask('Go'))).json()) as Json;
  assert.deepEqual(masked.choices, [{ ...choice, message: { role: 'assistant', content: '[email]' } }]);
  assert.deepEqual(masked.search_results, [{ title: 'A', snippet: '[email]' }]);

  const said = { ...choice, message: { role: 'assistant', content: 'Hi' }, logprobs: { content: [tokens[0]] } };
  upstream.script(answers(completionOf('', { choices: [said] })));
  const same = (await (await post('/v1/chat/completions', ask('Go'))).json()) as Json;
  assert.deepEqual(same.choices, [said], 'what is not masked keeps its tokens');

  const words = ['4111', '1111', '1111', '1111'].map((word, start) => ({ word, start }));
  upstream.script(answers({ text: CARD, words, segments: [{ id: 0, text: CARD, tokens: [1, 2] }] }));
  const form = new FormData();
  form.set('model', 'lab/hear');
  form.set('file', new Blob(['RIFF']), 'a.wav');
  const heard = await fetch(`${url}/v1/audio/transcriptions`, { method: 'POST', body: form });
  assert.deepEqual(await heard.json(), { text: '[card]', segments: [{ id: 0, text: '[card]' }] });
});

test('a call is blocked before it is made, and the caller gets 400 content_blocked', async (t) => {
  const block = { name: 'orion', kind: 'regex', patterns: ['project\\s{1,3}orion'], ignore_case: true };
  const { post, upstream, get } = await start(t, [block], answers(completionOf('ok')));
  for (const [path, body] of [
    ['/v1/chat/completions', ask('Tell me of Project Orion')],
    ['/v1/chat/completions', ask('Tell me of Project Orion', { stream: true })],
    ['/v1/messages', { ...ask('Project  Orion?'), max_tokens: 10 }],
    ['/v1/messages/count_tokens', { ...ask('Project  Orion?'), model: 'claude/big' }],
    ['/v1/responses', { model: 'lab/small', input: 'project orion' }],
    ['/v1beta/models/gem/flash:generateContent', { contents: [{ role: 'user', parts: [{ text: 'project orion' }] }] }],
    ['/v1/completions', { model: 'lab/small', prompt: 'project orion' }],
    ['/v1/embeddings', { model: 'lab/small', input: ['fine', 'project orion'] }],
    ['/v1/images/generations', { model: 'lab/draw', prompt: 'project orion' }],
    ['/v1/audio/speech', { model: 'lab/tts', voice: 'x', input: 'project orion' }],
    ['/v1/moderations', { model: 'lab/mod', input: 'project orion' }],
    ['/v1/rerank', { model: 'lab/rank', query: 'project orion', documents: ['a'] }],
  ] as const) {
    const response = await post(path, body);
    assert.equal(response.status, 400, path);
    assert.match(await response.text(), /blocked by the guardrail .{0,2}orion/, path);
  }
  assert.equal(upstream.requests.length, 0, 'nothing was sent');
  const { error } = (await (await post('/v1/chat/completions', ask('project orion'))).json()) as Json;
  assert.deepEqual([error.code, error.type], ['content_blocked', 'invalid_request_error']);
  const { data } = await get('/v1/usage/calls?outcome=error');
  assert.equal(data.length, 13, 'each is in the log of calls');
  assert.equal(data[0].status, 400);
});

test('a response is blocked, and paid for', async (t) => {
  const block = { name: 'orion', kind: 'regex', on: 'response', patterns: ['ORION-\\d{3}'] };
  const words = ['It is ', 'OR', 'ION', '-', '123', ', ', ...'and more '.repeat(60).split(' ')];
  const { post, upstream, get } = await start(t, [block], answers(completionOf('It is ORION-123')));
  const whole = await post('/v1/chat/completions', ask('ORION-123 is fine in a request'));
  assert.equal(whole.status, 400);
  upstream.script(streams(eventsOf(words)));
  const said = readChunks(await (await post('/v1/chat/completions', ask('Go', { stream: true }))).text());
  assert.equal((said as Json).error?.code, 'content_blocked');
  assert.equal(said.ended, false);
  assert.doesNotMatch(said.content, /ORION/);
  const { data } = await get('/v1/usage/calls');
  assert.deepEqual(
    data.map((call: Json) => [call.outcome, call.status, call.usage.prompt_tokens > 0]),
    [
      ['partial', 400, true],
      ['error', 400, true],
    ],
  );
  const { data: targets } = await get('/v1/targets');
  assert.deepEqual(
    targets.filter((target: Json) => target.state !== undefined && target.state !== 'closed'),
    [],
    'the target is not to blame',
  );
});

test('a rail that only logs leaves the bytes as they are', async (t) => {
  const log = { ...PII, action: 'log' };
  const body = `{"id":"msg_1","type":"message","role":"assistant","model":"big","content":[{"type":"text","text":"${MAIL}","citations":null}], "stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`;
  const started = await start(t, [log], answers(body));
  const { post, upstream } = started;
  const sent = { model: 'claude/big', max_tokens: 9, messages: [{ role: 'user', content: `${MAIL} ${CARD}` }], odd: 1 };
  const response = await post('/v1/messages', sent);
  assert.equal(await response.text(), body);
  assert.deepEqual(upstream.requests[0]?.json, { ...sent, model: 'big' });
  await until('the log has it', () => /"stage":"response","count":1/.test(started.log()));
  assert.match(started.log(), /"stage":"request","count":2/);

  const words = eventsOf(['mail ', 'ada', '@exam', 'ple.org']);
  upstream.script(streams(words));
  const stream = await post(
    '/v1/chat/completions',
    ask('Go', { stream: true, stream_options: { include_usage: true } }),
  );
  assert.equal(await stream.text(), words.join(''));
  await until('the log has it', () => started.log().split('"stage":"response","count":1').length === 3);
});

test('rails of requests alone keep the lane while they find nothing', async (t) => {
  const body =
    '{"id":"msg_1","type":"message","role":"assistant","model":"big","content":[], "stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1},"odd":true}';
  const { post, upstream } = await start(t, [{ ...PII, on: 'request' }], answers(body));
  const sent = { model: 'claude/big', max_tokens: 9, messages: [{ role: 'user', content: 'Hi' }] };
  assert.equal(await (await post('/v1/messages', sent)).text(), body);
  const masked = await post('/v1/messages', { ...sent, messages: [{ role: 'user', content: MAIL }] });
  assert.equal(masked.status, 200);
  assert.match(upstream.requests[1]?.text ?? '', /\[email\]/);
  assert.doesNotMatch(upstream.requests[1]?.text ?? '', /ada@/);
});

test('a webhook sees whole texts, masks and blocks; one that fails blocks', async (t) => {
  const hook = await startScriptedUpstream(t, (response, { json }) => {
    const { texts, stage } = json as { texts: string[]; stage: string };
    if (texts.includes('break')) response.writeHead(500).end();
    else {
      const isBad = texts.some((text) => text.includes('bad'));
      const masked = texts.map((text) => text.replaceAll('secret', '***'));
      const verdict = isBad ? { action: 'block' } : { action: 'mask', texts: masked };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(stage === 'request' && !isBad ? { action: 'allow' } : verdict));
    }
  });
  const rail = { name: 'mine', kind: 'webhook', action: 'mask', url: `${hook.origin}/check`, token: 'hook-token-1' };
  const { post, upstream } = await start(t, [rail], streams(eventsOf(['a se', 'cre', 't th', 'ing'])));
  const text = await (await post('/v1/chat/completions', ask('Go', { stream: true }))).text();
  const said = readChunks(text);
  assert.deepEqual([said.content, said.finish, said.ended], ['a *** thing', 'stop', true]);
  assert.equal(hook.requests[0]?.headers.authorization, 'Bearer hook-token-1');
  assert.deepEqual(hook.requests[1]?.json.texts, ['a secret thing']);
  assert.deepEqual([hook.requests[1]?.json.stage, hook.requests[1]?.json.model], ['response', 'lab/small']);

  upstream.script(answers(completionOf('bad')));
  assert.equal((await post('/v1/chat/completions', ask('Go'))).status, 400);
  upstream.script(streams(eventsOf(['ba', 'd'])));
  const blocked = readChunks(await (await post('/v1/chat/completions', ask('Go', { stream: true }))).text());
  assert.deepEqual([(blocked as Json).error?.code, blocked.content], ['content_blocked', '']);
  const asked = upstream.requests.length;
  for (const content of ['bad', 'break']) assert.equal((await post('/v1/chat/completions', ask(content))).status, 400);
  await hook.close();
  assert.equal((await post('/v1/chat/completions', ask('Go'))).status, 400, 'nobody answers');
  assert.equal(upstream.requests.length, asked, 'the model was not asked');
});

test('prompts of texts, embeddings, images, forms and batches are masked, and words of transcriptions', async (t) => {
  const { post, url, upstream } = await start(
    t,
    [PII],
    answers({
      id: 'x',
      object: 'text_completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, text: MAIL, finish_reason: 'stop' }],
    }),
  );
  const text = (await (await post('/v1/completions', { model: 'lab/small', prompt: MAIL })).json()) as Json;
  assert.equal(text.choices[0].text, '[email]');
  upstream.script(answers({ data: [{ embedding: [1], index: 0 }], usage: { prompt_tokens: 1, total_tokens: 1 } }));
  assert.equal((await post('/v1/embeddings', { model: 'lab/e', input: MAIL })).status, 200);
  upstream.script(answers({ data: [{ b64_json: 'QUJD' }] }));
  assert.equal((await post('/v1/images/generations', { model: 'lab/draw', prompt: MAIL })).status, 200);
  const form = new FormData();
  form.set('model', 'lab/hear');
  form.set('prompt', MAIL);
  form.set('file', new Blob(['RIFF']), 'a.wav');
  upstream.script(answers({ text: `I am ${MAIL}` }));
  const heard = await fetch(`${url}/v1/audio/transcriptions`, { method: 'POST', body: form });
  assert.deepEqual(await heard.json(), { text: 'I am [email]' });
  form.set('stream', 'true');
  assert.equal((await fetch(`${url}/v1/audio/transcriptions`, { method: 'POST', body: form })).status, 400);
  const line = { custom_id: '1', method: 'POST', url: '/v1/chat/completions', body: ask(MAIL) };
  const batch = new FormData();
  batch.set('purpose', 'batch');
  batch.set('file', new Blob([`${JSON.stringify(line)}\n`]), 'b.jsonl');
  upstream.script(answers({ id: 'file-1', object: 'file' }));
  assert.equal((await fetch(`${url}/v1/files`, { method: 'POST', body: batch })).status, 200);
  assert.equal(upstream.requests.length, 5);
  for (const { path, text: sent } of upstream.requests) {
    assert.doesNotMatch(sent, /ada@/, path);
    assert.match(sent, /\[email\]/, path);
  }
});

test('settings of guardrails that cannot work are refused with the field', () => {
  for (const [rail, field] of [
    [{ name: 'a', kind: 'regex' }, 'patterns'],
    [{ name: 'a', kind: 'webhook' }, 'url'],
    [{ name: 'a', kind: 'regex', patterns: ['('] }, 'patterns[0]'],
    [{ name: 'a', kind: 'regex', patterns: ['ok', '(a+)+'] }, 'patterns[1]'],
  ] as const) {
    assert.throws(
      () => settingsOf({ guardrails: [rail] }),
      (error: Error) => error.message.includes(`completions.guardrails[0].${field}`),
    );
  }
});
