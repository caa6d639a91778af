import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { pino } from 'pino';
import { type Accounts, createAccounts } from '../../../src/accounts/create-accounts.ts';
import { createFlows, tokenKey } from '../../../src/accounts/flows.ts';
import type { CompletionKeys } from '../../../src/accounts/owners.ts';
import { createPasswordHasher } from '../../../src/accounts/passwords/passwords.ts';
import type { AccountsSettings } from '../../../src/accounts/settings.ts';
import { accountsMigrations } from '../../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../../src/accounts/storage/accounts-schema.ts';
import { createFlowStore } from '../../../src/accounts/storage/expiring-stores.ts';
import type { CallbackNetwork } from '../../../src/platform/callbacks/callback-post.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Database, DatabaseLocation } from '../../../src/platform/database/database.ts';
import { createHttpMetrics } from '../../../src/platform/http/http-metrics.ts';
import { createListener } from '../../../src/platform/http/listener.ts';
import type { Route } from '../../../src/platform/http/surface.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { createDispatch } from '../../../src/platform/json-rpc/method-table.ts';
import { createSecretBox } from '../../../src/platform/secrets/secret-keys.ts';
import { accountsSettingsOf as settingsThatApply } from '../../../src/system/settings.ts';
import { createFakeClock, type FakeClock } from '../fake-clock.ts';
import { handOnDatabaseThread } from '../hand-on-database-thread.ts';
import { openServiceDatabase, withLateCalls } from '../open-service-database.ts';
import { resolveTrestle } from '../resolve-trestle.ts';
import type { Scope } from '../running-program.ts';
import { type AccountsClient, createAccountsClient } from './accounts-client.ts';

export interface RunningAccounts extends AccountsClient {
  readonly url: string;
  readonly database: Database<AccountsSchema>;
  readonly clock: FakeClock;
  readonly folder: string;
  /** Everything that was logged, as text. */
  log(): string;
  /** Texts of the mails in the outbox, oldest first; of one recipient when named. */
  mails(to?: string): Promise<string[]>;
  /** As a login elsewhere ends: the code that is exchanged for a session. */
  issueExchangeCode(userId: string): Promise<{ readonly exchange_code: string; readonly verifier: string }>;
  /** What an operator's command asks for. */
  control<Result>(method: string, params?: Readonly<Record<string, unknown>>): Promise<Result>;
  /** The token of the set-up link that a server prints at its start. */
  offerSetup(): Promise<string | undefined>;
  readonly owners: Accounts['owners'];
  readonly announce: Accounts['announce'];
  /** Who brings a token, as the other services ask. */
  readonly identify: Accounts['identify'];
  readonly routes: readonly Route[];
  reload(settings: AccountsSettings): void;
  close(): Promise<void>;
}

export interface StartOptions {
  /** YAML for the part under `accounts:`, as one flow mapping: `{ trial_days: 0 }`. */
  readonly settings?: string;
  /** YAML for the part under `plans:`. */
  readonly plans?: string;
  /** Where the data lies; by default a new SQLite file. */
  readonly location?: DatabaseLocation;
  readonly clock?: FakeClock;
  readonly secretKey?: Uint8Array;
  readonly auditRetentionMs?: number;
  readonly folder?: string;
  /** Passwords are hashed as for users, which takes its time; otherwise weakly and at once. */
  readonly costlyPasswords?: boolean;
  /** The keys of users, where the completions service runs too. */
  readonly completionKeys?: CompletionKeys;
  /** Proxies whose X-Forwarded-* count: with `127.0.0.1/32` a test may come from anywhere. */
  readonly trustedProxies?: readonly string[];
  /** How webhooks reach their receivers, instead of the network of this machine. */
  readonly network?: CallbackNetwork;
}

const SECRET_KEY = new Uint8Array(32).fill(7);
const WEAK = { memoryCost: 64, timeCost: 1, parallelism: 1 };
const quickPasswords = createPasswordHasher({ parameters: WEAK, concurrency: availableParallelism() });

