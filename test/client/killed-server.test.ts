import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionUpdate } from '../../src/client/trestle-client.ts';
import { startProgram } from '../e2e/running-program.ts';
import { startFaultProxy } from '../fakes/fault-proxy.ts';
import { clientOf } from './client-of.ts';

const PROMPT = Array.from({ length: 400 }, (_, index) => `word${index}`).join(' ');

test('a server killed with -9 in the middle of a turn: the client comes back, sees each update once and the end', async (t) => {
  const first = await startProgram(t, { args: ['bridge'] });
  const { dataDirectory } = first;
  const proxy = await startFaultProxy(t, first.port);
  const client = clientOf(t, { url: proxy.url, reconnectMs: 30_000 });
  const turn = client.session('s').start(PROMPT);
  const seen: SessionUpdate[] = [];
  const kill = async () => {
    await first.stop('SIGKILL');
    const second = await startProgram(t, { args: ['bridge'], dataDirectory });
    proxy.setTarget(second.port);
  };
  let killed: Promise<void> | undefined;
  for await (const update of turn) {
    seen.push(update);
    if (update.type === 'delta') killed ??= kill();
  }
  await killed;
  const result = await turn.result;
  assert.ok(result.status === 'failed' ? result.code === 'TURN_INTERRUPTED' : result.status === 'completed');
  const numbers = seen.map(({ seq }) => seq);
  assert.deepEqual(
    numbers,
    [...new Set(numbers)].sort((a, b) => a - b),
  );
  assert.equal(seen.at(-1)?.event, result.status);

  const followed: number[] = [];
  for await (const { seq, event } of client.session('s').follow()) {
    followed.push(seq);
    if (event === result.status) break;
  }
  assert.deepEqual(
    numbers.filter((seq) => followed.includes(seq)),
    followed,
  );
  assert.equal((await client.session('s').message('go on').result).status, 'completed');
});
