import type { Charge } from '../keys/admission.ts';
import type { SpendingRow, UsageRecordRow, UsageTotalRow } from '../storage/completions-schema.ts';

/** What was counted since the sums were last taken. */
export interface UsageSums {
  readonly totals: readonly UsageTotalRow[];
  readonly spending: readonly SpendingRow[];
}

/** Adds calls up for all reports, so that the figures are correct even when the calls themselves are not kept. */
export interface UsageAdder {
  add(record: UsageRecordRow, day: string, charges?: readonly Charge[]): void;
  /** Returns the sums, and starts again from zero. */
  take(): UsageSums;
  /** What a key or a person spent in a period and was not taken yet. */
  spent(bucket: string, period: string): number;
  isEmpty(): boolean;
}

type Total = { -readonly [Name in keyof UsageTotalRow]: UsageTotalRow[Name] };

/** While the store is away, what would make more rows than this is added up under one name. */
const MAX_TOTALS = 50_000;
const OTHER = 'other';

export function createUsageAdder(maxTotals = MAX_TOTALS): UsageAdder {
  let totals = new Map<string, Total>();
  /** The totals that calls of one key to one model of one API on one day go into: most calls are like the one before. */
  let alike = new Map<string, readonly Total[]>();
  let spending = new Map<string, { key_id: string; period: string; cost_nano_usd: number }>();

  function totalOf(scope: string, dimension: string, day: string, value: string): Total {
    const name = `${scope}\n${dimension}\n${day}\n${value}`;
    const known = totals.get(name);
    if (known !== undefined) return known;
    if (totals.size >= maxTotals && value !== OTHER && value !== '') return totalOf(scope, dimension, day, OTHER);
    const fresh = { scope, dimension, day, value, requests: 0, errors: 0, ...NOTHING };
    totals.set(name, fresh);
    return fresh;
  }

  function totalsOf({ key_id: key, model, api }: UsageRecordRow, day: string): readonly Total[] {
    // The model last: callers choose its name.
    const name = `${key}\n${api}\n${day}\n${model}`;
    const known = alike.get(name);
    if (known !== undefined) return known;
    const found = [
      totalOf('', 'day', day, ''),
      totalOf('', 'key', day, key),
      totalOf('', 'model', day, model),
      totalOf('', 'api', day, api),
      totalOf(key, 'day', day, ''),
      totalOf(key, 'model', day, model),
      totalOf(key, 'api', day, api),
    ];
    if (alike.size < maxTotals) alike.set(name, found);
    return found;
  }

  return {
    add(record, day, charges = []) {
      for (const total of totalsOf(record, day)) {
        total.requests += 1;
        if (record.outcome === 'error' || record.outcome === 'partial') total.errors += 1;
        total.prompt_tokens += record.prompt_tokens;
        total.completion_tokens += record.completion_tokens;
        total.cost_nano_usd += record.cost_nano_usd;
      }
      if (record.cost_nano_usd === 0) return;
      for (const { bucket, period } of charges) {
        const name = `${bucket}\n${period}`;
        const spent = spending.get(name);
        if (spent === undefined) spending.set(name, { key_id: bucket, period, cost_nano_usd: record.cost_nano_usd });
        else spent.cost_nano_usd += record.cost_nano_usd;
      }
    },
    take() {
      const taken = { totals: inOrder(totals), spending: inOrder(spending) };
      totals = new Map();
      alike = new Map();
      spending = new Map();
      return taken;
    },
    spent: (bucket, period) => spending.get(`${bucket}\n${period}`)?.cost_nano_usd ?? 0,
    isEmpty: () => totals.size === 0,
  };
}

const NOTHING = { prompt_tokens: 0, completion_tokens: 0, cost_nano_usd: 0 };

/** Instances that write the same rows in the same order cannot wait for each other in a circle. */
function inOrder<Row>(rows: ReadonlyMap<string, Row>): readonly Row[] {
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
}
