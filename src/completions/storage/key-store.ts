import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { wakeUpStatements } from '../../platform/database/postgres/wake-ups.ts';
import type { CompletionsSchema, KeyRow, SpendingRow } from './completions-schema.ts';

/** A key, and what its calls left in the store: both are read with it, so that no call has to write them down. */
export interface UsedKeyRow extends KeyRow {
  /** When the last call ended whose record is kept. */
  readonly last_used_at: number | null;
  /** Of its budget, in the period that runs; null where nothing was spent in it. */
  readonly spent_nano_usd: number | null;
}

export interface KeyPage {
  /** Undefined: of everybody. `team:<id>`: the keys whose calls are for that team. */
  readonly owner: string | undefined;
  readonly after: string;
  readonly limit: number;
}

/** A key, and whether it was found by the digest from before its last rotation. */
export interface FoundRow extends KeyRow {
  readonly isPrevious?: boolean;
}

export interface KeyStore {
  add(key: KeyRow): Promise<void>;
  /** The key that has this digest, or had it before its last rotation. */
  byDigest(digest: string): Promise<FoundRow | undefined>;
  /** Undefined when the key does not exist or has another owner. `today` (`2030-01-31`) tells the periods that run. */
  find(id: string, owner: string | undefined, today: string): Promise<UsedKeyRow | undefined>;
  /** Returns false when the key does not exist any more. */
  change(id: string, values: Partial<Omit<KeyRow, 'id' | 'revision'>>): Promise<boolean>;
  /** Puts a new digest in the place of the present one, which becomes the previous one. False: as with `change`. */
  rotate(id: string, next: Pick<KeyRow, 'digest' | 'hint'>, previousUntil: number | null): Promise<boolean>;
  /** In the order of their making. */
  list(page: KeyPage, today: string): Promise<readonly UsedKeyRow[]>;
  /** Returns false when the key does not exist or has another owner. Its spending is removed; its usage is kept. */
  remove(id: string, owner: string | undefined): Promise<boolean>;
  /** What a key has spent in a period, in nano-USD. */
  spent(keyId: string, period: string): Promise<number>;
  /** What a key or a user (`user:<id>`) has spent, by period. */
  spending(keyId: string): Promise<readonly SpendingRow[]>;
  /** Sets a part of a budget aside: `want`, or what is left if that is at least `need`, or nothing. On PostgreSQL only. */
  lease(ask: LeaseAsk): Promise<BudgetLease>;
  /** Puts back what was set aside and not spent. */
  giveBack(bucket: string, period: string, nano: number): Promise<void>;
}

/** Amounts are whole nano-USD. */
export interface LeaseAsk {
  readonly bucket: string;
  readonly period: string;
  readonly limit: number;
  readonly need: number;
  readonly want: number;
}

export interface BudgetLease {
  readonly granted: number;
  /** What is stored as spent in the period. */
  readonly spent: number;
}

const TEAM = 'team:';
/** The topic of messages between instances about keys; their subject is the id of a key. */
export const KEY_CHANGED = 'key';
const MAX_ID_LENGTH = 100;

