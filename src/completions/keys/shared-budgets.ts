import type { Clock } from '../../platform/clock/clock.ts';
import type { Budget } from '../../platform/identity/owner.ts';
import type { StoreWatch } from '../../platform/limits/shared-buckets.ts';
import { nanoOfUsd } from '../apis/prices.ts';
import type { BudgetLease, LeaseAsk } from '../storage/key-store.ts';
import {
  type BudgetAlert,
  type BudgetReservation,
  type Budgets,
  createBudgetLevels,
  periodOf,
  type ToldLevel,
} from './budgets.ts';

/** Budgets that several instances spend from. Each has a part of the rest; all parts and all that was spent fit into the budget. */
export interface SharedBudgets extends Budgets {
  /**
   * How much less this instance holds of a budget when the amount is stored as spent. Both are stored together, so that
   * nothing is free twice; of an instance that dies before, what it held stays spent.
   */
  release(bucket: string, period: string, nano: number): number;
  /** Puts back what is held. */
  stop(): Promise<void>;
}

interface SharedBudgetsOptions {
  readonly clock: Pick<Clock, 'now' | 'monotonic' | 'after'>;
  readonly store: {
    lease(ask: LeaseAsk): Promise<BudgetLease>;
    giveBack(bucket: string, period: string, nano: number): Promise<void>;
  };
  readonly watch: StoreWatch;
  readonly passWhenAway: boolean;
  onAlert(alert: BudgetAlert): void;
}

/** What this instance has of a budget in a period. Amounts are whole nano-USD. */
interface Held extends ToldLevel {
  readonly bucket: string;
  readonly period: string;
  /** What the store has set aside for us: for calls under way, for what is not stored yet, and the rest. */
  lease: number;
  reserved: number;
  unstored: number;
  /** What is stored as spent, as far as we know; undefined: never asked. */
  stored: number | undefined;
  /** What calls wait for. */
  wanted: number;
  asking: Promise<void> | undefined;
  refused: { until: number; need: number };
  cancelReturn: (() => void) | undefined;
}

/** A part is this much of a budget at least, so that most calls need not ask. */
const SLICE = 0.01;
const HELD_MS = 1000;
const NOT_REFUSED: Held['refused'] = { until: Number.NEGATIVE_INFINITY, need: 0 };
/** A budget that had no room is not asked again for this long. */
const REFUSED_MS = 100;

export function createSharedBudgets(options: SharedBudgetsOptions): SharedBudgets {
  const { clock, store, watch, passWhenAway } = options;
  const known = new Map<string, Held>();
  const levels = createBudgetLevels(options.onAlert);

  function find(bucket: string, period: string): Held {
    const name = `${bucket}\n${period}`;
    let held = known.get(name);
    if (held === undefined) {
      held = {
        ...{ bucket, period, lease: 0, reserved: 0, unstored: 0, stored: undefined, wanted: 0, told: 0, toldOf: 0 },
        asking: undefined,
        refused: NOT_REFUSED,
        cancelReturn: undefined,
      };
      known.set(name, held);
    }
    return held;
  }

  const restOf = ({ lease, reserved, unstored }: Held): number => lease - reserved - unstored;

  function tell(held: Held, budget: Budget, isRefused = false): void {
    const { bucket, period, stored = 0, unstored } = held;
    levels.tell(held, { bucket, budget, period, spent: stored + unstored }, isRefused);
  }

  function planReturn(held: Held): void {
    held.cancelReturn ??= clock.after(HELD_MS, () => {
      held.cancelReturn = undefined;
      void giveBack(held);
    });
  }

  async function giveBack(held: Held): Promise<void> {
    const rest = restOf(held);
    if (rest > 0 && !watch.isAway()) {
      // What may have been put back is not given out again.
      held.lease -= rest;
      await watch.ask(store.giveBack(held.bucket, held.period, rest)).catch(() => undefined);
    }
    const isUsed = held.lease !== 0 || held.reserved !== 0 || held.unstored !== 0 || held.asking !== undefined;
    if (isUsed) planReturn(held);
    else known.delete(`${held.bucket}\n${held.period}`);
  }

  async function extend(held: Held, budget: Budget, nano: number): Promise<void> {
    const limit = nanoOfUsd(budget.usd);
    const { bucket, period } = held;
    const need = Math.max(1, nano - restOf(held));
    const want = Math.max(need, Math.ceil(limit * SLICE), held.wanted - restOf(held));
    const { granted, spent } = await watch.ask(store.lease({ bucket, period, limit, need, want }));
    if (held.stored === undefined) levels.begin(held, budget, spent);
    held.stored = spent;
    held.lease += granted;
    planReturn(held);
    if (granted === 0) held.refused = { until: clock.monotonic() + REFUSED_MS, need: nano };
    tell(held, budget, granted === 0);
  }

  function take(held: Held, budget: Budget, nano: number): BudgetReservation {
    held.reserved += nano;
    return {
      settle(cost) {
        held.reserved = Math.max(0, held.reserved - nano);
        // A call is charged to the period in which it ends.
        const charged = find(held.bucket, periodOf(budget.period, clock.now()));
        charged.unstored += cost;
        planReturn(charged);
        if (cost > 0 && charged.stored !== undefined) tell(charged, budget);
      },
    };
  }

  function hasRoom(held: Held, nano: number): boolean {
    return restOf(held) >= Math.max(1, nano);
  }

  function isRefused({ refused }: Held, nano: number): boolean {
    return clock.monotonic() < refused.until && nano >= refused.need;
  }

  async function takeLater(held: Held, budget: Budget, nano: number): Promise<BudgetReservation | undefined> {
    held.wanted += nano;
    try {
      while (!hasRoom(held, nano)) {
        if (isRefused(held, nano)) return undefined;
        if (watch.isAway()) throw watch.refusal();
        held.asking ??= extend(held, budget, nano).finally(() => {
          held.asking = undefined;
        });
        await held.asking;
      }
      return take(held, budget, nano);
    } catch (error) {
      if (passWhenAway) return take(held, budget, nano);
      throw error;
    } finally {
      held.wanted -= nano;
    }
  }

  return {
    prepare: () => undefined,
    correct(bucket, period, nano) {
      const held = known.get(`${bucket}\n${period}`);
      if (held === undefined) return;
      if (held.stored !== undefined) held.stored += nano;
      held.refused = NOT_REFUSED;
    },
    reserve(bucket, budget, nano) {
      const held = find(bucket, periodOf(budget.period, clock.now()));
      if (hasRoom(held, nano)) return take(held, budget, nano);
      if (isRefused(held, nano)) return undefined;
      return takeLater(held, budget, nano);
    },
    release(bucket, period, nano) {
      const held = known.get(`${bucket}\n${period}`);
      if (held === undefined) return 0;
      // A call that budgets do not refuse was not counted here.
      const counted = Math.min(nano, held.unstored);
      const released = Math.min(counted, Math.max(0, held.lease));
      held.unstored -= counted;
      held.lease -= released;
      held.stored = (held.stored ?? 0) + nano;
      return released;
    },
    async stop() {
      const all = [...known.values()];
      for (const held of all) held.cancelReturn?.();
      known.clear();
      const rests = all.map((held) => ({ ...held, rest: restOf(held) })).filter(({ rest }) => rest > 0);
      // One after another: there are few, and the pool is shared.
      for (const { bucket, period, rest } of rests) {
        if (watch.isAway()) return;
        await watch.ask(store.giveBack(bucket, period, rest)).catch(() => undefined);
      }
    },
  };
}
