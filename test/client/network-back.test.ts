import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRetries } from '../../src/client/bridge-transport.ts';
import type { WebSocketLike } from '../../src/client/socket-link.ts';
import { connectionLost } from '../../src/client/trestle-error.ts';
import { clientOf } from '../kit/bridge/client-of.ts';

/** Browsers have these; Node has not. */
type Listening = Partial<Pick<EventTarget, 'addEventListener' | 'removeEventListener'>>;

test('a browser whose network is back is not made to wait, and the pauses begin again with short ones', async (t) => {
  const browser = new EventTarget();
  let listening = 0;
  const global = globalThis as Listening;
  global.addEventListener = (type, listener) => {
    listening += 1;
    browser.addEventListener(type, listener);
  };
  global.removeEventListener = (type, listener) => {
    listening -= 1;
    browser.removeEventListener(type, listener);
  };
  t.after(() => {
    delete global.addEventListener;
    delete global.removeEventListener;
  });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const retries = createRetries(Number.POSITIVE_INFINITY, new AbortController().signal);
  const lost = connectionLost('the network is gone');
  // Until pauses have their full length of at least 2.5 seconds.
  for (let count = 0; count < 8; count += 1) {
    const waited = retries.failed(lost);
    t.mock.timers.tick(5000);
    await waited;
  }
  let isOver = false;
  const waiting = retries.failed(lost).then(() => {
    isOver = true;
  });
  t.mock.timers.tick(2400);
  await Promise.resolve();
  assert.equal(isOver, false);
  browser.dispatchEvent(new Event('online'));
  await waiting;
  const next = retries.failed(lost);
  t.mock.timers.tick(100);
  await next;
  assert.equal(listening, 0, 'nothing listens when nothing waits');
});

/** Opens, and is closed by the other side in the same moment. */
function closedSocket(): WebSocketLike {
  const socket = new EventTarget();
  setImmediate(() => {
    socket.dispatchEvent(new Event('open'));
    setImmediate(() => socket.dispatchEvent(new Event('close')));
  });
  return Object.assign(socket, { send: () => undefined, close: () => undefined }) as unknown as WebSocketLike;
}

for (const what of ['a watcher', 'a follower'] as const) {
  test(`${what} whose connections are closed as soon as they open connects with pauses, and not without end`, async (t) => {
    let opened = 0;
    const openSocket = () => {
      opened += 1;
      return closedSocket();
    };
    const client = clientOf(t, { url: 'http://127.0.0.1:1', transport: 'websocket', openSocket, reconnectMs: 400 });
    if (what === 'a watcher') {
      client.live.watch(['sessions'], () => undefined);
      await new Promise((resolve) => setTimeout(resolve, 400));
    } else {
      const read = async () => {
        for await (const _ of client.session('s').follow());
      };
      await assert.rejects(read(), { code: 'CONNECTION_LOST' });
    }
    assert.ok(opened > 1 && opened < 10, `${opened} connections`);
  });
}
