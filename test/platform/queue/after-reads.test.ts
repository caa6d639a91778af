import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterReads, Bag } from '../../../src/platform/queue/after-reads.ts';
import { runNode } from '../../kit/run-node.ts';

test('tasks run together and in order, and what they lead to comes after all of them', async () => {
  const seen: string[] = [];
  for (const name of ['one', 'two']) {
    afterReads(() => {
      seen.push(name);
      void Promise.resolve().then(() => seen.push(`after ${name}`));
    });
  }
  assert.deepEqual(seen, []);
  await nextTurn();
  assert.deepEqual(seen, ['one', 'two', 'after one', 'after two']);
});

test('DP-2: each task runs in the async context in which it was added', async () => {
  const context = new AsyncLocalStorage<string>();
  const seen: (string | undefined)[] = [];
  for (const name of ['one', 'two']) context.run(name, () => afterReads(() => seen.push(context.getStore())));
  afterReads(() => seen.push(context.getStore()));
  await nextTurn();
  assert.deepEqual(seen, ['one', 'two', undefined]);
});

test('a task that is added by another one runs in the next turn', async () => {
  const seen: string[] = [];
  afterReads(() => afterReads(() => seen.push('inner')));
  await nextTurn();
  assert.deepEqual(seen, []);
  await nextTurn();
  assert.deepEqual(seen, ['inner']);
});

test('all that has arrived is read before the first task runs', async (context) => {
  const seen: string[] = [];
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket);
    socket.on('data', (data) => {
      seen.push(`read ${data}`);
      afterReads(() => seen.push(`done ${data}`));
    });
  });
  context.after(() => server.close());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const clients = [1, 2].map(() => connect((server.address() as AddressInfo).port, '127.0.0.1'));
  context.after(() => {
    for (const client of clients) client.destroy();
  });
  await Promise.all(clients.map((client) => once(client, 'connect')));
  while (accepted.length < clients.length) await nextTurn();
  for (const [index, client] of clients.entries()) client.write(String(index));
  while (seen.length < 4) await nextTurn();
  assert.deepEqual(
    seen.map((line) => line.split(' ')[0]),
    ['read', 'read', 'done', 'done'],
  );
});

test('a task that throws takes none of the others with it', async () => {
  const code = `
    import { afterReads } from './src/platform/queue/after-reads.ts';
    process.on('uncaughtException', (error) => console.log(error.message));
    afterReads(() => { throw new Error('thrown'); });
    afterReads(() => console.log('the next one'));
    afterReads(() => console.log('the last one'));
  `;
  const output = await runNode(['--input-type=module-typescript', '--eval', code]);
  assert.deepEqual(output.trim().split('\n'), ['the next one', 'the last one', 'thrown']);
});

test('a bag keeps what was added until it is taken out, whatever else comes and goes', () => {
  const bag = new Bag<{ readonly name: number; place?: number }>();
  const made = Array.from({ length: 50 }, (_, name) => ({ name, place: -1 }));
  for (const item of made) {
    bag.add(item);
    bag.add(item);
  }
  assert.equal(bag.size, 50);
  const seen = bag.items();
  for (const item of made.filter(({ name }) => name % 3 === 0)) assert.equal(bag.delete(item), true);
  for (const item of made.filter(({ name }) => name % 3 === 0)) assert.equal(bag.delete(item), false);
  assert.equal(seen.length, 50);
  const left = bag.items().map(({ name }) => name);
  assert.deepEqual(
    left.toSorted((a, b) => a - b),
    made.map(({ name }) => name).filter((name) => name % 3 !== 0),
  );
  assert.equal(new Bag<{ place?: number }>().delete(made[1] ?? {}), false, 'in another bag');
});