export function createKeyStore(database: Database<CompletionsSchema>): KeyStore {
  const { query } = database;
  const tellOthers = (id: string) => wakeUpStatements(database.engine, KEY_CHANGED, id.slice(0, MAX_ID_LENGTH));
  const byDigest = database.statement((builder, given: { digest: string }) =>
    builder.selectFrom('keys').selectAll().where('digest', '=', given.digest),
  );
  const byPreviousDigest = database.statement((builder, given: { digest: string }) =>
    builder.selectFrom('keys').selectAll().where('previous_digest', '=', given.digest),
  );
  const spentIn = database.statement((builder, given: { keyId: string; period: string }) =>
    builder
      .selectFrom('key_spending')
      .select('cost_nano_usd')
      .where('key_id', '=', given.keyId)
      .where('period', '=', given.period),
  );
  /** Both parts use an index: as many lookups as there are keys in the answer. */
  const usedKeys = (today: string) =>
    query
      .selectFrom('keys')
      .selectAll('keys')
      .select((keys) => [
        keys
          .selectFrom('usage_records')
          .select('usage_records.at')
          .whereRef('usage_records.key_id', '=', 'keys.id')
          .orderBy('usage_records.id', 'desc')
          .limit(1)
          .as('last_used_at'),
        keys
          .selectFrom('key_spending')
          .select('key_spending.cost_nano_usd')
          .whereRef('key_spending.key_id', '=', 'keys.id')
          .where('key_spending.period', '=', runningPeriod(today))
          .as('spent_nano_usd'),
      ]);
  const nano = (value: number) => sql<number>`cast(${value} as bigint)`;
  const grantOf = ({ limit, need, want }: LeaseAsk, used: ReturnType<typeof sql>) => sql<number>`case
    when ${nano(limit)} - ${used} >= ${nano(want)} then ${nano(want)}
    when ${nano(limit)} - ${used} >= ${nano(need)} then ${nano(limit)} - ${used} else 0 end`;
  const takeLease = database.statement((builder, given: LeaseAsk) => {
    const used = sql`(s.cost_nano_usd + s.leased_nano_usd)`;
    const text = sql<{ granted: number; spent: number }>`insert into key_spending as s
        (key_id, period, cost_nano_usd, leased_nano_usd, granted_nano_usd)
      select ${given.bucket}, ${given.period}, 0, g.granted, g.granted
      from (select ${grantOf(given, sql`0`)} as granted) g
      on conflict (key_id, period) do update set
        granted_nano_usd = ${grantOf(given, used)},
        leased_nano_usd = s.leased_nano_usd + ${grantOf(given, used)}
      returning granted_nano_usd as granted, cost_nano_usd as spent`;
    return { compile: () => text.compile(builder) };
  });
  return {
    async add(key) {
      await database.write([query.insertInto('keys').values(key).compile()]);
    },
    async byDigest(digest) {
      const [row] = await database.readKeyed(byDigest({ digest }));
      if (row !== undefined) return row;
      const [previous] = await database.readKeyed(byPreviousDigest({ digest }));
      return previous === undefined ? undefined : { ...previous, isPrevious: true };
    },
    async find(id, owner, today) {
      let keys = usedKeys(today).where('keys.id', '=', id);
      if (owner !== undefined) keys = keys.where('keys.owner', '=', owner);
      const [row] = await database.read(keys.compile());
      return row;
    },
    async change(id, values) {
      const [changed] = await database.write([
        query
          .updateTable('keys')
          .set(values)
          .set(({ eb }) => ({ revision: eb('revision', '+', 1) }))
          .where('id', '=', id)
          .compile(),
        ...tellOthers(id),
      ]);
      return changed.changes > 0;
    },
    async rotate(id, next, previousUntil) {
      const [changed] = await database.write([
        query
          .updateTable('keys')
          .set(({ eb, ref }) => ({
            // Both sides of an update see the row as it was.
            previous_digest: previousUntil === null ? null : ref('digest'),
            previous_until: previousUntil,
            digest: next.digest,
            hint: next.hint,
            revision: eb('revision', '+', 1),
          }))
          .where('id', '=', id)
          .compile(),
        ...tellOthers(id),
      ]);
      return changed.changes > 0;
    },
    async list({ owner, after, limit }, today) {
      let keys = usedKeys(today).where('keys.id', '>', after).orderBy('keys.id').limit(limit);
      if (owner?.startsWith(TEAM)) keys = keys.where('keys.team', '=', owner.slice(TEAM.length));
      else if (owner !== undefined) keys = keys.where('keys.owner', '=', owner);
      return database.read(keys.compile());
    },
    async remove(id, owner) {
      let found = query.selectFrom('keys').select('id').where('id', '=', id);
      if (owner !== undefined) found = found.where('owner', '=', owner);
      const [, removed] = await database.write([
        query.deleteFrom('key_spending').where('key_id', 'in', found).compile(),
        query.deleteFrom('keys').where('id', 'in', found).compile(),
        ...tellOthers(id),
      ]);
      return removed.changes > 0;
    },
    spending: (keyId) =>
      database.read(
        query
          .selectFrom('key_spending')
          .select(['key_id', 'period', 'cost_nano_usd'])
          .where('key_id', '=', keyId)
          .orderBy('period')
          .compile(),
      ),
    async spent(keyId, period) {
      const [row] = await database.readKeyed(spentIn({ keyId, period }));
      return Number(row?.cost_nano_usd ?? 0);
    },
    async lease(ask) {
      const [{ rows }] = await database.write([takeLease(ask)]);
      return { granted: Number(rows[0]?.granted ?? 0), spent: Number(rows[0]?.spent ?? 0) };
    },
    async giveBack(bucket, period, amount) {
      await database.write([
        query
          .updateTable('key_spending')
          .set(({ eb }) => ({ leased_nano_usd: eb('leased_nano_usd', '-', amount) }))
          .where('key_id', '=', bucket)
          .where('period', '=', period)
          .compile(),
      ]);
    },
  };
}

/** The period of the budget of a key that a day (`2030-01-31`) belongs to. */
function runningPeriod(day: string) {
  const month = day.slice(0, 'YYYY-MM'.length);
  return sql<string>`case keys.budget_period when 'day' then ${day} when 'month' then ${month} else 'total' end`;
}
