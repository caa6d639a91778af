import type { HttpSurface } from '../platform/http/surface.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import { type AccountsOptions, createAccountsCore } from './accounts-core.ts';
import { createUserAdministration } from './administration/user-administration.ts';
import type { AuditEntry } from './audit.ts';
import { AccountError } from './contract/conventions.ts';
import { accountsControlMethods } from './control-methods.ts';
import { accountsErrorBody, accountsErrors } from './errors.ts';
import type { Owners } from './owners.ts';
import { accountsRoutes } from './routes.ts';
import type { AccountsSettings } from './settings.ts';
import { createSetup } from './setup/setup.ts';
import { createSweepStore } from './storage/sweep-store.ts';
import { startSweep } from './sweep.ts';

export interface Accounts {
  readonly surface: HttpSurface;
  readonly controls: readonly MethodRow<undefined>[];
  /** A token for the set-up page while there is no administrator. Asked for by a server that starts. */
  offerSetup(): Promise<string | undefined>;
  /** The people that keys belong to, for services that serve keys. */
  readonly owners: Pick<Owners, 'ownerOf' | 'watch'> & { record(entry: AuditEntry): Promise<void> };
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
    deleteClosed: createUserAdministration(core).removeDue,
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
      crossOrigin: { allows: core.originAllowed },
      // Everything that is worth something asks for a session or an agent's token.
      isOpen: () => false,
    },
    controls: accountsControlMethods(core),
    owners: { ownerOf: core.owners.ownerOf, watch: core.owners.watch, record: core.audit.record },
    offerSetup: createSetup(core).issueToken,
    reload(next) {
      settings = next;
      core.owners.forgetPlans();
    },
    async stop() {
      await sweep.stop();
      await core.stop();
    },
  };
}
