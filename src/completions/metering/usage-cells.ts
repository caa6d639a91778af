import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { ownerIdOf } from '../../platform/identity/owner.ts';
import { sees } from '../../platform/identity/principal.ts';
import { usdOfNano } from '../apis/prices.ts';
import type { UsageQuery, UsageReport } from '../contract/keys.ts';
import { INTERNAL_ID, type KeyHolder, seesAll } from '../keys/admission.ts';
import { dayOf } from '../keys/budgets.ts';
import { readTags } from '../keys/issued-key.ts';
import type { OwnKeys } from '../keys/key-register.ts';
import type { KeyStore } from '../storage/key-store.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import {
  OTHER,
  type UsageColumn,
  type UsageCounts,
  type UsageReportStore,
  type UsageSplit,
} from '../storage/usage-report-store.ts';
import type { UsageStore } from '../storage/usage-store.ts';
import {
  QUARTER_MS,
  readRange,
  readZone,
  refuse,
  slotName,
  type TimeUnit,
  UNIT_QUARTERS,
  type UsageRange,
  type Zone,
  zoneSpans,
} from './usage-time.ts';

type Dimension = UsageReport['group_by'];

/** Whose calls a report is about. */
interface ReportScope {
  readonly kind: 'all' | 'key' | 'owner' | 'team';
  /** What the sums per day are stored under. */
  readonly text: string;
  readonly name: string;
  /** Of a key that all owners have in common, only the calls of this one. */
  readonly owner?: string;
}

interface Question {
  readonly scope: ReportScope;
  readonly tag?: string | undefined;
  /** What the calls are grouped by, and what each group is split by. */
  readonly dimensions: readonly Dimension[];
  readonly range: UsageRange;
  readonly zone: Zone;
  /** Values beyond the largest ones are added up. Undefined: all are told apart. */
  readonly maxGroups?: number;
}

/** Sums of calls that are in the same group for each dimension. */
interface Cell extends UsageCounts {
  readonly labels: readonly Label[];
}

interface Label {
  readonly text: string;
  /** Labels are shown in the order of these. */
  readonly order: string;
  readonly isTime?: true;
}

const COLUMNS: Readonly<Partial<Record<Dimension, UsageColumn>>> = {
  key: 'key_id',
  model: 'model',
  api: 'api',
  owner: 'owner',
  team: 'team',
  tag: 'tags',
  outcome: 'outcome',
};
const SCOPE_COLUMNS = { key: 'key_id', owner: 'owner', team: 'team' } as const;
/** By what the sums per day of a scope are split. */
const DAY_DIMENSIONS: Readonly<Record<ReportScope['kind'], readonly Dimension[]>> = {
  all: ['key', 'model', 'api', 'owner', 'team'],
  key: ['model', 'api', 'team'],
  owner: ['key', 'model', 'api', 'team'],
  team: ['key', 'model', 'api', 'owner'],
};
/** Calls without an owner or a team were not counted by owner or team. */
const PARTIAL: readonly Dimension[] = ['owner', 'team'];
const NONE = 'none';
const UNKNOWN = 'unknown';
const MAX_CELLS = 40_000;

/** Reads what a report consists of. Throws INVALID_REQUEST when that is too much. */
async function readCells(store: UsageReportStore, question: Question): Promise<readonly Cell[]> {
  const { scope, tag, range } = question;
  // Tags are newer than the sums per day, and these do not tell the owner of a key.
  const old = tag === undefined && scope.owner === undefined ? await readDays(store, question) : [];
  const bounds = await store.quarterBounds();
  const of = scope.kind === 'all' ? undefined : { column: SCOPE_COLUMNS[scope.kind], value: scope.name };
  const from = Math.max(range.from, bounds?.first ?? 0);
  const filter = {
    of,
    owner: scope.owner,
    tag,
    from,
    to: bounds === undefined ? from : Math.min(range.to, bounds.last + 1),
  };
  const chosen = await Promise.all(
    question.dimensions.map((dimension, index) => choose(store, question, filter, dimension, old, index)),
  );
  const cells = filter.from < filter.to ? await readQuarters(store, question, filter, chosen) : [];
  return [...old, ...cells].map(({ labels, ...counts }) => ({
    ...counts,
    labels: labels.map((label, index) => (chosen[index]?.labels.has(label.text) === false ? LAST : label)),
  }));
}

type Filter = Parameters<UsageReportStore['largest']>[0];

