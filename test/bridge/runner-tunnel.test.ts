import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { duplexPair } from 'node:stream';
import { test } from 'node:test';
import { openTunnel } from '../../src/bridge/runners/runner-tunnel.ts';
import { createFakeClock } from '../kit/fake-clock.ts';

test('a connection that a runner opens too late is given up, and its place at the runner is free again', async (t) => {
  const [here, there] = duplexPair();
  const clock = createFakeClock();
  const server = http2.createServer();
  const tunnel = openTunnel(here, clock);
  t.after(() => tunnel.end());
  const asked = once(server, 'stream') as Promise<[http2.ServerHttp2Stream]>;
  server.emit('connection', there);
  const refused = assert.rejects(tunnel.open(), /does not open a connection/);
  const [late] = await asked;
  const closed = once(late, 'close');
  await clock.advance(11_000);
  await refused;
  await closed;
  assert.equal(late.rstCode, http2.constants.NGHTTP2_CANCEL);

  server.once('stream', (stream) => stream.respond({ ':status': 200 }));
  const opened = await tunnel.open();
  await clock.advance(11_000);
  assert.equal(opened.destroyed, false, 'the limit is for the opening alone');
});
