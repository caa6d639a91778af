import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { call, openClient, stream } from '../kit/bridge/session-client.ts';
import { type Scope, startProgram } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const start = (sessionId: string, taskPrompt: string) => ({ sessionId, taskPrompt });

/** A model that says a word whenever the test lets it. */
async function startSlowModel(scope: Scope) {
  const answers: ServerResponse[] = [];
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    answers.push(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const send = (data: string) => answers.at(-1)?.write(`data: ${data}\n\n`);
  const chunk = (delta: object, finish: string | null) =>
    send(
      JSON.stringify({
        id: 'c',
        object: 'chat.completion.chunk',
        choices: [{ index: 0, delta, finish_reason: finish }],
      }),
    );
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked: () => answers.length,
    say: (content: string) => chunk({ content }, null),
    end() {
      chunk({}, 'stop');
      send('[DONE]');
      answers.at(-1)?.end();
    },
  };
}

test('a turn killed with the program by kill -9 is interrupted, resumable, and not run again', async (t) => {
  const model = await startSlowModel(t);
  const environment = { TRESTLE_AGENTS_BUILTIN_BASE_URL: model.url };
  const first = await startProgram(t, { args: ['bridge'], environment });
  const { dataDirectory } = first;

  const finished = stream(first.url, { method: 'session.start', params: start('done', 'one') });
  await until('the first call of the model', () => model.asked() === 1, 60_000);
  model.say('all ');
  model.say('said');
  model.end();
  const before = await finished;
  assert.equal(before.final.result?.output, 'all said');

  const client = await openClient(t, first.url);
  void client.call('session.start', start('killed', 'two'));
  await until('the second call of the model', () => model.asked() === 2, 60_000);
  model.say('half');
  const half = await client.seen(({ type, text }) => type === 'delta' && text === 'half');
  assert.equal(await first.stop('SIGKILL'), 'SIGKILL');

  const second = await startProgram(t, { args: ['bridge'], environment, dataDirectory });
  const message = { method: 'session.start', params: start('done', 'one') };
  const again = await stream(second.url, message, { 'last-event-id': '0' });
  assert.deepEqual(again.updates, before.updates);
  assert.deepEqual(again.final.result, before.final.result);

  const follower = await openClient(t, second.url, { query: `sessionId=killed&afterSeq=${half.seq}` });
  const end = await follower.seen(({ event }) => event === 'failed');
  assert.equal(end.turnId, half.turnId);
  assert.ok(end.seq > half.seq);
  assert.equal(model.asked(), 2);

  const continued = call(second.url, 'session.message', start('killed', 'three'));
  await until('the third call of the model', () => model.asked() === 3, 60_000);
  model.say('gone on');
  model.end();
  assert.equal((await continued).result?.output, 'gone on');
  const numbers = follower.updates.map(({ seq }) => seq);
  assert.deepEqual(
    numbers,
    [...new Set(numbers)].sort((a, b) => a - b),
  );
});
