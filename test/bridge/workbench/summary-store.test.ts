import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { sql } from 'kysely';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createSessionStore } from '../../../src/bridge/storage/session-store.ts';
import { createSummaryStore, type SummaryEnd } from '../../../src/bridge/storage/summary-store.ts';
import { createTurnStore } from '../../../src/bridge/storage/turn-store.ts';
import { createHistoryStore, createPermissionStore } from '../../../src/bridge/storage/workbench-stores.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import type { Runnable } from '../../../src/platform/database/statement.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const begin = (key: string, more = {}) => ({
  session_key: key,
  session_id: key,
  thread_id: 'th',
  owner: 'main',
  tenant: 'default',
  title: '"first"',
  search_text: 'first',
  provider_id: 'alpha',
  model: '',
  folder: '',
  job_id: '',
  updated_at: 1,
  ...more,
});
const end = (key: string, turnId: string, more: Partial<SummaryEnd> = {}): SummaryEnd => ({
  key,
  turnId,
  status: 'completed',
  code: '',
  model: 'm',
  mode: '',
  offers: '',
  seq: 9,
  isWhole: 0,
  inputTokens: 3,
  outputTokens: 2,
  totalTokens: 5,
  hasCost: 1,
  costUsd: 0.5,
  hasChanges: 0,
  changedFiles: 0,
  linesAdded: 0,
  linesRemoved: 0,
  now: 2,
  ...more,
});
const definition = { name: 'bridge', migrations: bridgeMigrations };

