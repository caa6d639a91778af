import { type Kysely, sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, LimitRow } from './accounts-schema.ts';

/** How a count turns into a refusal. */
export interface LimitRule {
  /** The event with this number in a window is the last one for now. */
  readonly limit: number;
  /** How long events are remembered: from the first one on, or from the last one on when `lockMs` is sliding. */
  readonly windowMs: number;
  /** How long the first, second, ... lock lasts; the last one counts for all that follow. Without: until the window ends. */
  readonly lockMs?: readonly number[];
  /** How many further events lead to the next lock. Default 1. */
  readonly every?: number;
  /** The window starts again with each event, so that locks grow as long as events go on. */
  readonly sliding?: boolean;
}

export interface LimitKey {
  readonly policy: string;
  readonly key: string;
}

/** Counts for all instances together. A count is refused while it is locked, in the same statement that would count. */
export interface LimitStore {
  /** The rows of up to three keys by one read, each in the place of its key. */
  find(limits: readonly LimitKey[], now: number): Promise<(LimitRow | undefined)[]>;
  /** Of several keys of one policy: until when each that is locked is locked. */
  lockedUntil(policy: string, keys: readonly string[], now: number): Promise<ReadonlyMap<string, number>>;
  /** Counts one event; changes nothing while it is locked. */
  count(limit: LimitKey, rule: LimitRule, now: number): Runnable<LimitRow>;
  /** Counts one event; undoes the batch while it is locked. */
  countWithin(limit: LimitKey, rule: LimitRule, now: number): Runnable;
  /** Undoes the batch when one of the two is locked at the moment of the commit. */
  expectFree(first: LimitKey, second: LimitKey, now: number): Runnable;
  forget(limit: LimitKey): Runnable;
  /** Forgets every key of a policy that begins with `start` and a space. */
  forgetAll(policy: string, start: string): Runnable;
}

