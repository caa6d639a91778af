import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Type } from 'typebox';
import { AppError, type ErrorCode } from '../../../src/platform/errors/app-error.ts';
import { anyone, defineRoute } from '../../../src/platform/http/surface.ts';
import { bodyOf, exchange, openRaw, statusOf } from '../../kit/raw-connection.ts';
import { routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';

const json = { 'content-type': 'application/json' };
const rpc = routeOf({ method: 'POST', path: '/lab/rpc', body: 'json', handle: ({ body }) => ({ got: body }) });

test('B-20: a known path with another method is 405 with Allow, in the shape of its surface', async (t) => {
  const { url, bound } = await startListener(t, { surfaces: [surfaceOf({ routes: [rpc] })] });
  for (const method of ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    const response = await fetch(`${url}/lab/rpc`, { method });
    assert.equal(response.status, 405, method);
    assert.equal(response.headers.get('allow'), 'POST', method);
    const text = await response.text();
    if (method !== 'HEAD') assert.equal(JSON.parse(text).lab, 'METHOD_NOT_ALLOWED');
  }
  for (const method of ['TRACE', 'PROPFIND', 'QUERY']) {
    const raw = await openRaw(t, bound.port);
    raw.socket.write(`${method} /lab/rpc HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    assert.equal(statusOf(await raw.closed()), 405, method);
  }
  const unknown = await exchange(t, bound.port, 'FETCH /lab/rpc HTTP/1.1\r\nHost: localhost\r\n\r\n');
  assert.equal(statusOf(unknown), 400, 'a method that the parser does not know');
});

test('B-20: Allow lists what a path takes, whichever pattern it matches', async (t) => {
  const routes = [
    routeOf({ path: '/lab/models/*' }),
    routeOf({ method: 'POST', path: '/lab/models/:id' }),
    routeOf({ method: 'DELETE', path: '/lab/models/:id' }),
  ];
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  assert.equal((await fetch(`${url}/lab/models/a`)).status, 200);
  assert.equal((await fetch(`${url}/lab/models/a`, { method: 'POST' })).status, 200);
  const refused = await fetch(`${url}/lab/models/a`, { method: 'PUT' });
  assert.equal(refused.headers.get('allow'), 'DELETE, GET, HEAD, POST');
  const deeper = await fetch(`${url}/lab/models/a/b`, { method: 'POST' });
  assert.equal(deeper.headers.get('allow'), 'GET, HEAD');
});

test('B-21: a body that is not JSON in UTF-8 is 415 and its handler never runs', async (t) => {
  let calls = 0;
  const route = routeOf({ ...rpc, handle: () => ({ calls: calls++ }) });
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes: [route] })] });
  const send = async (type: string | undefined) => {
    const headers: Record<string, string> = type === undefined ? {} : { 'content-type': type };
    return (await fetch(`${url}/lab/rpc`, { method: 'POST', body: Buffer.from('{}'), headers })).status;
  };
  const refused = [
    undefined,
    'text/plain',
    'text/plain;charset=UTF-8',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/json; charset=utf-16',
    'application/json; charset=iso-8859-1',
    'application/json; charset="latin1"',
    'application/jsonp',
    'json',
  ];
  for (const type of refused) assert.equal(await send(type), 415, type);
  assert.equal(calls, 0);
  const accepted = ['application/json', 'Application/JSON', 'application/json;charset=UTF-8', 'application/json; a=b'];
  for (const type of [...accepted, 'application/json ; charset="utf-8"']) assert.equal(await send(type), 200, type);
});

test('B-23: paths that no route has are 404, however they are spelled', async (t) => {
  const routes = [routeOf({ path: '/lab' }), routeOf({ path: '/lab/rpc' })];
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const paths = [
    '/lab-server/x',
    '/%2flab',
    '//lab',
    '/lab//rpc',
    '/x/../lab',
    '/lab/../lab',
    '/lab/',
    '/LAB',
    '/lab;x',
  ];
  for (const path of paths) {
    const response = await exchange(t, bound.port, `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`);
    assert.equal(statusOf(response), 404, path);
  }
  for (const target of ['http://127.0.0.1/lab', '*', '/lab/%zz']) {
    const response = await exchange(
      t,
      bound.port,
      `OPTIONS ${target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
    );
    assert.equal(statusOf(response), 400, target);
  }
});

test('patterns match whole paths, as sent', async (t) => {
  const rows: [pattern: string, matching: string[], other: string[]][] = [
    ['/a/b', ['/a/b'], ['/a', '/a/b/', '/a//b', '/a/b/c', '/A/b']],
    ['/b/:id', ['/b/c', '/b/c%2Fd', '/b/'], ['/b', '/b/c/d']],
    ['/c/:id/d', ['/c/b/d', '/c//d'], ['/c/b', '/c/b/e']],
    ['/d/*', ['/d/', '/d/b', '/d/b/c'], ['/d', '/e/c']],
  ];
  const routes = rows.map(([path]) => routeOf({ path, handle: () => ({ path }) }));
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  for (const [pattern, matching, other] of rows) {
    for (const path of matching) assert.deepEqual(await (await fetch(`${url}${path}`)).json(), { path: pattern }, path);
    for (const path of other) {
      assert.equal((await fetch(`${url}${path}`)).status, 404, path);
      assert.equal((await fetch(`${url}${path}`, { method: 'PUT' })).status, 404, path);
    }
  }
});

test('a pattern that says more than that is refused at start', async (t) => {
  for (const path of ['a', '/a/:id(\\d+)', '/a/:x-:y', '/*/a', '/a*', '/a::b', '/a/:id?']) {
    await assert.rejects(
      async () => startListener(t, { surfaces: [surfaceOf({ routes: [routeOf({ path })] })] }),
      path,
    );
  }
});

test('O-03: a refusal takes the shape of the surface with the longest prefix, else the plain one', async (t) => {
  const inner = surfaceOf({ name: 'inner', prefixes: ['/lab/inner'], errorBody: ({ code }) => ({ inner: code }) });
  const { url } = await startListener(t, { surfaces: [surfaceOf({}), inner] });
  const body = async (path: string) => (await fetch(`${url}${path}`)).json() as Promise<Record<string, unknown>>;
  assert.equal((await body('/lab/x')).lab, 'NOT_FOUND');
  assert.deepEqual(await body('/lab/inner/x'), { inner: 'NOT_FOUND' });
  assert.equal((await body('/lab/innermost')).lab, 'NOT_FOUND');
  const { error } = await body('/laboratory');
  assert.deepEqual(Object.keys(error as object), ['code', 'message', 'requestId']);
});

test('O-03: a surface may give a refusal the shape that clients of its path read', async (t) => {
  const surface = surfaceOf({ errorBody: ({ code }, { path }) => ({ [path]: code }) });
  const { url } = await startListener(t, { surfaces: [surface] });
  assert.deepEqual(await (await fetch(`${url}/lab/other?x=1`)).json(), { '/lab/other': 'NOT_FOUND' });
});

test("O-03: a handler's AppError is described by its surface's table, with details and headers", async (t) => {
  const routes = [
    routeOf({
      path: '/lab/tea',
      handle({ reply }) {
        reply.header('x-kept', 'yes').header('cache-control', 'public');
        throw new AppError('TEAPOT' as ErrorCode, { what: 'short', retryAfterSeconds: 2.5 });
      },
    }),
  ];
  const surface = surfaceOf({ routes, errorHeaders: ({ code }) => ({ 'x-code': code }) });
  const { url } = await startListener(t, { surfaces: [surface] });
  const response = await fetch(`${url}/lab/tea`);
  assert.equal(response.status, 418);
  const { message, details } = (await response.json()) as { message: string; details: unknown };
  assert.equal(message, 'I am short.');
  assert.deepEqual(details, { what: 'short', retryAfterSeconds: 2.5 });
  const shown = ['retry-after', 'x-code', 'x-kept', 'cache-control'].map((name) => response.headers.get(name));
  assert.deepEqual(shown, ['3', 'TEAPOT', 'yes', 'no-store']);
});

test('O-01: an unexpected error is a generic 500, logged with its request id, and the next request is served', async (t) => {
  const secret = new Error('password is hunter2');
  const failures = [
    () => {
      throw secret;
    },
    () => Promise.reject(secret),
    () => Promise.reject(undefined),
    () => {
      throw new AppError('NOT_IN_ANY_TABLE' as ErrorCode, { secret: 'hunter2' });
    },
  ];
  const failing = failures.map((handle, index) => routeOf({ path: `/lab/fail/${index}`, handle }));
  const routes = [...failing, routeOf({ path: '/lab/ok' })];
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  for (const { path } of failing) {
    const response = await fetch(url + path);
    assert.equal(response.status, 500);
    const text = await response.text();
    assert.equal(JSON.parse(text).lab, 'INTERNAL_ERROR');
    assert.doesNotMatch(text, /hunter2|\.ts|stack/);
    const line = log.find(({ level, requestId }) => level === 50 && requestId === response.headers.get('x-request-id'));
    assert.ok(line, `${path} was logged`);
  }
  assert.match(JSON.stringify(log), /routes\.test\.ts/, 'the log has the stack');
  assert.equal((await fetch(`${url}/lab/ok`)).status, 200);
});

test('O-01: a handler that fails after it has begun to answer cuts the answer off', async (t) => {
  const routes = [
    routeOf({
      path: '/lab/half',
      async handle({ reply }) {
        reply.takeOver();
        reply.raw.writeHead(200, { 'content-length': '100' });
        reply.raw.write('half');
        throw new Error('boom');
      },
    }),
  ];
  const { url, bound, log } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const response = await exchange(t, bound.port, 'GET /lab/half HTTP/1.1\r\nHost: a\r\n\r\n');
  assert.ok(!response.includes('INTERNAL_ERROR'));
  assert.ok(log.some(({ level, err }) => level === 50 && JSON.stringify(err).includes('boom')));
  assert.equal((await fetch(`${url}/healthz`)).status, 200);
});

test('what a handler returns is sent: JSON, text, bytes, nothing', async (t) => {
  const values: unknown[] = [{ a: 1 }, [1], null, 7, 'text', Buffer.from('bytes'), undefined];
  const routes = values.flatMap((value, index) => [
    routeOf({ path: `/lab/now/${index}`, handle: () => value }),
    routeOf({ path: `/lab/later/${index}`, handle: async () => value }),
  ]);
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  for (const when of ['now', 'later']) {
    const got = await Promise.all(
      values.map(async (_value, index) => {
        const response = await fetch(`${url}/lab/${when}/${index}`);
        return [response.status, response.headers.get('content-type'), await response.text()];
      }),
    );
    assert.deepEqual(got, [
      [200, 'application/json; charset=utf-8', '{"a":1}'],
      [200, 'application/json; charset=utf-8', '[1]'],
      [200, 'application/json; charset=utf-8', 'null'],
      [200, 'application/json; charset=utf-8', '7'],
      [200, 'text/plain; charset=utf-8', 'text'],
      [200, 'application/octet-stream', 'bytes'],
      [204, null, ''],
    ]);
  }
});

test('a JSON body is parsed strictly: bad JSON, bad UTF-8 and deep nesting are 400, and no prototype is touched', async (t) => {
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes: [rpc] })] });
  const send = (body: string | Buffer) => fetch(`${url}/lab/rpc`, { method: 'POST', headers: json, body });
  const deep = '['.repeat(10_000) + ']'.repeat(10_000);
  for (const body of ['{', deep, Buffer.from([0x22, 0xff, 0x22]), 'NaN', "{'a':1}"]) {
    const response = await send(body);
    assert.equal(response.status, 400);
    assert.equal(((await response.json()) as { lab: string }).lab, 'PARSE_ERROR');
  }
  assert.equal(
    (await send('{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}')).status,
    200,
  );
  assert.equal(Reflect.get({}, 'polluted'), undefined);
});

