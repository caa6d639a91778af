import assert from 'node:assert/strict';
import * as http2 from 'node:http2';
import { duplexPair } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { createRunners } from '../../../src/bridge/runners/create-runners.ts';
import { type Connected, HELLO_HEADER, keyHashOf } from '../../../src/bridge/runners/runner-tunnel.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { MessageChannel } from '../../../src/platform/json-rpc/message-channel.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const places = databasePlaces('sqlite');
const KEY = `trk_${'k'.repeat(43)}`;
const [FIRST, SECOND] = ['first-start-of-a-runner', 'second-start-of-a-runner'];

async function openRunners(t: TestContext) {
  const opened = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
  let isAway = false;
  let refused = 0;
  const database: Database<BridgeSchema> = {
    ...opened,
    write: ((...args: Parameters<typeof opened.write>) => {
      if (!isAway) return opened.write(...args);
      refused += 1;
      return Promise.reject(new AppError('STORAGE_UNAVAILABLE'));
    }) as typeof opened.write,
  };
  const clock = createFakeClock();
  let ids = 0;
  const runners = createRunners({
    database,
    clock,
    makeId: (prefix) => `${prefix}${ids++}`,
    randomness: { bytes: (count) => new Uint8Array(count), below: () => 0 },
    logger: silentLogger,
    throttle: { note: () => ({ firstOverLimit: false }) },
  });
  runners.join({ instance: 'ins_1', deadAfterMs: undefined });
  t.after(() => runners.stop());
  await runners.store().add({ id: 'run_1', name: 'builder', key_hash: keyHashOf(KEY), labels: '[]' });
  const runner = await runners.store().find('run_1');
  assert.ok(runner !== undefined);
  const caller: Connected = { runner, hello: { version: '1', host: 'here', slots: 2, start: FIRST } };

  /** A runner that responds to pings and serves nothing. */
  function connect(): { end(): void } {
    const [near, far] = duplexPair();
    const server = http2.createServer();
    server.on('session', (session) => void session.on('error', () => undefined));
    server.on('stream', (stream) => {
      stream.on('error', () => undefined);
      stream.respond({ ':status': 503 }, { endStream: true });
    });
    server.emit('connection', far);
    const listeners: (() => void)[] = [];
    const channel: MessageChannel = {
      send: () => undefined,
      close: () => undefined,
      onMessage: () => undefined,
      onEnd: (listener) => void listeners.push(() => listener({ code: 1006, reason: '' })),
      bytes: () => near,
    };
    near.once('close', () => {
      for (const listener of listeners) listener();
    });
    runners.upgrades[0]?.accept(channel, {} as never, caller);
    return { end: () => near.destroy() };
  }

  /** Asks for a connection, as a runner does. */
  const enter = async (start?: string) => {
    const hello = { version: '1', host: 'there', slots: 2, ...(start !== undefined && { start }) };
    const headers = { authorization: `Bearer ${KEY}`, [HELLO_HEADER]: JSON.stringify(hello) };
    return runners.upgrades[0]?.guard({ headers, address: '127.0.0.1' } as never);
  };

  const state = async () => (await runners.list())[0]?.state;
  const inState = (wanted: string) =>
    until(`the runner to be ${wanted}`, async () => {
      await clock.advance(100);
      return (await state()) === wanted;
    });
  return {
    connect,
    enter,
    state,
    inState,
    clock,
    refused: () => refused,
    setAway(away: boolean) {
      isAway = away;
    },
  };
}

test('a runner that goes while the database is away is away once the database is back', async (t) => {
  const { connect, inState, state, setAway, refused } = await openRunners(t);
  const runner = connect();
  await inState('leaving');
  setAway(true);
  runner.end();
  await until('an attempt to note it', () => refused() > 0);
  assert.equal(await state(), 'leaving');
  setAway(false);
  await inState('away');
});

test('what is noted late about an ended connection does not touch the next one', async (t) => {
  const { connect, inState, state, setAway, refused, clock } = await openRunners(t);
  const first = connect();
  await inState('leaving');
  setAway(true);
  first.end();
  await until('an attempt to note it', () => refused() > 0);
  setAway(false);
  connect();
  await inState('leaving');
  for (let second = 0; second < 20; second += 1) {
    await clock.advance(1000);
    assert.equal(await state(), 'leaving');
  }
});

test('a second runner with the key of a connected one is refused, and gets its place once that one is away', async (t) => {
  const { connect, enter, inState } = await openRunners(t);
  await enter(SECOND);
  const runner = connect();
  await inState('leaving');
  const refusal = { code: 'RUNNER_CONNECTED', details: { name: 'builder', host: 'here' } };
  await assert.rejects(enter(SECOND), refusal);
  await enter(FIRST);
  // A runner of an earlier version does not say which it is.
  await enter();
  runner.end();
  await inState('away');
  await enter(SECOND);
});
