import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { apiTable } from '../../../src/completions/apis/api-table.ts';
import { resolveApis } from '../../../src/completions/apis/resolve-apis.ts';
import { HELLO, settingsOf, startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

const none = settingsOf({});

function usable(environment: Record<string, string>, id: string, isOwnAddress?: (url: URL) => boolean) {
  const found = resolveApis({ settings: none, environment, isOwnAddress }).get(id);
  assert.ok(found?.usable === true, `${id}: ${JSON.stringify(found)}`);
  return found.api;
}

describe('DC-29: keys are read from the variables that the libraries of the vendors read', () => {
  const names = [
    ['anthropic', 'ANTHROPIC_API_KEY'],
    ['anthropic', 'ANTHROPIC_AUTH_TOKEN'],
    ['cohere', 'CO_API_KEY'],
    ['google', 'GEMINI_API_KEY'],
    ['google', 'GOOGLE_API_KEY'],
    ['huggingface', 'HUGGING_FACE_HUB_TOKEN'],
    ['perplexity', 'PPLX_API_KEY'],
  ] as const;
  for (const [id, name] of names) {
    test(`DC-29: ${id} takes ${name}`, () => {
      const api = usable({ [name]: 'k-1' }, id);
      assert.equal(api.credentials.key, 'k-1');
      assert.equal(api.keyFrom, name);
    });
  }

  test('DC-29: the first variable that is set wins, for every API', () => {
    for (const { id, keyVariables } of apiTable.values()) {
      const environment = Object.fromEntries([
        ...[...(apiTable.get(id)?.baseUrl.matchAll(/\{(\w+)\}/g) ?? [])].map(([, name]) => [name, 'https://host']),
        ...keyVariables.map((name) => [name, `key-of-${name}`]),
      ]);
      assert.equal(usable(environment, id).keyFrom, keyVariables[0], id);
    }
  });

  test('DC-29: ANTHROPIC_AUTH_TOKEN is sent as a bearer token', async (t) => {
    const upstream = await startScriptedUpstream(t, refuses(400));
    const { post } = await startCompletions(t, {
      environment: { ANTHROPIC_AUTH_TOKEN: 'token-1', ANTHROPIC_BASE_URL: upstream.origin },
    });
    await post('/v1/chat/completions', { ...HELLO, model: 'anthropic/claude-sonnet-4-5' });
    assert.equal(upstream.requests[0]?.headers.authorization, 'Bearer token-1');
    assert.equal(upstream.requests[0]?.headers['x-api-key'], undefined);
    assert.equal(upstream.requests[0]?.path, '/v1/messages');
  });
});

test('DU-12: addresses are read from the variables that the libraries of the vendors read', () => {
  const key = { OPENAI_API_KEY: 'k', ANTHROPIC_API_KEY: 'k', AZURE_OPENAI_API_KEY: 'k', GEMINI_API_KEY: 'k' };
  const url = (id: string, name: string, value: string) => usable({ ...key, [name]: value }, id).baseUrl;
  assert.equal(url('openai', 'OPENAI_BASE_URL', 'https://proxy.example/v1/'), 'https://proxy.example/v1');
  assert.equal(url('anthropic', 'ANTHROPIC_BASE_URL', 'https://proxy.example'), 'https://proxy.example/v1');
  assert.equal(
    url('azure', 'AZURE_OPENAI_ENDPOINT', 'https://x.openai.azure.com/'),
    'https://x.openai.azure.com/openai/v1',
  );
  assert.equal(url('ollama', 'OLLAMA_HOST', '10.0.0.5:11434'), 'http://10.0.0.5:11434/v1');
  assert.equal(url('google', 'GOOGLE_GEMINI_BASE_URL', 'https://g.example'), 'https://g.example/v1beta');
  assert.equal(usable(key, 'openai').baseUrl, 'https://api.openai.com/v1');
});

test('DU-12: an address that is our own is meant for clients, and is not called', () => {
  const own = (url: URL) => url.port === '8787';
  const environment = { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: 'http://127.0.0.1:8787/v1' };
  assert.equal(usable(environment, 'openai', own).baseUrl, 'https://api.openai.com/v1');
});

test('DU-12: OPENAI_BASE_URL of the environment gets the calls and the key', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('from the proxy')));
  const { post } = await startCompletions(t, {
    environment: { OPENAI_API_KEY: 'k-openai', OPENAI_BASE_URL: upstream.url },
  });
  const response = await post('/v1/chat/completions', { ...HELLO, model: 'openai/gpt-4o' });
  assert.match(await response.text(), /from the proxy/);
  assert.equal(upstream.requests[0]?.headers.authorization, 'Bearer k-openai');
});

