import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type {
  CompletionsSchema,
  SpendingRow,
  UsageContentRow,
  UsageRecordRow,
  UsageTotalRow,
} from './completions-schema.ts';

/** What is stored together, or not at all. */
export interface UsageFlush {
  /** Makes it safe to store the same sums again when it is not known whether they were: STORAGE_DUPLICATE. */
  readonly id: string;
  readonly totals: readonly UsageTotalRow[];
  readonly spending: readonly SpendingRow[];
  /** A record that is there already is left alone. */
  readonly records: readonly UsageRecordRow[];
  readonly contents: readonly UsageContentRow[];
}

interface UsageQuery {
  readonly scope: string;
  readonly dimension: string;
  readonly fromDay: string;
  readonly toDay: string;
  /** What makes a group: each value, each day, or each value on each day. */
  readonly by: 'value' | 'day' | 'value and day';
}

export interface UsageSum {
  readonly group: string;
  /** The day that it counts, where each value has a sum for each day. */
  readonly bucket?: string;
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cost_nano_usd: bigint;
}

export interface UsageStore {
  add(flush: UsageFlush): Promise<void>;
  /** By group, in order. */
  report(question: UsageQuery): Promise<readonly UsageSum[]>;
  /** Removes what was asked and answered in calls of a user, at most `limit` of them; returns how many. */
  removeContentsOf(owner: string, limit: number): Promise<number>;
}

/** As many rows as one statement takes; the rest goes row by row. */
const ROWS_AT_ONCE = 50;

const RECORD_COLUMNS = [
  'id',
  'at',
  'key_id',
  'owner',
  'team',
  'model',
  'api',
  'upstream_model',
  'operation',
  'prompt_tokens',
  'completion_tokens',
  'cost_nano_usd',
  'price_known',
  'estimated',
  'outcome',
  'status',
  'attempts',
  'duration_ms',
  'first_token_ms',
  'request_id',
  'cached_tokens',
  'cache_write_tokens',
  'reasoning_tokens',
  'failures',
] as const satisfies readonly (keyof UsageRecordRow)[];

export function createUsageStore(database: Database<CompletionsSchema>): UsageStore {
  const { query } = database;
  const addFlush = database.statement((builder, given: { id: string }) =>
    builder.insertInto('usage_flushes').values({ id: given.id }),
  );
  const addTotal = database.statement((builder, given: UsageTotalRow) =>
    builder
      .insertInto('usage_totals')
      .values({
        scope: given.scope,
        dimension: given.dimension,
        day: given.day,
        value: given.value,
        requests: given.requests,
        errors: given.errors,
        prompt_tokens: given.prompt_tokens,
        completion_tokens: given.completion_tokens,
        cost_nano_usd: given.cost_nano_usd,
      })
      .onConflict((conflict) =>
        conflict.columns(['scope', 'dimension', 'day', 'value']).doUpdateSet((update) => ({
          requests: update('usage_totals.requests', '+', update.ref('excluded.requests')),
          errors: update('usage_totals.errors', '+', update.ref('excluded.errors')),
          prompt_tokens: update('usage_totals.prompt_tokens', '+', update.ref('excluded.prompt_tokens')),
          completion_tokens: update('usage_totals.completion_tokens', '+', update.ref('excluded.completion_tokens')),
          cost_nano_usd: update('usage_totals.cost_nano_usd', '+', update.ref('excluded.cost_nano_usd')),
        })),
      ),
  );
  const addSpending = database.statement((builder, given: SpendingRow) =>
    builder
      .insertInto('key_spending')
      .values({ key_id: given.key_id, period: given.period, cost_nano_usd: given.cost_nano_usd })
      .onConflict((conflict) =>
        conflict.columns(['key_id', 'period']).doUpdateSet((update) => ({
          cost_nano_usd: update('key_spending.cost_nano_usd', '+', update.ref('excluded.cost_nano_usd')),
        })),
      ),
  );
  const addContent = database.statement((builder, given: UsageContentRow) =>
    builder
      .insertInto('usage_contents')
      .values({ record_id: given.record_id, request: given.request, answer: given.answer })
      .onConflict((conflict) => conflict.doNothing()),
  );
  const insertOf = (rows: number) => {
    const slots = Array.from({ length: rows }, () => Object.fromEntries(RECORD_COLUMNS.map((name) => [name, 0])));
    const statement = database.statement((builder) =>
      builder
        .insertInto('usage_records')
        .values(slots as unknown as UsageRecordRow[])
        .onConflict((conflict) => conflict.doNothing()),
    )();
    return (given: readonly UsageRecordRow[]): Statement => ({
      ...statement,
      parameters: given.flatMap((row) => RECORD_COLUMNS.map((name) => row[name])),
    });
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
    async add({ id, totals, spending, records, contents }) {
      await database.write([
        addFlush({ id }),
        ...totals.map((row) => addTotal(row)),
        ...spending.map((row) => addSpending(row)),
        ...recordStatements(records),
        ...contents.map((row) => addContent(row)),
      ]);
    },
    async report({ scope, dimension, fromDay, toDay, by }) {
      const group = by === 'day' ? 'day' : 'value';
      const rows = await database.read(
        query
          .selectFrom('usage_totals')
          .$if(by === 'value and day', (select) => select.select('day as bucket').groupBy('day').orderBy('day'))
          .select((select) => [
            select.ref(group).as('group'),
            select.fn.sum<number>('requests').as('requests'),
            select.fn.sum<number>('errors').as('errors'),
            select.fn.sum<number>('prompt_tokens').as('prompt_tokens'),
            select.fn.sum<number>('completion_tokens').as('completion_tokens'),
            select.fn.sum<number | bigint | string>('cost_nano_usd').as('cost_nano_usd'),
          ])
          .where('scope', '=', scope)
          .where('dimension', '=', dimension)
          .where('day', '>=', fromDay)
          .where('day', '<=', toDay)
          .groupBy(group)
          .orderBy(group)
          .compile(),
      );
      return rows.map(readSum);
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

type SumRow = Omit<UsageSum, 'cost_nano_usd'> & { readonly cost_nano_usd: number | bigint | string };

/** PostgreSQL gives the sum of whole numbers as text, since it may be larger than they are. */
function readSum({ group, bucket, ...sums }: SumRow): UsageSum {
  return {
    group,
    ...(bucket !== undefined && { bucket }),
    requests: Number(sums.requests),
    errors: Number(sums.errors),
    prompt_tokens: Number(sums.prompt_tokens),
    completion_tokens: Number(sums.completion_tokens),
    cost_nano_usd: BigInt(sums.cost_nano_usd),
  };
}

/** Removes old rows in small steps, so that other writers need not wait. Each step returns how many rows it removed. */
export interface UsageRetentionStore {
  removeRecords(beforeId: string, limit: number): Promise<number>;
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

/** Which calls: those with an id from `fromId` to before `beforeId` (ids sort by time) that have all the given values. */
interface CallFilter {
  readonly fromId: string;
  readonly beforeId: string;
  readonly equal: Readonly<Partial<Pick<UsageRecordRow, CallColumn>>>;
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
    list({ fromId, beforeId, equal, minDurationMs, limit }) {
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
