import assert from 'node:assert/strict';
import { test } from 'node:test';
import { labAt, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  completionOf,
  eventsOf,
  refuses,
  startScriptedUpstream,
  streams,
} from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-contents-1';
const GUARDED = {
  guardrails: [
    { name: 'mail', kind: 'pii', action: 'mask', entities: ['email'], on: 'request' },
    { name: 'secret', kind: 'regex', patterns: ['forbidden'], action: 'block', on: 'request' },
  ],
};

async function start(t: Parameters<typeof startCompletions>[0], settings: object) {
  const upstream = await startScriptedUpstream(t);
  const { url, post } = await startCompletions(t, {
    settings: labAt(upstream.url, { master_key: MASTER, ...settings }),
  });
  const as = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });
  const newKey = async (terms: object): Promise<Json> =>
    await (await post('/v1/keys', { name: 'one', ...terms }, as(MASTER))).json();
  /** Calls once, and returns what is stored of the call. */
  async function contentOf(key: string, path: string, body: object): Promise<Json> {
    const response = await post(path, body, as(key));
    await response.text();
    const id = response.headers.get('x-request-id');
    const list: Json = await (await fetch(`${url}/v1/usage/calls?request_id=${id}`, as(key))).json();
    const details = await fetch(`${url}/v1/usage/calls/${list.data[0].id}`, as(key));
    return ((await details.json()) as Json).content;
  }
  return { upstream, url, post, as, newKey, contentOf };
}

const chat = { model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }] };

test('a key says whose content is stored, against the setting in both directions', async (t) => {
  for (const store_content of [false, true]) {
    const { upstream, newKey, contentOf } = await start(t, { store_content });
    for (const [given, ofSuccess, ofFailure] of [
      [undefined, store_content, store_content],
      ['none', false, false],
      ['errors', false, true],
      ['all', true, true],
    ] as const) {
      const { key, store_content: shown } = await newKey(given === undefined ? {} : { store_content: given });
      assert.equal(shown, given ?? null);
      for (const [path, body] of [
        ['/v1/chat/completions', chat],
        ['/v1/messages', { ...chat, max_tokens: 9 }],
        ['/v1/responses', { model: 'lab/small', input: 'Hello' }],
        ['/v1/completions', { model: 'lab/small', prompt: 'Hello' }],
        ['/v1beta/models/lab%2Fsmall:generateContent', { contents: [{ role: 'user', parts: [{ text: 'Hello' }] }] }],
        ['/v1/moderations', { model: 'lab/small', input: 'Hello' }],
        ['/v1/embeddings', { model: 'lab/small', input: 'Hello' }],
      ] as const) {
        if (store_content && body !== chat) continue;
        const name = `${given} of ${store_content}: ${path}`;
        upstream.script(answers({ ...completionOf('Hi'), results: [] }));
        assert.equal((await contentOf(key, path, body)) !== null, ofSuccess, name);
        upstream.script(refuses(400));
        const failed = await contentOf(key, path, body);
        assert.equal(failed !== null, ofFailure, name);
        if (!ofFailure) continue;
        assert.deepEqual(JSON.parse(failed.request), body, name);
        assert.ok(JSON.parse(failed.response).error.message.length > 0, name);
      }
    }
  }
});

test('a stream that breaks off is a failure; the change of a key counts from the next call', async (t) => {
  const { upstream, url, newKey, contentOf } = await start(t, {});
  const { id, key } = await newKey({ store_content: 'errors' });
  const streamed = { ...chat, stream: true };
  upstream.script(streams(eventsOf(['Hi', ' there'])));
  assert.equal(await contentOf(key, '/v1/chat/completions', streamed), null);
  upstream.script(streams(eventsOf(['Hi', ' there']).slice(0, 1)));
  const broken = await contentOf(key, '/v1/chat/completions', streamed);
  assert.match(broken.response, /error/);
  assert.deepEqual(JSON.parse(broken.request), streamed);

  const change = (store_content: unknown) =>
    fetch(`${url}/v1/keys/${id}`, {
      method: 'PATCH',
      headers: { authorization: `Bearer ${MASTER}`, 'content-type': 'application/json' },
      body: JSON.stringify({ store_content }),
    });
  assert.equal((await change('some')).status, 400);
  assert.equal((await change('all')).status, 200);
  upstream.script(streams(eventsOf(['Hi', ' there'])));
  assert.notEqual(await contentOf(key, '/v1/chat/completions', streamed), null);
  assert.equal(((await (await change(null)).json()) as Json).store_content, null);
  upstream.script(refuses(400));
  assert.equal(await contentOf(key, '/v1/chat/completions', streamed), null);
});

test('what a guardrail masks is stored masked, also of a call that fails; what it blocks is not stored', async (t) => {
  const { upstream, newKey, contentOf } = await start(t, GUARDED);
  const { key } = await newKey({ store_content: 'errors' });
  const asks = (content: string) => ({ ...chat, messages: [{ role: 'user', content }] });
  upstream.script(refuses(400));
  const masked = await contentOf(key, '/v1/chat/completions', asks('Write to ada@example.org'));
  assert.ok(!masked.request.includes('ada@example.org'));
  assert.match(masked.request, /\[email\]/);
  assert.equal(await contentOf(key, '/v1/chat/completions', asks('forbidden')), null);
});
