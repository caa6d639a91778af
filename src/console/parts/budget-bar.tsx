import { moneyText } from './text.ts';

interface Budget {
  readonly usd: number;
  readonly period: 'day' | 'month' | 'total';
}

export const PERIODS = { day: 'a day', month: 'a month', total: 'in all' } as const;

/** `$20.00 a month`. */
export function budgetText({ usd, period }: Budget): string {
  return `${moneyText(usd)} ${PERIODS[period]}`;
}

/** What is spent of a budget, in figures and as a bar. */
export function BudgetBar({ spent, budget }: { readonly spent: number; readonly budget: Budget }) {
  const { usd } = budget;
  return (
    <>
      {moneyText(spent)} of {budgetText(budget)} spent{' '}
      <meter aria-label="Spent of the budget" max={usd === 0 ? 1 : usd} high={usd * 0.9} value={Math.min(spent, usd)} />
    </>
  );
}
