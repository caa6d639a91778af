import { type Kysely, sql } from 'kysely';
import type { BucketAsk, BucketChange, BucketStore } from '../../limits/shared-buckets.ts';
import type { Database } from '../database.ts';
import type { Migration } from '../migrations.ts';

/** What instances of one database share, whichever services they run. On SQLite there is one instance, and no such schema. */
export interface ClusterSchema {
  limit_buckets: LimitBucketRow;
}

interface LimitBucketRow {
  readonly id: string;
  readonly per_minute: number;
  /** What was there at `at`; negative: what is owed. */
  readonly level: number;
  /** What the last statement took: how a statement returns it. */
  readonly granted: number;
  /** Seconds since 1970, by the clock of the database. */
  readonly at: number;
}

/**
 * The table is not logged: after a crash of the database it is empty. Then its first row, which has no id, is missing too, and
 * buckets begin empty until the server has run for a minute; otherwise they begin full.
 */
const TABLE = [
  `CREATE UNLOGGED TABLE limit_buckets (
    id text COLLATE "C" PRIMARY KEY,
    per_minute double precision NOT NULL,
    level double precision NOT NULL,
    granted double precision NOT NULL,
    at double precision NOT NULL
  ) WITH (fillfactor = 50)`,
  `INSERT INTO limit_buckets VALUES ('', 0, 0, 0, 0)`,
];

/** Forward only: a released migration is never edited, a new one is added below. */
export const clusterMigrations: readonly Migration[] = [
  {
    id: '0001-limit-buckets',
    statements: ({ query }) => TABLE.map((text) => sql.raw(text).compile(query)),
  },
];

const NOW = sql<number>`cast(extract(epoch from clock_timestamp()) as double precision)`;
/** What a bucket begins with that has no row. */
const isFullAtFirst = sql<boolean>`(clock_timestamp() - pg_postmaster_start_time() > interval '60 s'
  or exists (select 1 from limit_buckets where id = ''))`;
/** Sixty steps of a sixtieth are not quite one. */
const ROUNDING = sql.raw('1e-6');

export function createBucketStore(database: Database<ClusterSchema>): BucketStore & { sweep(): Promise<void> } {
  const number = (value: number) => sql<number>`cast(${value} as double precision)`;
  const compiled = (text: ReturnType<typeof sql<LimitBucketRow>>, query: Kysely<ClusterSchema>) => ({
    compile: () => text.compile(query),
  });
  /** The row as it is when it is locked, filled up to now. */
  const filled = ({ perMinute }: Pick<BucketAsk, 'perMinute'>) => sql`select n.now, least(${number(perMinute)},
      b.level + ${number(perMinute)} - b.per_minute + (n.now - b.at) * ${number(perMinute)} / 60) as level
    from (select greatest(b.at, ${NOW}) as now offset 0) n`;
  const grantOf = ({ need, want }: Pick<BucketAsk, 'need' | 'want'>) => sql`case
    when f.level + ${ROUNDING} >= ${number(want)} then ${number(want)}
    when f.level + ${ROUNDING} >= ${number(need)} then floor(f.level + ${ROUNDING}) else 0 end`;
  const first = (perMinute: number) =>
    sql`select case when ${isFullAtFirst} then ${number(perMinute)} else 0 end as level, ${NOW} as now`;

  const take = database.statement((query, given: BucketAsk) =>
    compiled(
      sql<LimitBucketRow>`insert into limit_buckets as b (id, per_minute, level, granted, at)
        select ${given.id}, ${number(given.perMinute)}, g.level - g.granted, g.granted, g.now
        from (select f.now, f.level, ${grantOf(given)} as granted from (${first(given.perMinute)}) f) g
        on conflict (id) do update set (per_minute, level, granted, at) = (
          select ${number(given.perMinute)}, g.level - g.granted, g.granted, g.now
          from (select f.now, f.level, ${grantOf(given)} as granted from (${filled(given)}) f) g)
        returning granted, level`,
      query,
    ),
  );
  const give = database.statement((query, given: BucketChange) =>
    compiled(
      sql<LimitBucketRow>`insert into limit_buckets as b (id, per_minute, level, granted, at)
        select ${given.id}, ${number(given.perMinute)}, f.level + least(0, ${number(given.amount)}), 0, f.now
        from (${first(given.perMinute)}) f
        on conflict (id) do update set (per_minute, level, granted, at) = (
          select ${number(given.perMinute)}, least(${number(given.perMinute)}, f.level + ${number(given.amount)}), 0, f.now
          from (${filled(given)}) f)`,
      query,
    ),
  );

  return {
    async take(ask) {
      const [{ rows }] = await database.write([take(ask)]);
      const [{ granted, level } = { granted: 0, level: 0 }] = rows;
      return { granted: Number(granted), level: Number(level) };
    },
    async give(changes) {
      // In one order, so that instances cannot wait for each other in a circle.
      const sorted = [...changes].sort((a, b) => (a.id < b.id ? -1 : 1));
      await database.write(sorted.map((change) => give(change)));
    },
    async sweep() {
      const { query } = database;
      await database.write([
        compiled(
          sql`delete from limit_buckets where id <> '' and level + (${NOW} - at) * per_minute / 60 >= per_minute + 1`,
          query,
        ).compile(),
        compiled(
          sql`insert into limit_buckets select '', 0, 0, 0, 0
            where clock_timestamp() - pg_postmaster_start_time() > interval '60 s' on conflict do nothing`,
          query,
        ).compile(),
      ]);
    },
  };
}
