import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { SessionUpdate } from '../../src/client/trestle-client.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { type Scope, startProgram } from '../kit/running-program.ts';

/** A model that says a few words and never comes to an end. */
async function startEndlessModel(scope: Scope) {
  let asked = 0;
  const server = createServer((request, response) => {
    request.resume();
    asked += 1;
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const content of ['one ', 'two ', 'three ']) {
      const choices = [{ index: 0, delta: { content }, finish_reason: null }];
      response.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', choices })}\n\n`);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, asked: () => asked };
}

test('a server killed with -9 in the middle of a turn: the client comes back and sees each update once, and the end', async (t) => {
  const model = await startEndlessModel(t);
  const environment = { TRESTLE_AGENTS_BUILTIN_BASE_URL: model.url };
  const first = await startProgram(t, { args: ['bridge'], environment });
  const { dataDirectory } = first;
  const proxy = await startFaultProxy(t, first.port);
  const session = clientOf(t, { url: proxy.url, reconnectMs: 60_000 }).session('s');
  const turn = session.start('count');
  const seen: SessionUpdate[] = [];
  const restart = async () => {
    // Updates go out at once and are stored within 20 ms.
    await new Promise((resolve) => setTimeout(resolve, 200));
    await first.stop('SIGKILL');
    const second = await startProgram(t, { args: ['bridge'], environment, dataDirectory });
    proxy.setTarget(second.port);
  };
  let restarted: Promise<void> | undefined;
  for await (const update of turn) {
    seen.push(update);
    if (update.delta === 'three ') restarted ??= restart();
  }
  await restarted;
  const result = await turn.result;
  assert.equal(result.code, 'TURN_INTERRUPTED');
  assert.equal(seen.at(-1)?.event, 'failed');
  assert.equal(model.asked(), 1);

  const followed: SessionUpdate[] = [];
  for await (const update of session.follow()) {
    followed.push(update);
    if (update.event === 'failed') break;
  }
  assert.deepEqual(followed, seen);
});
