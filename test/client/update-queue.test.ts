import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionUpdate } from '../../src/bridge/contract/session-update.ts';
import { createUpdateQueue } from '../../src/client/agent-session.ts';

const update = (seq: number): SessionUpdate => ({
  sessionId: 's',
  threadId: 's',
  turnId: 't',
  seq,
  type: 'delta',
  event: 'delta',
  message: String(seq),
});

async function readAll(updates: AsyncIterable<SessionUpdate>): Promise<number[]> {
  const seen: number[] = [];
  for await (const { seq } of updates) seen.push(seq);
  return seen;
}

test('updates are read in order, those that waited and those that come', async () => {
  const queue = createUpdateQueue(5000);
  for (let seq = 1; seq <= 3000; seq += 1) queue.push(update(seq));
  const reading = readAll(queue.read());
  await new Promise((resolve) => setImmediate(resolve));
  for (let seq = 3001; seq <= 3010; seq += 1) queue.push(update(seq));
  await new Promise((resolve) => setImmediate(resolve));
  queue.end();
  assert.deepEqual(
    await reading,
    Array.from({ length: 3010 }, (_, index) => index + 1),
  );
});

test('a reader that is too slow gets what was kept, and then an error that says where to go on', async () => {
  const queue = createUpdateQueue(3);
  for (let seq = 11; seq <= 20; seq += 1) queue.push(update(seq));
  queue.end();
  const seen: number[] = [];
  const reading = (async () => {
    for await (const { seq } of queue.read()) seen.push(seq);
  })();
  await assert.rejects(reading, { code: 'UPDATES_OVERFLOWED', data: { afterSeq: 13 } });
  assert.deepEqual(seen, [11, 12, 13]);
});

test('to stop reading is to want no more: nothing is kept', async () => {
  const queue = createUpdateQueue(3);
  queue.push(update(1));
  for await (const _ of queue.read()) break;
  for (let seq = 2; seq <= 20; seq += 1) queue.push(update(seq));
  assert.equal(queue.size(), 0);
  assert.deepEqual(await readAll(queue.read()), []);
});
