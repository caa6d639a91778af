import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../../../../src/platform/errors/app-error.ts';
import { memoryStore, scriptedAgent, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { recordTurn } from '../recorded-turn.ts';

const unavailable = () => new AppError('STORAGE_UNAVAILABLE');
/** Lets time pass until that is over. Between two steps the files of the turn are read, which takes as long as it takes. */
async function passUntil<Value>(clock: ReturnType<typeof createFakeClock>, work: Promise<Value>): Promise<Value> {
  let isOver = false;
  const noted = work.finally(() => {
    isOver = true;
  });
  noted.catch(() => undefined);
  while (!isOver) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    await clock.advance(500);
  }
  return noted;
}

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
    // Tries after the first one find its row.
    await store.append(...given).catch(() => undefined);
    if (!isConfirmed) throw unavailable();
  };
  const clock = createFakeClock();
  const { agent } = scriptedAgent(() => ({ text: ['ok'] }), { store: { ...store, append }, clock });
  const folder = await workingDirectory(context);
  const isRefused = async (turn: Promise<unknown>) => {
    await assert.rejects(passUntil(clock, turn), { code: 'STORAGE_UNAVAILABLE' });
  };
  await isRefused(agent.startTurn(recordTurn(folder, 'lost')));
  assert.equal(store.rows.size, 0);
  // One that was begun before is kept: it can be continued.
  isConfirmed = true;
  const turn = recordTurn(folder, 'hello');
  await agent.startTurn(turn);
  isConfirmed = false;
  const [reference = ''] = turn.references;
  await isRefused(agent.continueTurn(reference, recordTurn(folder, 'again')));
  assert.equal(store.rows.size, 1);
});

test('a turn whose messages cannot be stored while the store is away goes on when it is back', async (context) => {
  const store = memoryStore();
  const clock = createFakeClock();
  const tries = new Map<number, number>();
  const append: typeof store.append = async (reference, position, ...rest) => {
    const number = (tries.get(position) ?? 0) + 1;
    tries.set(position, number);
    // The second try is stored, and its answer is lost.
    if (number === 2) await store.append(reference, position, ...rest);
    if (number < 3) throw unavailable();
    throw new AppError('STORAGE_DUPLICATE');
  };
  const { agent } = scriptedAgent(() => ({ text: ['ok'] }), { store: { ...store, append }, clock });
  const turn = recordTurn(await workingDirectory(context), 'hello');
  assert.equal((await passUntil(clock, agent.startTurn(turn))).kind, 'completed');
  assert.deepEqual(
    [...tries],
    [
      [0, 3],
      [1, 3],
    ],
    'the question and the answer, each three times',
  );
  const [bodies = []] = [...store.rows.values()];
  assert.equal(bodies.length, 2);
});
