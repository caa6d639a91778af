import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import { usdOfNano } from '../apis/prices.ts';
import { UsageQuery, UsageReport } from '../contract/keys.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { dayOf } from '../keys/budgets.ts';
import type { KeyAccess } from '../keys/key-access.ts';
import type { OwnKeys } from '../keys/key-register.ts';
import type { KeyStore } from '../storage/key-store.ts';
import type { UsageStore, UsageSum } from '../storage/usage-store.ts';

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

/** Reports of usage (contract/completions 6). A key sees its own; the master key sees all, or those of one key. */
export function createUsageReport({ store, flush, clock }: UsageReportOptions) {
  return async (holder: KeyHolder, query: UsageQuery): Promise<UsageReport> => {
    const now = clock.now();
    const toDay = query.to === undefined ? dayOf(now) : readDay('to', query.to);
    const fromDay = query.from === undefined ? dayOf(now - USUAL_DAYS * DAY_MS) : readDay('from', query.from);
    const scope = holder.isMaster ? (query.key ?? '') : holder.id;
    const groupBy = query.group_by ?? 'model';
    await flush();
    // The rows of a key are its own already: they are not split by key once more.
    const ownKey = groupBy === 'key' && scope !== '';
    const dimension = ownKey ? 'day' : groupBy;
    const sums = await store.report({ scope, dimension, fromDay, toDay, byDay: groupBy === 'day' });
    const data = ownKey ? sums.map((sum) => ({ ...sum, group: scope })) : sums;
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

/** The stored figures of users, for their own export and for their deletion. */
export function createOwnUsage(parts: {
  readonly keys: Pick<KeyStore, 'list' | 'spending'>;
  readonly store: Pick<UsageStore, 'report' | 'removeContentsOf'>;
  flush(): Promise<void>;
  /** Removes from the files what was deleted. */
  emptyLog(): Promise<void>;
}): Pick<OwnKeys, 'usage' | 'eraseContents'> {
  const { keys, store, flush, emptyLog } = parts;
  return {
    async usage(owner) {
      await flush();
      const own = await keys.list({ owner, after: '', limit: MAX_EXPORTED_KEYS });
      const spent = await keys.spending(`user:${owner}`);
      const all = { dimension: 'model', fromDay: '', toDay: '9999', byDay: false };
      return {
        keys: await Promise.all(
          own.map(async ({ id }) => ({ key: id, models: (await store.report({ scope: id, ...all })).map(asReported) })),
        ),
        spending: spent.map(({ period, cost_nano_usd: nano }) => ({ period, usd: usdOfNano(BigInt(nano)) })),
      };
    },
    async eraseContents(owner) {
      await flush();
      while ((await store.removeContentsOf(owner, CONTENTS_AT_ONCE)) === CONTENTS_AT_ONCE);
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

/** The row of usage reports, under both path families (contract/completions 6). */
export function usageRoutes(
  prefix: '' | '/v1',
  { access, report }: { readonly access: KeyAccess; readonly report: ReturnType<typeof createUsageReport> },
): readonly Route<KeyHolder>[] {
  return [
    {
      method: 'GET',
      path: `${prefix}/usage`,
      guard: access.withKey,
      summary: 'Report usage and cost: of your own key, or of all with the master key.',
      schema: { query: UsageQuery, response: { 200: UsageReport } },
      handle: ({ caller, query }) => report(caller, query as UsageQuery),
    },
  ];
}
