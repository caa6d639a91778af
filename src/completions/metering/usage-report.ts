import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { ownerIdOf } from '../../platform/identity/owner.ts';
import { ownersSought, sees } from '../../platform/identity/principal.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { UsageQuery, UsageReport } from '../contract/keys.ts';
import { dayOf, type KeyHolder } from '../keys/admission.ts';
import type { OwnKeys } from '../keys/key-register.ts';
import type { KeyStore } from '../storage/key-store.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { UsageStore, UsageSum } from '../storage/usage-store.ts';
import { ownerScope } from './usage-meter.ts';

interface UsageReportOptions {
  readonly store: Pick<UsageStore, 'report'>;
  /** Stores what was counted so far. */
  flush(): Promise<void>;
  readonly clock: Pick<Clock, 'now'>;
}

const DAY_MS = 86_400_000;
const USUAL_DAYS = 30;
const MAX_EXPORTED_KEYS = 1000;
const CONTENTS_AT_ONCE = 200;
/** Groups that have a sum for each day; the others are one together. */
const MAX_GROUPS_BY_DAY = 50;
const OTHERS = 'other';

/**
 * Reports of usage (contract/completions 6). A key sees its own calls, a person those of all their keys, tokens and logins. The
 * master key sees all, or those of one key or owner; so do people who see the work of others, when they ask for it.
 */
export function createUsageReport({ store, flush, clock }: UsageReportOptions) {
  return async (holder: KeyHolder, query: UsageQuery): Promise<UsageReport> => {
    const now = clock.now();
    const toDay = query.to === undefined ? dayOf(now) : readDay('to', query.to);
    const fromDay = query.from === undefined ? dayOf(now - USUAL_DAYS * DAY_MS) : readDay('from', query.from);
    const groupBy = query.group_by ?? 'model';
    const scope = scopeOf(holder, query);
    await flush();
    // The rows of a key or an owner are their own already: they are not split by the same once more.
    const isOwn = groupBy === scope.kind || (groupBy === 'owner' && scope.kind === 'key');
    const dimension = isOwn ? 'day' : groupBy;
    const by = groupBy === 'day' ? 'day' : query.then_by === 'day' ? 'value and day' : 'value';
    const found = await store.report({ scope: scope.text, dimension, fromDay, toDay, by });
    const sums = by === 'value and day' ? largestGroups(found) : found;
    const data = isOwn
      ? sums.map((sum) => ({ ...sum, group: groupBy === 'owner' && scope.kind === 'key' ? holder.owner : scope.name }))
      : sums;
    return {
      object: 'list',
      from: fromDay,
      to: toDay,
      group_by: groupBy,
      data: data.map(asReported),
      total: asReported(totalOf(data)),
    };
  };
}

interface ReportScope {
  readonly kind: 'all' | 'key' | 'owner' | 'team';
  /** What the sums are stored under. */
  readonly text: string;
  readonly name: string;
}

/** Whose calls a report is about: what the caller may see of what was asked for. Throws FORBIDDEN for more than that. */
function scopeOf({ id, owner, isMaster, principal }: KeyHolder, query: UsageQuery): ReportScope {
  const seesOthers = isMaster || (principal !== undefined && ownersSought(principal) === undefined);
  const asked = query.owner === undefined ? undefined : ownerIdOf(query.owner);
  const maySee =
    asked === undefined || asked === owner || isMaster || (principal !== undefined && sees(principal, asked));
  if (!maySee) throw new AppError('FORBIDDEN');
  const ofOwner = (name: string): ReportScope => ({
    kind: name.startsWith('team:') ? 'team' : 'owner',
    text: ownerScope(name),
    name,
  });
  const ofKey = (name: string): ReportScope => ({ kind: 'key', text: name, name });
  if (asked !== undefined && (seesOthers || asked !== owner)) return ofOwner(asked);
  if (isMaster && query.key !== undefined) {
    const reason = 'group_by=owner is for the calls of all keys; leave out key';
    if (query.group_by === 'owner') throw new AppError('INVALID_REQUEST', { reason });
    return ofKey(query.key);
  }
  if (isMaster || (query.group_by === 'owner' && seesOthers)) return { kind: 'all', text: '', name: '' };
  return principal === undefined ? ofKey(id) : ofOwner(owner);
}

