import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import {
  callOnce,
  completionsDatabase,
  headWith,
  isRefused,
  MASTER_KEY,
  startKeys,
  WITHIN_A_SECOND_MS,
} from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { timeLimit } from '../../kit/time.ts';
import { until } from '../../kit/until.ts';

for (const engine of engines) {
  describe(`issued keys on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = (location = places.location()) => places.open<CompletionsSchema>(completionsDatabase, { location });

    test('P-25: a key is shown once and stored as a digest; it works until it is revoked', async (t) => {
      const location = places.location();
      const database = await open(location);
      const keys = startKeys(database);
      t.after(() => keys.stop());
      const issued = await keys.register.create({ name: 'laptop', models: ['lab/*'] });
      assert.match(issued.key, /^tsk_[\w-]{43}$/);
      assert.equal(issued.hint, issued.key.slice(0, 8));
      const listed = await keys.register.list({});
      assert.deepEqual(
        listed.data.map(({ id, name, models }) => ({ id, name, models })),
        [{ id: issued.id, name: 'laptop', models: ['lab/*'] }],
      );
      assert.ok(!JSON.stringify(listed).includes(issued.key));
      const rows = await database.query.selectFrom('keys').selectAll().execute();
      assert.ok(!JSON.stringify(rows).includes(issued.key.slice(12)));
      if (location.engine === 'sqlite') {
        for (const file of [location.file, `${location.file}-wal`]) {
          assert.ok(!(await readFile(file, 'latin1').catch(() => '')).includes(issued.key.slice(12)), file);
        }
      }

      for (const attempt of ['read', 'kept']) {
        const holder = await keys.access.withKey(headWith(issued.key));
        assert.equal(holder.id, issued.id, attempt);
        assert.equal(holder.isMaster, false);
        assert.equal(holder.mayUse('lab/small'), true);
        assert.equal(holder.mayUse('other/small'), false);
      }
      await keys.register.remove(issued.id);
      await assert.rejects(async () => keys.access.withKey(headWith(issued.key)), { code: 'INVALID_API_KEY' });
      await assert.rejects(keys.register.remove(issued.id), { code: 'KEY_NOT_FOUND' });
    });

    test('a key whose creation cannot be recorded is removed again: nobody has received it', async (t) => {
      const events: string[] = [];
      const keys = startKeys(await open(), {
        owners: {
          ownerOf: async () => undefined,
          watch: () => () => undefined,
          async record({ event }) {
            events.push(event);
            if (events.length === 1) throw new AppError('STORAGE_UNAVAILABLE');
          },
        },
      });
      t.after(() => keys.stop());
      await assert.rejects(keys.register.create({ name: 'laptop' }), { code: 'STORAGE_UNAVAILABLE' });
      assert.deepEqual((await keys.register.list({})).data, []);
      assert.deepEqual(events, ['key.created', 'key.removed']);
    });

    test('a key that is revoked while it is looked up is not kept', async (t) => {
      const keys = startKeys(await open());
      t.after(() => keys.stop());
      for (let round = 0; round < 20; round += 1) {
        const issued = await keys.register.create({ name: 'short-lived' });
        const looking = Promise.resolve(keys.access.withKey(headWith(issued.key))).catch(() => undefined);
        await Promise.all([looking, keys.register.remove(issued.id)]);
        await assert.rejects(async () => keys.access.withKey(headWith(issued.key)), { code: 'INVALID_API_KEY' });
      }
    });

    test('a key whose removal was stored and not confirmed works no more, and neither when it is removed again', async (t) => {
      const database = await open();
      let isConfirmed = true;
      const write: typeof database.write = async (statements) => {
        const results = await database.write(statements);
        if (!isConfirmed) throw new AppError('STORAGE_UNAVAILABLE');
        return results;
      };
      const keys = startKeys({ ...database, write });
      t.after(() => keys.stop());
      const issued = await keys.register.create({ name: 'lost' });
      await keys.access.withKey(headWith(issued.key));
      isConfirmed = false;
      await assert.rejects(keys.register.remove(issued.id), { code: 'STORAGE_UNAVAILABLE' });
      isConfirmed = true;
      await assert.rejects(async () => keys.access.withKey(headWith(issued.key)), { code: 'INVALID_API_KEY' });
      await assert.rejects(keys.register.remove(issued.id), { code: 'KEY_NOT_FOUND' });
    });

    test('P-28: a user sees and removes own keys only', async (t) => {
      const keys = startKeys(await open());
      t.after(() => keys.stop());
      const own = keys.ownKeys;
      const anna = await own.create('usr_anna', { name: 'a' });
      const bert = await own.create('usr_bert', { name: 'b' });
      assert.deepEqual(
        (await own.list('usr_anna')).map(({ id, owner }) => ({ id, owner })),
        [{ id: anna.id, owner: 'user:usr_anna' }],
      );
      await assert.rejects(own.remove('usr_anna', bert.id), { code: 'KEY_NOT_FOUND' });
      assert.equal((await keys.access.withKey(headWith(bert.key))).owner, 'user:usr_bert');
      await own.remove('usr_bert', bert.id);
      assert.equal((await own.list('usr_bert')).length, 0);
      assert.equal((await keys.register.list({})).data.length, 1);
    });

    test('pages of keys come in the order of their making', async (t) => {
      const keys = startKeys(await open());
      t.after(() => keys.stop());
      const made: string[] = [];
      for (const name of ['a', 'b', 'c']) made.push((await keys.register.create({ name })).id);
      const first = await keys.register.list({ limit: 2 });
      assert.equal(first.has_more, true);
      const second = await keys.register.list({ limit: 2, after: made[1] });
      assert.equal(second.has_more, false);
      assert.deepEqual(
        [...first.data, ...second.data].map(({ id }) => id),
        made,
      );
    });

    test('P-27: what a key spent survives a restart, a clean one to the last call', async () => {
      const location = places.location();
      const budget = { usd: 0.1, period: 'total' } as const;
      const first = startKeys(await open(location));
      const { key } = await first.register.create({ name: 'budgeted', budget });
      const holder = await first.access.withKey(headWith(key));
      for (let call = 0; call < 6; call += 1) callOnce(first, holder);
      assert.throws(() => callOnce(first, holder), { code: 'BUDGET_EXCEEDED' });
      await first.stop();

      const second = startKeys(await open(location));
      const again = await second.access.withKey(headWith(key));
      assert.throws(() => callOnce(second, again), { code: 'BUDGET_EXCEEDED' });
      callOnce(second, again, 9);
      await second.stop();
    });

    test('a budget of the day is not charged with what was spent on another', async (t) => {
      const database = await open();
      const keys = startKeys(database);
      t.after(() => keys.stop());
      const { id, key } = await keys.register.create({ name: 'daily', budget: { usd: 0.02, period: 'day' } });
      const old = { key_id: id, period: '2001-01-01', cost_nano_usd: 5_000_000_000 };
      await database.write([database.query.insertInto('key_spending').values(old).compile()]);
      callOnce(keys, await keys.access.withKey(headWith(key)));
    });
  });
}

describe('several instances on one PostgreSQL', () => {
  const places = databasePlaces('postgres');

  test('P-25: a key that one instance revokes stops working at the others within a second', async () => {
    const location = places.location();
    const instances = await Promise.all(
      [1, 2].map(async () => startKeys(await places.open<CompletionsSchema>(completionsDatabase, { location }))),
    );
    const [first, second] = instances;
    assert.ok(first !== undefined && second !== undefined);
    const issued = await first.register.create({ name: 'shared' });
    for (const keys of instances) assert.equal((await keys.access.withKey(headWith(issued.key))).id, issued.id);
    await first.register.remove(issued.id);
    await assert.rejects(async () => first.access.withKey(headWith(issued.key)), { code: 'INVALID_API_KEY' });
    await until('the refusal at the other instance', () => isRefused(second, issued.key), WITHIN_A_SECOND_MS);
    for (const keys of instances) await keys.stop();
  });

  test('P-27: what one instance spent is seen by the others', async () => {
    const location = places.location();
    const instances = await Promise.all(
      [1, 2].map(async () => startKeys(await places.open<CompletionsSchema>(completionsDatabase, { location }))),
    );
    const [first, second] = instances;
    assert.ok(first !== undefined && second !== undefined);
    const { key } = await first.register.create({ name: 'shared', budget: { usd: 0.1, period: 'month' } });
    const holders = await Promise.all(instances.map(async (keys) => keys.access.withKey(headWith(key))));
    const [atFirst, atSecond] = holders;
    assert.ok(atFirst !== undefined && atSecond !== undefined);
    callOnce(first, atFirst, 90);
    await delay(timeLimit(2200));
    await second.access.withKey(headWith(key));
    assert.throws(() => callOnce(second, atSecond, 20), { code: 'BUDGET_EXCEEDED' });
    for (const keys of instances) await keys.stop();
  });
});

describe('who a request comes from', () => {
  const places = databasePlaces('sqlite');
  const open = () => places.open<CompletionsSchema>(completionsDatabase);

  test('P-25: no, a wrong, an unknown and an expired key are refused; many wrong ones have to wait', async (t) => {
    const clock = createFakeClock(Date.now());
    const keys = startKeys(await open(), { clock });
    t.after(() => keys.stop());
    const withKey = async (key: string) => keys.access.withKey(headWith(key));
    for (const wrong of ['', 'wrong', `tsk_${'x'.repeat(43)}`, `${MASTER_KEY}x`]) {
      await assert.rejects(withKey(wrong), { code: 'INVALID_API_KEY', details: {} });
    }
    assert.equal((await withKey(MASTER_KEY)).isMaster, true);
    const soon = await keys.register.create({
      name: 'soon over',
      expires_at: new Date(clock.now() + 300).toISOString(),
    });
    assert.equal((await withKey(soon.key)).id, soon.id);
    await clock.advance(350);
    await assert.rejects(withKey(soon.key), { code: 'INVALID_API_KEY' });
    for (let attempt = 0; attempt < 20; attempt += 1) await withKey('wrong').catch(() => undefined);
    await assert.rejects(withKey('wrong'), ({ details }: { details: { retryAfterSeconds: number } }) => {
      assert.ok(details.retryAfterSeconds > 0);
      return true;
    });
    assert.equal((await withKey(MASTER_KEY)).isMaster, true);
  });

  test('without a master key anybody is let in, but who brings a key of ours is its holder', async (t) => {
    const keys = startKeys(await open(), { settings: { master_key: '', store_content: false } });
    t.after(() => keys.stop());
    assert.equal(keys.access.isOpen(), true);
    for (const key of ['', 'sk-anything']) {
      const holder = await keys.access.withKey(headWith(key));
      assert.equal(holder.id, 'open');
      assert.equal(holder.isMaster, true);
    }
    const issued = await keys.register.create({ name: 'mine' });
    assert.equal((await keys.access.withKey(headWith(issued.key))).id, issued.id);
    await keys.register.remove(issued.id);
    await assert.rejects(async () => keys.access.withKey(headWith(issued.key)), { code: 'INVALID_API_KEY' });
    keys.reload({ master_key: MASTER_KEY });
    assert.equal(keys.access.isOpen(), false);
    await assert.rejects(async () => keys.access.withKey(headWith('')), { code: 'INVALID_API_KEY' });
  });

  test('the master key alone manages keys; /v1/messages takes a key in x-api-key, other paths do not', async (t) => {
    const keys = startKeys(await open());
    t.after(() => keys.stop());
    const issued = await keys.register.create({ name: 'plain' });
    await assert.rejects(async () => keys.access.withMasterKey(headWith(issued.key)), { code: 'FORBIDDEN' });
    assert.equal((await keys.access.withMasterKey(headWith(MASTER_KEY))).id, 'master');
    const headers = { 'x-api-key': issued.key };
    assert.equal((await keys.access.withKey(headWith('', { headers, path: '/v1/messages' }))).id, issued.id);
    await assert.rejects(async () => keys.access.withKey(headWith('', { headers })), { code: 'INVALID_API_KEY' });
  });

  test('/v1beta takes a key in x-goog-api-key, other paths do not, and a key in the address is refused', async (t) => {
    const keys = startKeys(await open());
    t.after(() => keys.stop());
    const issued = await keys.register.create({ name: 'plain' });
    const headers = { 'x-goog-api-key': issued.key };
    const path = '/v1beta/models';
    assert.equal((await keys.access.withKey(headWith('', { headers, path }))).id, issued.id);
    await assert.rejects(async () => keys.access.withKey(headWith('', { headers })), { code: 'INVALID_API_KEY' });
    const query = new URLSearchParams({ key: issued.key });
    for (const given of [headers, {}]) {
      await assert.rejects(async () => keys.access.withKey(headWith('', { headers: given, path, query })), {
        code: 'INVALID_REQUEST',
        details: { reason: 'the key is in its address; send it in the header x-goog-api-key' },
      });
    }
  });

  test('a time that has passed, or is none, is refused by the name of its field', async (t) => {
    const keys = startKeys(await open());
    t.after(() => keys.stop());
    for (const expires_at of ['2001-01-01T00:00:00Z', 'tomorrow']) {
      await assert.rejects(
        keys.register.create({ name: 'x', expires_at }),
        (error: { code: string; details: object }) => {
          assert.equal(error.code, 'INVALID_REQUEST');
          assert.match(JSON.stringify(error.details), /expires_at/);
          return true;
        },
      );
    }
  });
});
