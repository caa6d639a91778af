import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../../../../src/platform/errors/app-error.ts';
import { memoryStore, scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { recordTurn } from '../recorded-turn.ts';

const unavailable = () => new AppError('STORAGE_UNAVAILABLE');

test('a conversation that is closed while the store is away is removed when it is back', async (context) => {
  const store = memoryStore();
  const clock = createFakeClock();
  let failures = 2;
  const remove = async (reference: string) => {
    failures -= 1;
    if (failures >= 0) throw unavailable();
    await store.remove(reference);
  };
  const { agent } = scriptedAgent(() => ({ text: ['ok'] }), { store: { ...store, remove }, clock });
  const turn = recordTurn(await workingDirectory(context), 'a secret');
  await agent.startTurn(turn);
  const closed = agent.close(turn.references[0] ?? '');
  for (let second = 0; second < 2; second += 1) await clock.advance(1000);
  await closed;
  assert.deepEqual([failures, store.rows.size], [-1, 0]);
});

test('a conversation whose first message was stored and not confirmed is not left behind', async (context) => {
  const store = memoryStore();
  let isConfirmed = false;
  const append: typeof store.append = async (...given) => {
    await store.append(...given);
    if (!isConfirmed) throw unavailable();
  };
  const { agent } = scriptedAgent(() => ({ text: ['ok'] }), { store: { ...store, append } });
  const folder = await workingDirectory(context);
  await assert.rejects(agent.startTurn(recordTurn(folder, 'lost')), { code: 'STORAGE_UNAVAILABLE' });
  assert.equal(store.rows.size, 0);
  // One that was begun before is kept: it can be continued.
  isConfirmed = true;
  const turn = recordTurn(folder, 'hello');
  await agent.startTurn(turn);
  isConfirmed = false;
  const [reference = ''] = turn.references;
  await assert.rejects(agent.continueTurn(reference, recordTurn(folder, 'again')), { code: 'STORAGE_UNAVAILABLE' });
  assert.equal(store.rows.size, 1);
});
