import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nanoOfUsd } from '../../../src/completions/apis/prices.ts';
import type { BudgetAlert, BudgetReservation } from '../../../src/completions/keys/budgets.ts';
import { createSharedBudgets } from '../../../src/completions/keys/shared-budgets.ts';
import type { LeaseAsk } from '../../../src/completions/storage/key-store.ts';
import { createStoreWatch } from '../../../src/platform/limits/shared-buckets.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const BUDGET = { usd: 1, period: 'day' } as const;
const CENT = nanoOfUsd(0.01);

/** A store in memory that several instances share, as one row of PostgreSQL is. */
function start() {
  const clock = createFakeClock();
  const rows = new Map<string, { cost: number; leased: number }>();
  const asks: LeaseAsk[] = [];
  const alerts: BudgetAlert[] = [];
  let isAway = false;
  const rowOf = (period: string) => {
    const row = rows.get(period) ?? { cost: 0, leased: 0 };
    rows.set(period, row);
    return row;
  };
  const store = {
    async lease(ask: LeaseAsk) {
      if (isAway) throw new Error('away');
      asks.push(ask);
      const row = rowOf(ask.period);
      const left = ask.limit - row.cost - row.leased;
      const granted = left >= ask.want ? ask.want : left >= ask.need ? left : 0;
      row.leased += granted;
      return { granted, spent: row.cost };
    },
    async giveBack(_bucket: string, period: string, nano: number) {
      rowOf(period).leased -= nano;
    },
  };
  const instance = () => {
    const watch = createStoreWatch({ clock, onAway: () => undefined });
    return createSharedBudgets({
      ...{ clock, store, watch, passWhenAway: false },
      onAlert: (alert) => alerts.push(alert),
    });
  };
  type Budgets = ReturnType<typeof instance>;
  /** As the meter does: what was spent is stored, and set aside no longer, in one transaction. */
  const flush = (budgets: Budgets, nano: number, period = today()) => {
    const row = rowOf(period);
    row.leased -= budgets.release('key', period, nano);
    row.cost += nano;
  };
  const today = () => new Date(clock.now()).toISOString().slice(0, 10);
  const reserve = async (budgets: Budgets, nano = CENT): Promise<BudgetReservation | undefined> =>
    budgets.reserve('key', BUDGET, nano);
  return { clock, rowOf, today, asks, alerts, instance, flush, reserve, goAway: () => (isAway = true) };
}

test('instances together reserve no more than the budget, and use all of it', async () => {
  const { instance, reserve, rowOf, today } = start();
  const instances = [instance(), instance(), instance()];
  const reserved = await Promise.all(
    instances.flatMap((budgets) => Array.from({ length: 60 }, () => reserve(budgets))),
  );
  assert.equal(reserved.filter((each) => each !== undefined).length, 100);
  assert.equal(rowOf(today()).leased, nanoOfUsd(1));
});

test('most calls ask nobody: a slice is a hundredth of the budget', async () => {
  const { instance, reserve, asks } = start();
  const budgets = instance();
  for (let call = 0; call < 10; call += 1) {
    (await reserve(budgets, CENT / 10))?.settle(CENT / 10);
  }
  assert.deepEqual(
    asks.map(({ want }) => want),
    [CENT],
  );
});

test('what is stored as spent is set aside no longer, and the rest comes back after a second', async () => {
  const { clock, instance, reserve, flush, rowOf, today } = start();
  const budgets = instance();
  (await reserve(budgets, CENT * 5))?.settle(CENT * 2);
  assert.deepEqual(rowOf(today()), { cost: 0, leased: CENT * 5 });
  flush(budgets, CENT * 2);
  assert.deepEqual(rowOf(today()), { cost: CENT * 2, leased: CENT * 3 });
  await clock.advance(1000);
  assert.deepEqual(rowOf(today()), { cost: CENT * 2, leased: 0 });
});

test('what an instance had set aside when it died stays spent', async () => {
  const { clock, instance, reserve, rowOf, today } = start();
  await reserve(instance(), CENT * 40);
  await clock.advance(10_000);
  const reserved = await Promise.all(Array.from({ length: 100 }, () => reserve(instance())));
  assert.equal(reserved.filter((each) => each !== undefined).length, 60);
  assert.equal(rowOf(today()).leased, nanoOfUsd(1));
});

test('a call that costs more than was set aside is paid by the next slice', async () => {
  const { instance, reserve, flush, rowOf, today } = start();
  const budgets = instance();
  (await reserve(budgets, CENT))?.settle(CENT * 30);
  assert.ok(await reserve(budgets, CENT));
  assert.equal(rowOf(today()).leased, CENT * 31);
  flush(budgets, CENT * 30);
  assert.deepEqual(rowOf(today()), { cost: CENT * 30, leased: CENT });
});

test('a call is charged to the period in which it ends', async () => {
  const { clock, instance, reserve, flush, rowOf, today } = start();
  const budgets = instance();
  const before = today();
  const reservation = await reserve(budgets, CENT * 5);
  await clock.advance(24 * 60 * 60 * 1000);
  reservation?.settle(CENT * 5);
  flush(budgets, CENT * 5);
  await clock.advance(2000);
  assert.deepEqual(rowOf(before), { cost: 0, leased: 0 });
  assert.deepEqual(rowOf(today()), { cost: CENT * 5, leased: 0 });
});

test('a refusal is not asked for again for a moment, and tells of the budget that is used up', async () => {
  const { clock, instance, reserve, asks, alerts } = start();
  const budgets = instance();
  const all = await reserve(budgets, nanoOfUsd(1));
  assert.equal(await reserve(budgets), undefined);
  const before = asks.length;
  assert.equal(budgets.reserve('key', BUDGET, CENT), undefined);
  assert.equal(asks.length, before);
  all?.settle(nanoOfUsd(0.9));
  assert.deepEqual(
    alerts.map(({ percent }) => percent),
    [80],
  );
  await clock.advance(100);
  assert.ok(await reserve(budgets));
});

test('without the store what is held is used up, and then the call is refused', async () => {
  const { instance, reserve, goAway } = start();
  const budgets = instance();
  assert.ok(await reserve(budgets, CENT / 2));
  goAway();
  assert.ok(await reserve(budgets, CENT / 2));
  await assert.rejects(reserve(budgets, CENT / 2), { code: 'STORAGE_UNAVAILABLE' });
});

test('what a batch did not use is free again for every instance', async () => {
  const { clock, instance, reserve, rowOf, today, flush } = start();
  const [one, two] = [instance(), instance()];
  (await reserve(one, 80 * CENT))?.settle(80 * CENT);
  flush(one, 80 * CENT);
  assert.equal(await reserve(two, 40 * CENT), undefined);
  rowOf(today()).cost -= 50 * CENT;
  two.correct('key', today(), -50 * CENT);
  // At once, although it was refused a moment ago.
  (await reserve(two, 40 * CENT))?.settle(5 * CENT);
  flush(two, 5 * CENT);
  await clock.advance(5000);
  assert.deepEqual(rowOf(today()), { cost: 35 * CENT, leased: 0 });
  assert.notEqual(await reserve(one, 65 * CENT), undefined);
  assert.equal(await reserve(two, CENT), undefined, 'and not more');
});