/** The stored figures of users, for their own export and for their deletion. */
export function createOwnUsage(parts: {
  readonly keys: Pick<KeyStore, 'list' | 'spending'>;
  readonly store: Pick<UsageStore, 'report' | 'removeContentsOf'>;
  readonly objects: Pick<ObjectStore, 'removeOf'>;
  flush(): Promise<void>;
  /** Removes from the files what was deleted. */
  emptyLog(): Promise<void>;
}): Pick<OwnKeys, 'usage' | 'eraseContents'> {
  const { keys, store, objects, flush, emptyLog } = parts;
  return {
    async usage(id) {
      const owner = ownerIdOf(id);
      await flush();
      const own = await keys.list({ owner, after: '', limit: MAX_EXPORTED_KEYS });
      const spent = await keys.spending(owner);
      const all = { dimension: 'model', fromDay: '', toDay: '9999', by: 'value' } as const;
      return {
        keys: await Promise.all(
          own.map(async ({ id }) => ({ key: id, models: (await store.report({ scope: id, ...all })).map(asReported) })),
        ),
        spending: spent.map(({ period, cost_nano_usd: nano }) => ({ period, usd: usdOfNano(BigInt(nano)) })),
      };
    },
    async eraseContents(id) {
      const owner = ownerIdOf(id);
      await flush();
      while ((await store.removeContentsOf(owner, CONTENTS_AT_ONCE)) === CONTENTS_AT_ONCE);
      await objects.removeOf(owner);
      await emptyLog();
    },
  };
}

/** A day, or a moment on it; both in UTC. */
function readDay(name: string, text: string): string {
  const at = /^\d{4}-\d{2}-\d{2}(?:T[\d:.]{5,15}(?:Z|[+-]\d{2}:\d{2}))?$/.test(text) ? Date.parse(text) : Number.NaN;
  if (!Number.isNaN(at)) return dayOf(at);
  const reason = `${name} is not a day such as 2030-01-31`;
  throw new AppError('INVALID_REQUEST', { reason, issues: [{ path: `/${name}`, message: reason }] });
}

function asReported<Sum extends Omit<UsageSum, 'group'>>({ cost_nano_usd: nano, ...sum }: Sum) {
  return { ...sum, cost_usd: usdOfNano(nano) };
}

/** Keeps the groups that cost most, then those with most calls; the rest becomes one group, so that the sums stay the same. */
function largestGroups(sums: readonly UsageSum[]): readonly UsageSum[] {
  const byGroup = Map.groupBy(sums, ({ group }) => group);
  if (byGroup.size <= MAX_GROUPS_BY_DAY) return sums;
  const ranked = [...byGroup]
    .map(([group, own]) => ({ group, ...totalOf(own) }))
    .sort((a, b) => Number(b.cost_nano_usd - a.cost_nano_usd) || b.requests - a.requests);
  const kept = new Set(ranked.slice(0, MAX_GROUPS_BY_DAY).map(({ group }) => group));
  const rest = Map.groupBy(
    sums.filter(({ group }) => !kept.has(group)),
    ({ bucket = '' }) => bucket,
  );
  return [
    ...sums.filter(({ group }) => kept.has(group)),
    ...[...rest].map(([bucket, own]) => ({ group: OTHERS, bucket, ...totalOf(own) })),
  ];
}

function totalOf(sums: readonly UsageSum[]): Omit<UsageSum, 'group'> {
  const total = { requests: 0, errors: 0, prompt_tokens: 0, completion_tokens: 0, cost_nano_usd: 0n };
  for (const sum of sums) {
    total.requests += sum.requests;
    total.errors += sum.errors;
    total.prompt_tokens += sum.prompt_tokens;
    total.completion_tokens += sum.completion_tokens;
    total.cost_nano_usd += sum.cost_nano_usd;
  }
  return total;
}
