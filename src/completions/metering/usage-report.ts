import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { ownerIdOf } from '../../platform/identity/owner.ts';
import { ownersSought, sees } from '../../platform/identity/principal.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { UsageQuery, UsageReport } from '../contract/keys.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { OwnKeys } from '../keys/key-register.ts';
import type { KeyStore } from '../storage/key-store.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { UsageReportStore } from '../storage/usage-report-store.ts';
import type { UsageStore } from '../storage/usage-store.ts';
import { collect, type ReportScope, readCells } from './usage-cells.ts';
import { readRange, readZone, type UsageRange } from './usage-time.ts';

interface UsageReportOptions {
  readonly store: UsageReportStore;
  /** Stores what was counted so far. */
  flush(): Promise<void>;
  readonly clock: Pick<Clock, 'now'>;
}

const MAX_GROUPS = 50;
const MAX_EXPORTED_KEYS = 1000;
const CONTENTS_AT_ONCE = 200;
const ALL_TIME: UsageRange = { from: 0, to: Number.MAX_SAFE_INTEGER, fromDay: '', toDay: '9999' };

/**
 * Reports of usage (contract/completions 6). A key sees its own calls, a person those of all their keys, tokens and logins. The
 * master key sees all, or those of one key or owner; so do people who see the work of others, when they ask for it.
 */
export function createUsageReport({ store, flush, clock }: UsageReportOptions) {
  return async (holder: KeyHolder, query: UsageQuery): Promise<UsageReport> => {
    const { group_by: groupBy = 'model', then_by: thenBy, tz = 'UTC', tag } = query;
    const zone = readZone(tz);
    const range = readRange(zone, clock.now(), query);
    const scope = scopeOf(holder, query);
    await flush();
    const dimensions = thenBy === undefined || thenBy === groupBy ? [groupBy] : [groupBy, thenBy];
    const cells = await readCells(store, { scope, tag, dimensions, range, zone, maxGroups: MAX_GROUPS });
    const { data, total } = collect(cells);
    return {
      object: 'list',
      from: range.fromDay,
      to: range.toDay,
      tz,
      group_by: groupBy,
      ...(thenBy !== undefined && { then_by: thenBy }),
      data,
      total,
    };
  };
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
    text: `owner:${name}`,
    name,
  });
  if (asked !== undefined && (seesOthers || asked !== owner)) return ofOwner(asked);
  if (isMaster && query.key !== undefined) return ofKey(query.key);
  const byOwner = query.group_by === 'owner' || query.then_by === 'owner';
  if (isMaster || (byOwner && seesOthers)) return { kind: 'all', text: '', name: '' };
  return principal === undefined ? ofKey(id) : ofOwner(owner);
}

function ofKey(name: string): ReportScope {
  return { kind: 'key', text: name, name };
}

/** The stored figures of users, for their own export and for their deletion. */
export function createOwnUsage(parts: {
  readonly keys: Pick<KeyStore, 'list' | 'spending'>;
  readonly store: Pick<UsageStore, 'removeContentsOf'>;
  readonly reports: UsageReportStore;
  readonly objects: Pick<ObjectStore, 'removeOf'>;
  flush(): Promise<void>;
  /** Removes from the files what was deleted. */
  emptyLog(): Promise<void>;
}): Pick<OwnKeys, 'usage' | 'eraseContents'> {
  const { keys, store, reports, objects, flush, emptyLog } = parts;
  return {
    async usage(id) {
      const owner = ownerIdOf(id);
      await flush();
      const own = await keys.list({ owner, after: '', limit: MAX_EXPORTED_KEYS });
      const spent = await keys.spending(owner);
      const modelsOf = async (key: string) => {
        const question = { scope: ofKey(key), dimensions: ['model'], range: ALL_TIME, zone: readZone('UTC') } as const;
        return collect(await readCells(reports, question)).data;
      };
      return {
        keys: await Promise.all(own.map(async ({ id }) => ({ key: id, models: await modelsOf(id) }))),
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
