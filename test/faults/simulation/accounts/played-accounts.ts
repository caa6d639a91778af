import { createAccountsCore } from '../../../../src/accounts/accounts-core.ts';
import { startSweep } from '../../../../src/accounts/create-accounts.ts';
import type { PasswordHasher } from '../../../../src/accounts/passwords/passwords.ts';
import { accountsRoutes } from '../../../../src/accounts/routes.ts';
import type { AccountsSettings } from '../../../../src/accounts/settings.ts';
import type { AccountsSchema } from '../../../../src/accounts/storage/accounts-schema.ts';
import { createSweepStore } from '../../../../src/accounts/storage/expiring-stores.ts';
import { type Clock, pause } from '../../../../src/platform/clock/clock.ts';
import type { Randomness } from '../../../../src/platform/clock/randomness.ts';
import type { Database } from '../../../../src/platform/database/database.ts';
import type { Reply, RequestHead } from '../../../../src/platform/http/surface.ts';
import type { MakeId } from '../../../../src/platform/ids/sortable-id.ts';
import type { Logger } from '../../../../src/platform/log/logger.ts';
import { createSecretBox } from '../../../../src/platform/secrets/secret-keys.ts';

export interface AccountRequest {
  readonly method: string;
  readonly path: string;
  /** Where it comes from. */
  readonly address: string;
  readonly token?: string;
  readonly body?: object;
}

/** Accounts behind its table of routes: guards and handlers as they are, and no HTTP. */
export interface PlayedAccounts {
  request(request: AccountRequest): Promise<Readonly<Record<string, unknown>>>;
  stop(): Promise<void>;
}

export interface PlayedAccountsOptions {
  readonly database: Database<AccountsSchema>;
  readonly settings: AccountsSettings;
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly makeId: MakeId;
  readonly logger: Logger;
  /** How long it takes to hash a password. */
  hashMs(): number;
}

const SECRET_KEY = new Uint8Array(32).fill(7);

export function openPlayedAccounts(options: PlayedAccountsOptions): PlayedAccounts {
  const { database, settings, clock, randomness, logger } = options;
  const core = createAccountsCore(
    {
      ...options,
      auditRetentionMs: 0,
      secretBox: createSecretBox([SECRET_KEY], randomness),
      dataDirectory: '/nowhere',
      ownUrl: () => 'https://accounts.example',
      passwords: createPlayedHasher(options),
      // Nobody reads mail here, and it would lie on a real disk.
      mailer: { send: async () => undefined },
    },
    () => settings,
    () => false,
  );
  const routes = accountsRoutes(core);
  const sweep = startSweep({
    store: createSweepStore(database),
    clock,
    auditRetentionMs: 0,
    deleteClosed: async () => undefined,
    onError: (error) => logger.warn({ err: error }, 'what has ended was not removed'),
  });
  return {
    async request({ method, path, address, token, body }) {
      const route = routes.find((one) => one.method === method && one.path === path);
      if (route === undefined) throw new Error(`there is no ${method} ${path}`);
      const head = headOf(method, path, address, token);
      const caller = await route.guard(head);
      const answer = await route.handle({ head, caller, body, params: {}, query: {}, reply });
      return (answer ?? {}) as Readonly<Record<string, unknown>>;
    },
    async stop() {
      await sweep.stop();
      await core.stop();
    },
  };
}

/** The password in clear, and the time that hashing takes. */
function createPlayedHasher({ clock, hashMs }: PlayedAccountsOptions): PasswordHasher {
  return {
    async hash(password) {
      await pause(clock, hashMs());
      return `played:${password}`;
    },
    async verify(hash, password) {
      await pause(clock, hashMs());
      return hash === `played:${password}`;
    },
    isOutdated: () => false,
  };
}

/** Status and cookies go nowhere. */
const reply = { header: () => reply, code: () => reply } as unknown as Reply;

function headOf(method: string, path: string, address: string, token?: string): RequestHead {
  return {
    requestId: 'played',
    method,
    path,
    query: new URLSearchParams(),
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    address,
    peerAddress: address,
    secure: true,
  };
}