test('DC-25: every column of a row of the table can be set', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { post, completions } = await startCompletions(t, {
    environment: { LAB_TOKEN: 'from-the-variable' },
    settings: {
      apis: {
        lab: {
          name: 'The lab',
          base_url: upstream.url,
          key_variables: ['LAB_TOKEN'],
          headers: { 'X-Team': 'blue' },
          refuses: ['seed'],
          no_stream_options: true,
        },
      },
    },
  });
  const response = await post('/v1/chat/completions', { ...HELLO, seed: 1, stream: true });
  await response.text();
  const [seen] = upstream.requests;
  assert.equal(seen?.headers['x-team'], 'blue');
  assert.equal(seen?.headers.authorization, 'Bearer from-the-variable');
  assert.deepEqual([seen?.json.seed, seen?.json.stream_options], [undefined, undefined]);
  assert.ok(completions.controls.length > 0);
  const row = resolveApis({
    settings: settingsOf({ apis: { lab: { name: 'The lab', base_url: upstream.url, local: true } } }),
    environment: {},
  }).get('lab');
  assert.ok(row?.usable === true && row.api.local === true && row.api.name === 'The lab');
});

test('DC-17: the delay that Gemini asks for is obeyed and passed on as retry-after', async (t) => {
  const body = {
    error: {
      code: 429,
      status: 'RESOURCE_EXHAUSTED',
      message: 'quota',
      details: [{ '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '41.5s' }],
    },
  };
  const upstream = await startScriptedUpstream(t, answers(body, 429));
  const { post } = await startCompletions(t, {
    settings: { apis: { google: { base_url: `${upstream.origin}/v1beta`, api_key: 'k-1234567890' } } },
  });
  const response = await post('/v1/chat/completions', { ...HELLO, model: 'google/gemini-2.5-flash' });
  assert.equal(response.status, 429);
  assert.equal(response.headers.get('retry-after'), '42');
  assert.equal(upstream.requests.length, 1, 'longer than a retry waits');
});

test('DC-22: a body of 20 MiB is accepted, and one above the setting is refused', async (t) => {
  const content = 'x'.repeat(20 * 1024 * 1024);
  const { post } = await startCompletions(t);
  const body = { model: 'demo/echo', messages: [{ role: 'user', content }] };
  const response = await post('/v1/chat/completions', body);
  assert.equal(response.status, 200);
  await response.text();
  const small = await startCompletions(t, { settings: { max_request_bytes: 2048 } });
  assert.equal(
    (await small.post('/v1/chat/completions', { ...body, messages: [{ role: 'user', content: 'x'.repeat(3000) }] }))
      .status,
    413,
  );
});

test('DC-22: an event of 10 MiB passes through a stream, and one above the setting breaks it', async (t) => {
  const upstream = await startScriptedUpstream(t, (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const chunk = { choices: [{ index: 0, delta: { content: 'y'.repeat(10 * 1024 * 1024) }, finish_reason: 'stop' }] };
    response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
  });
  const apis = { lab: { base_url: upstream.url } };
  const large = await startCompletions(t, { settings: { apis } });
  const passed = await (await large.post('/v1/chat/completions', { ...HELLO, stream: true })).text();
  assert.ok(passed.length > 10 * 1024 * 1024 && passed.endsWith('data: [DONE]\n\n'));
  const small = await startCompletions(t, { settings: { apis, max_event_bytes: 1024 * 1024 } });
  const broken = await small.post('/v1/chat/completions', { ...HELLO, stream: true });
  assert.match(await broken.text(), /max_event_bytes/);
  const text = { model: HELLO.model, prompt: 'Hello', stream: true };
  assert.match(await (await small.post('/v1/completions', text)).text(), /max_event_bytes/);
});

test('DU-16: an error about a model names what is missing, and a failed connection names the host', async (t) => {
  const { post } = await startCompletions(t, { settings: { apis: { lab: { base_url: 'http://127.0.0.1:9/v1' } } } });
  const messageOf = async (model: string) => {
    const response = await post('/v1/chat/completions', { ...HELLO, model });
    return ((await response.json()) as { error: { message: string } }).error.message;
  };
  assert.match(await messageOf('gpt-4o'), /Use "openai\/gpt-4o": set OPENAI_API_KEY/);
  assert.doesNotMatch(await messageOf('gpt-4o'), /demo\/echo/);
  assert.match(await messageOf('openai/gpt-4o'), /"openai" is known, but cannot be used yet: set OPENAI_API_KEY/);
  assert.match(await messageOf('demo/ecko'), /Nearest: demo\/echo/);
  assert.match(await messageOf('nothing-like-it'), /trestle models/);
  assert.match(await messageOf('lab/x'), /127\.0\.0\.1:9/);
});