export function accountsSettingsOf(text: string, plans = '{}'): AccountsSettings {
  const resolution = resolveTrestle(`accounts: ${text}\nplans: ${plans}`);
  if (resolution.problems.length > 0) throw new Error(JSON.stringify(resolution.problems));
  return settingsThatApply(resolution.settings);
}

/** Accounts on a listener of this process: real HTTP, real database, a clock that the test moves. */
export async function startAccounts(scope: Scope, options: StartOptions = {}): Promise<RunningAccounts> {
  const folder = options.folder ?? (await mkdtemp(join(tmpdir(), 'trestle-accounts-')));
  const clock = options.clock ?? createFakeClock();
  const lines: string[] = [];
  const sink = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const logger = pino({ level: 'debug' }, sink);
  const location = options.location ?? { engine: 'sqlite', file: join(folder, 'accounts.db') };
  const database = await openServiceDatabase<AccountsSchema>({
    name: 'accounts',
    migrations: accountsMigrations,
    location,
    clock: systemClock,
  });
  const secretBox = createSecretBox([options.secretKey ?? SECRET_KEY], systemRandomness);
  const accounts = await createAccounts({
    settings: accountsSettingsOf(options.settings ?? '{}', options.plans),
    auditRetentionMs: options.auditRetentionMs ?? 0,
    database: withLateCalls(database),
    secretBox,
    dataDirectory: folder,
    ownUrl: () => url,
    clock,
    randomness: systemRandomness,
    makeId: createSortableIds(clock, systemRandomness),
    logger,
    ...(options.costlyPasswords === true ? {} : { passwords: quickPasswords }),
    completionKeys: () => options.completionKeys,
    ...(options.network === undefined ? {} : { network: options.network }),
  });
  const dispatch = createDispatch({ rows: accounts.controls });
  const listener = createListener({
    surfaces: [accounts.surface],
    address: { host: '127.0.0.1', port: 0 },
    trustedProxies: options.trustedProxies ?? ['127.0.0.1/32'],
    metrics: createHttpMetrics(),
    readinessChecks: { store: database.check },
    logger,
    clock: systemClock,
    randomness: systemRandomness,
    limits: { lingerMs: 200, closeTimeoutMs: 500 },
  });
  const { url } = await listener.start();
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => {
    closed ??= (async () => {
      await listener.close();
      await accounts.stop();
      if (location.engine === 'sqlite') handOnDatabaseThread();
      await database.close();
      if (options.folder === undefined) await rm(folder, { recursive: true, force: true });
    })();
    return closed;
  };
  scope.after(close);

  const mails = async (to?: string): Promise<string[]> => {
    const outbox = join(folder, 'outbox');
    const names = (await readdir(outbox).catch(() => [])).filter((name) => name.endsWith('.eml')).sort();
    const texts = await Promise.all(names.map((name) => readFile(join(outbox, name), 'utf8')));
    return to === undefined
      ? texts
      : texts.filter((text) => text.includes(`\nTo: ${to}\n`) || text.startsWith(`To: ${to}\n`));
  };
  return {
    url,
    database,
    clock,
    folder,
    log: () => lines.join(''),
    mails,
    async issueExchangeCode(userId) {
      const flows = createFlows({ store: createFlowStore(database), secretBox, clock, randomness: systemRandomness });
      const verifier = 'a verifier';
      const { token, statement } = flows.issue('exchange', { userId, data: { challenge: tokenKey(verifier) } });
      await database.write([statement]);
      return { exchange_code: token, verifier };
    },
    control: async <Result>(method: string, params = {}) => {
      const call = { method, params, id: '1', caller: undefined, signal: AbortSignal.timeout(10_000) };
      const nobodyListens = () => undefined;
      return (await dispatch({ ...call, requestId: 'test', notify: nobodyListens, accept: nobodyListens })) as Result;
    },
    offerSetup: accounts.offerSetup,
    owners: accounts.owners,
    announce: accounts.announce,
    identify: accounts.identify,
    routes: accounts.surface.routes,
    reload: accounts.reload,
    close,
    ...createAccountsClient({ url, clock, mails }),
  };
}
