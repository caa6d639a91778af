import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { RequestHead } from '../../../src/platform/http/surface.ts';
import { exchange, openRaw, statusOf } from '../../kit/raw-connection.ts';
import { echoOf, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';

const UPGRADE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

function needsToken(head: RequestHead): { name: string } {
  if (head.headers.authorization !== 'Bearer right') throw new AppError('UNAUTHORIZED');
  return { name: 'someone' };
}

test('B-25: without the credential a request is refused before any byte of its body is read', async (t) => {
  let handled = 0;
  const route = routeOf({
    method: 'POST',
    path: '/lab/rpc',
    body: 'json',
    guard: needsToken,
    handle: () => ({ handled: handled++ }),
  });
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ routes: [route] })] });
  for (const credential of ['', 'Authorization: \r\n', 'Authorization: Bearer wrong\r\n']) {
    const raw = await openRaw(t, bound.port);
    // The body is announced and never sent: only an answer that does not wait for it can come.
    raw.socket.write(
      `POST /lab/rpc HTTP/1.1\r\nHost: a\r\n${credential}Content-Type: text/plain\r\nContent-Length: 100\r\n\r\n`,
    );
    assert.equal(statusOf(await raw.until('"requestId"')), 401, 'the credential comes before the content type');
  }
  assert.equal(handled, 0);
});

test('B-25: without the credential an upgrade is answered with 401 and no WebSocket exists', async (t) => {
  let accepted = 0;
  const upgrade = echoOf({
    guard: needsToken,
    accept: () => {
      accepted += 1;
    },
  });
  const { bound, log } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [upgrade] })] });
  const response = await exchange(t, bound.port, `GET /lab/socket HTTP/1.1\r\nHost: a\r\n${UPGRADE}\r\n`);
  assert.equal(statusOf(response), 401);
  assert.match(response, /\r\nconnection: close\r\n/i);
  assert.match(response, /\r\nx-content-type-options: nosniff\r\n/i);
  assert.match(response, /"lab":"UNAUTHORIZED"/);
  assert.equal(accepted, 0);
  assert.ok(log.some(({ route, status }) => route === '/lab/socket' && status === 401));
});

test('B-25: the address of a WebSocket, called without an upgrade, asks for the credential first and then is 426', async (t) => {
  const { url } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [echoOf({ guard: needsToken })] })] });
  assert.equal((await fetch(`${url}/lab/socket`)).status, 401);
  const response = await fetch(`${url}/lab/socket`, { headers: { authorization: 'Bearer right' } });
  assert.equal(response.status, 426);
  assert.equal(response.headers.get('upgrade'), 'websocket');
  assert.equal((await fetch(`${url}/lab/socket`, { method: 'POST' })).headers.get('allow'), 'GET, HEAD');
});

test("a guard's answer, given immediately or later, is the caller", async (t) => {
  const handle = ({ caller }: { caller: unknown }) => ({ caller });
  const routes = [
    routeOf({ path: '/lab/now', guard: needsToken, handle }),
    routeOf({ path: '/lab/later', guard: async (head: RequestHead) => needsToken(head), handle }),
  ];
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  for (const { path } of routes) {
    const response = await fetch(url + path, { headers: { authorization: 'Bearer right' } });
    assert.deepEqual(await response.json(), { caller: { name: 'someone' } });
    assert.equal((await fetch(url + path)).status, 401);
  }
});

test('a guard that throws nothing sensible still refuses', async (t) => {
  let handled = 0;
  const guards = [
    () => {
      throw undefined;
    },
    () => Promise.reject(undefined),
    () => Promise.reject(null),
  ];
  const routes = guards.map((guard, index) =>
    routeOf({ path: `/lab/${index}`, guard, handle: () => ({ handled: handled++ }) }),
  );
  const upgrades = guards.map((guard, index) => echoOf({ path: `/lab/socket/${index}`, guard }));
  const { url, bound } = await startListener(t, { surfaces: [surfaceOf({ routes, upgrades })] });
  for (const { path } of routes) assert.equal((await fetch(url + path)).status, 500);
  for (const { path } of upgrades) {
    const response = await exchange(t, bound.port, `GET ${path} HTTP/1.1\r\nHost: a\r\n${UPGRADE}\r\n`);
    assert.equal(statusOf(response), 500);
  }
  assert.equal(handled, 0);
});

test('a guard sees the head of a request, and the same for an upgrade', async (t) => {
  const seen: unknown[] = [];
  const guard = (head: RequestHead) => {
    const { method, path, address, peerAddress, secure } = head;
    seen.push({ method, path, query: head.query.get('a'), host: head.headers.host, address, peerAddress, secure });
    throw new AppError('UNAUTHORIZED');
  };
  const surface = surfaceOf({
    routes: [routeOf({ path: '/lab/x', guard })],
    upgrades: [echoOf({ path: '/lab/y', guard })],
  });
  const { bound } = await startListener(t, { surfaces: [surface] });
  await exchange(t, bound.port, 'GET /lab/x?a=1%202 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n');
  await exchange(t, bound.port, `GET /lab/y?a=1%202 HTTP/1.1\r\nHost: h\r\n${UPGRADE}\r\n`);
  const common = {
    method: 'GET',
    query: '1 2',
    host: 'h',
    address: '127.0.0.1',
    peerAddress: '127.0.0.1',
    secure: false,
  };
  assert.deepEqual(seen, [
    { ...common, path: '/lab/x' },
    { ...common, path: '/lab/y' },
  ]);
});

test('a body that arrives late is for someone whom the guard lets in again', async (t) => {
  let isActive = true;
  let handled = 0;
  const guard = (head: RequestHead) => {
    if (!isActive) throw new AppError('UNAUTHORIZED');
    return needsToken(head);
  };
  const handle = ({ caller }: { caller: unknown }) => ({ caller, handled: handled++ });
  const routes = [
    routeOf({ method: 'POST', path: '/lab/now', body: 'json', guard, handle }),
    routeOf({ method: 'POST', path: '/lab/later', body: 'json', guard: async (head) => guard(head), handle }),
  ];
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  for (const { path } of routes) {
    for (const [staysActive, status] of [
      [true, 200],
      [false, 401],
    ] as const) {
      isActive = true;
      const raw = await openRaw(t, bound.port);
      const fields =
        'Host: a\r\nAuthorization: Bearer right\r\nContent-Type: application/json\r\nContent-Length: 2\r\n';
      raw.socket.write(`POST ${path} HTTP/1.1\r\n${fields}Expect: 100-continue\r\n\r\n`);
      await raw.until('100 Continue\r\n\r\n');
      isActive = staysActive;
      await sleep(100);
      raw.socket.write('{}');
      const answer = await raw.until(staysActive ? '"handled"' : '"requestId"');
      assert.equal(statusOf(answer.slice(answer.lastIndexOf('HTTP/1.1'))), status, path);
    }
  }
  assert.equal(handled, 2);
});
