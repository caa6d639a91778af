import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { settleInterrupted, sweepOldRecords } from '../../../src/bridge/sessions/housekeeping.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema, SessionRow, TurnRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { createInstanceStore } from '../../../src/bridge/storage/instance-and-route-stores.ts';
import { createAuditStore, createSessionStore } from '../../../src/bridge/storage/session-store.ts';
import { createTurnStore } from '../../../src/bridge/storage/turn-store.ts';
import { createRetentionStore, createUpdateStore } from '../../../src/bridge/storage/update-store.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const session = (key: string, more: Partial<SessionRow> = {}): SessionRow => ({
  key,
  session_id: key,
  thread_id: 'th',
  owner: 'main',
  tenant: 'default',
  instance: '',
  provider_id: 'alpha',
  reference: 'r',
  working_directory: '',
  mcp_servers: '',
  choices: '',
  home: '',
  epoch: 0,
  reserved_seq: 0,
  created_at: 1,
  updated_at: 1,
  closed_at: null,
  ...more,
});

const turn = (id: string, more: Partial<TurnRow> = {}): TurnRow => ({
  id,
  session_key: 's',
  owner: 'main',
  tenant: 'default',
  instance: 'dead',
  method: 'session.start',
  request_id: '1',
  request_fingerprint: 'd',
  idempotency_key: '',
  prompt: '"x"',
  attachments: '[]',
  status: 'running',
  base: JSON.stringify({ sessionId: 's', threadId: 'th', turnId: id, resolvedProviderId: 'alpha' }),
  outcome: '',
  first_seq: 1,
  last_seq: 0,
  created_at: 1,
  ended_at: null,
  ...more,
});

