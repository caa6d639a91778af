import type { Clock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import {
  type Budget,
  type Owner,
  type OwnerOf,
  type OwnerTeam,
  ownerIdOf,
  type WatchOwners,
} from '../platform/identity/owner.ts';
import { teamOf } from '../platform/identity/principal.ts';
import type { UserCall } from './access.ts';
import type { KeyRotation, NewKey, PlanView } from './contract/own-data.ts';
import { FREE_PLAN, type PlansSettings } from './settings.ts';
import type { TeamRow, UserRow } from './storage/accounts-schema.ts';
import type { OwnerFacts, OwnerStore } from './storage/user-store.ts';

/** The plan of users from 0.1.0: what they could do before there were plans, unless the settings define it. */
export const LEGACY_PLAN = 'legacy';

/** Prefixes of owners that are people or service accounts. Any other owner of a key is a label that an operator chose. */
const PREFIXES = ['user:', 'service:'];

/** Whether an id is one of a person or a service account. */
export function isPerson(id: string): boolean {
  return PREFIXES.some((prefix) => id.startsWith(prefix));
}

/** Whether an id is that of a team. A label such as `team:design` is not, because ids of teams begin with `team_`. */
function isTeam(id: string): boolean {
  return id.startsWith('team:team_');
}

type DescribedOwner = Omit<Owner, 'revision'> & { readonly validUntil: number };

type Plan = PlansSettings[string];

const FREE: Plan = {
  models: ['demo/*'],
  requests_per_minute: 20,
  tokens_per_minute: 0,
  budget: { usd: 0, period: 'month' },
  keys: 2,
  bridge: false,
  running_turns: 1,
  jobs: 10,
};

/** The most keys of anyone, with a plan or without one. */
export const MAX_KEYS = 100;

export interface PlanSettings {
  readonly plans: PlansSettings;
  readonly default_plan: string;
}

/** A key of the completions service, as its owner sees it. */
export interface CompletionKey {
  readonly id: string;
}

/** Who creates or removes a key, for the audit log. */
export interface KeyActor {
  readonly actor: string;
  readonly head?: Pick<RequestHead, 'address' | 'requestId'>;
}

/** The keys of one user, where the completions service runs beside this one. */
export interface CompletionKeys {
  /** The key itself is in this answer and nowhere else. */
  create(owner: string, input: NewKey, by?: KeyActor): Promise<CompletionKey>;
  list(owner: string): Promise<readonly CompletionKey[]>;
  /** Replaces a key by a new one, which is in this answer and nowhere else. Throws as `remove` does. */
  rotate(owner: string, id: string, rotation: KeyRotation, by?: KeyActor): Promise<CompletionKey>;
  /** Throws KEY_NOT_FOUND, also for a key of someone else. */
  remove(owner: string, id: string, by?: KeyActor): Promise<void>;
  /** What the user has used and spent, for an export of the user's data. */
  usage(owner: string): Promise<object>;
  /** Removes what was asked and answered in the calls of a user who is deleted. */
  eraseContents(owner: string): Promise<void>;
}

/** The owners of keys, people and teams, as other services see them. */
export interface Owners {
  readonly ownerOf: OwnerOf;
  readonly watch: WatchOwners;
  /** Reads an owner again after a change. When it resolves, the previous value is no longer used. */
  refresh(id: string): Promise<void>;
  /** The same for a team and all of its members. */
  refreshTeam(teamId: string): Promise<void>;
  /** Drops all cached owners, because the settings have changed. */
  forgetPlans(): void;
  /** How many keys someone may have. */
  maxKeys(owner: Pick<Owner, 'plan'>): number;
}

export interface OwnersOptions {
  readonly store: OwnerStore;
  settings(): PlanSettings;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  /** How long a cached owner is valid; without limit if no other instance writes to the store. */
  readonly freshMs: number;
  onError(error: unknown): void;
}

interface Entry {
  readonly owner: Writable<Owner>;
  readAt: number;
  /** When a trial ends, on the wall clock. */
  validUntil: number;
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Owners that are kept in memory. */
export const MAX_OWNERS = 10_000;

export function createOwners({ store, settings, clock, freshMs, onError }: OwnersOptions): Owners {
  // In the order in which they were read, so the first one is evicted.
  const entries = new Map<string, Entry>();
  /** Concurrent calls share one read. */
  const reading = new Map<string, Promise<Owner>>();
  const listeners = new Set<(owner: Owner) => void>();
  let changes = 0;

  function keep(id: string, { validUntil, ...members }: DescribedOwner): Owner {
    const known = entries.get(id);
    const owner: Writable<Owner> = known?.owner ?? { ...members, revision: 0 };
    const isChanged = known !== undefined && !isSame(owner, members);
    if (isChanged) Object.assign(owner, members, { revision: owner.revision + 1 });
    entries.delete(id);
    entries.set(id, { owner, readAt: clock.monotonic(), validUntil });
    const [oldest] = entries.keys();
    if (entries.size > MAX_OWNERS && oldest !== undefined) entries.delete(oldest);
    if (isChanged) for (const listener of listeners) listener(owner);
    return owner;
  }

  async function describe(id: string): Promise<DescribedOwner> {
    if (!isTeam(id)) return describeOwner(id, await store.facts(id), settings(), clock.now());
    return describeTeamOwner(id, await store.team(teamOf(id) ?? ''), settings());
  }

  async function read(id: string): Promise<Owner> {
    const before = changes;
    const described = await describe(id);
    // An owner that was read during a change may be older than the change.
    return before === changes ? keep(id, described) : read(id);
  }

  function readOnce(id: string): Promise<Owner> {
    const known = reading.get(id);
    if (known !== undefined) return known;
    const fresh = read(id).finally(() => reading.delete(id));
    reading.set(id, fresh);
    return fresh;
  }

  /** Notifies listeners of an owner who is not in memory, because work for them may have begun before they were evicted. */
  async function tellOf(id: string): Promise<void> {
    if (listeners.size === 0 || !(isPerson(id) || isTeam(id))) return;
    const { validUntil: _, ...members } = await describe(id);
    for (const listener of listeners) listener({ ...members, revision: 0 });
  }

  async function refresh(userId: string): Promise<void> {
    const id = ownerIdOf(userId);
    changes += 1;
    const entry = entries.get(id);
    if (entry === undefined) return tellOf(id).catch(onError);
    // The cached value is no longer used, even if the new read fails.
    entry.readAt = Number.NEGATIVE_INFINITY;
    await readOnce(id).catch(onError);
  }

  return {
    ownerOf(given) {
      const id = ownerIdOf(given);
      const entry = entries.get(id);
      if (entry !== undefined && clock.monotonic() - entry.readAt < freshMs && clock.now() < entry.validUntil) {
        return entry.owner;
      }
      return isPerson(id) || isTeam(id) ? readOnce(id) : undefined;
    },
    watch(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    refresh,
    async refreshTeam(teamId) {
      // A member may be being read at this moment.
      changes += 1;
      const members = [...entries.values()].filter(({ owner }) => owner.teams.some(({ id }) => id === teamId));
      await Promise.all([`team:${teamId}`, ...members.map(({ owner }) => owner.id)].map(refresh));
    },
    forgetPlans() {
      changes += 1;
      for (const entry of entries.values()) entry.readAt = Number.NEGATIVE_INFINITY;
    },
    maxKeys: ({ plan }) => planBy(plan, settings())?.keys ?? MAX_KEYS,
  };
}

/** Roles without a plan, unless one is given to them. */
const UNLIMITED_ROLES: ReadonlySet<string> = new Set(['root', 'admin', 'operator']);

/** A plan by its name; undefined: without limits. */
export function planBy(name: string, { plans }: PlanSettings): Plan | undefined {
  if (Object.hasOwn(plans, name)) return plans[name];
  return name === FREE_PLAN ? FREE : undefined;
}

export function isKnownPlan(name: string, { plans }: PlanSettings): boolean {
  return name === FREE_PLAN || name === LEGACY_PLAN || Object.hasOwn(plans, name);
}

/** Throws INVALID_PLAN for a plan that is not there; empty: none of their own. */
export function requirePlan(plan: string, settings: PlanSettings): string {
  if (plan === '' || isKnownPlan(plan, settings)) return plan;
  const names = ['free', ...Object.keys(settings.plans)];
  throw new AppError('INVALID_PLAN', { plan: plan.slice(0, 64), plans: [...new Set(names)].join(', ') });
}

/** The plans that an administrator can give, as the settings define them; `free` is there without being defined. */
export function listPlans(settings: PlanSettings): { plans: PlanView[] } {
  const names = new Set([FREE_PLAN, ...Object.keys(settings.plans)]);
  return {
    plans: [...names].flatMap((name) => {
      const plan = planBy(name, settings);
      if (plan === undefined) return [];
      const { models, budget, keys, bridge, jobs } = plan;
      return [
        {
          name,
          isDefault: name === settings.default_plan,
          models: [...models],
          requestsPerMinute: plan.requests_per_minute,
          tokensPerMinute: plan.tokens_per_minute,
          budget,
          keys,
          bridge,
          runningTurns: plan.running_turns,
          jobs,
        },
      ];
    }),
  };
}

/** A plan that spends money, for warnings. */
export function doesPay(name: string, settings: PlanSettings): boolean {
  return (planBy(name, settings)?.budget.usd ?? Number.POSITIVE_INFINITY) > 0;
}

function describeOwner(id: string, facts: OwnerFacts | undefined, settings: PlanSettings, now: number): DescribedOwner {
  const validUntil = Math.min(
    Number.POSITIVE_INFINITY,
    ...(facts?.subscriptions ?? []).flatMap(({ expires_at: at }) => (at !== null && at > now ? [at] : [])),
  );
  if (facts === undefined) return { id, ...GONE, validUntil };
  const { user, blocked } = facts;
  const name = planOf(facts, settings, now);
  const plan = name === '' ? undefined : planBy(name, settings);
  const state = user.active !== 1 ? 'paused' : blocked ? 'blocked' : user.closing_at !== null ? 'closing' : 'active';
  return {
    id,
    state,
    role: user.role,
    plan: name,
    allowed: plan?.models,
    bridge: UNLIMITED_ROLES.has(user.role) || plan?.bridge === true,
    buckets: plan === undefined ? [] : [{ id, name: `the plan ${name}`, limits: limitsOf(plan) }],
    teams: facts.teams.map((team) => describeStored(team, settings)),
    validUntil,
  };
}

/** A team as the owner of work. */
function describeTeamOwner(id: string, team: TeamRow | undefined, settings: PlanSettings): DescribedOwner {
  const validUntil = Number.POSITIVE_INFINITY;
  if (team === undefined) return { id, ...GONE, validUntil };
  const { allowed, bridge, bucket } = describeStored(team, settings);
  return { id, state: 'active', role: '', plan: team.plan, allowed, bridge, buckets: [bucket], teams: [], validUntil };
}

/** Returns the limits of work for a team: those of its plan, with the team's own budget instead of the plan's. */
export function describeTeam(
  { id, name, plan: planName, budget }: Pick<OwnerTeam, 'id' | 'plan' | 'budget'> & { readonly name: string },
  settings: PlanSettings,
): OwnerTeam {
  const plan = planName === '' ? undefined : planBy(planName, settings);
  const limits = { ...(plan !== undefined && limitsOf(plan)), ...(budget !== undefined && { budget }) };
  const bucket = { id: `team:${id}`, name: `the team ${name}`, limits };
  return { id, allowed: plan?.models, bridge: plan?.bridge ?? true, plan: planName, budget, bucket };
}

function describeStored({ id, name, plan, budget }: TeamRow, settings: PlanSettings): OwnerTeam {
  return describeTeam({ id, name, plan, budget: budgetOf({ budget }) }, settings);
}

/** Returns the team's own budget; undefined: only the limits of its members apply. */
export function budgetOf({ budget }: Pick<TeamRow, 'budget'>): Budget | undefined {
  return budget === '' ? undefined : (JSON.parse(budget) as Budget);
}

const GONE = { state: 'gone', role: '', plan: '', allowed: [], buckets: [], teams: [], bridge: false } as const;

/**
 * The plan that counts: of an active subscription before one on trial, then of the newest, when the payment webhook or an
 * administrator named it; else what an administrator or an invitation gave; else the default one, which administrators
 * and operators do not have. A name that no plan has counts as not given.
 */
function planOf({ user, subscriptions }: OwnerFacts, settings: PlanSettings, now: number): string {
  const current = subscriptions.filter(({ status, expires_at: at }) => status === 'active' || at === null || at > now);
  const ranked = [
    ...current.filter(({ status }) => status === 'active'),
    ...current.filter(({ status }) => status !== 'active'),
  ].map(({ named_plan: name }) => name);
  const [paid = ''] = ranked;
  // A payment does not assign the legacy plan, unless the settings define it.
  if (paid !== '' && isKnownPlan(paid, settings) && planBy(paid, settings) !== undefined) return paid;
  const given = user.plan !== '' && isKnownPlan(user.plan, settings) ? user.plan : undefined;
  return given ?? (UNLIMITED_ROLES.has(user.role) ? '' : settings.default_plan);
}

export function limitsOf(plan: Plan): Owner['buckets'][number]['limits'] {
  return {
    ...(plan.requests_per_minute > 0 && { requestsPerMinute: plan.requests_per_minute }),
    ...(plan.tokens_per_minute > 0 && { tokensPerMinute: plan.tokens_per_minute }),
    budget: plan.budget,
    ...(plan.running_turns > 0 && { runningTurns: plan.running_turns }),
    ...(plan.jobs > 0 && { jobs: plan.jobs }),
  };
}

function isSame(owner: Owner, next: Omit<Owner, 'revision'>): boolean {
  const { revision: _, ...members } = owner;
  return JSON.stringify(members) === JSON.stringify(next);
}

/** The caller's own keys of the completions service. */
export function createOwnKeys({
  completionKeys,
  owners,
}: {
  completionKeys(): CompletionKeys | undefined;
  owners: Owners;
}) {
  function keysHere(): CompletionKeys {
    const keys = completionKeys();
    if (keys === undefined) throw new AppError('COMPLETIONS_UNAVAILABLE');
    return keys;
  }

  return {
    async create(input: NewKey, { caller: { user }, head }: UserCall): Promise<CompletionKey> {
      const keys = keysHere();
      requireNotClosing(user);
      const owner = await owners.ownerOf(user.id);
      requireInTeam(owner, input.team);
      const most = owner === undefined ? MAX_KEYS : owners.maxKeys(owner);
      if ((await keys.list(user.id)).length >= most) throw new AppError('TOO_MANY_KEYS', { most });
      const by = { actor: user.id, head };
      const issued = await keys.create(user.id, input, by);
      try {
        // Checks again after the write, because concurrent requests saw the same list before it.
        if ((await keys.list(user.id)).length > most) throw new AppError('TOO_MANY_KEYS', { most });
      } catch (error) {
        // Nobody receives this key, and it would count as one of the keys that the plan allows.
        await keys.remove(user.id, issued.id, by);
        throw error;
      }
      return issued;
    },
    list: async ({ caller: { user } }: UserCall) => ({ keys: await keysHere().list(user.id) }),
    async rotate(id: string, rotation: KeyRotation, { caller: { user }, head }: UserCall): Promise<CompletionKey> {
      requireNotClosing(user);
      return keysHere().rotate(user.id, id, rotation, { actor: user.id, head });
    },
    remove: (id: string, { caller: { user }, head }: UserCall) =>
      keysHere().remove(user.id, id, { actor: user.id, head }),
  };
}

/** Throws TEAM_NOT_FOUND unless the owner is in the team. */
export function requireInTeam(owner: Owner | undefined, team: string | undefined): void {
  if (team !== undefined && !owner?.teams.some(({ id }) => id === team)) throw new AppError('TEAM_NOT_FOUND');
}

/** Throws ACCOUNT_CLOSING for a user whose account is scheduled for deletion, because such a user gets no new credentials. */
export function requireNotClosing({ closing_at: at }: Pick<UserRow, 'closing_at'>): void {
  if (at !== null) throw new AppError('ACCOUNT_CLOSING');
}
