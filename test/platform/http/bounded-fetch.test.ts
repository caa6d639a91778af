import assert from 'node:assert/strict';
import { test } from 'node:test';
import { boundedFetch } from '../../../src/platform/http/bounded-fetch.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';

test('a server that says nothing, stops in the middle, or never ends is not waited for', async (t) => {
  const server = await startScriptedHttp(t, ({ path, response }) => {
    if (path === '/silent') return;
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write('{');
    if (path === '/endless') {
      const more = () => void (response.destroyed || response.write('x'.repeat(65_536), more));
      more();
    }
  });
  for (const path of ['/silent', '/stuck']) {
    await assert.rejects(boundedFetch(`${server.url}${path}`, {}, { timeoutMs: 100 }), { name: 'TimeoutError' });
  }
  await assert.rejects(boundedFetch(`${server.url}/endless`, {}), /larger than 1048576 bytes/);
});

test('a redirect is not followed', async (t) => {
  const server = await startScriptedHttp(t, ({ response }) => {
    response.writeHead(302, { location: '/else' }).end();
  });
  await assert.rejects(boundedFetch(server.url));
  const { status } = await boundedFetch(server.url, { redirect: 'manual' });
  assert.deepEqual([status, server.requests.length], [302, 2]);
});
