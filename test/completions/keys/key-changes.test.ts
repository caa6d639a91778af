import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { KeyEvent } from '../../../src/completions/keys/key-register.ts';
import type { CompletionsSchema } from '../../../src/completions/storage/completions-schema.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import {
  admittedNow,
  callOnce,
  completionsDatabase,
  headWith,
  isRefused,
  startKeys,
  WITHIN_A_SECOND_MS,
} from '../../kit/completions/start-keys.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { until } from '../../kit/until.ts';
import { outcomeOf } from './calls.ts';

const HOUR_MS = 3_600_000;

for (const engine of engines) {
  describe(`changes of keys on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = () => places.open<CompletionsSchema>(completionsDatabase, { location: places.location() });

    test('a change counts from the next request, null takes a limit away, and the rest stays', async (t) => {
      const keys = startKeys(await open());
      t.after(() => keys.stop());
      const { register, access } = keys;
      const { id, key } = await register.create({ name: 'ci', models: ['lab/*'], requests_per_minute: 1 });
      callOnce(keys, await access.withKey(headWith(key)));
      const before = await access.withKey(headWith(key));
      assert.throws(() => callOnce(keys, before), { code: 'RATE_LIMIT_EXCEEDED' });
      const changed = await register.change(id, { models: ['other/*'], requests_per_minute: null });
      assert.deepEqual(
        [changed.name, changed.models, changed.requests_per_minute, changed.enabled],
        ['ci', ['other/*'], null, true],
      );
      const holder = await access.withKey(headWith(key));
      assert.deepEqual([holder.mayUse('lab/small'), holder.mayUse('other/small')], [false, true]);
      for (let call = 0; call < 3; call += 1) callOnce(keys, holder);

      await register.change(id, { budget: { usd: 0.02, period: 'total' }, name: 'build' });
      const limited = await access.withKey(headWith(key));
      callOnce(keys, limited);
      assert.throws(() => callOnce(keys, limited), { code: 'BUDGET_EXCEEDED' });
      await register.change(id, { budget: { usd: 1, period: 'total' } });
      callOnce(keys, await access.withKey(headWith(key)));
      const [listed] = (await register.list({})).data;
      assert.deepEqual([listed?.name, listed?.budget], ['build', { usd: 1, period: 'total' }]);
      await assert.rejects(register.change('key_none', { name: 'x' }), { code: 'KEY_NOT_FOUND' });
      await assert.rejects(register.change(id, { expires_at: '2001-01-01T00:00:00Z' }), { code: 'INVALID_REQUEST' });
    });

    test('a key tells its last call, and what it has spent of its budget in the period that runs', async (t) => {
      const database = await open();
      let now = Date.parse('2030-01-31T23:00:00Z');
      const clock: Clock = { ...systemClock, now: () => now };
      const keys = startKeys(database, { clock });
      t.after(() => keys.stop());
      const { register, access } = keys;
      const budget = { usd: 1, period: 'day' } as const;
      const { id, key, ...issued } = await register.create({ name: 'daily', budget });
      assert.deepEqual([issued.last_used_at, issued.spent], [null, { usd: 0, period: '2030-01-31' }]);
      const free = await register.create({ name: 'free' });
      assert.deepEqual([free.last_used_at, free.spent], [null, null]);
      const used = async () => {
        const { data } = await register.list({});
        return data.map(({ name, last_used_at: at, spent }) => [name, at, spent]);
      };
      assert.deepEqual(await used(), [
        ['daily', null, { usd: 0, period: '2030-01-31' }],
        ['free', null, null],
      ]);

      callOnce(keys, await access.withKey(headWith(key)));
      now += 60_000;
      callOnce(keys, await access.withKey(headWith(key)));
      callOnce(keys, await access.withKey(headWith(free.key)));
      const writes = t.mock.method(database, 'write');
      assert.deepEqual(await used(), [
        ['daily', '2030-01-31T23:01:00.000Z', { usd: 0.03, period: '2030-01-31' }],
        ['free', '2030-01-31T23:01:00.000Z', null],
      ]);
      assert.equal(writes.mock.callCount(), 1, 'the calls themselves are stored, and nothing else');

      now += 3_600_000;
      assert.deepEqual((await used())[0], ['daily', '2030-01-31T23:01:00.000Z', { usd: 0, period: '2030-02-01' }]);
      const changed = await register.change(id, { budget: { usd: 1, period: 'month' } });
      assert.deepEqual(
        [changed.last_used_at, changed.spent],
        ['2030-01-31T23:01:00.000Z', { usd: 0, period: '2030-02' }],
        'what another period counts is not part of it',
      );
      callOnce(keys, await access.withKey(headWith(key)));
      assert.deepEqual((await used())[0], ['daily', '2030-02-01T00:01:00.000Z', { usd: 0.015, period: '2030-02' }]);
      const next = await register.rotate(id, {});
      assert.deepEqual(
        [next.last_used_at, next.spent],
        ['2030-02-01T00:01:00.000Z', { usd: 0.015, period: '2030-02' }],
      );
    });

    test('no more calls of a key run at the same time than it allows; a call that has ended makes room', async (t) => {
      const keys = startKeys(await open());
      t.after(() => keys.stop());
      const { id, key } = await keys.register.create({ name: 'narrow', max_parallel: 2 });
      const enter = async () => keys.access.withKey(headWith(key));
      const request = { estimatedTokens: 1, estimatedCostNano: 0, mayCost: true };
      const admit = (holder: Awaited<ReturnType<typeof enter>>) => admittedNow(keys.admissions.admit(holder, request));
      const holder = await enter();
      const running = [admit(holder), admit(holder)];
      const refused = { code: 'TOO_MANY_PARALLEL_CALLS', details: { of: 'this key', limit: 2, retryAfterSeconds: 1 } };
      assert.throws(() => admit(holder), refused);
      // The calls that run count for a changed limit, too.
      await keys.register.change(id, { max_parallel: 3 });
      const wider = await enter();
      running.push(admit(wider));
      assert.throws(() => admit(wider), { code: 'TOO_MANY_PARALLEL_CALLS' });
      running.pop()?.settle(outcomeOf({ outcome: 'aborted' }));
      admit(wider).settle(outcomeOf({}));
      running.push(admit(wider));
      assert.throws(() => admit(wider), { code: 'TOO_MANY_PARALLEL_CALLS' });
      assert.equal((await keys.register.change(id, { max_parallel: null })).max_parallel, null);
      const free = await enter();
      for (const each of [...running, admit(free)]) each.settle(outcomeOf({}));
    });

    test('a disabled key is refused until it is enabled again', async (t) => {
      const keys = startKeys(await open());
      t.after(() => keys.stop());
      const { id, key } = await keys.register.create({ name: 'laptop' });
      const enter = async () => keys.access.withKey(headWith(key));
      await enter();
      assert.equal((await keys.register.change(id, { enabled: false })).enabled, false);
      await assert.rejects(enter(), { code: 'INVALID_API_KEY' });
      await keys.register.change(id, { enabled: true });
      assert.equal((await enter()).id, id);
    });

    test('a rotated key keeps id, limits and spending; the old key works for the grace time and no longer', async (t) => {
      let skew = 0;
      const clock = { ...systemClock, now: () => Date.now() + skew };
      const keys = startKeys(await open(), { clock });
      t.after(() => keys.stop());
      const { register, access } = keys;
      const enter = async (key: string) => access.withKey(headWith(key));
      const first = await register.create({ name: 'ci', budget: { usd: 0.02, period: 'total' } });
      callOnce(keys, await enter(first.key));
      const second = await register.rotate(first.id, { grace_seconds: 3600 });
      assert.deepEqual([second.id, second.name, second.budget], [first.id, 'ci', first.budget]);
      assert.notEqual(second.key, first.key);
      assert.equal(second.hint, second.key.slice(0, 8));
      assert.ok(Math.abs(Date.parse(second.previous_until ?? '') - Date.now() - HOUR_MS) < HOUR_MS / 2);
      for (const key of [first.key, second.key]) {
        const holder = await enter(key);
        assert.equal(holder.id, first.id);
        assert.throws(() => callOnce(keys, holder), { code: 'BUDGET_EXCEEDED' }, 'both spend from one budget');
      }
      // A change reaches both of them.
      await register.change(first.id, { budget: null });
      for (const key of [first.key, second.key]) callOnce(keys, await enter(key));
      skew = HOUR_MS + 1000;
      await assert.rejects(enter(first.key), { code: 'INVALID_API_KEY' });
      assert.equal((await enter(second.key)).id, first.id);

      const third = await register.rotate(first.id, {});
      assert.equal(third.previous_until, null);
      for (const key of [first.key, second.key]) await assert.rejects(enter(key), { code: 'INVALID_API_KEY' });
      await register.remove(first.id);
      await assert.rejects(enter(third.key), { code: 'INVALID_API_KEY' });
      await assert.rejects(register.rotate(first.id, {}), { code: 'KEY_NOT_FOUND' });
    });

    test('P-28: people change and rotate own keys only, and lift no limit that an operator has set', async (t) => {
      const events: KeyEvent[] = [];
      const record = async (event: KeyEvent) => void events.push(event);
      const owners = { ownerOf: () => undefined, watch: () => () => undefined, record };
      const keys = startKeys(await open(), { owners });
      t.after(() => keys.stop());
      const { register, ownKeys } = keys;
      const [anna, by] = ['user:usr_anna', { actor: 'usr_anna' }];
      const own = await ownKeys.create('usr_anna', { name: 'own', requests_per_minute: 5 }, by);
      const given = await register.create({ name: 'given', owner: 'usr_anna', requests_per_minute: 5 });
      const foreign = await ownKeys.create('usr_bert', { name: 'foreign' }, { actor: 'usr_bert' });
      const none = { requests_per_minute: null };
      assert.equal((await register.change(own.id, none, anna, by)).requests_per_minute, null);
      assert.equal((await register.change(given.id, { name: 'mine' }, anna, by)).name, 'mine');
      for (const change of [none, { enabled: true }, { name: 'x', models: [] }]) {
        await assert.rejects(register.change(given.id, change, anna, by), { code: 'KEY_OF_OPERATOR' });
      }
      assert.equal((await register.list({})).data.find(({ id }) => id === given.id)?.name, 'mine');
      await assert.rejects(register.change(foreign.id, { name: 'x' }, anna, by), { code: 'KEY_NOT_FOUND' });
      await assert.rejects(ownKeys.rotate('usr_anna', foreign.id, {}, by), { code: 'KEY_NOT_FOUND' });
      await ownKeys.rotate('usr_anna', given.id, { grace_seconds: 60 }, by);
      assert.deepEqual(
        events.slice(3).map(({ event, actor, subject, details }) => [event, actor, subject, details]),
        [
          ['key.changed', 'usr_anna', anna, { key: own.id, changed: ['requests_per_minute'] }],
          ['key.changed', 'usr_anna', anna, { key: given.id, changed: ['name'] }],
          ['key.rotated', 'usr_anna', anna, { key: given.id, grace_seconds: 60 }],
        ],
      );
    });

    test('a change that was stored and not confirmed counts', async (t) => {
      const database = await open();
      let isConfirmed = true;
      const write: typeof database.write = async (statements) => {
        const results = await database.write(statements);
        if (!isConfirmed) throw new AppError('STORAGE_UNAVAILABLE');
        return results;
      };
      const keys = startKeys({ ...database, write });
      t.after(() => keys.stop());
      const { id, key } = await keys.register.create({ name: 'lost' });
      await keys.access.withKey(headWith(key));
      isConfirmed = false;
      await assert.rejects(keys.register.change(id, { enabled: false }), { code: 'STORAGE_UNAVAILABLE' });
      isConfirmed = true;
      await assert.rejects(async () => keys.access.withKey(headWith(key)), { code: 'INVALID_API_KEY' });
    });
  });
}

describe('several instances on one PostgreSQL', () => {
  const places = databasePlaces('postgres');

  test('a change at one instance on PostgreSQL counts at the others within a second', async () => {
    const location = places.location();
    const instances = await Promise.all(
      [1, 2].map(async () => startKeys(await places.open<CompletionsSchema>(completionsDatabase, { location }))),
    );
    const [first, second] = instances;
    assert.ok(first !== undefined && second !== undefined);
    const { id, key } = await first.register.create({ name: 'shared', models: ['lab/*'] });
    assert.equal((await second.access.withKey(headWith(key))).mayUse('other/small'), false);
    await first.register.change(id, { models: [] });
    const next = await first.register.rotate(id, { grace_seconds: 600 });
    for (const each of [key, next.key]) {
      const mayUse = async () => (await second.access.withKey(headWith(each))).mayUse('other/small');
      await until('the wider key', () => mayUse().catch(() => false), WITHIN_A_SECOND_MS);
    }
    await first.register.change(id, { enabled: false });
    for (const each of [key, next.key]) {
      await until('the refusal at the other instance', () => isRefused(second, each), WITHIN_A_SECOND_MS);
    }
    for (const keys of instances) await keys.stop();
  });
});
