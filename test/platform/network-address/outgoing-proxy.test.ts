import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Dispatcher } from 'undici';
import { createUpstreamPools } from '../../../src/completions/upstream/upstream-pools.ts';
import { childEnvironment } from '../../../src/platform/child-process/child-environment.ts';
import { readOutgoingProxy, useOutgoingProxy } from '../../../src/platform/network-address/outgoing-proxy.ts';

async function listen(t: TestContext, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A proxy that leads every host to one server of this machine, and notes which hosts it was asked for. */
async function startProxy(t: TestContext, port: number) {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(new URL(request.url ?? '').host);
    response.end('through the proxy');
  });
  server.on('connect', (request, socket, head) => {
    asked.push(request.url ?? '');
    const further = connect(port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
      further.write(head);
      further.pipe(socket).pipe(further);
    });
    for (const end of [further, socket]) end.on('error', () => undefined);
  });
  return { asked, url: `http://127.0.0.1:${await listen(t, server)}` };
}

test('DB-21: the proxy of the environment is read in both cases, and this machine is always called directly', () => {
  const direct = 'localhost,127.0.0.1,[::1]';
  for (const [environment, proxy] of [
    [{}, undefined],
    [{ NO_PROXY: 'a.test' }, undefined],
    [{ HTTP_PROXY: 'http://p:1' }, { http: 'http://p:1', https: '', direct }],
    [
      { HTTP_PROXY: 'http://p:1', http_proxy: 'http://q:2' },
      { http: 'http://q:2', https: '', direct },
    ],
    [
      { https_proxy: 'p:3', NO_PROXY: 'a.test' },
      { http: '', https: 'http://p:3', direct: `a.test,${direct}` },
    ],
    [{ HTTPS_PROXY: 'socks5://p:4' }, undefined],
    [{ HTTPS_PROXY: 'http://[' }, undefined],
  ] as const) {
    assert.deepEqual(readOutgoingProxy(environment), proxy, JSON.stringify(environment));
  }
});

test('DB-21: children get proxies, and those with a password only for the operator’s own work, as the ssh agent', () => {
  const parent = {
    HTTP_PROXY: 'http://user:word@p:1',
    http_proxy: 'user:word@p:1',
    HTTPS_PROXY: 'http://p:2',
    https_proxy: 'p:2',
    NO_PROXY: 'a.test',
    no_proxy: 'b.test',
    Http_Proxy: 'http://p:3',
    SSH_AUTH_SOCK: '/run/agent',
    BRIDGE_AUTH_TOKEN: 'secret',
  };
  const open = { HTTPS_PROXY: 'http://p:2', https_proxy: 'p:2', NO_PROXY: 'a.test', no_proxy: 'b.test' };
  assert.deepEqual(childEnvironment(parent), open);
  assert.deepEqual(childEnvironment(parent, {}, { isOperators: true }), {
    ...open,
    HTTP_PROXY: 'http://user:word@p:1',
    http_proxy: 'user:word@p:1',
    SSH_AUTH_SOCK: '/run/agent',
  });
});

test('DB-21: calls to upstreams go through the proxy, except to hosts that need none', async (t) => {
  const port = await listen(
    t,
    createServer((_, response) => response.end('through the proxy')),
  );
  const proxy = await startProxy(t, port);
  const pools = createUpstreamPools(undefined, readOutgoingProxy({ http_proxy: proxy.url, no_proxy: 'near.test' }));
  t.after(pools.close);
  const call = async (origin: string) => {
    const pool = await pools.open(origin, 2000);
    const done = Promise.withResolvers<number>();
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: () => undefined,
      onResponseStart: (_controller, status) => done.resolve(status),
      onResponseData: () => undefined,
      onResponseEnd: () => undefined,
      onResponseError: (_controller, error) => done.reject(error),
    };
    pool.dispatch({ method: 'GET', path: '/', headers: {} }, handler);
    return done.promise;
  };
  assert.equal(await call('http://far.test:81'), 200);
  assert.deepEqual(proxy.asked, ['far.test:81']);
  await assert.rejects(call('http://near.test:81'), 'the name is looked up here, where nobody knows it');
  assert.equal(await call(`http://127.0.0.1:${port}`), 200);
  assert.deepEqual(proxy.asked, ['far.test:81']);
  await assert.rejects(
    async () => call('http://169.254.169.254'),
    'where a cloud keeps credentials, as without a proxy',
  );
});

test('DB-21: fetch goes through the proxy once the program has read it, and stays direct without one', async (t) => {
  const port = await listen(
    t,
    createServer((_, response) => response.end('through the proxy')),
  );
  const proxy = await startProxy(t, port);
  assert.equal(await useOutgoingProxy({ PATH: '/bin' }), false);
  await assert.rejects(fetch('http://far.test:82/'));
  assert.equal(await useOutgoingProxy({ HTTP_PROXY: proxy.url }), true);
  assert.equal(await (await fetch('http://far.test:82/')).text(), 'through the proxy');
  assert.deepEqual(proxy.asked, ['far.test:82']);
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), 'through the proxy');
  assert.deepEqual(proxy.asked, ['far.test:82']);
});