test('a body that does not fit its schema is 400 with issues, naming the first field', async (t) => {
  const body = Type.Object({ name: Type.String(), age: Type.Optional(Type.Integer()) });
  const routes = [routeOf({ ...rpc, schema: { body } })];
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const send = async (value: unknown) => {
    const text = value === undefined ? '' : JSON.stringify(value);
    const response = await fetch(`${url}/lab/rpc`, { method: 'POST', headers: json, body: text });
    return [response.status, ((await response.json()) as { message?: string }).message];
  };
  assert.deepEqual(await send({ name: 'x', extra: 1 }), [200, undefined], 'unknown members pass');
  assert.deepEqual(await send({ name: 7 }), [400, 'The request is not valid: name must be a string']);
  assert.deepEqual(await send({}), [400, 'The request is not valid: name is required']);
  assert.deepEqual(await send({ name: 'x', age: '7' }), [400, 'The request is not valid: age must be an integer']);
  assert.deepEqual(await send([]), [400, 'The request is not valid: the body must be an object']);
  assert.deepEqual(await send(undefined), [400, 'The request is not valid: the body must be an object']);
});

test('query and path are converted to the types of their schema, and refused when they do not fit', async (t) => {
  const query = Type.Object({ limit: Type.Optional(Type.Integer({ minimum: 1 })), all: Type.Optional(Type.Boolean()) });
  const route = routeOf({
    path: '/lab/items/:id',
    schema: { query, params: Type.Object({ id: Type.String({ minLength: 2 }) }) },
    handle: ({ query, params }) => ({ query, params }),
  });
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes: [route] })] });
  const ok = await fetch(`${url}/lab/items/a%2Fb?limit=10&all=false&other=1`);
  assert.deepEqual(await ok.json(), { query: { limit: 10, all: false, other: '1' }, params: { id: 'a/b' } });
  for (const path of ['a', 'ab?limit=0', 'ab?limit=1e3', 'ab?limit=', 'ab?all=yes', 'ab?limit=1&limit=2']) {
    assert.equal((await fetch(`${url}/lab/items/${path}`)).status, 400, path);
  }
});

