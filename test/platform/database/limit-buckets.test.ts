import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  type ClusterSchema,
  clusterMigrations,
  createBucketStore,
} from '../../../src/platform/database/postgres/limit-buckets.ts';
import { databasePlaces } from '../../kit/database-engines.ts';

describe('buckets of limits on PostgreSQL', () => {
  const places = databasePlaces('postgres');
  const open = async () =>
    createBucketStore(await places.open<ClusterSchema>({ name: 'cluster', migrations: clusterMigrations }));

  test('a bucket begins full, gives what is there, and no more', async () => {
    const store = await open();
    assert.deepEqual(await store.take({ id: 'a', perMinute: 10, need: 1, want: 4 }), { granted: 4, level: 6 });
    const rest = await store.take({ id: 'a', perMinute: 10, need: 1, want: 100 });
    assert.equal(rest.granted, 6);
    const none = await store.take({ id: 'a', perMinute: 10, need: 1, want: 1 });
    assert.equal(none.granted, 0);
    assert.ok(none.level < 1, String(none.level));
    const other = await store.take({ id: 'b', perMinute: 10, need: 1, want: 1 });
    assert.equal(other.granted, 1);
  });

  test('it fills with the clock of the database, and never over its limit', async () => {
    const store = await open();
    await store.take({ id: 'a', perMinute: 60_000, need: 1, want: 60_000 });
    await new Promise((resolve) => setTimeout(resolve, 100));
    const { granted } = await store.take({ id: 'a', perMinute: 60_000, need: 1, want: 60_000 });
    assert.ok(granted >= 100 && granted < 30_000, String(granted));
    await store.give([{ id: 'a', perMinute: 60_000, amount: 1_000_000 }]);
    assert.equal((await store.take({ id: 'a', perMinute: 60_000, need: 1, want: 90_000 })).granted, 60_000);
  });

  test('a debt is paid before anything is given', async () => {
    const store = await open();
    await store.give([{ id: 'a', perMinute: 10, amount: -25 }]);
    const { granted, level } = await store.take({ id: 'a', perMinute: 10, need: 1, want: 1 });
    assert.equal(granted, 0);
    assert.ok(level < -14 && level >= -15, String(level));
  });

  test('a changed limit counts from the next call on', async () => {
    const store = await open();
    await store.take({ id: 'a', perMinute: 10, need: 1, want: 10 });
    assert.equal((await store.take({ id: 'a', perMinute: 30, need: 1, want: 30 })).granted, 20);
    assert.equal((await store.take({ id: 'a', perMinute: 10, need: 1, want: 1 })).granted, 0);
  });

  test('many statements for one bucket give no more than one would', async () => {
    const store = await open();
    const takes = Array.from({ length: 200 }, () => store.take({ id: 'a', perMinute: 50, need: 1, want: 1 }));
    const granted = (await Promise.all(takes)).reduce((sum, take) => sum + take.granted, 0);
    assert.ok(granted >= 50 && granted <= 55, String(granted));
  });

  test('after a crash of the database buckets begin empty', async () => {
    const store = await open();
    assert.equal((await store.take({ id: 'a', perMinute: 10, need: 1, want: 1 })).granted, 1);
    await places.postgres().restart();
    const after = await untilAnswered(() => store.take({ id: 'a', perMinute: 10, need: 1, want: 1 }));
    assert.equal(after.granted, 0);
    assert.equal((await store.take({ id: 'new', perMinute: 10, need: 1, want: 1 })).granted, 0);
    // The server has not run for a minute yet: the mark that the table is whole stays away.
    await store.sweep();
    assert.equal((await store.take({ id: 'newer', perMinute: 10, need: 1, want: 1 })).granted, 0);
  });
});

async function untilAnswered<T>(ask: () => Promise<T>): Promise<T> {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      if (attempt === 20) throw error;
    }
  }
}
