import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { bodyOf, exchange, openRaw, statusOf } from '../../kit/raw-connection.ts';
import { echoOf, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';
import { until } from '../../kit/until.ts';

function labSurface(calls: unknown[] = []) {
  const handle = ({ body }: { body: unknown }) => {
    calls.push(body);
    return { ok: true };
  };
  return surfaceOf({
    routes: [
      routeOf({ path: '/lab/ok' }),
      routeOf({ method: 'POST', path: '/lab/post', body: 'json', bodyLimit: 1000, handle }),
    ],
    upgrades: [echoOf()],
  });
}

const POST = 'POST /lab/post HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';

test('B-40: connections that never finish their headers are closed, and others are served', async (t) => {
  const limits = { headersTimeoutMs: 300, requestTimeoutMs: 2_000 };
  const { bound, url } = await startListener(t, { surfaces: [labSurface()], limits });
  const slow = await Promise.all(Array.from({ length: 100 }, () => openRaw(t, bound.port)));
  for (const [index, { socket }] of slow.entries()) {
    if (index % 4 === 0) continue;
    socket.write('GET /lab/ok HTTP/1.1\r\nHost: a\r\nX-Slow: ');
    const dribble = setInterval(() => socket.write('x'), 50);
    socket.on('close', () => clearInterval(dribble));
  }
  assert.equal((await fetch(`${url}/lab/ok`)).status, 200);
  const answers = await Promise.all(slow.map((connection) => connection.closed()));
  assert.deepEqual(new Set(answers.map(statusOf)), new Set([408]));
  assert.deepEqual(Object.keys(bodyOf(answers[1] ?? '') as object), ['error']);
  assert.equal((await fetch(`${url}/lab/ok`)).status, 200);
});

test('B-41: a body that trickles in is cut off with 408, in the shape of its surface', async (t) => {
  const limits = { headersTimeoutMs: 200, requestTimeoutMs: 400 };
  const calls: unknown[] = [];
  const { bound, log } = await startListener(t, { surfaces: [labSurface(calls)], limits });
  const connection = await openRaw(t, bound.port);
  connection.socket.write(`${POST}Content-Length: 900\r\nX-Request-Id: slow-one\r\n\r\n{`);
  const dribble = setInterval(() => connection.socket.write(' '), 50);
  connection.socket.on('close', () => clearInterval(dribble));
  const response = await connection.closed();
  assert.equal(statusOf(response), 408);
  assert.equal((bodyOf(response) as { lab: string }).lab, 'REQUEST_TIMEOUT');
  assert.match(response, /x-request-id: slow-one\r\n/);
  assert.deepEqual(calls, []);
  const { status, level } = await until('the line of the slow request', () =>
    log.find(({ requestId }) => requestId === 'slow-one'),
  );
  assert.deepEqual([status, level], [408, 30]);
});

test('B-42: a body over the limit is 413 as soon as that is known, without waiting for the rest', async (t) => {
  const calls: unknown[] = [];
  const { bound } = await startListener(t, { surfaces: [labSurface(calls)] });
  const announced = await openRaw(t, bound.port);
  announced.socket.write(`${POST}Content-Length: 900000000\r\n\r\n`);
  assert.equal(statusOf(await announced.closed()), 413);

  const chunked = await openRaw(t, bound.port);
  chunked.socket.write(`${POST}Transfer-Encoding: chunked\r\n\r\n3e8\r\n${' '.repeat(1000)}\r\n1\r\n`);
  assert.equal(chunked.text(), '', 'exactly the limit is not too much');
  chunked.socket.write(' ');
  const response = await chunked.closed();
  assert.equal(statusOf(response), 413);
  assert.deepEqual((bodyOf(response) as { details: unknown }).details, { limit: 1000 });
  assert.deepEqual(calls, []);

  const exact = `${POST}Connection: close\r\nContent-Length: 1000\r\n\r\n`;
  assert.equal(statusOf(await exchange(t, bound.port, `${exact}[]${' '.repeat(998)}`)), 200);
});

test('B-42: a body that comes together with its head is read as a whole, or refused', async (t) => {
  const calls: unknown[] = [];
  const { bound } = await startListener(t, { surfaces: [labSurface(calls)] });
  const chunks = (...texts: string[]) => texts.map((text) => `${text.length.toString(16)}\r\n${text}\r\n`).join('');
  const head = `${POST}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const answer = await exchange(t, bound.port, `${head}${chunks('{"a":', '[1,', '2]}')}0\r\n\r\n`);
  assert.equal(statusOf(answer), 200);
  assert.deepEqual(calls, [{ a: [1, 2] }]);
  const large = await exchange(t, bound.port, `${head}${chunks('[', ' '.repeat(999), ']')}0\r\n\r\n`);
  assert.equal(statusOf(large), 413);
  assert.equal(calls.length, 1);
});

test('clients that leave as soon as they have asked keep nothing open', async (t) => {
  const { bound, url } = await startListener(t, { surfaces: [labSurface()] });
  for (const request of [
    `${POST}Content-Length: 900\r\n\r\n{`,
    `${POST}Content-Length: 2\r\n\r\n{}`,
    'GET /lab/ok HTTP/1.1\r\nHost: a\r\n\r\n',
  ]) {
    const connections = await Promise.all(Array.from({ length: 20 }, () => openRaw(t, bound.port)));
    for (const { socket } of connections) socket.write(request, () => socket.resetAndDestroy());
  }
  await until('nothing to be under way', async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    return /^http_requests_in_flight 1$/m.test(metrics);
  });
});

test('B-42: a client that is in the middle of sending a large body still gets to read the refusal', async (t) => {
  const { bound, url } = await startListener(t, { surfaces: [labSurface()], limits: { lingerMs: 5_000 } });
  const connection = await openRaw(t, bound.port, true);
  const errors: unknown[] = [];
  connection.socket.on('error', (error) => errors.push(error));
  connection.socket.write(`${POST}Content-Length: 900000000\r\n\r\n`);
  await connection.until('"limit":1000');
  for (let count = 0; count < 20; count += 1) {
    connection.socket.write(Buffer.alloc(65_536, ' '));
    await pause(5);
  }
  assert.deepEqual(errors, [], 'no reset has overtaken the answer');
  connection.socket.end();
  assert.equal(statusOf(await connection.closed()), 413);
  const body = Buffer.alloc(8_000_000, ' ');
  const headers = { 'content-type': 'application/json' };
  assert.equal((await fetch(`${url}/lab/post`, { method: 'POST', headers, body })).status, 413);
});

test('B-42: a compressed body is refused, whatever it would become', async (t) => {
  const { url } = await startListener(t, { surfaces: [labSurface()] });
  for (const encoding of ['gzip', 'br', 'deflate', 'identity, gzip']) {
    const response = await fetch(`${url}/lab/post`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-encoding': encoding },
      body: gzipSync('[]'),
    });
    assert.equal(response.status, 415, encoding);
  }
});

test('B-43: requests that two parsers could read differently are 400, and the connection is closed', async (t) => {
  const calls: unknown[] = [];
  const { bound } = await startListener(t, { surfaces: [labSurface(calls)] });
  const smuggled = `${POST}Content-Length: 2\r\n\r\n{}`;
  const rows: [name: string, request: string][] = [
    ['length and chunks', `${POST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['chunks and length', `${POST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n${smuggled}`],
    ['two lengths', `${POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}${smuggled}`],
    ['the same length twice', `${POST}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}${smuggled}`],
    ['a list of lengths', `${POST}Content-Length: 2, 2\r\n\r\n{}${smuggled}`],
    ['a signed length', `${POST}Content-Length: +2\r\n\r\n{}${smuggled}`],
    ['an unknown encoding', `${POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${smuggled}`],
    ['a chunk size that is no number', `${POST}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n${smuggled}`],
    ['bare line feeds', `${POST.replaceAll('\r\n', '\n')}Content-Length: 2\n\n{}${smuggled}`],
    ['one bare line feed', `${POST}X-A: b\nContent-Length: 2\r\n\r\n{}${smuggled}`],
    ['a folded header', `${POST}X-A: b\r\n Content-Length: 5\r\nContent-Length: 2\r\n\r\n{}${smuggled}`],
    ['a space before the colon', `${POST}Content-Length : 2\r\n\r\n{}${smuggled}`],
    ['a NUL in a value', `${POST}X-A: b\0c\r\nContent-Length: 2\r\n\r\n{}${smuggled}`],
    ['no version', 'GET /lab/ok\r\n\r\n'],
    ['a TLS hello', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
  ];
  for (const [name, request] of rows) {
    const response = await exchange(t, bound.port, Buffer.from(request, 'latin1'));
    assert.equal(statusOf(response), 400, name);
    assert.equal(response.match(/HTTP\/1\.1 /g)?.length, 1, `${name}: nothing of the rest was served`);
    assert.match(response, /connection: close\r\n/i, name);
  }
  assert.deepEqual(calls, []);
});

test('B-43: what goes wrong after a complete request does not put words into its answer', async (t) => {
  const wait = () => new Promise((resolve) => setTimeout(resolve, 100, { ok: true }));
  const routes = [routeOf({ path: '/lab/wait', handle: wait })];
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const response = await exchange(t, bound.port, 'GET /lab/wait HTTP/1.1\r\nHost: a\r\n\r\nrubbish\r\n\r\n');
  assert.equal(response, '');
});

test('B-45: too many headers, or too large ones, are 431', async (t) => {
  const { bound } = await startListener(t, { surfaces: [labSurface()] });
  const get = (headers: string) => `GET /lab/ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${headers}\r\n`;
  const many = (count: number) => Array.from({ length: count }, (_, index) => `x-${index}: y\r\n`).join('');
  assert.equal(statusOf(await exchange(t, bound.port, get(many(100)))), 200);
  assert.equal(statusOf(await exchange(t, bound.port, get(many(300)))), 431);
  assert.equal(statusOf(await exchange(t, bound.port, get(`x: ${'y'.repeat(15_000)}\r\n`))), 200);
  const large = await exchange(t, bound.port, get(`x: ${'y'.repeat(64 * 1024)}\r\n`));
  assert.equal(statusOf(large), 431);
  assert.equal((bodyOf(large) as { error: { code: string } }).error.code, 'HEADERS_TOO_LARGE');
  const upgrade = `GET /lab/socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${many(300)}\r\n`;
  assert.equal(statusOf(await exchange(t, bound.port, upgrade)), 431);
});

test('B-47: an address has only so many connections; one more is closed immediately, and a freed place can be taken', async (t) => {
  const { bound, url } = await startListener(t, { surfaces: [labSurface()], limits: { connectionsPerAddress: 3 } });
  const held = await Promise.all([1, 2, 3].map(() => openRaw(t, bound.port)));
  const fourth = await openRaw(t, bound.port);
  assert.equal(await fourth.closed(), '');
  const [first] = held;
  first?.socket.destroy();
  await first?.closed();
  let status = 0;
  for (let attempt = 0; attempt < 50 && status !== 200; attempt += 1) {
    status = await fetch(`${url}/lab/ok`, { headers: { connection: 'close' } }).then(
      (response) => response.status,
      () => 0,
    );
  }
  assert.equal(status, 200);
});

test('other upgrades and CONNECT are no way around the routes', async (t) => {
  const { bound } = await startListener(t, { surfaces: [labSurface()] });
  const h2c = 'GET /lab/ok HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n';
  assert.equal(statusOf(await exchange(t, bound.port, h2c)), 200, 'an upgrade nobody offers is ignored');
  const elsewhere = 'POST /lab/post HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n';
  assert.equal(statusOf(await exchange(t, bound.port, elsewhere)), 200);
  assert.equal(statusOf(await exchange(t, bound.port, 'CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n')), 400);
  const expectation = 'GET /lab/ok HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nConnection: close\r\n\r\n';
  assert.equal(statusOf(await exchange(t, bound.port, expectation)), 400);
});
