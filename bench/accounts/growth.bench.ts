import { join } from 'node:path';
import { SESSION_COOKIE } from '../../src/accounts/cookies.ts';
import { tokenKey } from '../../src/accounts/flows.ts';
import { createSessionCheck } from '../../src/accounts/login/session-check.ts';
import { createCredentialStore } from '../../src/accounts/storage/credential-store.ts';
import { createSessionStore } from '../../src/accounts/storage/session-store.ts';
import { createTeamStore } from '../../src/accounts/storage/team-store.ts';
import { createAccessTokenStore } from '../../src/accounts/storage/token-stores.ts';
import { createOwnerStore, createUserStore } from '../../src/accounts/storage/user-store.ts';
import { keyDigest } from '../../src/completions/keys/key-register.ts';
import { completionsMigrations } from '../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../src/completions/storage/completions-schema.ts';
import { createKeyStore } from '../../src/completions/storage/key-store.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { openDatabase } from '../../src/platform/database/open-database.ts';
import {
  accessTokenOf,
  emailOf,
  keyOf,
  SESSIONS,
  seedAccounts,
  sessionTokenOf,
  teamOf,
} from '../../test/kit/accounts/seed-accounts.ts';
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

/** Lookups are measured as they are for what is not in memory: with few users everything would be. */
const OPERATIONS: readonly Operation[] = [
  { name: 'session check', times: 2000, run: ({ check, anyone }) => check(anyone()) },
  {
    name: 'login, without its hash: user by e-mail, and password',
    times: 2000,
    run: ({ findUser, anyone }) => findUser(anyone()),
  },
  { name: 'token check', times: 2000, run: ({ findToken, anyone }) => findToken(anyone()) },
  { name: 'key check', times: 2000, run: ({ findKey, anyone }) => findKey(anyone()) },
  { name: 'team lookup', times: 2000, run: ({ findTeam, anyone }) => findTeam(anyone()) },
  {
    name: '`GET session` by cookie',
    times: 300,
    run: ({ get, anyone }) => get('session', { cookie: `${SESSION_COOKIE}=${sessionTokenOf(anyone())}` }),
  },
  { name: '`GET admin/users`, first page', times: 60, run: ({ get, root }) => get('admin/users', root) },
  { name: '`GET admin/users`, page in the middle', times: 60, run: ({ get, root, half }) => get(half.users, root) },
  { name: '`GET admin/audit`, first page', times: 60, run: ({ get, root }) => get('admin/audit', root) },
  { name: '`GET admin/audit`, page in the middle', times: 60, run: ({ get, root, half }) => get(half.audit, root) },
  { name: '`GET teams?all=1`, first page', times: 60, run: ({ get, root }) => get('teams?all=1', root) },
  { name: '`GET teams?all=1`, page in the middle', times: 60, run: ({ get, root, half }) => get(half.teams, root) },
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
  await seedAccounts({ folder, users, isWhole: true, passwordHash: HASH });
  const { url, database, close } = await startAccountsServer(folder);
  scope.after(close);
  const completions = await openDatabase<CompletionsSchema>({
    name: 'completions',
    migrations: completionsMigrations,
    location: { engine: 'sqlite', file: join(folder, 'completions.db') },
    clock: systemClock,
  });
  scope.after(() => completions.close());
  const checkSession = createSessionCheck({
    store: createSessionStore(database),
    settings: () => ({ sessions: SESSIONS }),
    clock: systemClock,
    seen: { add: () => true },
  });
  const userStore = createUserStore(database);
  const tokens = createAccessTokenStore(database);
  const owners = createOwnerStore(database);
  const keys = createKeyStore(completions);
  const teams = createTeamStore(database);
  const credentials = createCredentialStore(database);
  const middle = await userStore.byEmail(emailOf(Math.floor(users / 2)));
  // Ids begin with the time, and the audit entry of a user was made right after the user.
  const idOf = (prefix: string) => `${prefix}${middle?.id.slice(middle.id.indexOf('_') + 1)}`;
  const found = (what: string, value: unknown) => {
    if (value === undefined) throw new Error(`${what} is gone`);
  };
  return {
    root: { authorization: `Bearer ${sessionTokenOf(users - 1)}` },
    half: {
      users: `admin/users?cursor=${middle?.id}`,
      audit: `admin/audit?cursor=${idOf('aud_')}`,
      teams: `teams?all=1&cursor=${teamOf(Math.floor(users / 2))}`,
    },
    anyone: () => systemRandomness.below(users),
    check: async (index: number) => found('a session', await checkSession(sessionTokenOf(index), 'bearer')),
    async findUser(index: number) {
      const user = await userStore.byEmail(emailOf(index));
      found('a password', await credentials.find('password', user?.id ?? ''));
    },
    async findToken(index: number) {
      const token = await tokens.byHash(tokenKey(accessTokenOf(index)));
      found('the owner of a token', await owners.facts(token?.owner ?? ''));
    },
    findKey: async (index: number) => found('a key', await keys.byDigest(keyDigest(keyOf(index)))),
    async findTeam(index: number) {
      const id = teamOf(index);
      found('a team', (await Promise.all([teams.byId(id), teams.roleOf(id, `usr_${index}`)]))[0]);
    },
    async get(path: string, headers: Readonly<Record<string, string>>) {
      const answer = await fetch(`${url}/api/auth/${path}`, { headers: { ...SAME_ORIGIN, ...headers } });
      await answer.arrayBuffer();
      if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    },
  };
}

/** As long as a real one; nobody logs in here. */
const HASH = `$argon2id$v=19$m=19456,t=2,p=1$${'s'.repeat(22)}$${'h'.repeat(43)}`;
/** As a page of our own asks. */
const SAME_ORIGIN = { 'sec-fetch-site': 'same-origin' };

async function costOf({ times, run }: Operation, installation: Installation): Promise<number> {
  const started = performance.now();
  for (let time = 0; time < times; time += 1) await run(installation);
  return ((performance.now() - started) * 1000) / times;
}
