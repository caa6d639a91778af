import { type Clock, pause, type Repeated, repeat } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { sees } from '../../platform/identity/principal.ts';
import { createSortableIds } from '../../platform/ids/sortable-id.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { CallDetails, CallList, CallsQuery } from '../contract/calls.ts';
import { type FailedAttempt, INTERNAL_ID, type KeyHolder } from '../keys/admission.ts';
import { dayOf } from '../keys/budgets.ts';
import { readTags } from '../keys/issued-key.ts';
import type { UsageContentRow, UsageRecordRow } from '../storage/completions-schema.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { CallStore, UsageRetentionStore } from '../storage/usage-store.ts';
import { quarterOf, readMoment } from './usage-time.ts';

interface CallLogOptions {
  readonly store: CallStore;
  /** Stores what was counted so far. */
  flush(): Promise<void>;
  readonly clock: Pick<Clock, 'now'>;
}

const DAY_MS = 86_400_000;
const USUAL_DAYS = 7;
const USUAL_LIMIT = 50;
export const RECORD_PREFIX = 'usg_';
/** Sorts after every id. */
export const LAST_ID = 'usg_~';

/** The log of calls: a key sees its own, a person the calls of all own keys and those for their teams, and the master key all. */
export interface CallLog {
  list(holder: KeyHolder, query: CallsQuery): Promise<CallList>;
  /** Throws CALL_NOT_FOUND, also for a call that the caller may not see. */
  find(holder: KeyHolder, id: string): Promise<CallDetails>;
}

export function createCallLog({ store, flush, clock }: CallLogOptions): CallLog {
  async function list(holder: KeyHolder, given: CallsQuery): Promise<CallList> {
    const { from, to, key, owner, model, api, outcome, tag, request_id: requestId, limit = USUAL_LIMIT } = given;
    const start =
      from === undefined ? (requestId === undefined ? clock.now() - USUAL_DAYS * DAY_MS : 0) : readMoment('from', from);
    const end = to === undefined ? LAST_ID : firstIdAt(RECORD_PREFIX, endOf(to));
    const { before = end } = given;
    await flush();
    const equal = {
      ...(key !== undefined && { key_id: key }),
      ...(owner !== undefined && (isTeam(owner) ? { team: owner } : { owner })),
      ...(model !== undefined && { model }),
      ...(api !== undefined && { api }),
      ...(outcome !== undefined && { outcome }),
      ...(requestId !== undefined && { request_id: requestId }),
    };
    const own = owner !== undefined && isTeam(owner) && maySee(owner, holder) ? {} : ownCalls(holder);
    const others =
      (key !== undefined && own.key_id !== undefined && key !== own.key_id) ||
      (owner !== undefined && own.owner !== undefined && owner !== own.owner);
    if (others) return { object: 'list', data: [], has_more: false };
    const rows = await store.list({
      fromId: firstIdAt(RECORD_PREFIX, start),
      beforeId: before < end ? before : end,
      equal: { ...equal, ...own },
      tag,
      minDurationMs: given.min_duration_ms ?? 0,
      limit: limit + 1,
    });
    return { object: 'list', data: rows.slice(0, limit).map(describe), has_more: rows.length > limit };
  }

  async function find(holder: KeyHolder, id: string): Promise<CallDetails> {
    await flush();
    const row = await store.find(id);
    if (row === undefined || !(isOwn(row, holder) || maySee(row.team, holder)))
      throw new AppError('CALL_NOT_FOUND', { id: id.slice(0, 200) });
    return detailsOf(row, await store.contentOf(id));
  }

  return { list, find };
}

/**
 * What the calls of a caller have in common. Those who come with a login have no key: their calls are known by their owner. Keys of
 * programs have one id for all owners, so their calls are known by both.
 */
function ownCalls(holder: KeyHolder): { readonly key_id?: string; readonly owner?: string } {
  if (holder.isMaster) return {};
  const { id, owner, principal } = holder;
  if (principal !== undefined) return { owner };
  return id === INTERNAL_ID ? { key_id: id, owner } : { key_id: id };
}

function isOwn(row: UsageRecordRow, holder: KeyHolder): boolean {
  const { key_id: key = row.key_id, owner = row.owner } = ownCalls(holder);
  return row.key_id === key && row.owner === owner;
}

function isTeam(owner: string): boolean {
  return owner.startsWith('team:');
}

/** What is done for a team is seen by its members. A key sees its own calls only. */
function maySee(team: string, { principal }: KeyHolder): boolean {
  return team !== '' && principal !== undefined && sees(principal, team);
}

