import { type Figure, limitFigure, median, ratioFigure, round, type Table } from '../report/figure.ts';
import type { Rounds } from '../report/take-turns.ts';
import { benchCredentials } from './credentials.bench.ts';
import { benchGrowth } from './growth.bench.ts';
import { benchLogins } from './login.bench.ts';
import { benchSessionChecks } from './session-check.bench.ts';

const CHECKS_PER_SECOND = 10_000;
const MAX_GROWTH = 1.3;
const MIN_SHARE_OF_ARGON = 0.9;
const MIN_SHARE_OF_KEY = 0.87;
const MIN_SHARE_OF_BARE_ROUTE = 0.7;
const MAX_OVER_BARE_ROUTE_US = 25;
const FEW = 1000;
const METRICS_USERS = 100_000;

/** How long each measurement takes: a full run, and a short one. */
const PARAMETERS = {
  full: {
    logins: { warmUpMs: 3000, rounds: 20, roundMs: 1500 },
    sessions: { warmUpMs: 3000, rounds: 30, roundMs: 250 },
    calls: { warmUpMs: 3000, rounds: 30, roundMs: 250 },
    growth: { many: 1_000_000, rounds: 30, metricsCalls: 400 },
  },
  quick: {
    logins: { warmUpMs: 4000, rounds: 4, roundMs: 1000 },
    sessions: { warmUpMs: 1000, rounds: 6, roundMs: 250 },
    calls: { warmUpMs: 1000, rounds: 4, roundMs: 250 },
    growth: { many: 100_000, rounds: 4, metricsCalls: 60 },
  },
};

/** What identity costs: logins, and the check of every request. */
export async function accountsSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { logins, sessions, calls } = quick ? PARAMETERS.quick : PARAMETERS.full;
  return [
    { title: 'Accounts: logins', figures: await loginFigures(logins) },
    { title: 'Accounts: sessions', figures: await sessionFigures(sessions) },
    { title: 'Accounts: calls by credential', figures: await callFigures(calls) },
  ];
}

/** What each look-up costs with a million people, as many tokens and keys, and 100,000 teams. */
export async function growthSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const { growth } = quick ? PARAMETERS.quick : PARAMETERS.full;
  return [{ title: 'Accounts: growth', figures: await growthFigures(growth) }];
}

async function loginFigures(rounds: Rounds): Promise<readonly Figure[]> {
  const { logins, raw, healthMs } = await benchLogins(rounds);
  return [
    ...[...logins].map(([start, ours]) =>
      ratioFigure({
        name: `logins over HTTP, started by ${start}, against raw argon2id on all cores`,
        unit: 'logins/s',
        ours,
        bound: raw,
        goal: MIN_SHARE_OF_ARGON,
      }),
    ),
    limitFigure({ name: '`/healthz` meanwhile, p99', unit: 'ms', value: percentile(healthMs, 0.99), goal: 50 }),
  ];
}

async function sessionFigures(rounds: Rounds): Promise<readonly Figure[]> {
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
      amounts: { ours: median(ours.perSecond), bound: median(bound.perSecond), goal: CHECKS_PER_SECOND },
    },
    ratioFigure({
      name: 'the same against the bare route, by processor time of the server',
      unit: 'calls per CPU s',
      ours: ours.perCpuSecond,
      bound: bound.perCpuSecond,
      goal: MIN_SHARE_OF_BARE_ROUTE,
    }),
    limitFigure({
      name: 'processor time of the check over that of the bare route',
      unit: 'µs',
      value: median(ours.perCpuSecond.map((rate, at) => 1e6 / rate - 1e6 / (bound.perCpuSecond[at] ?? Number.NaN))),
      goal: MAX_OVER_BARE_ROUTE_US,
    }),
    {
      ...rate,
      name: 'the check itself',
      value: `${round(median(checks))}/s`,
      bound: '',
      met: median(checks) >= CHECKS_PER_SECOND,
      amounts: { ours: median(checks), goal: CHECKS_PER_SECOND },
    },
    limitFigure({
      name: `sessions that still count after their end, of ${revoked} ended under load`,
      unit: 'sessions',
      value: seenLate,
      goal: 0,
    }),
  ];
}

/** A call with another credential costs at most 15 % more than one with a key: as many per second, divided by 1.15. */
async function callFigures(rounds: Rounds): Promise<readonly Figure[]> {
  const { calls } = await benchCredentials(rounds);
  return Object.entries(calls).map(([name, { ours, bound }]) =>
    ratioFigure({
      name: `a chat completion with ${name}, against one with a key`,
      unit: 'calls per CPU s',
      ours: ours.perCpuSecond,
      bound: bound.perCpuSecond,
      goal: MIN_SHARE_OF_KEY,
    }),
  );
}

async function growthFigures(options: typeof PARAMETERS.full.growth): Promise<readonly Figure[]> {
  const { costs, metricsMs } = await benchGrowth({ ...options, few: FEW, metricsUsers: METRICS_USERS });
  return [
    ...costs.map(({ name, few, many: grown }) => {
      const growth = median(grown.map((value, index) => value / (few[index] ?? Number.NaN)));
      return {
        name: `${name}, with ${round(options.many)} users against ${round(FEW)}`,
        value: `${round(median(grown))} µs`,
        bound: `${round(median(few))} µs`,
        result: growth.toFixed(2),
        goal: `≤ ${MAX_GROWTH}`,
        met: growth <= MAX_GROWTH,
        amounts: { ours: median(grown), bound: median(few), goal: MAX_GROWTH * median(few) },
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