for (const engine of engines) {
  describe(`summaries on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('an end that is stored twice counts once, and the cost stays unknown until an agent tells it', async () => {
      const database = await places.open<BridgeSchema>(definition);
      const store = createSummaryStore(database);
      const read = async () => (await store.find(['s']))[0];
      await database.write([store.begin(begin('s'))]);
      await database.write([store.end(end('s', 't1', { hasCost: 0, costUsd: 0 }))]);
      assert.equal((await read())?.cost_usd, null);
      await database.write([store.begin(begin('s', { title: '"second"', updated_at: 3 }))]);
      for (let time = 0; time < 2; time += 1) await database.write([store.end(end('s', 't2', { model: '' }))]);
      const row = await read();
      assert.deepEqual([row?.title, row?.turns, row?.total_tokens, row?.cost_usd], ['"first"', 2, 10, 0.5]);
      assert.deepEqual([row?.model, row?.created_at, row?.last_turn], ['', 1, 't2']);
    });

    test('pages follow upon each other, also where many rows have the same moment', async () => {
      const database = await places.open<BridgeSchema>(definition);
      const store = createSummaryStore(database);
      const keys = Array.from({ length: 25 }, (_, index) => `k${String(index).padStart(2, '0')}`);
      await database.write(keys.map((key, index) => store.begin(begin(key, { updated_at: Math.floor(index / 10) }))));
      const found: string[] = [];
      for (let after: { updatedAt: number; key: string } | undefined; ; ) {
        const rows = await store.scan({ owner: 'main', isArchived: false, after, threadId: undefined, limit: 4 });
        found.push(...rows.map((row) => row.session_key));
        const last = rows.at(-1);
        if (last === undefined) break;
        after = { updatedAt: last.updated_at, key: last.session_key };
      }
      assert.deepEqual(found, keys.toReversed());
      assert.equal(await store.count('main', 10), 10);
      assert.equal(await store.count('review', 10), 0);
    });

    test('lists walk along an index and stop, however many sessions are stored', async () => {
      const database = await places.open<BridgeSchema>(definition);
      await fill(database, 5_000);
      if (engine === 'postgres') await database.write([sql`analyze`.compile(database.query)]);
      const reads: Runnable[] = [];
      const noting: Database<BridgeSchema> = {
        ...database,
        read(statement) {
          reads.push(statement);
          return database.read(statement);
        },
      };
      const store = createSummaryStore(noting);
      const history = createHistoryStore(noting);
      const after = { updatedAt: 4000, key: 's4000' };
      const scan = { isArchived: false, after, threadId: undefined, limit: 51 };
      assert.equal((await store.scan({ ...scan, owner: 'main' })).length, 51);
      assert.equal((await store.scan({ ...scan, owner: undefined })).length, 51);
      await store.scan({ ...scan, owner: undefined, isArchived: true });
      await store.count('main', 1001);
      await store.openTurns('main');
      await store.queuedTurns('main', 's7');
      for (const statement of reads) assert.doesNotMatch(await planOf(database, statement), /turns_session/);
      await history.turns('s7', 'turn-9', 51, 100);
      await history.audit({ owner: 'main', from: 1, to: 5000, after: { at: 4000, id: 'x' }, limit: 51 });
      await history.audit({ owner: undefined, from: 1, to: 5000, after: undefined, limit: 51 });
      for (const statement of reads.splice(0)) await checkPlan(database, statement);
      const permissions = createPermissionStore(noting);
      for (const owner of ['main', undefined]) {
        assert.equal((await store.openPermissions(owner)).length, 1);
        assert.equal((await permissions.open(owner, undefined, 200)).length, 1);
      }
      assert.equal((await permissions.open('main', 's0', 200)).length, 1);
      // Those that are open are few, so they may be sorted.
      for (const statement of reads) assert.match(await planOf(database, statement), /permissions_open/, statement.sql);
    });

    test('a turn that died with its bridge is the last one of its session', async () => {
      const database = await places.open<BridgeSchema>(definition);
      await fill(database, 1);
      const turns = createTurnStore(database);
      const dead = await turns.findOpen('turn-0');
      assert.ok(dead !== undefined);
      const ended = { id: dead.turn.id, status: 'failed', outcome: '{}', lastSeq: 7, now: 9 };
      const nothing = sql`delete from instances`.compile(database.query);
      await turns.settleOpen(dead, ended, nothing);
      const [row] = await createSummaryStore(database).find(['s0']);
      assert.deepEqual(
        [row?.last_turn, row?.last_code, row?.turns, row?.last_seq],
        ['turn-0', 'TURN_INTERRUPTED', 1, 7],
      );
      assert.deepEqual(await createSummaryStore(database).openTurns(undefined), []);
      await database.write(createSessionStore(database).close('s0', 10));
      assert.deepEqual(await createSummaryStore(database).find(['s0']), []);
    });

    test('open sessions of 0.1.0 are listed after the upgrade, closed ones are not', async () => {
      const location = places.location(engine);
      const before = bridgeMigrations.filter(({ id }) => id < '0010');
      const old = await places.open<BridgeSchema>({ name: 'bridge', migrations: before }, { location });
      const row = { thread_id: 't', owner: 'main', tenant: 'default', instance: '', provider_id: 'alpha' };
      const rest = { ...row, reference: 'r', working_directory: '/w', reserved_seq: 4, created_at: 1, updated_at: 2 };
      const rows = [
        { ...rest, key: 'open', session_id: 'Open', closed_at: null },
        { ...rest, key: 'closed', session_id: 'Closed', closed_at: 3 },
      ];
      await old.query.insertInto('sessions').values(rows).execute();
      await old.close();
      const database = await places.open<BridgeSchema>(definition, { location });
      const found = await createSummaryStore(database).find(['open', 'closed']);
      assert.deepEqual(
        found.map((one) => [one.session_id, one.search_text, one.title, one.folder, one.updated_at]),
        [['Open', 'open', '', '/w', 2]],
      );
    });
  });
}

/** So many sessions with a summary, a turn, a request and an audit record each; one turn and its request are open. */
async function fill(database: Database<BridgeSchema>, count: number): Promise<void> {
  const numbers = sql<{
    n: number;
  }>`with recursive numbers(n) as (select 0 union all select n + 1 from numbers where n < ${sql.lit(count - 1)})`;
  const text = (prefix: string) => sql`${sql.lit(prefix)} || cast(n as text)`;
  const statements = [
    sql`${numbers} insert into session_summaries select ${text('s')}, ${text('s')}, 'th', 'main', 'default', '""', '', 'alpha', '', '', '', 0, 0, 0, 0, null, '', '', '', 0, '', n, n, case when n % 2 = 1 then n else null end, 0, 0, 0, 0, '', '' from numbers`,
    sql`${numbers} insert into sessions select ${text('s')}, ${text('s')}, 'th', 'main', 'default', '', 'alpha', 'r', '', 0, n, n, null, '', '', 0, '' from numbers`,
    sql`${numbers} insert into turns select ${text('turn-')}, ${text('s')}, 'main', 'default', 'dead', 'session.start', '1', 'f', '', '""', 'running', '{}', '', 1, 0, n, case when n = 0 then null else n end, '[]' from numbers`,
    sql`${numbers} insert into permissions select ${text('perm-')}, ${text('s')}, ${text('s')}, 'main', 'default', ${text('turn-')}, 'dead', '', '', '""', '""', '[]', '""', 'execute', case when n = 0 then 'open' else 'allowed' end, '', '', '', n, n, null, '', '' from numbers`,
    sql`${numbers} insert into audit_records select ${text('aud-')}, n, 'main', 'default', 'permission', 'allowed', ${text('s')}, '', '', '{}' from numbers`,
  ];
  await database.write(statements.map((statement) => statement.compile(database.query)));
}

/** No step may go over a whole table or sort many rows: lists walk along an index and stop. */
async function checkPlan(database: Database<BridgeSchema>, statement: Runnable): Promise<void> {
  const plan = await planOf(database, statement);
  if (database.engine === 'sqlite')
    assert.doesNotMatch(plan, /"SCAN (?:session_summaries|turns|audit_records)"|FOR ORDER BY/, statement.sql);
  else assert.doesNotMatch(plan, /Seq Scan|[>"]\s*Sort {2}\(/, `${statement.sql}\n${plan}`);
}

async function planOf(database: Database<BridgeSchema>, statement: Runnable): Promise<string> {
  const explain = `${database.engine === 'sqlite' ? 'explain query plan' : 'explain'} ${statement.sql}`;
  const { textId: _prepared, ...plain } = { ...statement, sql: explain } as Runnable & { textId?: number };
  const rows = await database.read(plain as Runnable<Record<string, unknown>>);
  return rows.map((row) => JSON.stringify(row)).join('\n');
}