/** The groups that are told apart: their labels, and the values behind these. */
interface Chosen {
  readonly labels: ReadonlySet<string>;
  readonly values: readonly string[];
}

/** The groups that cost the most. Undefined for a dimension whose groups are all told apart. */
async function choose(
  store: UsageReportStore,
  { maxGroups }: Question,
  filter: Filter,
  dimension: Dimension,
  ...[old, index]: readonly [readonly Cell[], number]
): Promise<Chosen | undefined> {
  const column = COLUMNS[dimension];
  if (column === undefined || maxGroups === undefined) return undefined;
  const costs = new Map<string, { nano: bigint; requests: number; value: string | undefined }>();
  const add = (label: string, { cost_nano_usd: nano, requests }: UsageCounts, value?: string) => {
    const known = costs.get(label) ?? { nano: 0n, requests: 0, value };
    costs.set(label, { nano: known.nano + nano, requests: known.requests + requests, value: known.value ?? value });
  };
  for (const row of await store.largest(filter, column, maxGroups)) add(labelOf(dimension, row.value), row, row.value);
  for (const cell of old) add(cell.labels[index]?.text ?? '', cell);
  const largest = [...costs]
    .sort(([one, a], [other, b]) => Number(b.nano - a.nano) || b.requests - a.requests || (one < other ? -1 : 1))
    .slice(0, maxGroups);
  return {
    labels: new Set(largest.map(([label]) => label)),
    values: largest.flatMap(([label, { value }]) => value ?? label),
  };
}

async function readQuarters(
  store: UsageReportStore,
  { dimensions, zone }: Question,
  filter: Filter,
  chosen: readonly (Chosen | undefined)[],
): Promise<readonly Cell[]> {
  const splits = dimensions.flatMap((dimension, index): UsageSplit[] => {
    const column = COLUMNS[dimension];
    const names = chosen[index]?.values;
    return column === undefined ? [] : [{ column, ...(names !== undefined && { names }) }];
  });
  const nameLabels = (values: readonly string[]) => {
    const left = [...values];
    return (dimension: Dimension): Label => named(labelOf(dimension, left.shift() ?? ''));
  };
  const unit = dimensions.includes('hour') ? 'hour' : dimensions.includes('day') ? 'day' : undefined;
  if (unit === undefined) {
    const rows = await store.sums(filter, splits);
    return rows.map((row) => ({ ...row, labels: dimensions.map(nameLabels(row.values)) }));
  }
  const quarters = UNIT_QUARTERS[unit];
  const width = splits.reduce((all, { names }) => all * ((names?.length ?? 0) + 1), 1);
  if (((filter.to - filter.from) / quarters) * width > MAX_CELLS)
    refuse('from', 'the report would have too many groups; choose a shorter time, or leave out then_by');
  const cells: Cell[] = [];
  for (const { offset, ...span } of zoneSpans(zone, filter.from, filter.to)) {
    for (const row of await store.sums({ ...filter, ...span }, splits, { quarters, offset })) {
      const nameLabel = nameLabels(row.values);
      const timeLabel = (dimension: TimeUnit): Label => {
        const text = slotName(dimension, row.slot, unit, offset);
        const start = new Date((row.slot * quarters - offset) * QUARTER_MS).toISOString();
        return { text, order: dimension === 'day' ? text : start, isTime: true };
      };
      const labels = dimensions.map((dimension) =>
        dimension === 'day' || dimension === 'hour' ? timeLabel(dimension) : nameLabel(dimension),
      );
      cells.push({ ...row, labels });
    }
  }
  return cells;
}

/** The sums per day in UTC count for the day of the same name. What they are not split by is unknown. */
async function readDays(store: UsageReportStore, { scope, dimensions, range }: Question): Promise<readonly Cell[]> {
  const stored = dimensions.find((dimension) => DAY_DIMENSIONS[scope.kind].includes(dimension));
  const byDay = dimensions.some((dimension) => dimension === 'day' || dimension === 'hour');
  const filter = { scope: scope.text, fromDay: range.fromDay, toDay: range.toDay, byDay };
  const split = stored === undefined ? [] : await store.days({ ...filter, dimension: stored });
  const isWhole = stored !== undefined && !PARTIAL.includes(stored);
  const all = isWhole ? [] : await store.days({ ...filter, dimension: 'day' });
  const parts = Map.groupBy(split, ({ day }) => day);
  const rest = all.map((row) => ({ ...row, ...subtract(row, addUp(parts.get(row.day) ?? [])), value: undefined }));
  return [...split, ...rest.filter(({ requests }) => requests > 0)].map((row) => ({
    ...row,
    labels: dimensions.map((dimension) => {
      if (dimension === 'day' || dimension === 'hour') return { text: row.day, order: row.day, isTime: true as const };
      if (dimension === scope.kind) return named(scope.name);
      return named(dimension === stored && row.value !== undefined ? labelOf(dimension, row.value) : UNKNOWN);
    }),
  }));
}

