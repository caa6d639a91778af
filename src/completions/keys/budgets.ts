import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Budget } from '../../platform/identity/owner.ts';
import { nanoOfUsd } from '../apis/prices.ts';

/** What keys and persons with a budget have spent in the current period. All amounts are whole nano-USD. */
export interface Budgets {
  /** Reads what was spent, unless that is known; nothing may be reserved before. Undefined when there is nothing to read. */
  prepare(keyId: string, budget: Budget): Promise<void> | undefined;
  /** Sets the amount aside; undefined when the budget has no room for it. Waits only where other instances count too. */
  reserve(
    keyId: string,
    budget: Budget,
    nano: number,
  ): BudgetReservation | undefined | Promise<BudgetReservation | undefined>;
  /** What is stored as spent in a period was corrected by this; a negative amount is free again. */
  correct(keyId: string, period: string, nano: number): void;
}

/** Budgets that this instance counts alone. */
interface OwnBudgets extends Budgets {
  reserve(keyId: string, budget: Budget, nano: number): BudgetReservation | undefined;
}

export interface BudgetReservation {
  /** Puts what it really cost in the place of what was set aside. */
  settle(nano: number): void;
}

/** So much of a budget is spent. */
export interface BudgetAlert {
  /** `key_...`, `user:...`, `team:...` or `api:...`. */
  readonly bucket: string;
  /** 50, 80 or 100. */
  readonly percent: number;
  readonly spentNano: number;
  readonly usd: number;
  /** `2030-01-31`, `2030-01` or `total`. */
  readonly period: string;
}

interface BudgetsOptions {
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readSpent(keyId: string, period: string): Promise<number>;
  /** What is counted here and not stored yet. */
  unstored(keyId: string, period: string): number;
  /** How long the figure holds; for ever where no other instance writes to the store. */
  readonly freshMs: number;
  /** Called once for each level in a period; where several instances share a store, by each of them. */
  onAlert?(alert: BudgetAlert): void;
}

/** The alerts of a budget in its period. */
export interface ToldLevel {
  /** The highest level for which an alert was sent in this period, and the size of the budget then. */
  told: number;
  toldOf: number;
}

interface Spending extends ToldLevel {
  /** The period that was read; another one begins when a person gets another plan. */
  kind: Budget['period'] | undefined;
  period: string;
  spent: number;
  /** Set aside for calls under way, whatever period they end in. */
  reserved: number;
  /** All that was settled here, ever. */
  settled: number;
  readAt: number;
  reading: Promise<void> | undefined;
}

const ALERT_LEVELS = [100, 80, 50];
/** From this level on, a refused call means that the budget is used up, and not that the call is expensive. */
const NEARLY_SPENT = 80;

/** Of a budget, what was spent; `limit` and `spent` in nano-USD. */
interface SpentBudget {
  readonly bucket: string;
  readonly budget: Budget;
  readonly period: string;
  readonly spent: number;
}

/** Sends one alert in a period for each of 50, 80 and 100 % of a budget. */
export function createBudgetLevels(onAlert: BudgetsOptions['onAlert']) {
  const levelOf = (spent: number, limit: number): number =>
    ALERT_LEVELS.find((percent) => (spent / limit) * 100 >= percent) ?? 0;
  return {
    /** Skips alerts for spending before this program started, because an earlier process sent them. */
    begin(state: ToldLevel, { usd }: Budget, spent: number): void {
      state.toldOf = nanoOfUsd(usd);
      state.told = levelOf(spent, state.toldOf);
    },
    tell(state: ToldLevel, { bucket, budget: { usd }, period, spent }: SpentBudget, isRefused = false): void {
      const limit = nanoOfUsd(usd);
      // Another budget has other levels.
      if (state.toldOf !== limit) state.told = 0;
      state.toldOf = limit;
      const level = levelOf(spent, limit);
      const percent = isRefused && level >= NEARLY_SPENT ? 100 : level;
      if (percent <= state.told) return;
      state.told = percent;
      onAlert?.({ bucket, percent, spentNano: spent, usd, period });
    },
  };
}

const MAX_IDLE = 10_000;

