import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { DatabaseSync } from 'node:sqlite';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';

/** Values per second, one for each round; the rounds of all rows lie side by side in time. */
export interface DatabaseBench {
  /** One-row commits with node:sqlite and nothing around it, in this thread. */
  readonly raw: readonly number[];
  readonly single: readonly number[];
  /** 64 in flight. */
  readonly grouped: readonly number[];
  readonly keyedReads: readonly number[];
  /** At 64 in flight. */
  readonly syncsPerInsert: number;
  /** While batches were stored. */
  readonly longestStopMs: number;
}

interface BenchSchema {
  rows: { id: string; created_at: number; payload: string };
}

const IN_FLIGHT = 64;
const WARM_UP_MS = 1000;
const READS_PER_TURN = 100;
const PAYLOAD = JSON.stringify({ text: 'x'.repeat(256), list: [1, 2, 3], nested: { ok: true } });
const makeId = createSortableIds(systemClock, systemRandomness);

export async function benchDatabase({ rounds = 20, roundMs = 500 } = {}): Promise<DatabaseBench> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-bench-'));
  const raw = openRaw(join(folder, 'raw.db'));
  const ours = await openOurs(join(folder, 'ours.db'));
  const result = { raw: [] as number[], single: [] as number[], grouped: [] as number[], keyedReads: [] as number[] };
  let inserts = 0;
  let commits = 0;
  let longestStopMs = 0;
  try {
    await raw.commit(WARM_UP_MS);
    await ours.insert(IN_FLIGHT, WARM_UP_MS);
    for (let round = 0; round < rounds; round += 1) {
      result.raw.push(await raw.commit(roundMs));
      const delay = monitorEventLoopDelay({ resolution: 1 });
      delay.enable();
      result.single.push((await ours.insert(1, roundMs)).perSecond);
      const grouped = await ours.insert(IN_FLIGHT, roundMs);
      delay.disable();
      longestStopMs = Math.max(longestStopMs, delay.max / 1e6);
      result.grouped.push(grouped.perSecond);
      inserts += grouped.inserts;
      commits += grouped.commits;
      result.keyedReads.push(await ours.read(roundMs / 4));
    }
  } finally {
    raw.close();
    await ours.close();
    await rm(folder, { recursive: true, force: true });
  }
  return { ...result, syncsPerInsert: commits / inserts, longestStopMs };
}

function openRaw(file: string) {
  const database = new DatabaseSync(file);
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL');
  database.exec('CREATE TABLE rows (id text PRIMARY KEY, created_at integer NOT NULL, payload text NOT NULL) STRICT');
  const insert = database.prepare('INSERT INTO rows (id, created_at, payload) VALUES (?, ?, ?)');
  return {
    async commit(ms: number): Promise<number> {
      const start = performance.now();
      let count = 0;
      for (; performance.now() - start < ms; count += 1) insert.run(makeId(''), Date.now(), PAYLOAD);
      return (count * 1000) / (performance.now() - start);
    },
    close: () => database.close(),
  };
}

async function openOurs(file: string) {
  const database = await openDatabase<BenchSchema>({
    name: 'bench',
    location: { engine: 'sqlite', file },
    clock: systemClock,
    migrations: [
      {
        id: '0001-rows',
        statements: ({ schema }) => [
          schema
            .createTable('rows')
            .addColumn('id', 'text', (column) => column.primaryKey())
            .addColumn('created_at', 'integer', (column) => column.notNull())
            .addColumn('payload', 'text', (column) => column.notNull()),
        ],
      },
    ],
  });
  const insert = database.statement((query, given: BenchSchema['rows']) =>
    query.insertInto('rows').values({ id: given.id, created_at: given.created_at, payload: given.payload }),
  );
  const find = database.statement((query, given: { id: string }) =>
    query.selectFrom('rows').selectAll().where('id', '=', given.id),
  );
  let lastId = '';
  return {
    async insert(inFlight: number, ms: number) {
      const before = database.statistics();
      const start = performance.now();
      const submit = async (): Promise<void> => {
        while (performance.now() - start < ms) {
          const id = makeId('');
          await database.write([insert({ id, created_at: Date.now(), payload: PAYLOAD })]);
          lastId = id;
        }
      };
      await Promise.all(Array.from({ length: inFlight }, submit));
      const seconds = (performance.now() - start) / 1000;
      const after = database.statistics();
      const inserts = after.batches - before.batches;
      return { inserts, commits: after.commits - before.commits, perSecond: inserts / seconds };
    },
    async read(ms: number): Promise<number> {
      const start = performance.now();
      let count = 0;
      while (performance.now() - start < ms) {
        for (let read = 0; read < READS_PER_TURN; read += 1) await database.readKeyed(find({ id: lastId }));
        count += READS_PER_TURN;
      }
      return (count * 1000) / (performance.now() - start);
    },
    close: () => database.close(),
  };
}
