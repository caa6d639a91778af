import { join } from 'node:path';
import { createJobReports, type JobReports } from '../../src/bridge/jobs/job-reports.ts';
import { principalOf } from '../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../src/bridge/storage/bridge-schema.ts';
import { createJobReportStore } from '../../src/bridge/storage/job-report-store.ts';
import { createJobDeliveryStore, createJobStore, type JobStore } from '../../src/bridge/storage/job-store.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import { endedRow, waitingJob } from '../../test/kit/bridge/job-rows.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { type Scope, temporaryFolder } from '../../test/kit/running-program.ts';

/** Microseconds for one call, round by round, with few and with many jobs stored. */
export interface GrowthBench {
  readonly few: Readonly<Record<Call, readonly number[]>>;
  readonly many: Readonly<Record<Call, readonly number[]>>;
}

type Call = 'get' | 'list' | 'stats' | 'key';

const CALLS: readonly Call[] = ['get', 'list', 'stats', 'key'];
const WRITTEN_AT_ONCE = 2000;
const OWNER = 'main';

export async function benchGrowth(options: {
  readonly few: number;
  readonly many: number;
  readonly rounds: number;
  readonly callsPerRound: number;
}): Promise<GrowthBench> {
  const scope = createScope();
  const empty = (): Record<Call, number[]> => ({ get: [], list: [], stats: [], key: [] });
  const result = { few: empty(), many: empty() };
  try {
    const stores = { few: await openFilled(scope, options.few), many: await openFilled(scope, options.many) };
    for (let round = -1; round < options.rounds; round += 1) {
      for (const size of ['few', 'many'] as const) {
        for (const name of CALLS) {
          const us = await stores[size].time(name, options.callsPerRound);
          // The first round warms up.
          if (round >= 0) result[size][name].push(us);
        }
      }
    }
    return result;
  } finally {
    await scope.end();
  }
}

async function openFilled(scope: Scope, count: number) {
  const file = join(await temporaryFolder(scope), 'bridge.db');
  const location = { engine: 'sqlite', file } as const;
  const definition = { name: 'bridge', migrations: bridgeMigrations, clock: systemClock };
  const database = await openDatabase<BridgeSchema>({ ...definition, location });
  scope.after(() => database.close());
  const jobs = createJobStore(database);
  const ids = await fill(jobs, count);
  const reports = createJobReports({
    jobs,
    reports: createJobReportStore(database),
    deliveries: createJobDeliveryStore(database),
    clock: systemClock,
  });
  const calls = callsOf(jobs, reports, ids);
  return {
    async time(name: Call, times: number): Promise<number> {
      const start = performance.now();
      for (let index = 0; index < times; index += 1) await calls[name](index);
      return ((performance.now() - start) * 1000) / times;
    },
  };
}

function callsOf(
  jobs: JobStore,
  reports: JobReports,
  ids: readonly string[],
): Readonly<Record<Call, (index: number) => Promise<unknown>>> {
  return {
    // A large prime step visits jobs all over the table.
    get: (index) => reports.get(principalOf(OWNER), ids[(index * 7919) % ids.length] ?? ''),
    list: () => reports.list(principalOf(OWNER), { limit: 20 }),
    stats: () => reports.statistics(principalOf(OWNER)),
    key: (index) => jobs.findByKey(OWNER, keyOf(ids[(index * 7919) % ids.length] ?? '')),
  };
}

const keyOf = (id: string) => `key of ${id}`;

/** Most jobs have ended, as in any bridge that has run for a while. */
async function fill(jobs: JobStore, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let from = 0; from < count; from += WRITTEN_AT_ONCE) {
    const rows = Array.from({ length: Math.min(WRITTEN_AT_ONCE, count - from) }, (_, index) => {
      const provider_id = index % 3 === 0 ? 'codex' : 'builtin';
      const row = (from + index) % 100 === 0 ? waitingJob({ provider_id }) : endedRow({ provider_id });
      return { ...row, idempotency_key: keyOf(row.id) };
    });
    await Promise.all(rows.map((row) => jobs.add(row)));
    ids.push(...rows.map(({ id }) => id));
  }
  return ids;
}
