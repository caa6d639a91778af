import assert from 'node:assert/strict';
import { test } from 'node:test';
import fastify from 'fastify';
import { createApiPage } from '../../../src/platform/http/api-page/create-api-page.ts';
import type { RequestHead } from '../../../src/platform/http/surface.ts';
import { browserSources } from './browser-modules.ts';

type Input = Partial<Parameters<typeof createApiPage>[0]>;

/** The page's routes on a bare server. The platform's own headers are not added: what is seen is what the page says. */
function servePage(input: Input = {}) {
  const { page, assets } = createApiPage({ guard: () => undefined, ...input });
  const app = fastify();
  for (const route of [page, ...assets]) {
    app.route({
      method: route.method,
      url: route.path,
      handler: (request, reply) => {
        const query = new URLSearchParams();
        const head: RequestHead = {
          requestId: 'r',
          method: 'GET',
          path: request.url,
          query,
          headers: request.headers,
          address: '127.0.0.1',
          peerAddress: '127.0.0.1',
          secure: false,
        };
        return route.handle({ head, caller: undefined, body: undefined, params: {}, query: {}, reply });
      },
    });
  }
  return { app, page, assets, paths: [page.path, ...assets.map(({ path }) => path)] };
}

/** Every address that the HTML names in `href` and `src`, but for anchors and data. */
function addressesIn(html: string): string[] {
  const named = [...html.matchAll(/(?:href|src)="([^"]*)"/g)].map(([, address = '']) => address);
  return named.filter((address) => !/^(#|data:)/.test(address));
}

test('O-02: the HTML forbids inline code, frames and other hosts, and sends no referrer', async () => {
  const { headers, statusCode } = await servePage().app.inject('/docs');
  assert.equal(statusCode, 200);
  const policy = new Map(
    String(headers['content-security-policy'])
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
  assert.equal(headers['referrer-policy'], 'no-referrer');
  assert.equal(headers['cross-origin-opener-policy'], 'same-origin');
});

test('O-02: every file has its content type with a charset, and may not be guessed at', async () => {
  const { app, paths } = servePage();
  for (const path of paths) {
    const { headers, statusCode } = await app.inject(path);
    const kind = path.endsWith('.css') ? 'css' : path.endsWith('.js') ? 'javascript' : 'html';
    assert.equal(statusCode, 200, path);
    assert.equal(headers['content-type'], `text/${kind}; charset=utf-8`);
    assert.equal(headers['x-content-type-options'], 'nosniff');
  }
});

test('O-02: the HTML has no inline script, style or handler that the policy would have to allow', async () => {
  const { body } = await servePage().app.inject('/docs');
  assert.match(body, /^<!doctype html>\n<html lang="en">/);
  assert.doesNotMatch(body, /<style|style=|\son\w+=|javascript:/i);
  for (const [tag] of body.matchAll(/<script[^>]*>[^<]*/g)) assert.match(tag, /^<script type="module" src="[^"]+">$/);
});

test('P-32: the page names nothing on any other host', async () => {
  const { app, paths } = servePage();
  for (const path of paths) {
    const { body } = await app.inject(path);
    // Examples in the request form are text that is never fetched.
    const text = body.replaceAll("'https://example.com/'", '');
    assert.doesNotMatch(text, /(https?|wss?):\/\/|(href|src)="\/\/|@import\s+["'u]|url\(\s*["']?(https?:)?\/\//i, path);
  }
});

test('P-32: what the HTML, the modules and the style sheet name is served, and nothing else is', async () => {
  const { app, assets } = servePage();
  const { body } = await app.inject('/docs');
  const found = new Set(addressesIn(body).filter((address) => address !== '/openapi.json'));
  for (const address of found) {
    const file = await app.inject(address);
    assert.equal(file.statusCode, 200, address);
    if (!address.endsWith('.js')) continue;
    for (const [, name = ''] of file.body.matchAll(/^import .* from '([^']+)'/gm)) {
      assert.match(name, /^\.\/[\w-]+\.js$/);
      found.add(new URL(name, `http://localhost${address}`).pathname);
    }
  }
  assert.deepEqual(assets.map(({ path }) => path).toSorted(), [...found].toSorted());
  assert.deepEqual([...found].map((path) => path.slice('/docs/'.length)).toSorted(), [...browserSources().keys()]);
});

test('a file is served as it is on disk, and the type declarations are not served', async () => {
  const { app } = servePage();
  for (const [name, text] of browserSources()) assert.equal((await app.inject(`/docs/${name}`)).body, text);
  for (const name of ['openapi-types.d.ts', 'tsconfig.json', '..%2fcreate-api-page.ts', '']) {
    assert.equal((await app.inject(`/docs/${name}`)).statusCode, 404, name);
  }
});

test('a file that the browser has is answered with 304 and no body, until it changes', async () => {
  const { app, paths } = servePage();
  const tags = new Set<unknown>();
  for (const path of paths) {
    const first = await app.inject(path);
    const etag = String(first.headers.etag);
    tags.add(etag);
    assert.match(etag, /^"[\w-]{22}"$/);
    assert.equal(first.headers['cache-control'], 'no-cache');
    for (const known of [etag, `W/${etag}`, `"other", ${etag}`]) {
      const again = await app.inject({ url: path, headers: { 'if-none-match': known } });
      assert.deepEqual([again.statusCode, again.body, again.headers.etag], [304, '', etag]);
    }
    const changed = await app.inject({ url: path, headers: { 'if-none-match': '"other"' } });
    assert.deepEqual([changed.statusCode, changed.body], [200, first.body]);
  }
  assert.equal(tags.size, paths.length);
});

test('a 304 of the page carries the policy as well', async () => {
  const { app } = servePage();
  const etag = String((await app.inject('/docs')).headers.etag);
  const { headers } = await app.inject({ url: '/docs', headers: { 'if-none-match': etag } });
  assert.match(String(headers['content-security-policy']), /frame-ancestors 'none'/);
});

test('page and files move with the path, and read the description from where it is', async () => {
  const { app, paths } = servePage({ path: '/help/api', openApiPath: '/help/api.json' });
  assert.ok(paths.every((path) => path === '/help/api' || path.startsWith('/help/api/')));
  const { body } = await app.inject('/help/api');
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
