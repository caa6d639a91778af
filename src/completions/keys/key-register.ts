import type { Clock } from '../../platform/clock/clock.ts';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { ownerIdOf } from '../../platform/identity/owner.ts';
import { sees } from '../../platform/identity/principal.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import { createToken, digestToken } from '../../platform/secrets/tokens.ts';
import type {
  IssuedKey,
  KeyChange,
  KeyInfo,
  KeyList,
  KeyListQuery,
  KeyRotation,
  NewKey,
  UsageReport,
} from '../contract/keys.ts';
import type { KeyRow } from '../storage/completions-schema.ts';
import type { KeyStore, UsedKeyRow } from '../storage/key-store.ts';
import type { KeyHolder } from './admission.ts';
import { dayOf } from './budgets.ts';
import { describeKey, storedTags } from './issued-key.ts';

export const KEY_PREFIX = 'tsk_';

/** Issues, changes and removes keys. With an `owner` it sees and touches the keys of that user only. */
export interface KeyRegister {
  /** The key itself is in this answer and nowhere else. */
  create(input: NewKey, by?: KeyActor): Promise<IssuedKey>;
  list(page: { owner?: string | undefined; after?: string | undefined; limit?: number | undefined }): Promise<KeyList>;
  /**
   * Throws KEY_NOT_FOUND, and KEY_OF_OPERATOR when an owner changes more than the name of a key that they did not issue. The
   * change counts before this resolves.
   */
  change(id: string, change: KeyChange, owner?: string, by?: KeyActor): Promise<KeyInfo>;
  /** Throws KEY_NOT_FOUND. The new key is in this answer and nowhere else; limits, budget and usage stay those of the key. */
  rotate(id: string, rotation: KeyRotation, owner?: string, by?: KeyActor): Promise<IssuedKey>;
  /** Throws KEY_NOT_FOUND. The key stops working before this resolves. */
  remove(id: string, owner?: string, by?: KeyActor): Promise<void>;
}

/** The keys of a user, for the service that knows users. */
export interface OwnKeys {
  create(owner: string, input: Omit<NewKey, 'owner'>, by?: KeyActor): Promise<IssuedKey>;
  list(owner: string): Promise<readonly KeyInfo[]>;
  rotate(owner: string, id: string, rotation: KeyRotation, by?: KeyActor): Promise<IssuedKey>;
  remove(owner: string, id: string, by?: KeyActor): Promise<void>;
  /** What the user has used, for an export of the user's data. */
  usage(owner: string): Promise<OwnUsage>;
  /** Removes what was asked and answered in the calls of a user who is deleted. Their records keep the id of the user. */
  eraseContents(owner: string): Promise<void>;
}

/** What a user has used with the keys that exist now, and has spent in each period (`2030-01-31`, `2030-01`, `total`). */
interface OwnUsage {
  readonly keys: readonly { readonly key: string; readonly models: UsageReport['data'] }[];
  readonly spending: readonly { readonly period: string; readonly usd: number }[];
}

/** Who creates, changes or removes a key: a user's id, `master`, `open` or `command`. */
interface KeyActor {
  readonly actor: string;
  readonly head?: Pick<RequestHead, 'address' | 'requestId'>;
}

/** What happened to a key, however that came. */
export interface KeyEvent extends KeyActor {
  readonly event: 'key.created' | 'key.changed' | 'key.rotated' | 'key.removed';
  readonly subject: string;
  readonly details: Readonly<Record<string, unknown>>;
}

interface KeyRegisterOptions {
  readonly store: KeyStore;
  readonly clock: Pick<Clock, 'now'>;
  readonly randomness: Pick<Randomness, 'bytes'>;
  readonly makeId: MakeId;
  /** Records what happened to a key; awaited. */
  record(event: KeyEvent): Promise<void>;
  /** Stores what was counted of calls so far. */
  flush(): Promise<void>;
  /** Called for every key that is changed or removed, or may be. */
  onChanged(id: string): void;
}

