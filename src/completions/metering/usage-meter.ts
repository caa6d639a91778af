import { createHash } from 'node:crypto';
import type { Clock } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import { createBatcher } from '../../platform/queue/batcher.ts';
import { countTokens } from '../apis/prices.ts';
import type { CallObserver, CallOutcome, Charge, SettledCall } from '../keys/admission.ts';
import { storedTags } from '../keys/issued-key.ts';
import type { UsageContentRow, UsageQuarterRow, UsageRecordRow } from '../storage/completions-schema.ts';
import { OTHER } from '../storage/usage-report-store.ts';
import type { StoredEstimate, UsageFlush, UsageStore } from '../storage/usage-store.ts';
import { quarterOf } from './usage-time.ts';

/** What was counted since the sums were last taken. */
interface UsageSums {
  readonly quarters: readonly UsageQuarterRow[];
  readonly spending: UsageFlush['spending'];
}

/** Adds calls up for all reports, so that the figures are correct even when the calls themselves are not kept. */
interface UsageAdder {
  /** A correction is a record, and not a request. */
  add(record: UsageRecordRow, charges?: readonly Charge[], isCorrection?: boolean): void;
  /** Returns the sums, and starts again from zero. */
  take(): UsageSums;
  /** What a key or a person spent in a period and was not taken yet. */
  spent(bucket: string, period: string): number;
  isEmpty(): boolean;
}

type Quarter = { -readonly [Name in keyof UsageQuarterRow]: UsageQuarterRow[Name] };

/** While the store is away, calls that would make more rows than this lose the names that callers choose. */
const MAX_QUARTERS = 50_000;

/** How much less is set aside of a budget when the amount is stored as spent. */
type Release = (bucket: string, period: string, nano: number) => number;

export function createUsageAdder(maxQuarters = MAX_QUARTERS, release: Release = () => 0): UsageAdder {
  let quarters = new Map<string, Quarter>();
  let spending = new Map<string, { key_id: string; period: string; cost_nano_usd: number }>();

  function quarterFor(record: UsageRecordRow, quarter: number): Quarter {
    const { key_id, owner, team, model, api, outcome, tags } = record;
    // The model last: callers choose its name.
    const name = `${quarter}\n${key_id}\n${owner}\n${team}\n${api}\n${outcome}\n${tags}\n${model}`;
    const known = quarters.get(name);
    if (known !== undefined) return known;
    const short = { ...record, model: OTHER, tags: tags === '' ? '' : `,${OTHER},` };
    if (quarters.size >= maxQuarters && (model !== short.model || tags !== short.tags))
      return quarterFor(short, quarter);
    const fresh = {
      quarter,
      id: '',
      key_id,
      owner,
      team,
      model,
      api,
      outcome,
      tags,
      requests: 0,
      errors: 0,
      ...NOTHING,
    };
    quarters.set(name, fresh);
    return fresh;
  }

  function withRelease(row: Omit<UsageFlush['spending'][number], 'released'>): UsageFlush['spending'][number] {
    return { ...row, released: release(row.key_id, row.period, row.cost_nano_usd) };
  }

  return {
    add(record, charges = [], isCorrection = false) {
      const sums = quarterFor(record, quarterOf(record.at));
      if (!isCorrection) sums.requests += 1;
      if (record.outcome === 'error' || record.outcome === 'partial') sums.errors += 1;
      sums.prompt_tokens += record.prompt_tokens;
      sums.completion_tokens += record.completion_tokens;
      sums.cost_nano_usd += record.cost_nano_usd;
      if (record.cost_nano_usd === 0) return;
      for (const { bucket, period, costNano = record.cost_nano_usd } of charges) {
        const name = `${bucket}\n${period}`;
        const spent = spending.get(name);
        if (spent === undefined) spending.set(name, { key_id: bucket, period, cost_nano_usd: costNano });
        else spent.cost_nano_usd += costNano;
      }
    },
    take() {
      const taken = { quarters: inOrder(quarters).map(withId), spending: inOrder(spending).map(withRelease) };
      quarters = new Map();
      spending = new Map();
      return taken;
    },
    spent: (bucket, period) => spending.get(`${bucket}\n${period}`)?.cost_nano_usd ?? 0,
    isEmpty: () => quarters.size === 0,
  };
}

function withId(row: Quarter): UsageQuarterRow {
  const { key_id, owner, team, model, api, outcome, tags } = row;
  const names = JSON.stringify([key_id, owner, team, model, api, outcome, tags]);
  return { ...row, id: createHash('sha256').update(names).digest('base64url').slice(0, ID_LENGTH) };
}

