import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchange, statusOf } from '../../kit/raw-connection.ts';
import { echoOf, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';
import { until } from '../../kit/until.ts';

test('A-63: liveness says ok and nothing else while readiness fails with the part that is down', async (t) => {
  let down = true;
  const readinessChecks = {
    store: () => (down ? Promise.reject(new Error('password=hunter2')) : Promise.resolve()),
    clock: () => {},
  };
  const { url, log } = await startListener(t, { readinessChecks });
  const live = await fetch(`${url}/healthz`);
  assert.deepEqual([live.status, await live.text()], [200, '{"status":"ok"}']);
  const unready = await fetch(`${url}/readyz`);
  assert.equal(unready.status, 503);
  assert.deepEqual(await unready.json(), { status: 'unavailable', checks: { store: 'failed', clock: 'ok' } });
  assert.ok(log.some(({ check }) => check === 'store'));
  down = false;
  const ready = await fetch(`${url}/readyz`);
  assert.deepEqual(
    [ready.status, await ready.json()],
    [200, { status: 'ready', checks: { store: 'ok', clock: 'ok' } }],
  );
});

test('a part that may be away for a while leaves readiness as it is until then, each time that it goes', async (t) => {
  let down = false;
  let awayMs = 3_600_000;
  const readinessChecks = { store: () => (down ? Promise.reject(new Error('gone')) : Promise.resolve()) };
  const { url } = await startListener(t, { readinessChecks, mayBeAwayMs: () => awayMs });
  const ask = async () => {
    const response = await fetch(`${url}/readyz`);
    return [response.status, ((await response.json()) as { checks: object }).checks];
  };
  assert.deepEqual(await ask(), [200, { store: 'ok' }]);
  down = true;
  assert.deepEqual(await ask(), [200, { store: 'away' }]);
  awayMs = 1;
  await until('the end of that time', async () => (await ask())[0] === 503);
  assert.deepEqual(await ask(), [503, { store: 'failed' }]);
  down = false;
  assert.deepEqual(await ask(), [200, { store: 'ok' }]);
  down = true;
  awayMs = 3_600_000;
  assert.deepEqual(await ask(), [200, { store: 'away' }]);
});

test('a clock that differs from that of the database by more than five seconds is a field of readiness, never a 503', async (t) => {
  let clockDifferenceMs = 5_000;
  const { url } = await startListener(t, { clockDifferenceMs: () => clockDifferenceMs });
  const ask = async () => {
    const response = await fetch(`${url}/readyz`);
    return [response.status, await response.json()];
  };
  assert.deepEqual(await ask(), [200, { status: 'ready', checks: {} }]);
  clockDifferenceMs = -5_001;
  assert.deepEqual(await ask(), [200, { status: 'ready', checks: {}, clockDifferenceMs }]);
});

test('a readiness check that hangs or throws counts as failed, and is asked once for all who ask', async (t) => {
  let asked = 0;
  const readinessChecks = {
    hangs: () => {
      asked += 1;
      return new Promise(() => {});
    },
    throws: () => {
      throw new Error('at once');
    },
  };
  const { url } = await startListener(t, { readinessChecks, limits: { readinessTimeoutMs: 200 } });
  const answers = await Promise.all([1, 2, 3].map(() => fetch(`${url}/readyz`)));
  for (const answer of answers) {
    assert.equal(answer.status, 503);
    assert.deepEqual(await answer.json(), { status: 'unavailable', checks: { hangs: 'timeout', throws: 'failed' } });
  }
  assert.equal(asked, 1);
});

test('/metrics is for this machine, or for callers with the metrics token', async (t) => {
  const forwarded = { 'x-forwarded-for': '203.0.113.9' };
  const { url, bound } = await startListener(t);
  assert.equal((await fetch(`${url}/metrics`)).status, 200);
  assert.equal((await fetch(`${url}/metrics`, { headers: forwarded })).status, 403);
  assert.equal((await fetch(`${url}/metrics`, { headers: { forwarded: 'for=203.0.113.9' } })).status, 403);
  const rebound = 'GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n';
  assert.equal(statusOf(await exchange(t, bound.port, rebound)), 403);

  let token = 'figures';
  const withToken = await startListener(t, { metricsToken: () => token });
  const ask = async (authorization: string) => {
    const response = await fetch(`${withToken.url}/metrics`, { headers: { ...forwarded, authorization } });
    return response.status;
  };
  assert.equal(await ask('Bearer figures'), 200);
  assert.equal(await ask('Bearer wrong'), 401);
  assert.equal(await ask(''), 401);
  token = 'changed';
  assert.equal(await ask('Bearer figures'), 401);
  token = '';
  assert.equal(await ask('Bearer '), 403);
});

test('metrics count by route pattern, class of status and known method, never by what a caller made up', async (t) => {
  const routes = [routeOf({ path: '/lab/items/:id' })];
  const { url, bound } = await startListener(t, { surfaces: [surfaceOf({ routes, upgrades: [echoOf()] })] });
  for (const path of ['/lab/items/1', '/lab/items/2?token=hunter2', '/hunter2', '/lab/items']) await fetch(url + path);
  await exchange(t, bound.port, 'PROPFIND /hunter2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  await exchange(t, bound.port, 'rubbish\r\n\r\n');
  const socket = new WebSocket(`${url.replace('http', 'ws')}/lab/socket`);
  await new Promise((resolve) => socket.addEventListener('open', resolve));
  const text = await (await fetch(`${url}/metrics`)).text();
  socket.close();
  const lines = new Set(text.split('\n'));
  for (const line of [
    'http_requests_total{service="lab",route="/lab/items/:id",method="GET",status="2xx"} 2',
    'http_requests_total{service="none",route="unmatched",method="GET",status="4xx"} 2',
    'http_requests_total{service="none",route="unmatched",method="OTHER",status="4xx"} 2',
    'http_requests_total{service="lab",route="/lab/socket",method="GET",status="1xx"} 1',
    'http_request_duration_seconds_count{service="lab",route="/lab/items/:id",method="GET"} 2',
    'http_request_duration_seconds_bucket{service="lab",route="/lab/items/:id",method="GET",le="60"} 2',
    'http_request_duration_seconds_bucket{service="lab",route="/lab/items/:id",method="GET",le="+Inf"} 2',
    'http_requests_in_flight 1',
    'websocket_connections 1',
  ]) {
    assert.ok(lines.has(line), line);
  }
  assert.doesNotMatch(text, /hunter2/);
});

test('B-29: one log line per request, with the pattern of its route and no word of its query', async (t) => {
  const routes = [routeOf({ path: '/lab/items/:id' })];
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  await fetch(`${url}/lab/items/secret-1?token=secret-2`, { headers: { authorization: 'Bearer secret-3' } });
  await fetch(`${url}/nowhere?token=secret-4`);
  const lines = await until('two lines of the log', () => (log.length === 2 ? log : undefined));
  const shown = lines.map(({ method, route, path, status, msg }) => ({ method, route, path, status, msg }));
  assert.deepEqual(shown, [
    { method: 'GET', route: '/lab/items/:id', path: undefined, status: 200, msg: 'request' },
    { method: 'GET', route: undefined, path: '/nowhere', status: 404, msg: 'request' },
  ]);
  assert.doesNotMatch(JSON.stringify(lines), /secret/);
});

/** As pino writes it. */
const DEBUG = 20;

test('questions of balancers and monitors are not logged, unless they fail', async (t) => {
  let isUp = true;
  const readinessChecks = {
    store: () => {
      if (!isUp) throw new Error('away');
    },
  };
  const lines: string[] = [];
  const requestLines = { write: (line: string) => lines.push(line) };
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({})], readinessChecks, requestLines });
  for (const path of ['/healthz', '/readyz', '/metrics']) assert.equal((await fetch(url + path)).status, 200);
  isUp = false;
  assert.equal((await fetch(`${url}/readyz`)).status, 503);
  await until('the line of the check that failed', () => lines.length > 0);
  assert.deepEqual(
    lines.map((line) => JSON.parse(line)).map(({ route, status }) => [route, status]),
    [['/readyz', 503]],
  );
  const levels = log.filter(({ msg }) => msg === 'request').map(({ level }) => level);
  assert.deepEqual(levels, Array(3).fill(DEBUG));
});

