import { createSessionCheck } from '../../src/accounts/login/session-check.ts';
import { createSessionStore } from '../../src/accounts/storage/session-store.ts';
import { createUserStore } from '../../src/accounts/storage/user-store.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { emailOf, SESSIONS, seedAccounts, sessionTokenOf } from '../../test/kit/accounts/seed-accounts.ts';
import { createScope } from '../../test/kit/create-scope.ts';
import { temporaryFolder } from '../../test/kit/running-program.ts';
import { startAccountsServer } from './accounts-server.ts';

/** What one operation took in microseconds, one entry for each round. */
export interface OperationCost {
  readonly name: string;
  readonly few: number[];
  readonly many: number[];
}

export interface GrowthBench {
  readonly costs: readonly OperationCost[];
  /** Each call of the metrics, with the many users, in milliseconds. */
  readonly metricsMs: readonly number[];
}

export interface GrowthOptions {
  readonly few: number;
  readonly many: number;
  readonly rounds: number;
  readonly metricsUsers: number;
  readonly metricsCalls: number;
}

interface Operation {
  readonly name: string;
  /** How many make up a round. */
  readonly times: number;
  run(installation: Installation): Promise<void>;
}

type Installation = Awaited<ReturnType<typeof open>>;

const OPERATIONS: readonly Operation[] = [
  { name: 'session check', times: 2000, run: ({ check, anyone }) => check(anyone()) },
  { name: 'user by e-mail', times: 2000, run: ({ findUser, anyone }) => findUser(anyone()) },
  {
    name: '`GET session`',
    times: 300,
    run: ({ get, anyone }) => get('session', sessionTokenOf(anyone())),
  },
  { name: '`GET admin/users`, first page', times: 60, run: ({ get, root }) => get('admin/users', root) },
  { name: '`GET admin/audit`, first page', times: 60, run: ({ get, root }) => get('admin/audit', root) },
];

/** The same operations with few and with many users, in turn; and the metrics over many. */
export async function benchGrowth(options: GrowthOptions): Promise<GrowthBench> {
  const scope = createScope();
  try {
    const few = await open(scope, options.few);
    const many = await open(scope, options.many);
    const metered = options.metricsUsers === options.many ? many : await open(scope, options.metricsUsers);
    const costs = OPERATIONS.map(({ name }) => ({ name, few: [] as number[], many: [] as number[] }));
    for (let round = -1; round < options.rounds; round += 1) {
      for (const [index, operation] of OPERATIONS.entries()) {
        const taken = { few: await costOf(operation, few), many: await costOf(operation, many) };
        // The first round fills caches.
        if (round < 0) continue;
        costs[index]?.few.push(taken.few);
        costs[index]?.many.push(taken.many);
      }
    }
    const metricsMs: number[] = [];
    for (let call = 0; call < options.metricsCalls; call += 1) {
      const started = performance.now();
      await metered.get('admin/users/metrics', metered.root);
      metricsMs.push(performance.now() - started);
    }
    return { costs, metricsMs };
  } finally {
    await scope.end();
  }
}

async function open(scope: ReturnType<typeof createScope>, users: number) {
  const folder = await temporaryFolder(scope);
  await seedAccounts({ folder, users });
  const { url, database, close } = await startAccountsServer(folder);
  scope.after(close);
  const store = createSessionStore(database);
  const checkSession = createSessionCheck({
    store,
    settings: () => ({ sessions: SESSIONS }),
    clock: systemClock,
    seen: { add: () => true },
  });
  const userStore = createUserStore(database);
  return {
    root: sessionTokenOf(users - 1),
    anyone: () => systemRandomness.below(users),
    async check(index: number) {
      if ((await checkSession(sessionTokenOf(index), 'bearer')) === undefined) throw new Error('a session is gone');
    },
    async findUser(index: number) {
      if ((await userStore.byEmail(emailOf(index))) === undefined) throw new Error('a user is gone');
    },
    async get(path: string, token: string) {
      const answer = await fetch(`${url}/api/auth/${path}`, { headers: { authorization: `Bearer ${token}` } });
      await answer.arrayBuffer();
      if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    },
  };
}

async function costOf({ times, run }: Operation, installation: Installation): Promise<number> {
  const started = performance.now();
  for (let time = 0; time < times; time += 1) await run(installation);
  return ((performance.now() - started) * 1000) / times;
}
