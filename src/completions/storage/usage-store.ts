import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement } from '../../platform/database/statement.ts';
import type {
  CompletionsSchema,
  SpendingRow,
  UsageContentRow,
  UsageQuarterRow,
  UsageRecordRow,
} from './completions-schema.ts';

/** What is stored together, or not at all. */
export interface UsageFlush {
  /** Makes it safe to store the same sums again when it is not known whether they were: STORAGE_DUPLICATE. */
  readonly id: string;
  readonly quarters: readonly UsageQuarterRow[];
  /** `released`: how much less is set aside of the budget, because it is stored as spent now. */
  readonly spending: readonly (SpendingRow & { readonly released: number })[];
  /** A record that is there already is left alone. */
  readonly records: readonly UsageRecordRow[];
  readonly contents: readonly UsageContentRow[];
  /** An estimate that this corrects: it is removed from its batch. STORAGE_CONFLICT if it is not there any more. */
  readonly estimate?: StoredEstimate;
}

/** The estimated charge of a batch, as it is stored with the batch. */
export interface StoredEstimate {
  readonly batchId: string;
  /** Whose batch it is. */
  readonly owner: string;
  readonly detail: string;
}

export interface UsageStore {
  add(flush: UsageFlush): Promise<void>;
  /** Removes what was asked and answered in calls of a user, at most `limit` of them; returns how many. */
  removeContentsOf(owner: string, limit: number): Promise<number>;
}

/** As many rows as one statement takes; the rest goes row by row. */
const ROWS_AT_ONCE = 50;

export function createUsageStore(database: Database<CompletionsSchema>): UsageStore {
  const { query } = database;
  const addFlush = database.statement((builder, given: { id: string }) =>
    builder.insertInto('usage_flushes').values({ id: given.id }),
  );
  const addQuarter = database.statement((builder, given: UsageQuarterRow) =>
    builder
      .insertInto('usage_quarters')
      .values({ ...given })
      .onConflict((conflict) =>
        conflict.columns(['quarter', 'id']).doUpdateSet((update) => ({
          requests: update('usage_quarters.requests', '+', update.ref('excluded.requests')),
          errors: update('usage_quarters.errors', '+', update.ref('excluded.errors')),
          prompt_tokens: update('usage_quarters.prompt_tokens', '+', update.ref('excluded.prompt_tokens')),
          completion_tokens: update('usage_quarters.completion_tokens', '+', update.ref('excluded.completion_tokens')),
          cost_nano_usd: update('usage_quarters.cost_nano_usd', '+', update.ref('excluded.cost_nano_usd')),
        })),
      ),
  );
  const addSpending = database.statement((builder, given: UsageFlush['spending'][number]) =>
    builder
      .insertInto('key_spending')
      .values({ key_id: given.key_id, period: given.period, cost_nano_usd: given.cost_nano_usd })
      .onConflict((conflict) =>
        conflict.columns(['key_id', 'period']).doUpdateSet((update) => ({
          cost_nano_usd: update('key_spending.cost_nano_usd', '+', update.ref('excluded.cost_nano_usd')),
          leased_nano_usd: update('key_spending.leased_nano_usd', '-', given.released),
        })),
      ),
  );
  const addContent = database.statement((builder, given: UsageContentRow) =>
    builder
      .insertInto('usage_contents')
      .values({ record_id: given.record_id, request: given.request, answer: given.answer })
      .onConflict((conflict) => conflict.doNothing()),
  );
  const takeEstimate = database.statement((builder, given: StoredEstimate) =>
    builder
      .updateTable('upstream_objects')
      .set({ detail: '' })
      .where('id', '=', given.batchId)
      .where('owner', '=', given.owner)
      .where('detail', '=', given.detail),
  );
  /** Records are made in one place: the members of the first one are the columns of all. */
  const insertOf = (rows: number) => {
    const compile = (record: UsageRecordRow) => ({
      columns: Object.keys(record) as (keyof UsageRecordRow)[],
      statement: database.statement((builder) =>
        builder
          .insertInto('usage_records')
          .values(new Array<UsageRecordRow>(rows).fill(record))
          .onConflict((conflict) => conflict.doNothing()),
      )(),
    });
    let compiled: ReturnType<typeof compile> | undefined;
    return (given: readonly UsageRecordRow[]): Statement => {
      compiled ??= compile(given[0] as UsageRecordRow);
      const { columns, statement } = compiled;
      const parameters: unknown[] = [];
      for (const row of given) for (const name of columns) parameters.push(row[name]);
      return { ...statement, parameters };
    };
  };
  const addRecord = insertOf(1);
  const addRecords = insertOf(ROWS_AT_ONCE);

  function recordStatements(records: readonly UsageRecordRow[]): Statement[] {
    const statements: Statement[] = [];
    let next = 0;
    for (; next + ROWS_AT_ONCE <= records.length; next += ROWS_AT_ONCE) {
      statements.push(addRecords(records.slice(next, next + ROWS_AT_ONCE)));
    }
    for (; next < records.length; next += 1) statements.push(addRecord(records.slice(next, next + 1)));
    return statements;
  }

  return {
    async add({ id, quarters, spending, records, contents, estimate }) {
      await database.write([
        addFlush({ id }),
        ...(estimate === undefined ? [] : [expectChanges(takeEstimate(estimate), 1)]),
        ...quarters.map((row) => addQuarter(row)),
        ...spending.map((row) => addSpending(row)),
        ...recordStatements(records),
        ...contents.map((row) => addContent(row)),
      ]);
    },
    async removeContentsOf(owner, limit) {
      // Contents are rare, records are not: this looks up the record of each content.
      const found = await database.read(
        query
          .selectFrom('usage_contents')
          .innerJoin('usage_records', 'usage_records.id', 'usage_contents.record_id')
          .select('record_id')
          .where('owner', '=', owner)
          .limit(limit)
          .compile(),
      );
      const ids = found.map(({ record_id: id }) => id);
      if (ids.length > 0)
        await database.write([query.deleteFrom('usage_contents').where('record_id', 'in', ids).compile()]);
      return ids.length;
    },
  };
}

