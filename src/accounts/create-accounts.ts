import type { HttpSurface } from '../platform/http/surface.ts';
import { type AccountsOptions, createAccountsCore } from './accounts-core.ts';
import { AccountError } from './contract/account-error.ts';
import { accountsErrorBody, accountsErrors } from './errors.ts';
import { accountsRoutes } from './routes.ts';
import type { AccountsSettings } from './settings.ts';
import { createSweepStore } from './storage/sweep-store.ts';
import { startSweep } from './sweep.ts';

export interface Accounts {
  readonly surface: HttpSurface;
  reload(settings: AccountsSettings): void;
  stop(): Promise<void>;
}

export async function createAccounts(options: AccountsOptions): Promise<Accounts> {
  let { settings } = options;
  const core = createAccountsCore(options, () => settings);
  const sweep = startSweep({
    store: createSweepStore(options.database),
    clock: options.clock,
    auditRetentionMs: options.auditRetentionMs,
    onError: (error) => options.logger.warn({ err: error }, 'what has ended was not removed'),
  });
  return {
    surface: {
      name: 'accounts',
      title: 'Accounts',
      prefixes: ['/api/auth', '/api/agent-server', '/api/admin', '/api/billing', '/setup'],
      routes: accountsRoutes(core),
      upgrades: [],
      errors: accountsErrors,
      errorSchema: AccountError,
      errorBody: accountsErrorBody,
      // Everything that is worth something asks for a session or an agent's token.
      isOpen: () => false,
    },
    reload(next) {
      settings = next;
    },
    async stop() {
      await sweep.stop();
      await core.stop();
    },
  };
}
