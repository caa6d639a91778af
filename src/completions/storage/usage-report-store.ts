import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { CompletionsSchema } from './completions-schema.ts';
import { hasTag } from './usage-store.ts';

/** Which calls a report is about, by the quarters of an hour in which they ended: from `from` to before `to`. */
interface QuarterFilter {
  readonly of?: { readonly column: 'key_id' | 'owner' | 'team'; readonly value: string } | undefined;
  /** Only those of one owner. */
  readonly owner?: string | undefined;
  readonly tag?: string | undefined;
  readonly from: number;
  readonly to: number;
}

export type UsageColumn = 'key_id' | 'owner' | 'team' | 'model' | 'api' | 'outcome' | 'tags';

/** A column that a report is split by. With `names`, all other values are added up as `other`. */
export interface UsageSplit {
  readonly column: UsageColumn;
  readonly names?: readonly string[];
}

/** Splits by time: `quarters` of an hour to a group, counted on clocks that are ahead of UTC by `offset` quarters. */
interface TimeSplit {
  readonly quarters: number;
  readonly offset: number;
}

/** Which of the sums per day: see `UsageTotalRow`. */
interface DayFilter {
  readonly scope: string;
  readonly dimension: string;
  readonly fromDay: string;
  readonly toDay: string;
  /** Whether the days are told apart. */
  readonly byDay: boolean;
}

export interface UsageCounts {
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cost_nano_usd: bigint;
}

/** Reads sums of usage. */
export interface UsageReportStore {
  /** The first and the last quarter of an hour of which there is usage. */
  quarterBounds(): Promise<{ readonly first: number; readonly last: number } | undefined>;
  /** The values of a column that cost the most, at most `limit` of them. */
  largest(
    filter: QuarterFilter,
    column: UsageColumn,
    limit: number,
  ): Promise<readonly (UsageCounts & { value: string })[]>;
  /** Sums by the values of up to two columns, and by time. */
  sums(
    filter: QuarterFilter,
    splits: readonly UsageSplit[],
    time?: TimeSplit,
  ): Promise<readonly (UsageCounts & { readonly values: readonly string[]; readonly slot: number })[]>;
  /** The sums per day from before there were sums per quarter of an hour. `day` is empty unless the days are told apart. */
  days(filter: DayFilter): Promise<readonly (UsageCounts & { readonly day: string; readonly value: string })[]>;
}

export const OTHER = 'other';

export function createUsageReportStore(database: Database<CompletionsSchema>): UsageReportStore {
  const { query } = database;

  function quarters({ of, owner, tag, from, to }: QuarterFilter) {
    let rows = query
      .selectFrom('usage_quarters')
      .select(countsOf())
      .where('quarter', '>=', from)
      .where('quarter', '<', to);
    if (of !== undefined) rows = rows.where(of.column, '=', of.value);
    if (owner !== undefined) rows = rows.where('owner', '=', owner);
    if (tag !== undefined) rows = rows.where(hasTag(tag));
    return rows;
  }

  return {
    async quarterBounds() {
      const [first, last] = await Promise.all(
        (['asc', 'desc'] as const).map(async (order) => {
          const rows = query.selectFrom('usage_quarters').select('quarter').orderBy('quarter', order).limit(1);
          return (await database.read(rows.compile()))[0]?.quarter;
        }),
      );
      return first === undefined || last === undefined ? undefined : { first: Number(first), last: Number(last) };
    },
    async largest(filter, column, limit) {
      const rows = await database.read(
        quarters(filter)
          .select(sql.ref<string>(column).as('label'))
          .groupBy(sql.ref('label'))
          .orderBy('cost_nano_usd', 'desc')
          .orderBy('requests', 'desc')
          .orderBy('label')
          .limit(limit)
          .compile(),
      );
      return rows.map(({ label, ...counts }) => ({ ...readCounts(counts), value: label }));
    },
    async sums(filter, splits, time) {
      const [first, second] = splits.map(labelOf);
      // Literals, because a number that is bound is not a whole one for SQLite, and would be divided with a remainder.
      const slot = time && sql<number>`(quarter + ${sql.lit(time.offset)}) / ${sql.lit(time.quarters)}`;
      let rows = quarters(filter).select([
        (first ?? sql.lit('')).as('first_label'),
        (second ?? sql.lit('')).as('second_label'),
        (slot ?? sql.lit(0)).as('slot'),
      ]);
      if (first !== undefined) rows = rows.groupBy(sql.ref('first_label'));
      if (second !== undefined) rows = rows.groupBy(sql.ref('second_label'));
      if (slot !== undefined) rows = rows.groupBy(sql.ref('slot'));
      const found = await database.read(rows.compile());
      return found
        .filter(({ requests }) => requests !== null)
        .map(({ first_label: one, second_label: two, slot: at, ...counts }) => ({
          ...readCounts(counts),
          values: [String(one), String(two)].slice(0, splits.length),
          slot: Number(at),
        }));
    },
    async days({ scope, dimension, fromDay, toDay, byDay }) {
      let rows = query
        .selectFrom('usage_totals')
        .select([...countsOf(), 'value', (byDay ? sql.ref<string>('day') : sql.lit('')).as('on_day')])
        .where('scope', '=', scope)
        .where('dimension', '=', dimension)
        .where('day', '>=', fromDay)
        .where('day', '<=', toDay)
        .groupBy('value');
      if (byDay) rows = rows.groupBy('day');
      const found = await database.read(rows.compile());
      return found.map(({ value, on_day: day, ...counts }) => ({ ...readCounts(counts), value, day: String(day) }));
    },
  };
}

function labelOf({ column, names }: UsageSplit): RawBuilder<string> {
  const value = sql.ref<string>(column);
  if (names === undefined) return value;
  if (names.length === 0) return sql.lit(OTHER);
  return sql`case when ${value} in (${sql.join(names)}) then ${value} else ${sql.lit(OTHER)} end`;
}

function countsOf() {
  const sum = (name: string) => sql<number | bigint | string>`sum(${sql.ref(name)})`;
  return [
    sum('requests').as('requests'),
    sum('errors').as('errors'),
    sum('prompt_tokens').as('prompt_tokens'),
    sum('completion_tokens').as('completion_tokens'),
    sum('cost_nano_usd').as('cost_nano_usd'),
  ] as const;
}

type CountsRow = Readonly<Record<keyof UsageCounts, number | bigint | string>>;

/** PostgreSQL gives the sum of whole numbers as text, since it may be larger than they are. */
function readCounts(row: CountsRow): UsageCounts {
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    prompt_tokens: Number(row.prompt_tokens),
    completion_tokens: Number(row.completion_tokens),
    cost_nano_usd: BigInt(row.cost_nano_usd),
  };
}