/** 132 bits. */
const ID_LENGTH = 22;

const NOTHING = { prompt_tokens: 0, completion_tokens: 0, cost_nano_usd: 0 };

/** Instances that write the same rows in the same order cannot wait for each other in a circle. */
function inOrder<Row>(rows: ReadonlyMap<string, Row>): readonly Row[] {
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, row]) => row);
}

/** Stores what calls used, off their way. */
export interface UsageMeter {
  readonly observe: CallObserver;
  /**
   * Stores a correction and takes its estimate, both or neither: a program that dies in between corrects at the next look. Nothing is
   * stored if the estimate is gone. Rejects if the store fails; it is tried again.
   */
  correct(call: SettledCall, estimate: StoredEstimate, onStored: () => void): Promise<void>;
  /** What a key spent in a period and is not stored yet. */
  unstored(keyId: string, period: string): number;
  /** Resolves when all that was observed is stored. */
  flush(): Promise<void>;
  figures(): { readonly waiting: number; readonly dropped: number };
  /** Stores what is left. */
  close(): Promise<void>;
}

interface UsageMeterOptions {
  readonly store: Pick<UsageStore, 'add'>;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly makeId: MakeId;
  readonly release?: Release | undefined;
  /** The most calls that may wait to be stored. Beyond, only their sums are kept. */
  readonly capacity?: number;
  /** Called when records were dropped, and when sums were lost at shutdown. */
  onLost(what: 'records' | 'sums', count: number): void;
}

/** A call that has ended; its record once it was counted. It may wait for a while, so it holds no more than it must. */
interface Item {
  call: SettledCall | undefined;
  content: CallOutcome['content'];
  /** Tells the time of the call: by it, old records are removed. */
  readonly id: string;
  readonly at: number;
  record: UsageRecordRow | undefined;
}

/** What an earlier call used more or less than it was charged. Its figures may be negative. */
interface Correction {
  readonly call: SettledCall;
  readonly estimate: StoredEstimate;
  readonly flushId: string;
  readonly id: string;
  readonly at: number;
  onStored(): void;
}

/** How many calls are counted together: counting each with its answer took about twice as long. */
const COUNTED_TOGETHER = 64;
const CAPACITY = 20_000;
const FLUSH_MS = 1000;
const BATCH = 500;

export function createUsageMeter(options: UsageMeterOptions): UsageMeter {
  const { store, clock, makeId, capacity = CAPACITY, onLost } = options;
  const adder = createUsageAdder(undefined, options.release);
  const makeRecordId = createCallIds('usg_', makeId, clock);
  /** Sums on their way into the store. They keep their id until it is known that they are there. */
  let leaving: (UsageSums & { readonly id: string }) | undefined;
  let dropped = 0;
  let uncounted: Item[] = [];

  function countAll(): void {
    const items = uncounted;
    uncounted = [];
    for (const item of items) {
      const { call, id, at } = item;
      if (call === undefined) continue;
      item.record = usageRecord(call, id, at);
      adder.add(item.record, call.charges);
      item.content = call.outcome.content;
      item.call = undefined;
    }
  }

  /** In the order of their ids, because exports go on after the last id that they have seen. */
  async function write(items: readonly (Item | Correction)[]): Promise<void> {
    let calls: Item[] = [];
    for (const item of items) {
      if (!('estimate' in item)) {
        calls.push(item);
        continue;
      }
      if (calls.length > 0) await writeCalls(calls);
      calls = [];
      await writeCorrection(item);
    }
    if (calls.length > 0) await writeCalls(calls);
  }

  async function writeCorrection({ call, estimate, flushId, id, at, onStored }: Correction): Promise<void> {
    const record = usageRecord(call, id, at);
    const sums = createUsageAdder();
    sums.add(record, call.charges, true);
    try {
      await store.add({ ...sums.take(), id: flushId, records: [record], contents: [], estimate });
    } catch (error) {
      const code = errorCode(error);
      // Another look at the batch has stored it.
      if (code === 'STORAGE_CONFLICT') return;
      // An earlier attempt whose answer was lost.
      if (code !== 'STORAGE_DUPLICATE') throw error;
    }
    onStored();
  }

  async function writeCalls(items: readonly Item[]): Promise<void> {
    countAll();
    if (leaving !== undefined) await finish(leaving);
    leaving = { ...adder.take(), id: makeId('flu_') };
    const records = items.flatMap(({ record }) => record ?? []);
    const contents = items.flatMap(contentRow);
    await store.add({ ...leaving, records, contents });
    leaving = undefined;
  }

  /** An earlier attempt failed; when only its answer was lost, the sums are there already. */
  async function finish(sums: UsageSums & { readonly id: string }): Promise<void> {
    try {
      await store.add({ ...sums, records: [], contents: [] });
    } catch (error) {
      if (errorCode(error) !== 'STORAGE_DUPLICATE') throw error;
    }
    leaving = undefined;
  }

  const queue = createBatcher<Item | Correction>({
    capacity,
    maxBatch: BATCH,
    maxDelayMs: FLUSH_MS,
    waitsAgain: true,
    write,
    clock,
    onDropped(count) {
      dropped += count;
      onLost('records', count);
    },
  });

  return {
    observe(call) {
      const item: Item = {
        call,
        content: undefined,
        id: makeRecordId(),
        at: clock.now(),
        record: undefined,
      };
      uncounted.push(item);
      if (uncounted.length >= COUNTED_TOGETHER) countAll();
      queue.add(item);
    },
    correct(call, estimate, onStored) {
      queue.add({ call, estimate, onStored, flushId: makeId('flu_'), id: makeRecordId(), at: clock.now() });
      return queue.flush();
    },
    unstored(keyId, period) {
      countAll();
      const onTheWay = leaving?.spending.find((row) => row.key_id === keyId && row.period === period);
      return adder.spent(keyId, period) + (onTheWay?.cost_nano_usd ?? 0);
    },
    flush: queue.flush,
    figures: () => ({ waiting: queue.size(), dropped }),
    async close() {
      await queue.close();
      countAll();
      // Sums of records that were dropped may have no record to travel with.
      if (adder.isEmpty() && leaving === undefined) return;
      try {
        await writeCalls([]);
      } catch {
        onLost('sums', 1);
      }
    },
  };
}