/** A day ends with its last moment. */
function endOf(text: string): number {
  return readMoment('to', text) + (text.includes('T') ? 1 : DAY_MS);
}

function describe(row: UsageRecordRow): CallList['data'][number] {
  return {
    id: row.id,
    object: 'usage.call',
    at: new Date(Number(row.at)).toISOString(),
    request_id: row.request_id,
    key: row.key_id,
    owner: row.owner,
    team: row.team === '' ? null : row.team,
    tags: readTags(row.tags),
    model: row.model,
    api: row.api,
    upstream_model: row.upstream_model,
    operation: row.operation,
    outcome: row.outcome,
    status: Number(row.status),
    attempts: Number(row.attempts),
    duration_ms: Number(row.duration_ms),
    first_token_ms: Number(row.first_token_ms),
    usage: {
      prompt_tokens: Number(row.prompt_tokens),
      completion_tokens: Number(row.completion_tokens),
      cached_tokens: Number(row.cached_tokens),
      cache_write_tokens: Number(row.cache_write_tokens),
      reasoning_tokens: Number(row.reasoning_tokens),
      estimated: Number(row.estimated) === 1,
    },
    cost_usd: usdOfNano(Number(row.cost_nano_usd)),
    price_known: Number(row.price_known) === 1,
  };
}

/** Everything that is known of a call. */
export function detailsOf(row: UsageRecordRow, content: UsageContentRow | undefined): CallDetails {
  return {
    ...describe(row),
    failed_attempts: readFailures(row.failures),
    content: content === undefined ? null : { request: content.request, response: content.answer },
  };
}

function readFailures(text: string): CallDetails['failed_attempts'] {
  if (text === '') return [];
  const failures: readonly FailedAttempt[] = JSON.parse(text);
  return failures.map(({ target, code, ms }) => ({ target, code: code.toLowerCase(), duration_ms: ms }));
}

interface UsageRetentionOptions {
  readonly store: UsageRetentionStore;
  readonly objects: Pick<ObjectStore, 'removeBefore'>;
  readonly clock: Clock;
  /** How long usage is kept; 0: for ever. */
  readonly keepMs: number;
  /** The same for what was asked and answered in calls; 0: as long as usage. */
  readonly keepContentMs: number;
  onError(error: unknown): void;
}

const FIRST_AFTER_MS = 60_000;
const INTERVAL_MS = 3_600_000;
const PAUSE_MS = 50;
const ROWS_PER_STEP = 500;
/** After this long, no process tries to store the same sums again. */
const KEEP_FLUSHES_MS = 86_400_000;
/** OpenAI keeps a response for 30 days; no other API keeps one longer. */
const KEEP_OBJECTS_MS = 31 * 86_400_000;

/** Removes usage that is too old, every hour, a little at a time. */
export function startUsageRetention(options: UsageRetentionOptions): Repeated {
  const { store, objects, clock, keepMs, keepContentMs, onError } = options;
  async function sweep(stopped: AbortSignal): Promise<void> {
    const inSteps = async (removeSome: () => Promise<number>): Promise<void> => {
      while (!stopped.aborted && (await removeSome()) >= ROWS_PER_STEP) await pause(clock, PAUSE_MS, stopped);
    };
    const now = clock.now();
    await inSteps(() => store.removeFlushes(firstIdAt('flu_', now - KEEP_FLUSHES_MS), ROWS_PER_STEP));
    await inSteps(() => objects.removeBefore(now - KEEP_OBJECTS_MS, ROWS_PER_STEP));
    if (keepContentMs > 0)
      await inSteps(() => store.removeContents(firstIdAt('usg_', now - keepContentMs), ROWS_PER_STEP));
    if (keepMs === 0) return;
    await inSteps(() => store.removeRecords(firstIdAt('usg_', now - keepMs), ROWS_PER_STEP));
    const firstDay = dayOf(now - keepMs);
    await inSteps(() => store.removeQuarters(quarterOf(Date.parse(firstDay)), ROWS_PER_STEP));
    await inSteps(() => store.removeTotals(firstDay, ROWS_PER_STEP));
  }
  return repeat({ clock, firstAfterMs: FIRST_AFTER_MS, pauseMs: INTERVAL_MS, work: sweep, onError });
}

/** Ids sort by time: this one comes before all that were made at that moment. */
export function firstIdAt(prefix: string, time: number): string {
  return createSortableIds({ now: () => Math.max(0, time) }, { bytes: (length) => new Uint8Array(length) })(prefix);
}