function labelOf(dimension: Dimension, value: string): string {
  if (value === '') return NONE;
  return dimension === 'tag' ? readTags(value).join(',') : value;
}

const LAST: Label = { text: OTHER, order: '\uffff' };

function named(text: string): Label {
  return text === OTHER ? LAST : { text, order: text };
}

type Groups = Pick<UsageReport, 'data' | 'total'>;

/** Adds cells up to rows. All sums come from the same cells, so that totals equal the sum of their parts. */
function collect(cells: readonly Cell[]): Groups {
  const rows = Map.groupBy(cells, ({ labels }) => labels.map(({ text }) => text).join('\n'));
  const data = [...rows.values()]
    .map((own) => ({ own, labels: own[0]?.labels ?? [] }))
    .sort((one, other) => compare(one.labels, other.labels))
    .map(({ own, labels: [group, bucket] }) => ({
      group: group?.text ?? OTHER,
      ...(bucket !== undefined && { bucket: bucket.text }),
      ...asReported(addUp(own)),
    }));
  return { data, total: asReported(addUp(cells)) };
}

/** By time, where the groups are split by it; otherwise by group. */
function compare([one = LAST, oneBucket]: readonly Label[], [other = LAST, otherBucket]: readonly Label[]): number {
  const byGroup = inOrder(one, other);
  if (oneBucket === undefined || otherBucket === undefined) return byGroup;
  const byBucket = inOrder(oneBucket, otherBucket);
  return oneBucket.isTime === true ? byBucket || byGroup : byGroup || byBucket;
}

function inOrder({ order: one }: Label, { order: other }: Label): number {
  return one === other ? 0 : one < other ? -1 : 1;
}

const NOTHING: UsageCounts = {
  requests: 0,
  errors: 0,
  prompt_tokens: 0,
  completion_tokens: 0,
  cost_nano_usd: 0n,
};

function addUp(counts: readonly UsageCounts[]): UsageCounts {
  return counts.reduce(
    (sum, one) => ({
      requests: sum.requests + one.requests,
      errors: sum.errors + one.errors,
      prompt_tokens: sum.prompt_tokens + one.prompt_tokens,
      completion_tokens: sum.completion_tokens + one.completion_tokens,
      cost_nano_usd: sum.cost_nano_usd + one.cost_nano_usd,
    }),
    NOTHING,
  );
}

function subtract(from: UsageCounts, counts: UsageCounts): UsageCounts {
  return {
    requests: from.requests - counts.requests,
    errors: from.errors - counts.errors,
    prompt_tokens: from.prompt_tokens - counts.prompt_tokens,
    completion_tokens: from.completion_tokens - counts.completion_tokens,
    cost_nano_usd: from.cost_nano_usd - counts.cost_nano_usd,
  };
}

function asReported({ cost_nano_usd: nano, ...counts }: UsageCounts): Groups['total'] {
  return { ...counts, cost_usd: usdOfNano(nano) };
}

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
 * Reports of usage. A key sees its own calls, a person those of all their keys, tokens and logins. The
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
function scopeOf(holder: KeyHolder, query: UsageQuery): ReportScope {
  const { id, owner, isMaster, principal } = holder;
  const seesOthers = seesAll(holder);
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
  if (principal !== undefined) return ofOwner(owner);
  return id === INTERNAL_ID ? { ...ofKey(id), owner } : ofKey(id);
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
  readonly clock: Pick<Clock, 'now'>;
  /** Removes from the files what was deleted. */
  emptyLog(): Promise<void>;
}): Pick<OwnKeys, 'usage' | 'eraseContents'> {
  const { keys, store, reports, objects, flush, clock, emptyLog } = parts;
  return {
    async usage(id) {
      const owner = ownerIdOf(id);
      await flush();
      const own = await keys.list({ owner, after: '', limit: MAX_EXPORTED_KEYS }, dayOf(clock.now()));
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