/** Removes old rows in small steps, so that other writers need not wait. Each step returns how many rows it removed. */
export interface UsageRetentionStore {
  removeRecords(beforeId: string, limit: number): Promise<number>;
  /** What was asked and answered in the calls before. */
  removeContents(beforeId: string, limit: number): Promise<number>;
  removeQuarters(before: number, limit: number): Promise<number>;
  removeTotals(beforeDay: string, limit: number): Promise<number>;
  removeFlushes(beforeId: string, limit: number): Promise<number>;
}

export function createUsageRetentionStore(database: Database<CompletionsSchema>): UsageRetentionStore {
  const { query } = database;
  return {
    async removeRecords(beforeId, limit) {
      const old = query.selectFrom('usage_records').select('id').where('id', '<', beforeId).orderBy('id').limit(limit);
      const [, removed] = await database.write([
        query.deleteFrom('usage_contents').where('record_id', 'in', old).compile(),
        query.deleteFrom('usage_records').where('id', 'in', old).compile(),
      ]);
      return removed.changes;
    },
    async removeContents(beforeId, limit) {
      const ids = query.selectFrom('usage_contents').select('record_id');
      const old = ids.where('record_id', '<', beforeId).orderBy('record_id').limit(limit);
      const [removed] = await database.write([
        query.deleteFrom('usage_contents').where('record_id', 'in', old).compile(),
      ]);
      return removed.changes;
    },
    async removeQuarters(before, limit) {
      const [removed] = await database.write([
        query
          .deleteFrom('usage_quarters')
          .where(({ eb, refTuple }) =>
            eb(
              refTuple('quarter', 'id'),
              'in',
              query
                .selectFrom('usage_quarters')
                .select(['quarter', 'id'])
                .where('quarter', '<', before)
                .limit(limit)
                .$asTuple('quarter', 'id'),
            ),
          )
          .compile(),
      ]);
      return removed.changes;
    },
    async removeTotals(beforeDay, limit) {
      const [totals, spending] = await database.write([
        query
          .deleteFrom('usage_totals')
          .where(({ eb, refTuple }) =>
            eb(
              refTuple('scope', 'dimension', 'day', 'value'),
              'in',
              query
                .selectFrom('usage_totals')
                .select(['scope', 'dimension', 'day', 'value'])
                .where('day', '<', beforeDay)
                .limit(limit)
                .$asTuple('scope', 'dimension', 'day', 'value'),
            ),
          )
          .compile(),
        // What a key spent in all counts for as long as the key is there.
        query.deleteFrom('key_spending').where('period', '<', beforeDay).where('period', '!=', 'total').compile(),
      ]);
      return totals.changes + spending.changes;
    },
    async removeFlushes(beforeId, limit) {
      const old = query.selectFrom('usage_flushes').select('id').where('id', '<', beforeId).orderBy('id').limit(limit);
      const [removed] = await database.write([query.deleteFrom('usage_flushes').where('id', 'in', old).compile()]);
      return removed.changes;
    },
  };
}

/** `like` ignores case on one engine only, and has characters with a meaning. */
export function hasTag(tag: string) {
  return sql<boolean>`replace(tags, ${`,${tag},`}, '') <> tags`;
}

/** Which calls: those with an id from `fromId` to before `beforeId` (ids sort by time) that have all the given values. */
interface CallFilter {
  readonly fromId: string;
  readonly beforeId: string;
  readonly equal: Readonly<Partial<Pick<UsageRecordRow, CallColumn>>>;
  readonly tag?: string | undefined;
  readonly minDurationMs: number;
  readonly limit: number;
}

type CallColumn = 'key_id' | 'owner' | 'team' | 'model' | 'api' | 'outcome' | 'request_id';

/** Reads the records of single calls. */
export interface CallStore {
  /** The latest first. */
  list(filter: CallFilter): Promise<readonly UsageRecordRow[]>;
  find(id: string): Promise<UsageRecordRow | undefined>;
  contentOf(id: string): Promise<UsageContentRow | undefined>;
}

export function createCallStore(database: Database<CompletionsSchema>): CallStore {
  const { query } = database;
  return {
    list({ fromId, beforeId, equal, tag, minDurationMs, limit }) {
      let calls = query
        .selectFrom('usage_records')
        .selectAll()
        .where('id', '>=', fromId)
        .where('id', '<', beforeId)
        .orderBy('id', 'desc')
        .limit(limit);
      for (const name of Object.keys(equal) as CallColumn[]) {
        const value = equal[name];
        if (value !== undefined) calls = calls.where(name, '=', value);
      }
      if (tag !== undefined) calls = calls.where(hasTag(tag));
      if (minDurationMs > 0) calls = calls.where('duration_ms', '>=', minDurationMs);
      return database.read(calls.compile());
    },
    async find(id) {
      const [row] = await database.read(query.selectFrom('usage_records').selectAll().where('id', '=', id).compile());
      return row;
    },
    async contentOf(id) {
      const [row] = await database.read(
        query.selectFrom('usage_contents').selectAll().where('record_id', '=', id).compile(),
      );
      return row;
    },
  };
}
