import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError, type ErrorCode } from '../../../src/platform/errors/app-error.ts';
import type { Route } from '../../../src/platform/http/surface.ts';
import { exchange, statusOf } from '../../kit/raw-connection.ts';
import { echoOf, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';

test('O-02: every response has a type with charset, nosniff, a request id and the other security headers', async (t) => {
  const routes = [
    routeOf({ path: '/lab/ok' }),
    routeOf({
      path: '/lab/boom',
      handle: () => {
        throw new Error('boom');
      },
    }),
    routeOf({ method: 'POST', path: '/lab/post', body: 'json' }),
  ];
  const { url, bound } = await startListener(t, { surfaces: [surfaceOf({ routes, upgrades: [echoOf()] })] });
  const served = ['/lab/ok', '/healthz', '/readyz', '/metrics'];
  const refused = ['/lab/boom', '/lab/post', '/nowhere', '/lab/socket', '/%zz'];
  for (const path of [...served, ...refused]) {
    const { headers } = await fetch(url + path);
    assert.match(headers.get('content-type') ?? '', /^[a-z]+\/[a-z]+;.*charset=utf-8$/, path);
    assert.equal(headers.get('x-content-type-options'), 'nosniff', path);
    assert.match(headers.get('x-request-id') ?? '', /^[A-Za-z0-9_-]{1,128}$/, path);
    assert.equal(headers.get('referrer-policy'), 'no-referrer', path);
    assert.equal(headers.get('x-frame-options'), 'DENY', path);
    assert.equal(headers.get('content-security-policy'), "default-src 'none'; frame-ancestors 'none'", path);
    assert.equal(headers.get('cache-control'), 'no-store', path);
    assert.equal(headers.get('strict-transport-security'), null, path);
    assert.equal(headers.get('x-powered-by') ?? headers.get('server'), null, path);
  }
  const broken = await exchange(t, bound.port, 'no HTTP at all\r\n\r\n');
  assert.equal(statusOf(broken), 400);
  assert.match(broken, /content-type: application\/json; charset=utf-8\r\n/);
  assert.match(broken, /x-content-type-options: nosniff\r\n/);
  assert.match(broken, /x-request-id: req-/);
});

test('a route may state its own policy and caching', async (t) => {
  const page = routeOf({
    path: '/lab/page',
    handle: ({ reply }) =>
      reply
        .header('content-security-policy', "default-src 'self'")
        .header('cache-control', 'public, max-age=60')
        .type('text/html; charset=utf-8')
        .send('<!doctype html>'),
  });
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes: [page] })] });
  const { headers } = await fetch(`${url}/lab/page`);
  assert.equal(headers.get('content-security-policy'), "default-src 'self'");
  assert.equal(headers.get('cache-control'), 'public, max-age=60');
  assert.equal(headers.get('x-content-type-options'), 'nosniff');
});

test('a refusal hands out no cookie that was set before the handler failed', async (t) => {
  const handle: Route['handle'] = async ({ reply }) => {
    reply.header('set-cookie', ['session=worth-something', 'device=too']).header('x-kept', 'yes');
    throw new AppError('TEAPOT' as ErrorCode, { what: 'late' });
  };
  const { url } = await startListener(t, {
    surfaces: [surfaceOf({ routes: [routeOf({ path: '/lab/late', handle })] })],
  });
  const { status, headers } = await fetch(`${url}/lab/late`);
  assert.deepEqual([status, headers.getSetCookie(), headers.get('x-kept')], [418, [], 'yes']);
});

test('P-38: a harmless x-request-id is taken over, any other replaced; it is returned and logged', async (t) => {
  const routes = [routeOf({ path: '/lab/id', handle: ({ head }) => ({ id: head.requestId }) })];
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const ask = async (given: string | undefined, path = '/lab/id') => {
    const response = await fetch(url + path, { headers: given === undefined ? {} : { 'x-request-id': given } });
    const body = (await response.json()) as Record<string, unknown>;
    return { header: response.headers.get('x-request-id') ?? '', body };
  };
  for (const given of ['a', 'A-z_0', 'x'.repeat(128)]) {
    const { header, body } = await ask(given);
    assert.equal(header, given);
    assert.equal(body.id, given);
    assert.equal((await ask(given, '/lab/none')).body.requestId, given, 'refusals too');
    assert.ok(log.some(({ requestId, msg }) => msg === 'request' && requestId === given));
  }
  const made = new Set<string>();
  for (const given of [undefined, '', 'x'.repeat(129), 'a b', 'a,b', '../x', 'ä']) {
    const { header } = await ask(given);
    assert.notEqual(header, given);
    assert.match(header, /^[A-Za-z0-9_-]{1,128}$/);
    made.add(header);
  }
  assert.equal(made.size, 7);
});

test('B-44: a line break in a value that reaches a header never splits the response', async (t) => {
  const evil = 'x\r\nSet-Cookie: stolen=1\r\n\r\n<script>';
  const refuse = (): never => {
    throw new AppError('TEAPOT' as ErrorCode, { what: evil });
  };
  const routes = [
    routeOf({ path: '/lab/reply', handle: ({ reply }) => reply.header('x-node', evil).send('fine') }),
    routeOf({
      path: '/lab/value',
      handle({ reply }) {
        reply.header('x-node', evil);
        return { fine: true };
      },
    }),
    routeOf({
      path: '/lab/later',
      async handle({ reply }) {
        reply.header('x-node', evil);
        return { fine: true };
      },
    }),
    routeOf({ path: '/lab/refusal', handle: refuse }),
  ];
  const surface = surfaceOf({
    routes,
    upgrades: [echoOf({ guard: refuse })],
    errorHeaders: ({ details }): Record<string, string> =>
      details.what === undefined ? {} : { 'x-what': String(details.what) },
  });
  const { bound, log } = await startListener(t, { surfaces: [surface] });
  for (const { path } of routes) {
    const response = await exchange(t, bound.port, `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    assert.equal(statusOf(response), 500, path);
    assert.doesNotMatch(response, /stolen/, path);
  }
  const upgrade = await exchange(
    t,
    bound.port,
    'GET /lab/socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  assert.equal(statusOf(upgrade), 500);
  assert.doesNotMatch(upgrade, /stolen/);
  assert.equal(log.filter(({ level }) => level === 50).length, 5);
});

test('B-48: X-Forwarded-For and -Proto count only from a trusted proxy', async (t) => {
  const routes = [
    routeOf({
      path: '/lab/who',
      handle: ({ head: { address, peerAddress, secure } }) => ({ address, peerAddress, secure }),
    }),
  ];
  const surfaces = [surfaceOf({ routes })];
  const forged = { 'x-forwarded-for': '203.0.113.9, 198.51.100.7', 'x-forwarded-proto': 'https' };

  const direct = await startListener(t, { surfaces });
  const spoofed = await fetch(`${direct.url}/lab/who`, { headers: forged });
  assert.deepEqual(await spoofed.json(), { address: '127.0.0.1', peerAddress: '127.0.0.1', secure: false });
  assert.equal(spoofed.headers.get('strict-transport-security'), null);

  const behind = await startListener(t, { surfaces, trustedProxies: ['127.0.0.0/8', '198.51.100.0/24'] });
  const proxied = await fetch(`${behind.url}/lab/who`, { headers: forged });
  assert.deepEqual(await proxied.json(), { address: '203.0.113.9', peerAddress: '127.0.0.1', secure: true });
  assert.match(proxied.headers.get('strict-transport-security') ?? '', /^max-age=\d+$/);
});
