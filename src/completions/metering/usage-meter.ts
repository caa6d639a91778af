import type { Clock } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import { createBatcher } from '../../platform/queue/batcher.ts';
import type { CallObserver, CallOutcome, SettledCall } from '../keys/admission.ts';
import { dayOf } from '../keys/budgets.ts';
import type { UsageContentRow, UsageRecordRow } from '../storage/completions-schema.ts';
import type { UsageStore } from '../storage/usage-store.ts';
import { createCallIds } from './call-ids.ts';
import { createUsageAdder, type UsageSums } from './usage-sums.ts';

/** Stores what calls used, off their way (contract/completions 6). */
export interface UsageMeter {
  readonly observe: CallObserver;
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
  /** The most calls that may wait to be stored. Beyond, only their sums are kept. */
  readonly capacity?: number;
  readonly flushMs?: number;
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

/** How many calls are counted together: counting each with its answer took about twice as long. */
const COUNTED_TOGETHER = 64;
const CAPACITY = 20_000;
const FLUSH_MS = 1000;
const BATCH = 500;

export function createUsageMeter(options: UsageMeterOptions): UsageMeter {
  const { store, clock, makeId, capacity = CAPACITY, flushMs = FLUSH_MS, onLost } = options;
  const adder = createUsageAdder();
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
      adder.add(item.record, dayOf(at), call.charges);
      item.content = call.outcome.content;
      item.call = undefined;
    }
  }

  async function write(items: readonly Item[]): Promise<void> {
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

  const queue = createBatcher<Item>({
    capacity,
    maxBatch: BATCH,
    maxDelayMs: flushMs,
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
        await write([]);
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

const LONGEST_NAME = 200;

/** A call as it is stored. Whatever callers and upstreams named, it can be. */
export function usageRecord(call: SettledCall, id: string, now: number): UsageRecordRow {
  const { holder, outcome } = call;
  return {
    id,
    at: now,
    key_id: holder.id,
    owner: holder.owner,
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
  };
}

/** Text that both engines store: without the NUL character. */
function storableText(text: string): string {
  return text.replaceAll('\0', '');
}

function nameOf(text: string): string {
  return storableText(text.slice(0, LONGEST_NAME));
}

function whole(number: number): number {
  return Number.isFinite(number) ? Math.max(0, Math.round(number)) : 0;
}