export function createBudgets({ clock, readSpent, unstored, freshMs, onAlert }: BudgetsOptions): OwnBudgets {
  const known = new Map<string, Spending>();
  const levels = createBudgetLevels(onAlert);

  function tell(bucket: string, spending: Spending, budget: Budget, isRefused = false): void {
    levels.tell(spending, { bucket, budget, period: spending.period, spent: spending.spent }, isRefused);
  }

  async function read(keyId: string, spending: Spending, budget: Budget): Promise<void> {
    const { period: kind } = budget;
    const period = periodOf(kind, clock.now());
    const isKnown = spending.kind === kind && spending.period === period;
    // Taken before the read: spending that is stored during the read may count twice until the next one, but is never missed.
    const pending = unstored(keyId, period);
    const before = spending.settled;
    const stored = await readSpent(keyId, period);
    spending.kind = kind;
    spending.period = period;
    spending.spent = stored + pending + (spending.settled - before);
    spending.readAt = clock.monotonic();
    if (!isKnown) levels.begin(spending, budget, spending.spent);
    else tell(keyId, spending, budget);
  }

  function inPeriod(spending: Spending, kind: Budget['period']): Spending {
    const period = periodOf(kind, clock.now());
    if (spending.period !== period) {
      spending.period = period;
      spending.spent = 0;
      spending.told = 0;
    }
    return spending;
  }

  function find(keyId: string): Spending {
    let spending = known.get(keyId);
    if (spending === undefined) {
      makeRoom();
      spending = {
        kind: undefined,
        period: '',
        spent: 0,
        reserved: 0,
        settled: 0,
        readAt: Number.NEGATIVE_INFINITY,
        reading: undefined,
        told: 0,
        toldOf: 0,
      };
      known.set(keyId, spending);
    }
    return spending;
  }

  /** A budget without reservations can be read again. */
  function makeRoom(): void {
    if (known.size < MAX_IDLE) return;
    for (const [keyId, { period, reserved, reading }] of known) {
      if (reserved > 0 || reading !== undefined || unstored(keyId, period) > 0) continue;
      known.delete(keyId);
      return;
    }
  }

  const budgets: OwnBudgets = {
    correct(keyId, period, nano) {
      const spending = known.get(keyId);
      // What was not read yet is read with the correction.
      if (spending?.period !== period) return;
      spending.settled += nano;
      spending.spent += nano;
    },
    prepare(keyId, budget) {
      const spending = find(keyId);
      const { reading } = spending;
      if (reading !== undefined) return reading.then(() => budgets.prepare(keyId, budget));
      if (spending.kind === budget.period && clock.monotonic() - spending.readAt < freshMs) return undefined;
      const fresh = read(keyId, spending, budget).finally(() => {
        spending.reading = undefined;
      });
      spending.reading = fresh;
      return fresh;
    },
    reserve(keyId, budget, nano) {
      const found = find(keyId);
      const spending = inPeriod(found, found.kind ?? budget.period);
      const used = spending.spent + spending.reserved;
      const limit = nanoOfUsd(budget.usd);
      if (used >= limit || used + nano > limit) {
        tell(keyId, spending, budget, true);
        return undefined;
      }
      spending.reserved += nano;
      return {
        settle(cost) {
          spending.reserved = Math.max(0, spending.reserved - nano);
          spending.settled += cost;
          inPeriod(spending, spending.kind ?? budget.period).spent += cost;
          if (cost > 0) tell(keyId, spending, budget);
        },
      };
    },
  };
  return budgets;
}

/** The period that a moment belongs to, in UTC: `2030-01-31`, `2030-01` or `total`. */
export function periodOf(period: Budget['period'], now: number): string {
  if (period === 'total') return 'total';
  return dayOf(now).slice(0, period === 'day' ? 10 : 7);
}

/** `2030-01-31`, in UTC. */
export function dayOf(now: number): string {
  return new Date(now).toISOString().slice(0, 10);
}

/** How long until the period ends; undefined for one that never does. */
export function periodEndsAfterMs(period: Budget['period'], now: number): number | undefined {
  if (period === 'total') return undefined;
  const date = new Date(now);
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
  return (period === 'day' ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1)) - now;
}

/** Budgets of model APIs: what all callers together may spend at each. */
export interface ApiBudgets {
  /** Sets aside what a call may cost at each API, by its id. Resolves after the first read of what was spent. */
  reserve(costs: ReadonlyMap<string, number>): Promise<ApiReservation>;
  /** Where a cost at an API is added up; undefined for an API without a budget. */
  chargeOf(api: string): { readonly bucket: string; readonly period: string } | undefined;
}

export interface ApiReservation {
  /** True for an API without a budget. */
  hasRoom(api: string): boolean;
  /** Puts what the call cost at each API in the place of what was set aside at all of them. */
  settle(costs: ReadonlyMap<string, number>): void;
  /** The refusal of a call that only this API could answer. */
  refusal(api: string): AppError;
}

interface ApiBudgetsOptions {
  readonly given: Readonly<Record<string, Budget>>;
  readonly budgets: Budgets;
  readonly clock: Pick<Clock, 'now'>;
}

/** Undefined where no API has a budget: then a call does nothing for it. */
export function createApiBudgets({ given, budgets, clock }: ApiBudgetsOptions): ApiBudgets | undefined {
  const known = new Map(Object.entries(given));
  if (known.size === 0) return undefined;
  return {
    async reserve(costs) {
      const reserved = new Map<string, BudgetReservation | undefined>();
      const asked = [...costs].flatMap(([api, nano]) => {
        const budget = known.get(api);
        return budget === undefined ? [] : [{ api, budget, nano }];
      });
      await Promise.all(asked.map(({ api, budget }) => budgets.prepare(bucketOf(api), budget)));
      try {
        for (const { api, budget, nano } of asked) {
          reserved.set(api, await budgets.reserve(bucketOf(api), budget, nano));
        }
      } catch (error) {
        for (const reservation of reserved.values()) reservation?.settle(0);
        throw error;
      }
      return {
        hasRoom: (api) => !reserved.has(api) || reserved.get(api) !== undefined,
        settle(spent) {
          for (const [api, reservation] of reserved) reservation?.settle(spent.get(api) ?? 0);
        },
        refusal(api) {
          const budget = known.get(api);
          const endsAfter = budget === undefined ? undefined : periodEndsAfterMs(budget.period, clock.now());
          const retry = endsAfter === undefined ? {} : { retryAfterSeconds: Math.ceil(endsAfter / 1000) };
          return new AppError('BUDGET_EXCEEDED', { ...budget, of: `the API ${api}`, ...retry });
        },
      };
    },
    chargeOf(api) {
      const budget = known.get(api);
      return budget && { bucket: bucketOf(api), period: periodOf(budget.period, clock.now()) };
    },
  };
}

function bucketOf(api: string): string {
  return `api:${api}`;
}
