import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { stopListening } from '../../../src/platform/http/http-server.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import { exchange, openRaw, statusOf } from '../../kit/raw-connection.ts';
import { until } from '../../kit/until.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

test('O-08: connections that wait to be taken when a server stops listening are taken, and no later ones', async (t) => {
  const server = createServer((_request, response) => {
    response.shouldKeepAlive = false;
    response.end('done');
  });
  const port = Number(new URL((await listenOnLoopback(server)).url).port);
  const answers = Array.from({ length: 20 }, () => exchange(t, port, REQUEST));
  const stopped = stopListening(server);
  for (const answer of await Promise.all(answers)) assert.equal(statusOf(answer), 200);
  await stopped;
  await assert.rejects(openRaw(t, port), { code: 'ECONNREFUSED' });
});

test('O-08: a connection that waits for its next request is not cut by that', async (t) => {
  const server = createServer((_request, response) => response.end('done'));
  const port = Number(new URL((await listenOnLoopback(server)).url).port);
  const kept = await openRaw(t, port);
  kept.socket.write(REQUEST);
  await kept.until('done');
  const stopped = stopListening(server);
  await until('the server to stop listening', () => !server.listening);
  kept.socket.write(REQUEST.replace('Host', 'Connection: close\r\nHost'));
  assert.equal((await kept.closed()).match(/HTTP\/1\.1 200 /g)?.length, 2);
  await stopped;
});