function contentRow({ content, record }: Item): UsageContentRow[] {
  if (content === undefined || record === undefined) return [];
  return [{ record_id: record.id, request: storableText(content.request), answer: storableText(content.answer) }];
}

const MAX_NAME = 200;

/** A call as it is stored. Whatever callers and upstreams named, it can be. */
export function usageRecord(call: SettledCall, id: string, now: number): UsageRecordRow {
  const { holder, outcome } = call;
  const tokens = countTokens(outcome.usage);
  return {
    id,
    at: now,
    key_id: holder.id,
    owner: holder.owner,
    team: holder.team ?? '',
    tags: storedTags(holder.tags),
    model: nameOf(outcome.model),
    api: nameOf(outcome.api),
    upstream_model: nameOf(outcome.upstreamModel),
    operation: outcome.operation ?? 'chat',
    prompt_tokens: call.promptTokens,
    completion_tokens: call.completionTokens,
    cost_nano_usd: call.costNano,
    price_known: call.priceKnown ? 1 : 0,
    estimated: outcome.estimated ? 1 : 0,
    outcome: outcome.outcome,
    status: whole(outcome.status),
    attempts: whole(outcome.attempts),
    duration_ms: whole(outcome.durationMs),
    first_token_ms: whole(outcome.firstTokenMs),
    request_id: nameOf(outcome.requestId),
    cached_tokens: whole(tokens.cacheRead ?? 0),
    cache_write_tokens: whole((tokens.cacheWrite ?? 0) + (tokens.cacheWrite1h ?? 0)),
    reasoning_tokens: whole(tokens.reasoning ?? 0),
    failures: outcome.failures === undefined ? '' : storableText(JSON.stringify(outcome.failures)),
  };
}

/** Text that both engines store: without the NUL character. */
function storableText(text: string): string {
  return text.replaceAll('\0', '');
}

function nameOf(text: string): string {
  return storableText(text.slice(0, MAX_NAME));
}

function whole(number: number): number {
  return Number.isFinite(number) ? Math.max(0, Math.round(number)) : 0;
}

/**
 * Ids that sort by the time they were made. Those of one second share their start and are counted: to draw
 * randomness for each took about as much time as to parse the request.
 */
export function createCallIds(prefix: string, makeId: MakeId, clock: Pick<Clock, 'now'>): () => string {
  let second = -1;
  let start = '';
  let count = 0;
  return () => {
    const now = Math.floor(clock.now() / 1000);
    if (now !== second) {
      second = now;
      start = makeId(prefix);
      count = 0;
    }
    count += 1;
    return `${start}-${count.toString(36).padStart(DIGITS, '0')}`;
  };
}

/** More than a million a second. */
const DIGITS = 4;
