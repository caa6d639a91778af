import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { type TestContext, test } from 'node:test';
import { createApiPage } from '../../../src/platform/http/api-page/create-api-page.ts';
import { Reply, type RequestHead } from '../../../src/platform/http/surface.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import { browserSources } from './browser-modules.ts';

type Input = Partial<Parameters<typeof createApiPage>[0]>;

/** The page's routes on a bare server. The platform's own headers are not added: what is seen is what the page says. */
async function servePage(t: TestContext, input: Input = {}) {
  const { page, assets } = createApiPage({ guard: () => undefined, ...input });
  const routes = new Map([page, ...assets].map((route) => [route.path, route]));
  const server = createServer(async (request, response) => {
    const path = request.url ?? '';
    const reply = new Reply(response);
    const head: RequestHead = {
      requestId: 'r',
      method: 'GET',
      path,
      query: new URLSearchParams(),
      headers: request.headers,
      address: '127.0.0.1',
      peerAddress: '127.0.0.1',
      secure: false,
    };
    const call = { head, caller: undefined, body: undefined, params: {}, query: {}, reply };
    const sent = (await routes.get(path)?.handle(call)) ?? reply.code(404);
    if (!reply.sent) reply.send(sent === reply ? undefined : sent);
  });
  const { url, close } = await listenOnLoopback(server);
  t.after(close);
  async function get(path: string, headers: Record<string, string> = {}) {
    const response = await fetch(`${url}${path}`, { headers });
    return { status: response.status, headers: response.headers, body: await response.text() };
  }
  return { get, page, assets, paths: [...routes.keys()] };
}

/** Every address that the HTML names in `href` and `src`, but for anchors and data. */
function addressesIn(html: string): string[] {
  const named = [...html.matchAll(/(?:href|src)="([^"]*)"/g)].map(([, address = '']) => address);
  return named.filter((address) => !/^(#|data:)/.test(address));
}

test('O-02: the HTML forbids inline code, frames and other hosts, and sends no referrer', async (t) => {
  const { headers, status } = await (await servePage(t)).get('/docs');
  assert.equal(status, 200);
  const policy = new Map(
    String(headers.get('content-security-policy'))
      .split('; ')
      .map((part) => [part.split(' ')[0], part.split(' ').slice(1).join(' ')]),
  );
  assert.deepEqual(Object.fromEntries(policy), {
    'default-src': "'none'",
    'script-src': "'self'",
    'style-src': "'self'",
    'connect-src': "'self'",
    'img-src': "'self' data:",
    'base-uri': "'none'",
    'form-action': "'none'",
    'frame-ancestors': "'none'",
    'require-trusted-types-for': "'script'",
  });
  assert.equal(headers.get('referrer-policy'), 'no-referrer');
  assert.equal(headers.get('cross-origin-opener-policy'), 'same-origin');
});

test('O-02: every file has its content type with a charset, and may not be guessed at', async (t) => {
  const { get, paths } = await servePage(t);
  for (const path of paths) {
    const { headers, status } = await get(path);
    const kind = path.endsWith('.css') ? 'css' : path.endsWith('.js') ? 'javascript' : 'html';
    assert.equal(status, 200, path);
    assert.equal(headers.get('content-type'), `text/${kind}; charset=utf-8`);
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
  }
});

test('O-02: the HTML has no inline script, style or handler that the policy would have to allow', async (t) => {
  const { body } = await (await servePage(t)).get('/docs');
  assert.match(body, /^<!doctype html>\n<html lang="en">/);
  assert.doesNotMatch(body, /<style|style=|\son\w+=|javascript:/i);
  for (const [tag] of body.matchAll(/<script[^>]*>[^<]*/g)) assert.match(tag, /^<script type="module" src="[^"]+">$/);
});

test('P-32: the page names nothing on any other host', async (t) => {
  const { get, paths } = await servePage(t);
  for (const path of paths) {
    const { body } = await get(path);
    // Examples in the request form are text that is never fetched.
    const text = body.replaceAll("'https://example.com/'", '');
    assert.doesNotMatch(text, /(https?|wss?):\/\/|(href|src)="\/\/|@import\s+["'u]|url\(\s*["']?(https?:)?\/\//i, path);
  }
});

test('P-32: what the HTML, the modules and the style sheet name is served, and nothing else is', async (t) => {
  const { get, assets } = await servePage(t);
  const { body } = await get('/docs');
  const found = new Set(addressesIn(body).filter((address) => address !== '/openapi.json'));
  for (const address of found) {
    const file = await get(address);
    assert.equal(file.status, 200, address);
    if (!address.endsWith('.js')) continue;
    for (const [, name = ''] of file.body.matchAll(/^import .* from '([^']+)'/gm)) {
      assert.match(name, /^\.\/[\w-]+\.js$/);
      found.add(new URL(name, `http://localhost${address}`).pathname);
    }
  }
  assert.deepEqual(assets.map(({ path }) => path).toSorted(), [...found].toSorted());
  assert.deepEqual([...found].map((path) => path.slice('/docs/'.length)).toSorted(), [...browserSources().keys()]);
});

test('a file is served as it is on disk, and the type declarations are not served', async (t) => {
  const { get } = await servePage(t);
  for (const [name, text] of browserSources()) assert.equal((await get(`/docs/${name}`)).body, text);
  for (const name of ['openapi-types.d.ts', 'tsconfig.json', '..%2fcreate-api-page.ts', '']) {
    assert.equal((await get(`/docs/${name}`)).status, 404, name);
  }
});

test('a file that the browser has is answered with 304 and no body, until it changes', async (t) => {
  const { get, paths } = await servePage(t);
  const tags = new Set<unknown>();
  for (const path of paths) {
    const first = await get(path);
    const etag = String(first.headers.get('etag'));
    tags.add(etag);
    assert.match(etag, /^"[\w-]{22}"$/);
    assert.equal(first.headers.get('cache-control'), 'no-cache');
    for (const known of [etag, `W/${etag}`, `"other", ${etag}`]) {
      const again = await get(path, { 'if-none-match': known });
      assert.deepEqual([again.status, again.body, again.headers.get('etag')], [304, '', etag]);
    }
    const changed = await get(path, { 'if-none-match': '"other"' });
    assert.deepEqual([changed.status, changed.body], [200, first.body]);
  }
  assert.equal(tags.size, paths.length);
});

test('a 304 of the page carries the policy as well', async (t) => {
  const { get } = await servePage(t);
  const etag = String((await get('/docs')).headers.get('etag'));
  const { headers } = await get('/docs', { 'if-none-match': etag });
  assert.match(String(headers.get('content-security-policy')), /frame-ancestors 'none'/);
});

test('page and files move with the path, and read the description from where it is', async (t) => {
  const { get, paths } = await servePage(t, { path: '/help/api', openApiPath: '/help/api.json' });
  assert.ok(paths.every((path) => path === '/help/api' || path.startsWith('/help/api/')));
  const { body } = await get('/help/api');
  assert.match(body, /<link rel="service-desc" type="application\/json" href="\/help\/api\.json">/);
  for (const address of addressesIn(body)) assert.match(address, /^\/help\/api[/.]/);
});

test('every row is guarded by the given guard and takes no body', () => {
  const guard = () => 'someone';
  const { page, assets } = createApiPage({ guard });
  for (const route of [page, ...assets]) {
    assert.equal(route.guard, guard);
    assert.equal(route.method, 'GET');
    assert.equal(route.body, undefined);
    assert.doesNotMatch(route.path, /[*:]/);
  }
});
