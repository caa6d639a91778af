import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { apiTable } from '../../../src/completions/apis/api-table.ts';
import type { ModelApi, UsableApi } from '../../../src/completions/apis/model-api.ts';
import { resolveApis } from '../../../src/completions/apis/resolve-apis.ts';
import { createAuthoriseUpstream } from '../../../src/completions/dialects/authorise-upstream.ts';
import { type DialectName, upstreamUrl } from '../../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const KEY = 'the-key-of-this-row';
const MODEL = 'some-model';

interface Seen {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Record<string, unknown>;
}

const seen: Seen[] = [];
const server = createServer(async (request, response) => {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  seen.push({ url: request.url ?? '', headers: request.headers, body: JSON.parse(text) });
  response.end('{}');
}).listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
after(() => {
  server.close();
  server.closeAllConnections();
});

const authorise = createAuthoriseUpstream({
  clock: createFakeClock(),
  fetch: () => assert.fail('no access token is needed'),
  readFile: () => assert.fail('no file is needed'),
});

/** What each dialect's request looks like from outside: path, header of the key, where the model is. */
const EXPECTED: Readonly<Record<DialectName, { path: string; header: string; value: string; modelInBody: boolean }>> = {
  openai: { path: '/chat/completions', header: 'authorization', value: `Bearer ${KEY}`, modelInBody: true },
  azure: { path: '/chat/completions', header: 'api-key', value: KEY, modelInBody: true },
  anthropic: { path: '/messages', header: 'x-api-key', value: KEY, modelInBody: true },
  google: { path: `/models/${MODEL}:generateContent`, header: 'x-goog-api-key', value: KEY, modelInBody: false },
  'google-vertex': {
    path: '/publishers/google/models/some-model:generateContent',
    header: 'authorization',
    value: `Bearer ${KEY}`,
    modelInBody: false,
  },
  bedrock: {
    path: `/model/${MODEL}/converse`,
    header: 'authorization',
    value: `Bearer ${KEY}`,
    modelInBody: false,
  },
  cohere: { path: '/chat', header: 'authorization', value: `Bearer ${KEY}`, modelInBody: true },
};

for (const row of apiTable.values()) {
  test(`a request to ${row.id} has the right address, headers and body`, async () => {
    const api = usable(row);
    const dialect = await loadDialect(api.dialect);
    const request = {
      model: MODEL,
      messages: [{ role: 'user', content: 'Hello' }],
      max_tokens: 7,
      logit_bias: { '1': 2 },
    };
    const context = { ...api, model: MODEL, stream: false, id: 'chatcmpl-1', created: 1 };
    const encoded = dialect.encodeRequest(request, context);
    const url = upstreamUrl(api.baseUrl, encoded.path);
    const body = JSON.stringify(encoded.body);
    const given = { 'content-type': 'application/json', ...encoded.headers, ...api.headers };
    const headers = await authorise({ dialect: api.dialect, credentials: api.credentials, url, headers: given, body });

    const { origin, pathname, search } = new URL(url);
    await fetch(`http://127.0.0.1:${port}${pathname}${search}`, { method: 'POST', headers, body });
    const arrived = seen.pop();
    assert.ok(arrived !== undefined);
    const expected = EXPECTED[row.dialect];
    assert.equal(origin, new URL(api.baseUrl).origin);
    assert.equal(
      decodeURIComponent(arrived.url),
      decodeURIComponent(new URL(api.baseUrl).pathname.replace(/\/$/, '') + expected.path),
    );
    assert.equal(arrived.headers[expected.header], expected.value);
    assert.ok(!arrived.url.includes(KEY), 'keys never travel in URLs');
    for (const [name, value] of Object.entries(row.headers ?? {})) assert.equal(arrived.headers[name], value);
    assert.equal(arrived.body.model, expected.modelInBody ? MODEL : undefined);
    assert.match(JSON.stringify(arrived.body), /Hello/);
    assert.match(JSON.stringify(arrived.body), /7/);
    if (row.refuses?.includes('logit_bias') === true) {
      assert.ok(!('logit_bias' in arrived.body));
      assert.ok(encoded.dropped.includes('logit_bias'));
    }
  });
}

/** The row as it stands when its key and the variables of its address are set. */
function usable(row: ModelApi): UsableApi {
  const names = [...row.baseUrl.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
  const environment = Object.fromEntries([
    ...names.map((name) => [name, name.includes('BASE') ? 'https://host.example' : 'place']),
    [row.keyVariables[0] ?? '', KEY],
  ]);
  const resolved = resolveApis({ settings: { apis: {} }, environment }).get(row.id);
  assert.ok(resolved?.usable === true, row.id);
  return resolved.api;
}
