import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import {
  createInstanceStore,
  createRunnerStore,
  type RunnerStore,
} from '../../../src/bridge/storage/instance-and-route-stores.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const DEAD_AFTER_MS = 60_000;
const connection = (process: string) => ({ instance: 'ins_1', connection: 'con_1', slots: 1, report: '', process });
const turn = (id: string, instance = 'ins_1') => ({ id, runner_id: 'run_1', instance });

for (const engine of engines) {
  describe(`the store of runners on ${engine}`, () => {
    const places = databasePlaces(engine);

    /** What two instances have of one database; on SQLite there is one instance. */
    async function open(process: string): Promise<readonly [RunnerStore, RunnerStore]> {
      const place = { name: 'bridge', migrations: bridgeMigrations, location: places.location() };
      const deadAfterMs = engine === 'sqlite' ? undefined : DEAD_AFTER_MS;
      const stores: RunnerStore[] = [];
      for (const id of engine === 'sqlite' ? ['ins_1'] : ['ins_1', 'ins_2']) {
        const database = await places.open<BridgeSchema>(place);
        await createInstanceStore(database).beat(
          { id, version: '1', address: '', started_at: 1, heartbeat_at: 1 },
          deadAfterMs,
        );
        stores.push(createRunnerStore(database, () => id, deadAfterMs));
      }
      const [first, second = first] = stores as [RunnerStore, RunnerStore?];
      await first.add({ id: 'run_1', name: 'builder', key_hash: 'h', labels: '[]' });
      assert.equal(await first.connect('run_1', connection(process)), true);
      return [first, second];
    }

    const listed = async (store: RunnerStore) => {
      const [row] = await store.list();
      return [row?.slots, row?.session, row?.turns];
    };

    test('of two sessions that want a runner for one session at the same moment, one gets it, and keeps it', async () => {
      const [one, two] = await open('process-1');
      const other = two === one ? 'ins_1' : 'ins_2';
      const taken = await Promise.all([one.take(turn('a'), true), two.take(turn('b', other), true)]);
      const winner = typeof taken[0] === 'object' ? 'a' : 'b';
      const loser = winner === 'a' ? 'b' : 'a';
      assert.deepEqual(winner === 'a' ? taken : taken.toReversed(), [{ process: 'process-1' }, 'full']);
      assert.deepEqual(await listed(one), [0, winner, 1], 'an instance of an earlier version finds no slots');
      await one.release(winner);
      assert.equal(await two.take(turn(loser), true), 'full', 'also while no turn of its session runs');
      assert.deepEqual(await two.take(turn(winner), false), { process: 'process-1' });
    });

    test('many that want it at the same moment: one gets it', async () => {
      const [one, two] = await open('process-1');
      const wanted = Array.from({ length: 20 }, (_, index) =>
        (index % 2 === 0 ? one : two).take(turn(`s${index}`), true),
      );
      const results = await Promise.all(wanted);
      assert.equal(results.filter((result) => typeof result === 'object').length, 1);
      assert.equal((await listed(one)).at(-1), 1);
    });

    test('a connection that is made again keeps its session, and another process begins free', async () => {
      const [store] = await open('process-1');
      await store.take(turn('a'), true);
      await store.connect('run_1', { ...connection('process-1'), connection: 'con_2' });
      assert.deepEqual(await listed(store), [0, 'a', 1]);
      await store.release('a');
      await store.connect('run_1', { ...connection('process-2'), connection: 'con_3' });
      assert.equal(await store.take(turn('a'), false), 'gone', 'the earlier session does not come back');
      assert.deepEqual(await listed(store), [0, '', 0]);
      assert.deepEqual(await store.take(turn('b'), true), { process: 'process-2' });
    });

    test('a turn that finds no room does not make its session that of the runner', async () => {
      const [store] = await open('process-1');
      await store.take(turn('a'), true);
      await store.connect('run_1', { ...connection('process-2'), connection: 'con_2' });
      assert.equal(await store.take(turn('b'), true), 'full', 'the turn of the earlier process has not ended');
      assert.deepEqual(await listed(store), [0, '', 1]);
    });

    test('a runner with slots takes turns of any session', async () => {
      const [store] = await open('');
      assert.deepEqual(await store.take(turn('a'), true), { process: '' });
      assert.equal(await store.take(turn('b'), false), 'full');
      await store.release('a');
      assert.deepEqual(await store.take(turn('b'), false), { process: '' });
      assert.deepEqual(await listed(store), [1, '', 1]);
      assert.equal(await store.take({ ...turn('c'), runner_id: 'run_9' }, true), 'gone');
    });
  });
}