for (const engine of engines) {
  describe(`the stores of sessions on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = async () => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      return {
        database,
        sessions: createSessionStore(database),
        turns: createTurnStore(database),
        updates: createUpdateStore(database),
        instances: createInstanceStore(database),
      };
    };

    test('a session is found by its owner, by anyone who sees all, and by its thread', async () => {
      const { database, sessions } = await open();
      await database.write([
        sessions.insert(session('a', { session_id: 's', owner: 'main' })),
        sessions.insert(session('b', { session_id: 's', owner: 'review', updated_at: 2 })),
        sessions.insert(session('c', { session_id: 'other', owner: 'review', closed_at: 3 })),
      ]);
      assert.equal((await sessions.find('s', 'review'))?.key, 'b');
      assert.equal(await sessions.find('other', 'main'), undefined);
      assert.equal((await sessions.findSeen('s', undefined))?.key, 'b');
      assert.equal((await sessions.findSeen('s', ['main', 'user:ann']))?.key, 'a');
      assert.equal((await sessions.findSeen('s', ['main', 'review']))?.key, 'b', 'the one that was used last');
      assert.equal(await sessions.findSeen('s', ['user:ann', 'user:bob']), undefined);
      assert.equal(await sessions.findSeen('other', undefined), undefined);
      assert.equal(await sessions.findSeen('other', ['review', 'main']), undefined);
      assert.deepEqual((await sessions.findByThread('th', undefined)).map(({ key }) => key).sort(), ['a', 'b']);
      assert.deepEqual(
        (await sessions.findByThread('th', ['main', 'user:ann'])).map(({ key }) => key),
        ['a'],
      );
      await assert.rejects(database.write([sessions.insert(session('d', { session_id: 's' }))]), {
        code: 'STORAGE_DUPLICATE',
      });
    });

    test('what was asked in a session is read oldest first, the last so many', async () => {
      const { database, turns } = await open();
      const asked = ['turn-1', 'turn-2', 'turn-3'].map((id) => turns.begin(turn(id, { prompt: JSON.stringify(id) })));
      await database.write([...asked, turns.begin(turn('turn-9', { session_key: 'another' }))]);
      assert.deepEqual(
        [await turns.prompts('s', 2), await turns.prompts('nobody', 2)],
        [
          [
            { id: 'turn-2', prompt: '"turn-2"' },
            { id: 'turn-3', prompt: '"turn-3"' },
          ],
          [],
        ],
      );
    });

    test('of two that take a session one succeeds, and a close leaves the numbers', async () => {
      const { database, sessions, turns, updates } = await open();
      await database.write([sessions.insert(session('s'))]);
      const claim = (instance: string) =>
        sessions.claim({ ...session('s'), instance, reserved_seq: 128, expectedSeq: 0 });
      await database.write([claim('one'), turns.begin(turn('turn-1', { instance: 'one' }))]);
      await assert.rejects(database.write([claim('two')]), { code: 'STORAGE_CONFLICT' });
      await database.write(updates.insert([{ session_key: 's', first_seq: 1, last_seq: 1, at: 1, updates: '{}' }]));
      await database.write(sessions.close('s', 9));
      const row = await sessions.find('s', 'main');
      assert.deepEqual([row?.reserved_seq, row?.closed_at, row?.reference], [128, 9, '']);
      assert.deepEqual(await turns.findSame('s', 'd'), []);
      assert.deepEqual(await updates.readAfter('s', 0), []);
    });

    test('a closed session is removed, and one that was started again since then is not, though it is closed again', async () => {
      const { database, sessions } = await open();
      await database.write([sessions.insert(session('s')), ...sessions.close('s', 9)]);
      const epoch = async () => (await sessions.byKey('s'))?.epoch ?? assert.fail('it is gone');
      const before = await epoch();
      await database.write([sessions.claim({ ...session('s'), instance: 'two', expectedSeq: 0 })]);
      await database.write([sessions.forget('s', before)]);
      assert.equal((await sessions.byKey('s'))?.instance, 'two');
      await database.write(sessions.close('s', 10));
      await database.write([sessions.forget('s', before)]);
      await database.write([sessions.forget('s', await epoch())]);
      assert.equal(await sessions.byKey('s'), undefined);
    });

    test('a turn that waited keeps one row, and an end is written once', async () => {
      const { database, turns } = await open();
      await database.write([turns.add(turn('turn-1', { status: 'queued', idempotency_key: 'k' }))]);
      await database.write([turns.begin(turn('turn-1', { base: '{"begun":true}' }))]);
      await database.write([turns.add(turn('turn-1', { status: 'queued' }))]);
      const ended = { id: 'turn-1', status: 'completed', outcome: '{}', lastSeq: 5, now: 10 };
      await database.write([turns.end(ended)]);
      await database.write([turns.end({ ...ended, status: 'failed' })]);
      const [row] = await turns.findByKey('s', 'k');
      assert.deepEqual([row?.status, row?.base, row?.last_seq], ['completed', '{"begun":true}', 5]);
      assert.equal((await turns.findSame('s', 'd')).length, 1);
      assert.deepEqual(await turns.findByKey('s', 'other'), []);
    });

    test('any number of chunks is stored, again and longer without harm, and read in order', async () => {
      const { database, updates } = await open();
      const chunks = Array.from({ length: 150 }, (_, index) => ({
        session_key: 's',
        first_seq: index * 2 + 1,
        last_seq: index * 2 + 2,
        at: 1,
        updates: `${index}a\n${index}b`,
      }));
      await database.write(updates.insert(chunks.toReversed()));
      const [first, ...rest] = chunks as [(typeof chunks)[0], ...typeof chunks];
      await database.write(updates.insert([{ ...first, last_seq: 2, updates: 'again\nagain' }]));
      const read: string[] = [];
      for (let after = 0; ; ) {
        const page = await updates.readAfter('s', after);
        if (page.length === 0) break;
        read.push(...page.map((chunk) => chunk.updates));
        after = page.at(-1)?.last_seq ?? 0;
      }
      assert.deepEqual(read, ['again\nagain', ...rest.map((chunk) => chunk.updates)]);
      assert.equal((await updates.readAfter('s', 2))[0]?.first_seq, 3);
      const named = [7, 140].map((index) => ({ ...chunks[index], updates: `${index}\n{"kind":"tool_call"}` }));
      await database.write(updates.insert(named.map((chunk) => ({ ...first, ...chunk, session_key: 't' }))));
      const found = async (after: number) =>
        (await updates.readNaming('t', after, 'tool_call')).map((chunk) => chunk.first_seq);
      assert.deepEqual(await found(0), [15, 281], 'those whose text has the word');
      assert.deepEqual(await found(16), [281]);
      assert.deepEqual(await updates.readNaming('s', 0, 'tool_call'), []);
    });

    test('only turns of instances without a heartbeat are ended, each once, with new numbers', async () => {
      const { database, sessions, turns, updates, instances } = await open();
      const alive = { version: '1', address: '', started_at: 1, heartbeat_at: 1 };
      // On SQLite nobody else can have the file: all others have ended. On PostgreSQL its own clock counts.
      const isShared = database.engine === 'postgres';
      const deadAfterMs = isShared ? 60_000 : undefined;
      await instances.beat({ ...alive, id: 'alive' });
      await instances.beat({ ...alive, id: 'dead' });
      await database.query.updateTable('instances').set({ heartbeat_at: 1 }).where('id', '=', 'dead').execute();
      await database.write([
        sessions.insert(session('s', { instance: 'dead', reserved_seq: 128 })),
        sessions.insert(session('t', { instance: 'alive', reserved_seq: 128 })),
        turns.begin(turn('turn-1')),
        turns.add(turn('turn-2', { status: 'queued' })),
        turns.begin(turn('turn-3', { session_key: 't', instance: isShared ? 'alive' : 'own' })),
        turns.begin(turn('turn-4', { session_key: 't', instance: 'own' })),
      ]);
      const told: string[] = [];
      const ended = (key: string) => void told.push(key);
      const settle = (judgedBy = Number.POSITIVE_INFINITY) =>
        settleInterrupted({ turns, updates, instance: 'own', deadAfterMs, judgedBy, now: 1000, ended });
      if (isShared) assert.equal(await settle(Date.now() - 60_000), 0, 'asked too late to know');
      const counts = await Promise.all([settle(), settle()]);
      assert.equal(counts[0] + counts[1], 2);
      assert.equal(await settle(), 0);
      assert.deepEqual(told, ['s'], 'followers are told');
      const rows = await database.query.selectFrom('turns').selectAll().orderBy('id').execute();
      assert.deepEqual(
        rows.map(({ status, last_seq: last }) => [status, last]),
        [
          ['failed', 129],
          ['failed', 130],
          ['running', 0],
          ['running', 0],
        ],
      );
      const left = await sessions.find('s', 'main');
      assert.deepEqual([left?.instance, left?.reserved_seq, left?.epoch], ['', 130, 2]);
      assert.deepEqual(
        (await updates.readAfter('s', 0)).map(({ updates: text }) => JSON.parse(text).seq),
        [129, 130],
      );
      const listed = await instances.list();
      if (isShared) await instances.removeOthers('own', deadAfterMs, Date.now() - 60_000);
      assert.equal((await instances.list()).length, listed.length, 'nobody is removed by a judgement of long ago');
      await instances.removeOthers('own', deadAfterMs);
      assert.deepEqual(
        (await database.query.selectFrom('instances').select('id').execute()).map(({ id }) => id),
        isShared ? ['alive'] : [],
      );
    });

    const dead = { instance: 'own', deadAfterMs: undefined, judgedBy: Number.POSITIVE_INFINITY, now: 1000 };
    const abandon = async ({ database, sessions, turns }: Awaited<ReturnType<typeof open>>, count: number) => {
      const names = Array.from({ length: count }, (_, index) => `s${index}`);
      await database.write(names.map((key) => sessions.insert(session(key, { instance: 'dead', reserved_seq: 512 }))));
      await database.write(names.map((key) => turns.begin(turn(`turn-${key}`, { session_key: key }))));
      return names;
    };

    test('the turns of hundreds of sessions are ended in a few statements', async () => {
      const opened = await open();
      const { database } = opened;
      const names = await abandon(opened, 500);
      let asked = 0;
      const counting: typeof database = {
        ...database,
        readKeyed(statement) {
          asked += 1;
          return database.readKeyed(statement);
        },
        write(statements, refusals) {
          asked += statements.length;
          return database.write(statements, refusals);
        },
        transaction: (work, options) =>
          database.transaction(({ query, run }) => {
            const counted: typeof run = (statement) => {
              asked += 1;
              return run(statement);
            };
            return work({ query, run: counted });
          }, options),
      };
      const told: string[] = [];
      const ended = (key: string) => void told.push(key);
      const turns = createTurnStore(counting);
      assert.equal(await settleInterrupted({ ...dead, turns, updates: createUpdateStore(counting), ended }), 500);
      assert.ok(asked < 100, `${asked} statements`);
      assert.deepEqual(told.toSorted(), names.toSorted());
      const rows = await database.query.selectFrom('turns').select(['status', 'last_seq', 'ended_at']).execute();
      for (const row of rows) assert.deepEqual(row, { status: 'failed', last_seq: 513, ended_at: 1000 });
    });

    test('bridges that end the turns of a dead one in the same moment end each of them once', async () => {
      const opened = await open();
      const { database, turns, updates } = opened;
      const names = await abandon(opened, 300);
      const told: string[] = [];
      const ended = (key: string) => void told.push(key);
      const settle = (instance: string) => settleInterrupted({ ...dead, instance, turns, updates, ended });
      let total = 0;
      while (total < names.length) {
        const counts = await Promise.all(['one', 'two', 'three'].map(settle));
        for (const count of counts) total += count;
      }
      assert.equal(total, names.length);
      assert.deepEqual(told.toSorted(), names.toSorted());
      const chunks = await database.query.selectFrom('session_updates').select(['first_seq', 'last_seq']).execute();
      assert.equal(chunks.length, names.length);
      for (const chunk of chunks) assert.deepEqual(chunk, { first_seq: 513, last_seq: 513 });
      const rows = await database.query.selectFrom('sessions').select(['instance', 'epoch', 'reserved_seq']).execute();
      for (const row of rows) assert.deepEqual(row, { instance: '', epoch: 1, reserved_seq: 513 });
    });

    test('a turn whose session another bridge has by now is left, and one that cannot be read does not keep the others', async () => {
      const opened = await open();
      const { database, turns, updates } = opened;
      await abandon(opened, 3);
      await database.query.updateTable('sessions').set({ instance: 'alive' }).where('key', '=', 's0').execute();
      await database.query.updateTable('turns').set({ base: 'broken' }).where('id', '=', 'turn-s1').execute();
      const told: string[] = [];
      const ended = (key: string) => void told.push(key);
      await assert.rejects(settleInterrupted({ ...dead, turns, updates, ended }), SyntaxError);
      assert.deepEqual(told, ['s2']);
      const rows = await database.query.selectFrom('turns').select(['id', 'status']).orderBy('id').execute();
      assert.deepEqual(
        rows.map(({ id, status }) => `${id} ${status}`),
        ['turn-s0 running', 'turn-s1 running', 'turn-s2 failed'],
      );
    });

    test('an owner that was frozen can write nothing more once its turn was ended', async () => {
      const opened = await open();
      const { database, sessions, turns, updates } = opened;
      await abandon(opened, 1);
      assert.equal(await settleInterrupted({ ...dead, turns, updates, ended: () => undefined }), 1);
      await assert.rejects(database.write([sessions.fence('s0', 0)]), { code: 'STORAGE_CONFLICT' });
    });

    test('a beginning in doubt is taken back only while no other bridge has ended its turn', async () => {
      const { database, sessions, turns } = await open();
      const isShared = database.engine === 'postgres';
      const left = async () => [
        (await database.query.selectFrom('sessions').select('key').execute()).length,
        (await database.query.selectFrom('sessions').select('key').where('closed_at', 'is', null).execute()).length,
        (await database.query.selectFrom('turns').select('id').execute()).length,
      ];
      await database.write([
        sessions.insert(session('s', { instance: '', reference: 'newer', epoch: 3 })),
        turns.begin(turn('turn-1', { status: 'failed', ended_at: 5 })),
      ]);
      if (isShared) {
        await database.write([...sessions.discard('s', 'own'), ...sessions.close('s', 9, 'own')]);
        await database.write([sessions.setReference('s', 'alpha', 'older', 2)]);
        assert.deepEqual(await left(), [1, 1, 1], 'another bridge has told of its end');
        assert.equal((await sessions.find('s', 'main'))?.reference, 'newer');
      }
      await database.query.updateTable('sessions').set({ instance: 'own' }).execute();
      await database.write(sessions.close('s', 9, 'own'));
      assert.deepEqual(await left(), [1, 0, 0]);
      await database.query.updateTable('sessions').set({ instance: 'own' }).execute();
      await database.write(sessions.discard('s', 'own'));
      assert.deepEqual(await left(), [0, 0, 0]);
    });

    test('DS-1: what a bridge writes about a session counts only while nobody has taken it since', async () => {
      const { database, sessions, turns } = await open();
      const claim = { ...session('s'), instance: 'one', expectedSeq: 0, updated_at: 2 };
      await database.write([sessions.insert(session('s')), sessions.claim(claim), turns.begin(turn('turn-1'))]);
      const { epoch } = (await sessions.holderOf('s')) ?? assert.fail();
      await database.write([sessions.fence('s', epoch)]);
      await database.write([sessions.endTurn('s', 'one', '', 0, 3), sessions.claim({ ...claim, instance: 'two' })]);
      await assert.rejects(database.write([sessions.fence('s', epoch)]), { code: 'STORAGE_CONFLICT' });
      assert.deepEqual(await sessions.holderOf('s'), { instance: 'two', epoch: epoch + 1 });
    });

    test('what is older than it is kept is deleted in small steps, and 0 keeps for ever', async () => {
      const { database, turns, updates } = await open();
      const audits = createAuditStore(database);
      const now = systemClock.now();
      const chunk = (seq: number, at: number) => ({ session_key: 's', first_seq: seq, last_seq: seq, at, updates: '' });
      const audit = { owner: 'main', tenant: 'default', action: 'permission', decision: 'allowed', subject: '{}' };
      const names = { session_id: 's', turn_id: 'turn-1', provider_id: 'alpha' };
      await database.write([
        ...updates.insert(Array.from({ length: 1200 }, (_, index) => chunk(index, now - 10_000))),
        ...updates.insert([chunk(5000, now)]),
        turns.begin(turn('turn-1', { ended_at: now - 10_000 })),
        turns.begin(turn('turn-2', { ended_at: now })),
        turns.begin(turn('turn-3')),
        audits.record({ id: 'a', at: now - 10_000, ...audit, ...names }),
        audits.record({ id: 'b', at: now, ...audit, ...names }),
      ]);
      const store = createRetentionStore(database);
      const sweep = (retention: { events: number; audit: number }) =>
        sweepOldRecords({
          store,
          retention,
          clock: systemClock,
          signal: new AbortController().signal,
          expire: async () => false,
        });
      const count = async () => [
        (await database.query.selectFrom('session_updates').select('first_seq').execute()).length,
        (await database.query.selectFrom('turns').select('id').execute()).length,
        (await database.query.selectFrom('audit_records').select('id').execute()).length,
      ];
      await sweep({ events: 0, audit: 0 });
      assert.deepEqual(await count(), [1201, 3, 2]);
      await sweep({ events: 5000, audit: 0 });
      assert.deepEqual(await count(), [1, 2, 2]);
      await sweep({ events: 0, audit: 5000 });
      assert.deepEqual(await count(), [1, 2, 1]);
    });
  });
}