test('a row that takes bytes gets them untouched, and an empty body as none', async (t) => {
  const route = routeOf({ ...rpc, body: 'bytes', handle: ({ body }) => body });
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes: [route] })] });
  const bytes = Buffer.from([0x7b, 0xff, 0x00, 0x0a]);
  const response = await fetch(`${url}/lab/rpc`, { method: 'POST', headers: json, body: bytes });
  assert.deepEqual(Buffer.from(await response.arrayBuffer()), bytes);
  const empty = await fetch(`${url}/lab/rpc`, { method: 'POST' });
  assert.equal(empty.headers.get('content-length'), '0');
});

test('a row without a body ignores one', async (t) => {
  const route = routeOf({ method: 'POST', path: '/lab/out', handle: ({ body }) => ({ body: body === undefined }) });
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes: [route] })] });
  for (const headers of [json, { 'content-type': 'text/plain' }]) {
    const response = await fetch(`${url}/lab/out`, { method: 'POST', headers, body: '{"broken' });
    assert.deepEqual(await response.json(), { body: true });
  }
  const nonsense = { method: 'POST', headers: { 'content-type': 'nonsense' }, body: '{}' };
  assert.equal((await fetch(`${url}/lab/out`, nonsense)).status, 200);
  assert.equal((await fetch(`${url}/lab/nowhere`, nonsense)).status, 404);
});

