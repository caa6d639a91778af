import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** What was done and seen, one line of the log each, in the order in which it happened. Times are of one monotonic clock. */
export type Operation =
  | { readonly kind: 'issued'; readonly key: string; readonly budgetUsd: number | null }
  /** A call leaves its client; its id is the id of the request. */
  | { readonly kind: 'sent'; readonly id: string; readonly key: string }
  /** The upstream has given the whole answer to that call. */
  | { readonly kind: 'answered'; readonly id: string; readonly at: number }
  /** What its client got: an answer, a refusal, or nothing. */
  | { readonly kind: 'call'; readonly id: string; readonly outcome: 'ok' | 'fail' | 'unknown' }
  | { readonly kind: 'stop'; readonly signal: 'SIGKILL' | 'SIGTERM'; readonly at: number }
  | { readonly kind: 'ready'; readonly ms: number };

export interface StoredCall {
  readonly id: string;
  readonly key: string;
  readonly tokens: number;
  readonly costUsd: number;
}

export interface StoredSum {
  readonly key: string;
  readonly calls: number;
  readonly tokens: number;
  readonly costUsd: number;
}

export interface StoredUsage {
  readonly calls: readonly StoredCall[];
  /** What reports are made of, by key. */
  readonly totals: readonly StoredSum[];
  /** What counts against budgets. */
  readonly spending: readonly { readonly key: string; readonly costUsd: number }[];
}

/** What every answered call takes and costs. */
export interface CallPrice {
  readonly tokens: number;
  readonly costUsd: number;
}

/** Records are written about once a second. Beyond, a machine that is busy. */
const FLUSH_MS = 1000;
const MAX_UNSTORED_MS = FLUSH_MS + 2000;
const LOST_GOAL_MS = FLUSH_MS + 250;
const READY_MS = 2000;
/** Sums of fractions. */
const ROUNDING = 1e-6;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(operations: readonly Operation[], store: StoredUsage, price: CallPrice): string[] {
  return [
    ...checkSent(operations, store, price),
    ...checkTwice(store),
    ...missingCalls(operations, store).flatMap(({ id, signal, ageMs }) => {
      if (signal === 'SIGTERM') return [`${id} was answered, and a clean stop lost it`];
      return ageMs > MAX_UNSTORED_MS ? [`${id} was answered ${Math.round(ageMs)} ms before a kill, and is lost`] : [];
    }),
    ...checkSums(store),
    ...checkBudgets(operations, store, price),
  ];
}

/** What the run came to, by its log and by what is stored at its end. */
export function figuresOf(operations: readonly Operation[], store: StoredUsage, price: CallPrice): FaultFigure[] {
  const stops = (signal: string) => operations.filter((one) => one.kind === 'stop' && one.signal === signal).length;
  const calls = (outcome: string) => operations.filter((one) => one.kind === 'call' && one.outcome === outcome).length;
  const missing = missingCalls(operations, store);
  const killed = missing.filter(({ signal }) => signal === 'SIGKILL');
  const ready = operations.flatMap((one) => (one.kind === 'ready' ? [one.ms] : []));
  return [
    countFigure('kills under load', stops('SIGKILL')),
    countFigure('clean stops under load', stops('SIGTERM')),
    countFigure('calls answered by the upstream', operations.filter(({ kind }) => kind === 'answered').length),
    workFigure('calls answered to their client', calls('ok')),
    countFigure('calls refused', calls('fail')),
    countFigure('calls without an answer', calls('unknown')),
    workFigure('records stored', store.calls.length),
    neverFigure('records of calls that were never made, or wrong', checkSent(operations, store, price).length),
    neverFigure('calls recorded twice', checkTwice(store).length),
    neverFigure('calls lost by a clean stop', missing.length - killed.length),
    countFigure('calls lost by kills', killed.length),
    longestFigure(
      'the oldest of them, before the kill',
      killed.map(({ ageMs }) => ageMs),
      LOST_GOAL_MS,
    ),
    neverFigure('sums that are not those of the records', checkSums(store).length),
    countFigure(
      'budgets used up',
      budgetsOf(operations, store, price).filter(({ budgetUsd, used }) => used + price.costUsd > budgetUsd).length,
    ),
    neverFigure('budgets exceeded by more than was lost', checkBudgets(operations, store, price).length),
    longestFigure('ready after a stop, at most', ready.slice(1), READY_MS),
  ];
}

