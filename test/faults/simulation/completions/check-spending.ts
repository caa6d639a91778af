import { usdOfNano } from '../../../../src/completions/apis/prices.ts';
import type { AttemptsEvent, AttemptsSetUp, CallEvent, StoredUsage } from './attempt-events.ts';

/** Usage is written about once a second. */
const FLUSH_MS = 1100;
/** Sums of fractions. */
const ROUNDING = 1e-9;
const OUTCOMES: Readonly<Record<string, readonly string[]>> = {
  ok: ['ok'],
  part: ['partial'],
  left: ['aborted', 'ok'],
  fail: ['error', 'aborted'],
};

/** Every call is recorded once, as it was, and no budget is exceeded by more than the estimates were wrong. */
export function checkSpending(events: readonly AttemptsEvent[], stored: StoredUsage, setUp: AttemptsSetUp): string[] {
  const calls = new Map(events.flatMap((event) => (event.kind === 'call' ? [[event.call, event]] : [])));
  return [
    ...checkRecords(calls, stored),
    ...(setUp.fails + setUp.isSlow === 0 ? checkKept(events, stored) : []),
    ...checkSums(stored, wasDropped(events, setUp)),
    ...checkBudget(events, calls, stored, setUp),
  ];
}

function checkRecords(calls: ReadonlyMap<string, CallEvent>, { records }: StoredUsage): string[] {
  const seen = new Set<string>();
  return records.flatMap((record) => {
    const { request_id: id, outcome, attempts, api, upstream_model: model } = record;
    const call = calls.get(id);
    const problems: string[] = [];
    if (seen.has(id)) problems.push(`${id} is recorded twice`);
    seen.add(id);
    if (call === undefined) return [...problems, `${id} is recorded, and nobody made it`];
    const may = OUTCOMES[call.outcome];
    if (may !== undefined && !may.includes(outcome))
      problems.push(`${id} was ${call.outcome}, and is recorded as ${outcome}`);
    if (call.target !== undefined && `${api}/${model}` !== call.target)
      problems.push(`${id} is recorded for ${api}/${model}`);
    if (call.attempts !== undefined && call.attempts !== attempts)
      problems.push(`${id} is recorded with ${attempts} attempts`);
    return problems;
  });
}

/** A crash loses at most the last second, and nothing else loses anything. */
function checkKept(events: readonly AttemptsEvent[], { records }: StoredUsage): string[] {
  const stored = new Set(records.map(({ request_id: id }) => id));
  const kills = events.flatMap((event) => (event.kind === 'kill' ? [event.at] : []));
  return events.flatMap((event) => {
    if (event.kind !== 'call' || event.text === undefined || stored.has(event.call)) return [];
    const isLost = kills.some((at) => at >= event.endedAt && at - event.endedAt <= FLUSH_MS);
    return isLost ? [] : [`${event.call} was answered, and is not recorded`];
  });
}

/**
 * A stop while the store is away gives up after some tries, and says so. After a write that failed, the sums are stored
 * first, and a kill may come before the records.
 */
function wasDropped(events: readonly AttemptsEvent[], { fails }: AttemptsSetUp): boolean {
  return events.some(
    (event) =>
      (event.kind === 'logged' && event.line === 'usage was not stored') || (event.kind === 'kill' && fails > 0),
  );
}

/** Records, sums and what counts against budgets say the same; but for records that were dropped. */
function checkSums({ records, totals, spending, keys }: StoredUsage, mayLack: boolean): string[] {
  if (mayLack) return [];
  return keys.flatMap(({ id, name }) => {
    const own = records.filter(({ key_id: key }) => key === id);
    const recorded = own.reduce((sum, { cost_nano_usd: cost }) => sum + usdOfNano(cost), 0);
    const summed = totals.filter(({ key_id: key }) => key === id);
    const total = summed.reduce((sum, { cost_nano_usd: cost }) => sum + usdOfNano(cost), 0);
    const requests = summed.reduce((sum, row) => sum + row.requests, 0);
    const spent = spending
      .filter(({ key_id: key }) => key === id)
      .reduce((sum, { cost_nano_usd: cost }) => sum + usdOfNano(cost), 0);
    const problems: string[] = [];
    if (requests !== own.length) problems.push(`${own.length} calls of ${name} are recorded, and ${requests} counted`);
    if (Math.abs(recorded - total) > ROUNDING)
      problems.push(`calls of ${name} cost ${recorded}, and the sum is ${total}`);
    const hasBudget = name === 'bound';
    if (hasBudget && Math.abs(recorded - spent) > ROUNDING) {
      problems.push(`calls of ${name} cost ${recorded}, and ${spent} counts against its budget`);
    }
    return problems;
  });
}

/** By what the estimates fell short, and by what was lost with a process. */
function checkBudget(
  events: readonly AttemptsEvent[],
  calls: ReadonlyMap<string, CallEvent>,
  { records, keys }: StoredUsage,
  { budgetUsd }: AttemptsSetUp,
): string[] {
  const key = keys.find(({ name }) => name === 'bound');
  const own = records.filter(({ key_id: id }) => id === key?.id);
  const spent = own.reduce((sum, { cost_nano_usd: cost }) => sum + usdOfNano(cost), 0);
  const short = own.reduce(
    (sum, { cost_nano_usd: cost, request_id: id }) =>
      sum + Math.max(0, usdOfNano(cost) - (calls.get(id)?.estimatedUsd ?? 0)),
    0,
  );
  // What a killed process had let in, or had not stored yet, counts for nobody.
  const wasKilled = events.some(({ kind }) => kind === 'kill');
  if (wasKilled || spent <= budgetUsd + short + ROUNDING) return [];
  return [`${spent} was spent of a budget of ${budgetUsd}, and the estimates fell short by ${short}`];
}