const MAX_AT_ONCE = 1000;
const HINT_LENGTH = KEY_PREFIX.length + 4;

/** This program itself. */
const SYSTEM: KeyActor = { actor: 'system' };

/** How keys are stored and found. */
export function keyDigest(key: string): string {
  return digestToken(key).toString('base64url');
}

export function createKeyRegister(options: KeyRegisterOptions): KeyRegister {
  const { store, clock, randomness, makeId, record, flush, onChanged } = options;
  const today = () => dayOf(clock.now());
  const describe = (row: UsedKeyRow) => describeKey(row, clock.now());

  async function findKey(id: string, owner: string | undefined): Promise<UsedKeyRow> {
    const row = await store.find(id, owner === undefined ? undefined : ownerIdOf(owner), today());
    return row ?? notFound(id);
  }

  /** Stores a change of a key and returns the key after it. */
  async function write(id: string, change: () => Promise<boolean>): Promise<UsedKeyRow> {
    try {
      if (!(await change())) notFound(id);
    } finally {
      // Whatever the store has said: a change whose answer was lost, and one that is repeated after it, count too.
      onChanged(id);
    }
    return findKey(id, undefined);
  }

  /** Removes a key that nobody received, because it would count as one of the keys that the plan of its owner allows. */
  async function takeBack({ id, owner }: KeyRow): Promise<void> {
    try {
      const removed = await store.remove(id, undefined);
      if (removed) await record({ ...SYSTEM, event: 'key.removed', subject: owner, details: { key: id } });
    } catch {
      // The store is still failing: the owner finds the key in the list and can remove it.
    }
  }

  return {
    async create(input, by = SYSTEM) {
      const now = clock.now();
      const key = createToken(randomness, KEY_PREFIX);
      const row: KeyRow = {
        id: makeId('key_'),
        owner: ownerIdOf(input.owner ?? ''),
        team: input.team ?? '',
        name: input.name,
        digest: keyDigest(key),
        hint: key.slice(0, HINT_LENGTH),
        models: JSON.stringify(input.models ?? []),
        tags: storedTags(input.tags),
        requests_per_minute: input.requests_per_minute ?? null,
        tokens_per_minute: input.tokens_per_minute ?? null,
        max_parallel: input.max_parallel ?? null,
        store_content: input.store_content ?? '',
        budget_usd: input.budget?.usd ?? null,
        budget_period: input.budget?.period ?? null,
        expires_at: readExpiry(input.expires_at, now),
        created_at: now,
        issued_by: ownerIdOf(by.actor),
        enabled: 1,
        previous_digest: null,
        previous_until: null,
        revision: 0,
      };
      try {
        await store.add(row);
        await record({ ...by, event: 'key.created', subject: row.owner, details: { key: row.id, name: row.name } });
      } catch (error) {
        await takeBack(row);
        throw error;
      }
      return { ...describe({ ...row, last_used_at: null, spent_nano_usd: null }), key };
    },
    async list({ owner, after = '', limit = MAX_AT_ONCE }) {
      const owned = owner === undefined ? undefined : ownerIdOf(owner);
      await flush();
      const rows = await store.list({ owner: owned, after, limit: limit + 1 }, today());
      return { object: 'list', data: rows.slice(0, limit).map(describe), has_more: rows.length > limit };
    },
    async change(id, change, owner, by = SYSTEM) {
      const found = await findKey(id, owner);
      const members = Object.keys(change);
      // An owner could otherwise lift the limits that an operator has set for them.
      const isFree = owner === undefined || found.issued_by === ownerIdOf(owner);
      const refused = members.filter((name) => !isFree && name !== 'name');
      if (refused.length > 0) throw new AppError('KEY_OF_OPERATOR', { fields: refused.join(', ') });
      const row = await write(id, () => store.change(id, columnsOf(change, clock.now())));
      await record({ ...by, event: 'key.changed', subject: row.owner, details: { key: id, changed: members } });
      return describe(row);
    },
    async rotate(id, { grace_seconds: grace = 0 }, owner, by = SYSTEM) {
      await findKey(id, owner);
      const key = createToken(randomness, KEY_PREFIX);
      const next = { digest: keyDigest(key), hint: key.slice(0, HINT_LENGTH) };
      const until = grace === 0 ? null : clock.now() + grace * 1000;
      const row = await write(id, () => store.rotate(id, next, until));
      const details = { key: id, grace_seconds: grace };
      await record({ ...by, event: 'key.rotated', subject: row.owner, details });
      return { ...describe(row), ...{ hint: next.hint, key } };
    },
    async remove(id, owner, by = SYSTEM) {
      try {
        const removed = await store.remove(id, owner === undefined ? undefined : ownerIdOf(owner));
        if (!removed) notFound(id);
      } finally {
        onChanged(id);
      }
      await record({ ...by, event: 'key.removed', subject: owner ?? '', details: { key: id } });
    },
  };
}