test('HEAD is served where GET is, without a body', async (t) => {
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ routes: [routeOf({ path: '/lab/x' })] })] });
  const response = await exchange(t, bound.port, 'HEAD /lab/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  assert.equal(statusOf(response), 200);
  assert.match(response, /content-length: 11\r\n/i);
  assert.ok(response.endsWith('\r\n\r\n'));
});

test('a client that asks before it sends gets 100 Continue only after the guard has let it in', async (t) => {
  const guard = (head: { headers: { authorization?: string | undefined } }) => {
    if (head.headers.authorization === undefined) throw new AppError('UNAUTHORIZED');
  };
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ routes: [routeOf({ ...rpc, guard })] })] });
  const head = (extra: string) =>
    `POST /lab/rpc HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n${extra}Expect: 100-continue\r\n\r\n`;
  const refused = await exchange(t, bound.port, head(''));
  assert.equal(statusOf(refused), 401);
  const welcome = await openRaw(t, bound.port);
  welcome.socket.write(head('Authorization: x\r\nConnection: close\r\n'));
  await welcome.until('HTTP/1.1 100 Continue\r\n\r\n');
  welcome.socket.write('{}');
  const text = await welcome.closed();
  assert.deepEqual(bodyOf(text.slice(text.indexOf('\r\n\r\n') + 4)), { got: {} });
});

test('a row that is defined by an operation checks its parts and answers with the first status of the operation', async (t) => {
  const create = {
    summary: 'Creates a thing.',
    body: Type.Object({ size: Type.Integer() }),
    query: Type.Object({ dry: Type.Optional(Type.Boolean()) }),
    response: { 201: Type.Object({ id: Type.String() }) },
  };
  const raw = { summary: 'Counts bytes.', body: create.body, raw: true as const, bodyLimit: 20 };
  const routes = [
    // The types of body, query and path come from the operation and the name.
    defineRoute('POST /lab/:kind/:id', anyone, create, ({ body, query, params }) => ({
      id: `${params.kind} ${params.id} ${body.size + 1} ${query.dry === true}`,
    })),
    defineRoute('POST /lab/raw', anyone, raw, ({ body }) => ({ bytes: body.length })),
    defineRoute('DELETE /lab/:id', anyone, { summary: 'Removes it.', response: { 204: Type.Null() } }, () => undefined),
  ];
  const { url } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const send = async (method: string, path: string, text?: string) => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${url}${path}`, { method, ...(text !== undefined && { body: text, headers }) });
    return [response.status, await response.text()];
  };
  assert.deepEqual(await send('POST', '/lab/box/7?dry=true', '{"size":1}'), [201, '{"id":"box 7 2 true"}']);
  assert.equal((await send('POST', '/lab/box/7', '{"size":"1"}'))[0], 400);
  assert.equal((await send('POST', '/lab/box/7?dry=maybe', '{"size":1}'))[0], 400);
  assert.deepEqual(await send('POST', '/lab/raw', '{ "size": 1 }'), [200, '{"bytes":13}']);
  assert.equal((await send('POST', '/lab/raw', `{ "size": ${' '.repeat(20)}1 }`))[0], 413);
  assert.deepEqual(await send('DELETE', '/lab/7'), [204, '']);
});
