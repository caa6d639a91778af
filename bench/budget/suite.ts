import { Session } from 'node:inspector/promises';
import { createScope } from '../../test/kit/create-scope.ts';
import type { Scope } from '../../test/kit/running-program.ts';
import type { Table } from '../report/figure.ts';
import { type CpuProfile, sharesOf } from './areas.ts';
import { type Bound, budgetTable, type Goals, type Measured } from './budget-table.ts';
import { type Inspection, inspectProgram } from './inspect-program.ts';
import {
  type Load,
  startChat,
  startLogin,
  startSessionCheck,
  startStream,
  startSubmit,
  startTurn,
  startUpdate,
  type Workload,
} from './workloads.ts';

/** What an area of a relayed call may take, warm. Together they are the 25 µs that we may add to what the raw proxy takes. */
const CHAT_AREAS = {
  routing: 3,
  guard: 1.5,
  parsing: 5,
  limits: 3,
  'upstream headers': 3,
  relay: 3,
  metering: 3.5,
  log: 1,
  metrics: 0.5,
  scheduling: 1.5,
};

interface Scenario {
  readonly title: string;
  readonly unit: string;
  start(scope: Scope): Promise<Workload>;
  readonly warm: Goals;
  readonly cold: Goals;
}

const SCENARIOS: readonly Scenario[] = [
  {
    title: 'a relayed JSON call',
    unit: 'call',
    start: startChat,
    warm: { added: 25, rate: 0.75, areas: CHAT_AREAS },
    cold: { added: 60, rate: 0.6 },
  },
  { title: 'a stream', unit: 'stream', start: startStream, warm: { rate: 0.95 }, cold: { rate: 0.85 } },
  { title: 'a turn', unit: 'turn', start: startTurn, warm: { addedMs: 1.5 }, cold: { addedMs: 2.5 } },
  { title: 'an update', unit: 'update', start: startUpdate, warm: { rate: 0.75 }, cold: { rate: 0.5 } },
  { title: 'a session check', unit: 'check', start: startSessionCheck, warm: { added: 25 }, cold: {} },
  { title: 'a durable submit', unit: 'submit', start: startSubmit, warm: {}, cold: {} },
  { title: 'a login', unit: 'login', start: startLogin, warm: { rate: 0.9 }, cold: { rate: 0.85 } },
];

/** Cold is the time after the program says that it is ready, warm what comes after so much of work. */
const PARAMETERS = {
  full: { coldMs: 10_000, warmUpMs: 120_000, rounds: 20, roundMs: 500, profileMs: 10_000 },
  quick: { coldMs: 3_000, warmUpMs: 5_000, rounds: 6, roundMs: 400, profileMs: 3_000 },
};
const COLD_ROUND_MS = 500;

type Parameters = typeof PARAMETERS.full;

/** What a call costs, area by area, in the program as it is started from sources. */
export async function budgetSuite({ quick }: { quick: boolean }): Promise<readonly Table[]> {
  const tables: Table[] = [];
  for (const scenario of SCENARIOS)
    tables.push(...(await budgetsOf(scenario, quick ? PARAMETERS.quick : PARAMETERS.full)));
  return tables;
}

async function budgetsOf(scenario: Scenario, parameters: Parameters): Promise<readonly Table[]> {
  const { title, unit, warm, cold } = scenario;
  const coldShares = await inScope(async (scope) => {
    const { program, ours } = await scenario.start(scope);
    const inspection = await inspectProgram(scope, program);
    return sharesOf(await inspection.profile(() => ours(parameters.coldMs)));
  });
  return inScope(async (scope) => {
    const { program, ours, bound } = await scenario.start(scope);
    const inspection = await inspectProgram(scope, program);
    const inCold = await measure(inspection, ours, bound, parameters.coldMs / 2 / COLD_ROUND_MS, COLD_ROUND_MS);
    // Both sides get warm, in turns that are shorter than any connection may wait.
    await measure(inspection, ours, bound, Math.ceil(parameters.warmUpMs / 2 / 1000), 1000);
    const inWarm = await measure(inspection, ours, bound, parameters.rounds, parameters.roundMs);
    const shares = sharesOf(await inspection.profile(() => ours(parameters.profileMs)));
    const boundShares = bound?.isServer && sharesOf(await profileHere(() => bound.load(parameters.profileMs)));
    const warmBound = inWarm.bound && { ...inWarm.bound, shares: boundShares };
    return [
      budgetTable({
        title: `Budget: ${title}, warm`,
        unit,
        ours: { ...inWarm.ours, shares },
        bound: warmBound,
        goals: warm,
      }),
      budgetTable({
        title: `Budget: ${title}, cold`,
        unit,
        ours: { ...inCold.ours, shares: coldShares },
        bound: inCold.bound,
        goals: cold,
      }),
    ];
  });
}

interface Sides {
  readonly ours: Omit<Measured, 'shares'>;
  readonly bound: Bound | undefined;
}

/** Rounds of both sides in turn. Nothing is sampled in them, so that sampling costs nothing of what is counted. */
async function measure(
  inspection: Inspection,
  load: Load,
  bound: Workload['bound'],
  rounds: number,
  roundMs: number,
): Promise<Sides> {
  const ours = { all: [] as number[], main: [] as number[], perSecond: [] as number[] };
  const other = { all: [] as number[], main: [] as number[], perSecond: [] as number[] };
  for (let round = 0; round < rounds; round += 1) {
    if (bound !== undefined) {
      const [all, main] = [process.cpuUsage(), process.threadCpuUsage()];
      const { calls, perSecond } = await counted(bound.load, roundMs);
      other.all.push(sum(process.cpuUsage(all)) / calls);
      other.main.push(sum(process.threadCpuUsage(main)) / calls);
      other.perSecond.push(perSecond);
    }
    const before = await inspection.processorTime();
    const { calls, perSecond } = await counted(load, roundMs);
    const after = await inspection.processorTime();
    ours.all.push((after.all - before.all) / calls);
    ours.main.push((after.main - before.main) / calls);
    ours.perSecond.push(perSecond);
  }
  return { ours, bound: bound && { name: bound.name, ...other } };
}

function sum({ user, system }: NodeJS.CpuUsage): number {
  return user + system;
}

async function counted(load: Load, ms: number): Promise<{ calls: number; perSecond: number }> {
  const started = performance.now();
  const calls = await load(ms);
  return { calls, perSecond: (calls * 1000) / (performance.now() - started) };
}

/** The same for what works in this process. */
async function profileHere(work: () => Promise<unknown>): Promise<CpuProfile> {
  const session = new Session();
  session.connect();
  try {
    await session.post('Profiler.enable');
    await session.post('Profiler.start');
    await work();
    const { profile } = await session.post('Profiler.stop');
    return profile as CpuProfile;
  } finally {
    session.disconnect();
  }
}

async function inScope<Result>(run: (scope: Scope) => Promise<Result>): Promise<Result> {
  const scope = createScope();
  try {
    return await run(scope);
  } finally {
    await scope.end();
  }
}
