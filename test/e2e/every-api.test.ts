import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { apiTable } from '../../src/completions/apis/api-table.ts';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';

/** The headers in which the dialects send a key. */
const KEY_HEADERS = ['authorization', 'api-key', 'x-api-key', 'x-goog-api-key'];

test('every API of the table is reached through the running program, with its own key and path', async (t) => {
  const seen = new Map<string, { path: string; headers: IncomingHttpHeaders; body: string }>();
  const upstream = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const [, id = '', ...rest] = (request.url ?? '').split('/');
    seen.set(id, { path: `/${rest.join('/')}`, headers: request.headers, body });
    response
      .writeHead(400, { 'content-type': 'application/json' })
      .end('{"error":{"message":"seen"},"message":"seen"}');
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  t.after(() => {
    upstream.close();
    upstream.closeAllConnections();
  });
  const { port } = upstream.address() as AddressInfo;

  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const apis = Object.fromEntries(
    [...apiTable.keys()].map((id) => [
      id,
      { base_url: `http://127.0.0.1:${port}/${id}/base`, api_key: `key-of-${id}` },
    ]),
  );
  await writeFile(config, JSON.stringify({ completions: { apis } }), { mode: 0o600 });
  const { url } = await startProgram(t, { args: ['--config', config] });

  for (const { id, dialect } of apiTable.values()) {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: `${id}/some-model`, messages: [{ role: 'user', content: `Hello ${id}` }] }),
    });
    const { error } = (await response.json()) as { error: { message: string } };
    assert.equal(response.status, 400, `${id}: ${error.message}`);
    assert.equal(error.message, 'seen', id);
    assert.equal(response.headers.get('x-model-api'), id);
    const arrived = seen.get(id);
    assert.ok(arrived !== undefined, id);
    assert.ok(arrived.path.startsWith('/base/'), `${id}: ${arrived.path}`);
    assert.match(arrived.body, /Hello/);
    const keys = KEY_HEADERS.map((name) => arrived.headers[name]).filter((value) => value !== undefined);
    assert.deepEqual(keys, [
      dialect === 'anthropic' || keys[0] === `key-of-${id}` ? `key-of-${id}` : `Bearer key-of-${id}`,
    ]);
    assert.ok(!arrived.path.includes('key-of'), 'keys never travel in URLs');
  }
});
