import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { Budget, Limits, Owner } from '../../platform/identity/owner.ts';
import { usdOfNano } from '../apis/prices.ts';
import { type KeyInfo, MAX_TAGS } from '../contract/keys.ts';
import type { KeyRow } from '../storage/completions-schema.ts';
import type { FoundRow, KeyStore, UsedKeyRow } from '../storage/key-store.ts';
import type { KeyHolder, StoreContent } from './admission.ts';
import { periodOf } from './budgets.ts';

/** An issued key that was looked up. */
export interface FoundKey {
  readonly holder: KeyHolder;
  /** Undefined: never. A key that is disabled has expired, until it is changed again. */
  readonly expiresAt: number | undefined;
  /** Of the row that it was read from. */
  readonly revision?: number;
  /** Id of the team that all its calls are for. */
  readonly team?: string;
  /** The holder together with its owner, as it was worked out last. */
  owned?: OwnedHolder;
  /** The same, for calls for a team, by its id. */
  readonly ofTeams: Map<string, OwnedHolder>;
}

interface OwnedHolder {
  readonly revision: number;
  readonly holder: KeyHolder & { readonly person: Owner };
}

/** What a stored key allows its holder. */
function readKey(row: FoundRow): FoundKey {
  const models = JSON.parse(row.models) as string[];
  const limits = limitsOf(row);
  const holder: KeyHolder = {
    id: row.id,
    owner: row.owner,
    isMaster: false,
    mayUse: (model) => matchesAny(models, model),
    ...(row.tags !== '' && { tags: readTags(row.tags) }),
    ...(row.store_content !== '' && { storeContent: storeContentOf(row) }),
    buckets: Object.keys(limits).length > 0 ? [{ id: row.id, name: 'this key', limits }] : [],
  };
  const team = row.team === '' ? {} : { team: row.team };
  return { holder, expiresAt: endOf(row), revision: row.revision, ofTeams: new Map(), ...team };
}

function endOf(row: FoundRow): number | undefined {
  if (row.enabled === 0) return Number.NEGATIVE_INFINITY;
  const ends = [row.expires_at, row.isPrevious === true ? (row.previous_until ?? Number.NEGATIVE_INFINITY) : null];
  const given = ends.filter((end) => end !== null);
  return given.length === 0 ? undefined : Math.min(...given);
}

/**
 * The key as the plans of its owner and of the team let it be used: all must allow the model, and the limits of all apply.
 * `teamId` is empty for a call that is for no team. Throws NOT_IN_TEAM.
 */
export function withOwner(found: FoundKey, owner: Owner, teamId: string): KeyHolder {
  const known = teamId === '' ? found.owned : found.ofTeams.get(teamId);
  if (known !== undefined && known.holder.person === owner && known.revision === owner.revision) return known.holder;
  const { holder } = found;
  const team = teamId === '' ? undefined : owner.teams.find(({ id }) => id === teamId);
  if (teamId !== '' && team === undefined) throw new AppError('NOT_IN_TEAM', { team: teamId.slice(0, 64) });
  const combined = {
    ...holder,
    mayUse: (model: string) => holder.mayUse(model) && includes(owner, model) && (!team || includes(team, model)),
    buckets: [...holder.buckets, ...owner.buckets, ...(team === undefined ? [] : [team.bucket])],
    person: owner,
    ...(team !== undefined && { team: team.bucket.id }),
  };
  const owned = { revision: owner.revision, holder: combined };
  if (teamId === '') found.owned = owned;
  else found.ofTeams.set(teamId, owned);
  return combined;
}

function includes({ allowed }: { readonly allowed: readonly string[] | undefined }, model: string): boolean {
  return allowed === undefined || allowed.some((pattern) => matchesPattern(pattern, model));
}

/** A key as its managers see it at this moment. */
export function describeKey(row: UsedKeyRow, now: number): KeyInfo {
  const { budget } = limitsOf(row);
  return {
    id: row.id,
    object: 'key',
    name: row.name,
    owner: row.owner,
    team: row.team === '' ? null : row.team,
    hint: row.hint,
    models: JSON.parse(row.models) as string[],
    tags: readTags(row.tags),
    requests_per_minute: row.requests_per_minute,
    tokens_per_minute: row.tokens_per_minute,
    max_parallel: row.max_parallel,
    store_content: storeContentOf(row) ?? null,
    budget: budget === undefined ? null : { ...budget },
    expires_at: row.expires_at === null ? null : new Date(row.expires_at).toISOString(),
    created_at: new Date(row.created_at).toISOString(),
    enabled: row.enabled === 1,
    previous_until: row.previous_until === null ? null : new Date(row.previous_until).toISOString(),
    last_used_at: row.last_used_at === null ? null : new Date(Number(row.last_used_at)).toISOString(),
    spent:
      budget === undefined
        ? null
        : { usd: usdOfNano(Number(row.spent_nano_usd ?? 0)), period: periodOf(budget.period, now) },
  };
}

function storeContentOf({ store_content: given }: KeyRow): StoreContent | undefined {
  return given === '' ? undefined : (given as StoreContent);
}

function limitsOf(row: KeyRow): Limits {
  return {
    ...(row.requests_per_minute !== null && { requestsPerMinute: row.requests_per_minute }),
    ...(row.tokens_per_minute !== null && { tokensPerMinute: row.tokens_per_minute }),
    ...(row.max_parallel !== null && { parallelCalls: row.max_parallel }),
    ...(row.budget_usd !== null && {
      budget: { usd: row.budget_usd, period: row.budget_period as Budget['period'] },
    }),
  };
}