test('B-29: the quick way for request lines takes only what holds nothing of the caller', async (t) => {
  const routes = [routeOf({ path: '/lab/items/:id' })];
  const lines: Record<string, unknown>[] = [];
  const requestLines = { write: (line: string) => lines.push(JSON.parse(line)) };
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({ routes })], requestLines });
  await fetch(`${url}/lab/items/1?a=b`);
  await fetch(`${url}/lab/items/2`, { headers: { 'x-request-id': 'chosen' } });
  await fetch(`${url}/nowhere`);
  await until('three lines of the log', () => log.length + lines.length === 3);
  const [line] = lines;
  assert.deepEqual(Object.keys(line ?? {}), ['level', 'time', 'requestId', 'method', 'route', 'status', 'ms', 'msg']);
  assert.deepEqual([line?.level, line?.method, line?.route, line?.status], ['info', 'GET', '/lab/items/:id', 200]);
  assert.deepEqual(
    log.map(({ requestId, route, path }) => [requestId === 'chosen', route, path]),
    [
      [true, '/lab/items/:id', undefined],
      [false, undefined, '/nowhere'],
    ],
  );
});

test('a client that leaves before its answer is logged as gone, and is no longer in flight', async (t) => {
  const started = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<unknown>();
  const routes = [
    routeOf({
      path: '/lab/wait',
      handle: () => {
        started.resolve();
        return answer.promise;
      },
    }),
  ];
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const leaving = new AbortController();
  const asked = fetch(`${url}/lab/wait`, { signal: leaving.signal });
  await started.promise;
  leaving.abort();
  await assert.rejects(asked);
  const line = await until('the line of the request', () => log.find(({ msg }) => msg === 'request'));
  assert.deepEqual([line.status, line.cut], [499, true]);
  answer.resolve({ late: true });
  assert.match(await (await fetch(`${url}/metrics`)).text(), /^http_requests_in_flight 1$/m);
});