export function createOwnKeys(register: KeyRegister, usage: Pick<OwnKeys, 'usage' | 'eraseContents'>): OwnKeys {
  return {
    ...usage,
    create: (owner, input, by) => register.create({ ...input, owner }, by),
    async list(owner) {
      return (await register.list({ owner })).data;
    },
    rotate: (owner, id, rotation, by) => register.rotate(id, rotation, owner, by),
    remove: (owner, id, by) => register.remove(id, owner, by),
  };
}

function notFound(id: string): never {
  throw new AppError('KEY_NOT_FOUND', { id: id.slice(0, 100) });
}

/** The columns that a change sets. */
function columnsOf(change: KeyChange, now: number): Partial<KeyRow> {
  const { name, models, requests_per_minute: requests, tokens_per_minute: tokens, budget, enabled } = change;
  return {
    ...(name !== undefined && { name }),
    ...(models !== undefined && { models: JSON.stringify(models) }),
    ...(change.tags !== undefined && { tags: storedTags(change.tags) }),
    ...(requests !== undefined && { requests_per_minute: requests }),
    ...(tokens !== undefined && { tokens_per_minute: tokens }),
    ...(change.store_content !== undefined && { store_content: change.store_content ?? '' }),
    ...(change.max_parallel !== undefined && { max_parallel: change.max_parallel }),
    ...(budget !== undefined && { budget_usd: budget?.usd ?? null, budget_period: budget?.period ?? null }),
    ...(change.expires_at !== undefined && { expires_at: readExpiry(change.expires_at, now) }),
    ...(enabled !== undefined && { enabled: enabled ? 1 : 0 }),
  };
}

function readExpiry(text: string | null | undefined, now: number): number | null {
  if (text === null || text === undefined) return null;
  const at = Date.parse(text);
  if (at > now) return at;
  const wrong = Number.isNaN(at) ? 'expires_at is not a time such as 2030-01-31T00:00:00Z' : 'expires_at has passed';
  throw new AppError('INVALID_REQUEST', { reason: wrong, issues: [{ path: '/expires_at', message: wrong }] });
}

/** People list their own keys; those who see the work of others may name another owner. Throws FORBIDDEN. */
export function ownOnly(query: KeyListQuery, { principal, owner }: KeyHolder): KeyListQuery {
  if (principal === undefined) return query;
  const asked = ownerIdOf(query.owner ?? owner);
  if (!sees(principal, asked)) throw new AppError('FORBIDDEN');
  return { ...query, owner: asked };
}

/** People change and remove keys of their own and no others, the master key all; `by` names who did it. */
export function ownerOnly({ id, principal, owner }: KeyHolder, head: RequestHead): [string | undefined, KeyActor] {
  return principal === undefined ? [undefined, { actor: id, head }] : [owner, { actor: owner, head }];
}
