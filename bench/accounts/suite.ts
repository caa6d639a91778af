import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import { benchGrowth } from './growth.bench.ts';
import { benchLogins } from './login.bench.ts';
import { benchSessionChecks } from './session-check.bench.ts';

const CHECKS_PER_SECOND = 10_000;
const MOST_GROWTH = 1.3;
const FEW = 1000;
const METRICS_USERS = 100_000;

/** What identity costs: logins, the check of every request, and both with many users. */
export async function accountsSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  return [
    { title: 'Accounts: logins', figures: await loginFigures(quick) },
    { title: 'Accounts: sessions', figures: await sessionFigures(quick) },
    { title: 'Accounts: growth', figures: await growthFigures(quick) },
  ];
}

async function loginFigures(quick: boolean): Promise<readonly Figure[]> {
  const rounds = quick ? { warmUpMs: 1000, rounds: 4, roundMs: 1000 } : { warmUpMs: 3000, rounds: 30, roundMs: 1500 };
  const { logins, raw, healthMs } = await benchLogins(rounds);
  return [
    ratioFigure({
      name: 'logins over HTTP against raw argon2id on all cores',
      unit: 'logins/s',
      ours: logins,
      bound: raw,
      goal: 0.9,
    }),
    limitFigure({ name: '`/healthz` meanwhile, p99', unit: 'ms', value: percentile(healthMs, 0.99), goal: 50 }),
  ];
}

async function sessionFigures(quick: boolean): Promise<readonly Figure[]> {
  const rounds = quick ? { warmUpMs: 1000, rounds: 6, roundMs: 250 } : { warmUpMs: 3000, rounds: 30, roundMs: 250 };
  const { ours, bound, checks, seenLate, revoked } = await benchSessionChecks(rounds);
  const rate = { goal: `≥ ${round(CHECKS_PER_SECOND)}/s`, result: '' };
  const share = median(ours.perSecond.map((value, index) => value / (bound.perSecond[index] ?? Number.NaN)));
  return [
    {
      ...rate,
      name: '`GET session` by bearer token on one process, beside a bare Fastify route of as many bytes',
      value: `${round(median(ours.perSecond))}/s (${round(median(ours.perCpuSecond))} per CPU s)`,
      bound: `${round(median(bound.perSecond))}/s (${round(median(bound.perCpuSecond))} per CPU s)`,
      result: share.toFixed(2),
      met: median(ours.perSecond) >= CHECKS_PER_SECOND,
    },
    {
      ...rate,
      name: 'the check itself',
      value: `${round(median(checks))}/s`,
      bound: '',
      met: median(checks) >= CHECKS_PER_SECOND,
    },
    limitFigure({
      name: `sessions that still count after their end, of ${revoked} ended under load`,
      unit: 'sessions',
      value: seenLate,
      goal: 0,
    }),
  ];
}

async function growthFigures(quick: boolean): Promise<readonly Figure[]> {
  const many = quick ? 100_000 : 1_000_000;
  const { costs, metricsMs } = await benchGrowth({
    few: FEW,
    many,
    rounds: quick ? 6 : 30,
    metricsUsers: METRICS_USERS,
    metricsCalls: quick ? 60 : 400,
  });
  return [
    ...costs.map(({ name, few, many: grown }) => {
      const growth = median(grown.map((value, index) => value / (few[index] ?? Number.NaN)));
      return {
        name: `${name}, with ${round(many)} users against ${round(FEW)}`,
        value: `${round(median(grown))} µs`,
        bound: `${round(median(few))} µs`,
        result: growth.toFixed(2),
        goal: `≤ ${MOST_GROWTH}`,
        met: growth <= MOST_GROWTH,
      };
    }),
    limitFigure({
      name: `metrics over ${round(METRICS_USERS)} users, p95`,
      unit: 'ms',
      value: percentile(metricsMs, 0.95),
      goal: 200,
    }),
  ];
}

function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