/** Whether a text matches a pattern in which `*` stands for any run of characters. Takes linear time but for the stars. */
export function matchesPattern(pattern: string, text: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return text === pattern;
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last)) return false;
  const end = text.length - last.length;
  let from = first.length;
  for (const part of rest) {
    const at = text.indexOf(part, from);
    if (at === -1 || at + part.length > end) return false;
    from = at + part.length;
  }
  return true;
}

/** No patterns: every model. */
export function matchesAny(patterns: readonly string[], model: string): boolean {
  return patterns.length === 0 || patterns.some((pattern) => matchesPattern(pattern, model));
}

/** Finds issued keys by their digest, mostly in memory. */
export interface KeyLookup {
  /** Returns a known key immediately, any other after one read. */
  find(digest: string): FoundKey | undefined | Promise<FoundKey | undefined>;
  /** A key was changed or removed: what was known of it does not count any more. */
  forget(id: string): void;
  /** Changes may have been missed: nothing of what was known counts any more. */
  forgetAll(): void;
}

interface KeyLookupOptions {
  readonly store: Pick<KeyStore, 'byDigest'>;
  readonly clock: Pick<Clock, 'monotonic'>;
  /**
   * How long a key is taken to be as it was. For ever where all changes pass through `forget`; where other instances
   * may change keys without a word, as long as a removed one may go on working there.
   */
  freshMs(): number;
  /** How long a key may be used that cannot be read again, because the database is away. */
  readonly usableMs?: number;
}

interface Entry {
  readonly key: FoundKey;
  readAt: number;
}

const MAX_ENTRIES = 10_000;

export function createKeyLookup({ store, clock, freshMs, usableMs = 0 }: KeyLookupOptions): KeyLookup {
  // In the order of their last reading: the first one is the one to drop.
  const entries = new Map<string, Entry>();
  /** Calls that come together share one read. */
  const reading = new Map<string, Promise<FoundKey | undefined>>();
  let changes = 0;

  function keep(digest: string, row: FoundRow): FoundKey {
    const known = entries.get(digest);
    const key = known?.key.revision === row.revision ? known.key : readKey(row);
    entries.delete(digest);
    entries.set(digest, { key, readAt: clock.monotonic() });
    const [oldest] = entries.keys();
    if (entries.size > MAX_ENTRIES && oldest !== undefined) entries.delete(oldest);
    return key;
  }

  async function read(digest: string): Promise<FoundKey | undefined> {
    const before = changes;
    let row: FoundRow | undefined;
    try {
      row = await store.byDigest(digest);
    } catch (error) {
      const known = entries.get(digest);
      if (known !== undefined && clock.monotonic() - known.readAt < usableMs) return known.key;
      throw error;
    }
    // What was read while a key was changed may be that key: only the store knows.
    if (before !== changes) return read(digest);
    if (row !== undefined) return keep(digest, row);
    entries.delete(digest);
    return undefined;
  }

  return {
    find(digest) {
      const entry = entries.get(digest);
      if (entry !== undefined && clock.monotonic() - entry.readAt < freshMs()) return entry.key;
      const known = reading.get(digest);
      if (known !== undefined) return known;
      const fresh = read(digest).finally(() => reading.delete(digest));
      reading.set(digest, fresh);
      return fresh;
    },
    forget(id) {
      changes += 1;
      // A rotated key is known by two digests.
      for (const [digest, { key }] of entries) if (key.holder.id === id) entries.delete(digest);
    },
    forgetAll() {
      changes += 1;
      entries.clear();
    },
  };
}

/** Marks a call, for reports and for the log of calls. */
export const TAGS_HEADER = 'x-tags';
/** As `TAG_PATTERN` of the contract. */
const TAG = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$/;

/** `version-trace-span-flags` (https://www.w3.org/TR/trace-context/); later versions may go on after another dash. */
const TRACE_PARENT =
  /^(?:00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})|(?!ff|00)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.{0,256})?)$/;
const NO_ID = /^0+$/;

/** The holder with the trace that the request is part of. A header that is not valid begins no trace, and refuses nothing. */
export function withTrace(holder: KeyHolder, { headers }: Pick<RequestHead, 'headers'>): KeyHolder {
  const found = TRACE_PARENT.exec(String(headers.traceparent ?? '')) ?? undefined;
  const [traceId, spanId, flags] = found?.slice(1).filter((part) => part !== undefined) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return holder;
  if (NO_ID.test(traceId) || NO_ID.test(spanId)) return holder;
  return { ...holder, trace: { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & 1) === 1 } };
}

/** The holder with the tags that the request has besides those of the key. Throws INVALID_REQUEST. */
export function withTags(holder: KeyHolder, { headers }: Pick<RequestHead, 'headers'>): KeyHolder {
  const names = String(headers[TAGS_HEADER] ?? '')
    .split(',', MAX_TAGS + 1)
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (names.length > MAX_TAGS) refuse(`it has more than ${MAX_TAGS} tags`);
  if (names.some((name) => !TAG.test(name)))
    refuse('a tag has 1 to 64 letters, digits and the characters . _ : / - and begins with a letter or a digit');
  return names.length === 0 ? holder : { ...holder, tags: sorted([...(holder.tags ?? []), ...names]) };
}

function refuse(what: string): never {
  const reason = `the header ${TAGS_HEADER} is a list of tags, separated by commas, and ${what}`;
  throw new AppError('INVALID_REQUEST', { reason, issues: [{ path: `/${TAGS_HEADER}`, message: reason }] });
}

function sorted(tags: readonly string[]): readonly string[] {
  return [...new Set(tags)].sort();
}

/** How tags are stored, so that one of them can be looked for: `,a,b,`. */
export function storedTags(tags: readonly string[] = []): string {
  return tags.length === 0 ? '' : `,${sorted(tags).join(',')},`;
}

export function readTags(stored: string): string[] {
  return stored === '' ? [] : stored.slice(1, -1).split(',');
}