/** Nothing is stored that was not asked and, if it cost something, answered; and what is stored is what was used. */
function checkSent(operations: readonly Operation[], { calls }: StoredUsage, price: CallPrice): string[] {
  const keys = new Map(operations.flatMap((one) => (one.kind === 'sent' ? [[one.id, one.key]] : [])));
  const answered = new Set(operations.flatMap((one) => (one.kind === 'answered' ? [one.id] : [])));
  return calls.flatMap(({ id, key, tokens, costUsd }) => {
    if (keys.get(id) !== key) return [`${id} of ${key} is stored, and was sent by ${keys.get(id) ?? 'nobody'}`];
    if (tokens === 0 && costUsd === 0) return [];
    if (!answered.has(id)) return [`${id} is stored with ${tokens} tokens, and was never answered`];
    const isRight = tokens === price.tokens && isSame(costUsd, price.costUsd);
    return isRight ? [] : [`${id} is stored with ${tokens} tokens and ${costUsd} USD`];
  });
}

function checkTwice({ calls }: StoredUsage): string[] {
  return [...Map.groupBy(calls, ({ id }) => id)].flatMap(([id, rows]) =>
    rows.length > 1 ? [`${id} is stored ${rows.length} times`] : [],
  );
}

/** Calls that the upstream has answered and the store does not have, with what came upon them and when. */
function missingCalls(
  operations: readonly Operation[],
  { calls }: StoredUsage,
): readonly { readonly id: string; readonly signal: string; readonly ageMs: number }[] {
  const stored = new Set(calls.filter(({ tokens }) => tokens > 0).map(({ id }) => id));
  let stop: { readonly signal: string; readonly at: number } | undefined;
  return operations
    .toReversed()
    .flatMap((one) => {
      if (one.kind === 'stop') stop = one;
      if (one.kind !== 'answered' || stored.has(one.id)) return [];
      // What is answered after the last stop has none that could excuse it.
      const { signal = 'SIGTERM', at = one.at } = stop ?? {};
      return [{ id: one.id, signal, ageMs: at - one.at }];
    })
    .reverse();
}

/** Records, the sums of reports and what counts against budgets were stored together: they agree to the last call. */
function checkSums({ calls, totals, spending }: StoredUsage): string[] {
  const byKey = Map.groupBy(calls, ({ key }) => key);
  const keys = new Set([...byKey.keys(), ...totals.map(({ key }) => key)]);
  return [...keys].flatMap((key) => {
    const rows = byKey.get(key) ?? [];
    const cost = sum(rows.map(({ costUsd }) => costUsd));
    const tokens = sum(rows.map((row) => row.tokens));
    const total = totals.find((one) => one.key === key);
    const isReported = total?.calls === rows.length && total.tokens === tokens && isSame(total.costUsd, cost);
    const spent = spending.find((one) => one.key === key)?.costUsd;
    return [
      ...(isReported ? [] : [`${key} has ${rows.length} calls, and its sums say ${total?.calls ?? 0}`]),
      ...(spent === undefined || isSame(spent, cost) ? [] : [`${key} cost ${cost} USD, and ${spent} count`]),
    ];
  });
}

function checkBudgets(operations: readonly Operation[], store: StoredUsage, price: CallPrice): string[] {
  return budgetsOf(operations, store, price).flatMap(({ key, budgetUsd, used, lost }) =>
    used <= budgetUsd + lost + ROUNDING ? [] : [`${key} used ${used} USD of ${budgetUsd}, and only ${lost} were lost`],
  );
}

/** What the calls of each key with a budget have cost at the upstream, and how much of it the store does not know. */
function budgetsOf(operations: readonly Operation[], store: StoredUsage, { costUsd }: CallPrice) {
  const keys = new Map(operations.flatMap((one) => (one.kind === 'sent' ? [[one.id, one.key]] : [])));
  const answered = operations.flatMap((one) => (one.kind === 'answered' ? [keys.get(one.id)] : []));
  const missing = missingCalls(operations, store).map(({ id }) => keys.get(id));
  const costOf = (all: readonly (string | undefined)[], key: string) =>
    all.filter((one) => one === key).length * costUsd;
  return operations.flatMap((one) => {
    if (one.kind !== 'issued' || one.budgetUsd === null) return [];
    const { key, budgetUsd } = one;
    return [{ key, budgetUsd, used: costOf(answered, key), lost: costOf(missing, key) }];
  });
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function isSame(one: number, other: number): boolean {
  return Math.abs(one - other) < ROUNDING;
}