export function createLimitStore(database: Database<AccountsSchema>): LimitStore {
  const { query } = database;
  const find = database.statement(
    (select, given: { policy: string; key: string; policy2: string; key2: string; policy3: string; key3: string }) =>
      select
        .selectFrom('limits')
        .selectAll()
        .where((build) =>
          build.or([
            build.and([build('policy', '=', given.policy), build('key', '=', given.key)]),
            build.and([build('policy', '=', given.policy2), build('key', '=', given.key2)]),
            build.and([build('policy', '=', given.policy3), build('key', '=', given.key3)]),
          ]),
        ),
  );
  /** Known ahead, because every check of a login with a second factor asks it. */
  const lockOfOne = database.statement((select, given: LimitKey & { now: number }) =>
    selectLocks(select, given.policy, given.now).where('key', '=', given.key),
  );
  const forget = database.statement((remove, given: LimitKey) =>
    remove.deleteFrom('limits').where('policy', '=', given.policy).where('key', '=', given.key),
  );
  const expectFree = database.statement(
    (select, given: { policy: string; key: string; otherPolicy: string; otherKey: string; now: number }) =>
      select
        .selectNoFrom(sql<number>`1`.as('free'))
        .where(({ not, exists }) =>
          not(exists(selectLocks(select, given.policy, given.now).where('key', '=', given.key))),
        )
        .where(({ not, exists }) =>
          not(exists(selectLocks(select, given.otherPolicy, given.now).where('key', '=', given.otherKey))),
        ),
  );

  const upsert = ({ policy, key }: LimitKey, rule: LimitRule, now: number) => {
    const isOver = sql<boolean>`limits.expires_at <= ${now}`;
    const count = sql<number>`case when ${isOver} then 1 else limits.count + 1 end`;
    const windowEnd = sql<number>`case when ${isOver} then cast(${now + rule.windowMs} as bigint)
      else limits.expires_at end`;
    const first = lockOf(rule, 1);
    const changes =
      rule.lockMs === undefined
        ? {
            locked_until: sql<number>`case when ${count} >= ${rule.limit} then ${windowEnd} else 0 end`,
            expires_at: windowEnd,
          }
        : lockedBySteps(rule, rule.lockMs, count, windowEnd, now);
    return query
      .insertInto('limits')
      .values({
        policy,
        key,
        count: 1,
        locked_until: first === 0 ? 0 : now + first,
        expires_at: now + (rule.sliding === true ? rule.windowMs + first : Math.max(rule.windowMs, first)),
      })
      .onConflict((conflict) =>
        conflict
          .columns(['policy', 'key'])
          .doUpdateSet({ count, ...changes })
          .where((build) => build.or([build('limits.expires_at', '<=', now), build('limits.locked_until', '<=', now)])),
      )
      .returningAll()
      .compile();
  };

  return {
    async find(limits, now) {
      const [first, second = first, third = second] = limits;
      if (first === undefined || second === undefined || third === undefined) return [];
      const { policy: policy2, key: key2 } = second;
      const { policy: policy3, key: key3 } = third;
      const rows = await database.readKeyed(find({ ...first, policy2, key2, policy3, key3 }));
      return limits.map(({ policy, key }) =>
        rows.find((row) => row.policy === policy && row.key === key && row.expires_at > now),
      );
    },
    async lockedUntil(policy, keys, now) {
      const [key] = keys;
      if (key === undefined) return new Map();
      const locks =
        keys.length === 1
          ? lockOfOne({ policy, key, now })
          : selectLocks(query, policy, now).where('key', 'in', keys).compile();
      const rows = await database.readKeyed(locks);
      return new Map(rows.map(({ key, locked_until }) => [key, locked_until]));
    },
    count: upsert,
    countWithin: (limit, rule, now) => expectChanges(upsert(limit, rule, now), 1),
    expectFree: (first, second, now) =>
      expectChanges(expectFree({ ...first, otherPolicy: second.policy, otherKey: second.key, now }), 1),
    forget,
    forgetAll: (policy, start) =>
      query
        .deleteFrom('limits')
        .where('policy', '=', policy)
        // The sign after the space: every key that begins with `start` and a space lies between the two.
        .where('key', '>=', `${start} `)
        .where('key', '<', `${start}!`)
        .compile(),
  };
}

/** How long the event with a number locks, in milliseconds. */
function lockOf({ limit, windowMs, lockMs, every = 1 }: LimitRule, count: number): number {
  if (count < limit) return 0;
  if (lockMs === undefined) return windowMs;
  if ((count - limit) % every !== 0) return 0;
  return lockMs[(count - limit) / every] ?? lockMs.at(-1) ?? 0;
}

function lockedBySteps(
  rule: LimitRule,
  lockMs: readonly number[],
  count: ReturnType<typeof sql<number>>,
  windowEnd: ReturnType<typeof sql<number>>,
  now: number,
) {
  const { limit, every = 1, windowMs, sliding = false } = rule;
  const steps = lockMs.map((ms, index) => sql`when ${count} = ${limit + index * every} then cast(${ms} as bigint)`);
  const last = lockMs.at(-1) ?? 0;
  const lock = sql<number>`case when ${count} < ${limit} then 0 ${sql.join(steps, sql` `)}
    when (${count} - ${limit}) % ${every} = 0 then cast(${last} as bigint) else 0 end`;
  return {
    locked_until: sql<number>`case when ${lock} = 0 then 0 else cast(${now} as bigint) + ${lock} end`,
    expires_at: sliding
      ? sql<number>`cast(${now + windowMs} as bigint) + ${lock}`
      : sql<number>`case when ${lock} = 0 then ${windowEnd} else cast(${now} as bigint) + ${lock} end`,
  };
}

function selectLocks(query: Kysely<AccountsSchema>, policy: string, now: number) {
  return query
    .selectFrom('limits')
    .select(['key', 'locked_until'])
    .where('policy', '=', policy)
    .where('locked_until', '>', now);
}
