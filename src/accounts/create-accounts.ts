import { type Clock, type Repeated, repeat } from '../platform/clock/clock.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import type { Identify, PersonTokens } from '../platform/identity/principal.ts';
import type { MethodRow } from '../platform/json-rpc/method-table.ts';
import { readPasswordFilter } from '../platform/secrets/password-filter.ts';
import { type AccountsCore, type AccountsOptions, createAccountsCore } from './accounts-core.ts';
import { createUserAdministration } from './administration/user-administration.ts';
import { type AuditEntry, auditName } from './audit.ts';
import { AccountError } from './contract/conventions.ts';
import { accountsControlMethods } from './control-methods.ts';
import { accountsErrorBody, accountsErrors } from './errors.ts';
import { DEVICE_LIFETIME_MS } from './login/session-opening.ts';
import type { Owners } from './owners.ts';
import { accountsRoutes } from './routes.ts';
import type { AccountsSettings } from './settings.ts';
import { createSetup } from './setup/setup.ts';
import { createSetupChoices } from './setup/setup-choices.ts';
import { createSweepStore, type SweepStore, type SweptTable } from './storage/expiring-stores.ts';
import { KEY_KEPT_MS } from './tokens/signed-tokens.ts';
import type { WebhookPost } from './webhooks/webhook-post.ts';

export interface Accounts {
  readonly surface: HttpSurface;
  readonly controls: readonly MethodRow<undefined>[];
  /** Returns a token for the set-up page while there is no administrator. A server calls it at its start. */
  offerSetup(): Promise<string | undefined>;
  /** Whether there is no administrator yet. */
  needsSetup(): Promise<boolean>;
  /** The people that keys belong to, for services that serve keys. */
  readonly owners: Pick<Owners, 'ownerOf' | 'watch'> & { record(entry: AuditEntry): Promise<void> };
  /** Posts an event of another service to the webhooks that subscribe to it, in the background. */
  readonly announce: WebhookPost['announce'];
  /** Finds out who sends a request, for all services. */
  readonly identify: Identify;
  readonly personTokens: PersonTokens;
  reload(settings: AccountsSettings): void;
  stop(): Promise<void>;
}

export async function createAccounts(options: AccountsOptions): Promise<Accounts> {
  let { settings } = options;
  const isBreached = await readPasswordFilter(settings.breached_passwords);
  const choices = createSetupChoices(options.database);
  await choices.read();
  const core = createAccountsCore(options, () => choices.apply(settings), isBreached, choices);
  const sweep = startSweep({
    store: createSweepStore(options.database),
    clock: options.clock,
    auditRetentionMs: options.auditRetentionMs,
    async deleteClosed() {
      await createUserAdministration(core).removeDue();
      // Another instance may have been the one that was set up.
      await choices.read();
    },
    onError: (error) => options.logger.warn({ err: error }, 'what has ended was not removed'),
  });
  return {
    surface: {
      name: 'accounts',
      title: 'Accounts',
      prefixes: ['/api/auth', '/api/agent-server', '/api/admin', '/api/billing', '/.well-known/jwks.json'],
      routes: accountsRoutes(core),
      upgrades: [],
      errors: accountsErrors,
      errorSchema: AccountError,
      errorBody: accountsErrorBody,
      crossOrigin: { allows: core.originAllowed },
      // Every row that returns or changes data requires a session or an agent's token.
      isOpen: () => false,
    },
    controls: accountsControlMethods(core),
    owners: {
      ownerOf: core.owners.ownerOf,
      watch: core.owners.watch,
      record: (entry) => recordOfOthers(core, entry),
    },
    announce: core.webhooks.announce,
    identify: core.identities.identify,
    personTokens: core.identities.personTokens,
    offerSetup: createSetup(core).issueToken,
    needsSetup: async () => !(await core.userAdministration.hasAdmin()),
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

/** Records an action of another service. The entry follows after the action, because a key is stored in another database. */
async function recordOfOthers({ database, audit, webhooks }: AccountsCore, given: AuditEntry): Promise<void> {
  const { actor = '', subject = '', details = {} } = given;
  const entry = { ...given, actor: auditName(actor), subject: auditName(subject) };
  if (given.event !== 'key.created') return audit.record(entry);
  const data = { keyId: String(details.key), owner: subject };
  await database.write([audit.statement(entry), ...webhooks.enqueue({ event: 'key.created', data })]);
  webhooks.wake();
}

interface SweepOptions {
  readonly store: SweepStore;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  /** How long audit records are kept; 0: for ever. */
  readonly auditRetentionMs: number;
  /** Deletes accounts whose owners asked for it and can no longer undo it. */
  deleteClosed(): Promise<void>;
  onError(error: unknown): void;
}

const EVERY_MS = 60_000;
/** Small, so that other writes hardly wait. */
const STEP_ROWS = 200;
const STEPS = 50;
const BILLING_KEPT_MS = 30 * 24 * 3_600_000;
const DELIVERIES_KEPT_MS = 7 * 24 * 3_600_000;

const EXPIRING: readonly SweptTable[] = [
  { table: 'sessions', key: ['id'], time: 'expires_at', keptMs: 0 },
  { table: 'session_tokens', key: ['token_hash'], time: 'expires_at', keptMs: 0 },
  { table: 'refresh_tokens', key: ['token_hash'], time: 'expires_at', keptMs: 0 },
  { table: 'flows', key: ['kind', 'key'], time: 'expires_at', keptMs: 0 },
  { table: 'invitations', key: ['id'], time: 'expires_at', keptMs: 0 },
  { table: 'access_tokens', key: ['id'], time: 'expires_at', keptMs: 0 },
  { table: 'device_logins', key: ['code_hash'], time: 'expires_at', keptMs: 0 },
  { table: 'signing_keys', key: ['id'], time: 'created_at', keptMs: KEY_KEPT_MS },
  { table: 'limits', key: ['policy', 'key'], time: 'expires_at', keptMs: 0 },
  { table: 'devices', key: ['user_id', 'device_hash'], time: 'last_seen_at', keptMs: DEVICE_LIFETIME_MS },
  { table: 'webhook_deliveries', key: ['id'], time: 'created_at', keptMs: DELIVERIES_KEPT_MS },
  { table: 'billing_deliveries', key: ['digest'], time: 'received_at', keptMs: BILLING_KEPT_MS },
];

/** Deletes expired rows every minute, in small steps. It only saves space, because expired rows are never found. */
export function startSweep({ store, clock, auditRetentionMs, deleteClosed, onError }: SweepOptions): Repeated {
  const audit: SweptTable = { table: 'audit', key: ['id'], time: 'at', keptMs: auditRetentionMs };
  const tables = auditRetentionMs === 0 ? EXPIRING : [...EXPIRING, audit];
  async function sweepOnce(stopped: AbortSignal): Promise<void> {
    for (const table of tables) {
      for (let step = 0; step < STEPS && !stopped.aborted; step += 1) {
        if ((await store.remove(table, clock.now(), STEP_ROWS)) < STEP_ROWS) break;
      }
    }
    if (!stopped.aborted) await deleteClosed();
  }

  return repeat({ clock, pauseMs: EVERY_MS, work: sweepOnce, onError });
}
