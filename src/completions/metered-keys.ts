import type { Clock } from '../platform/clock/clock.ts';
import type { Database } from '../platform/database/database.ts';
import { createFailureThrottle } from '../platform/http/failure-throttle.ts';
import type { FigureSource } from '../platform/http/http-metrics.ts';
import type { Route } from '../platform/http/surface.ts';
import type { OwnerOf, WatchOwners } from '../platform/identity/owner.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import type { PriceOf } from './apis/prices.ts';
import type { Admissions, KeyHolder } from './keys/admission.ts';
import { createBudgets } from './keys/budgets.ts';
import { createAdmissions } from './keys/create-admissions.ts';
import { createKeyLookup } from './keys/issued-key.ts';
import { createKeyAccess, type KeyAccess } from './keys/key-access.ts';
import {
  createKeyRegister,
  createOwnKeys,
  type KeyEvent,
  type KeyRegister,
  keyRoutes,
  type OwnKeys,
} from './keys/key-register.ts';
import { createCallFigures } from './metering/call-figures.ts';
import { createCallSpans } from './metering/call-spans.ts';
import { createUsageMeter } from './metering/usage-meter.ts';
import { createOwnUsage, createUsageReport, usageRoutes } from './metering/usage-report.ts';
import { startUsageRetention } from './metering/usage-retention.ts';
import type { CompletionsSettings } from './settings.ts';
import type { CompletionsSchema } from './storage/completions-schema.ts';
import { createKeyStore } from './storage/key-store.ts';
import { createUsageRetentionStore, createUsageStore } from './storage/usage-store.ts';

/** Keys, their limits and budgets, and what is recorded of their use: made together, because each needs the others. */
export interface MeteredKeys {
  readonly access: KeyAccess;
  readonly admissions: Admissions;
  readonly register: KeyRegister;
  /** The keys of users, for the service that knows users. */
  readonly ownKeys: OwnKeys;
  /** `/keys` and `/usage`, without and with `/v1`. */
  readonly routes: readonly Route<KeyHolder>[];
  readonly figures: readonly FigureSource[];
  reload(settings: Pick<CompletionsSettings, 'master_key'>): void;
  /** Stores and sends what is left. The last call must have been settled before. */
  stop(): Promise<void>;
}

export interface MeteredKeysOptions extends Runtime {
  readonly settings: Pick<CompletionsSettings, 'master_key' | 'store_content'>;
  readonly usageRetentionMs: number;
  /** Empty: no spans. */
  readonly otlpEndpoint: string;
  readonly programVersion: string;
  readonly database: Database<CompletionsSchema>;
  readonly priceOf: PriceOf;
  /** The people that keys belong to; undefined while this service runs alone. */
  owners?(): KeyOwners | undefined;
}

export interface KeyOwners {
  readonly ownerOf: OwnerOf;
  readonly watch: WatchOwners;
  /** Keeps what happened to a key in the audit log. */
  record(event: KeyEvent): Promise<void>;
}

/** Where several instances share a database, a revoked key works and a budget seems unspent for this long elsewhere. */
const SHARED_FRESH_MS = 1000;

export function createMeteredKeys(options: MeteredKeysOptions): MeteredKeys {
  const { settings, otlpEndpoint, database, priceOf, clock, randomness, makeId, logger } = options;
  const freshMs = database.engine === 'postgres' ? SHARED_FRESH_MS : Number.POSITIVE_INFINITY;
  const keyStore = createKeyStore(database);
  const usageStore = createUsageStore(database);
  const lookup = createKeyLookup({ store: keyStore, clock, freshMs });
  const record = async (event: KeyEvent): Promise<void> => {
    const { event: what, actor, subject: owner, details } = event;
    logger.info({ actor, owner, ...details }, what);
    await options.owners?.()?.record(event);
  };
  const register = createKeyRegister({ store: keyStore, clock, randomness, makeId, record, onRemoved: lookup.forget });

  const meter = createUsageMeter({
    store: usageStore,
    clock,
    makeId,
    onLost: logLosses(logger, clock),
  });
  const figures = createCallFigures(meter.figures);
  const warnOf = (message: string) => (error: unknown) => logger.warn({ err: error }, message);
  const spans =
    otlpEndpoint === ''
      ? undefined
      : createCallSpans({
          endpoint: otlpEndpoint,
          version: options.programVersion,
          clock,
          onError: warnOf('spans not sent'),
        });
  const budgets = createBudgets({ clock, readSpent: keyStore.spent, unstored: meter.unstored, freshMs });
  const admissions = createAdmissions({
    clock,
    budgets,
    priceOf,
    keepsContent: settings.store_content,
    observers: [meter.observe, figures.observe, ...(spans === undefined ? [] : [spans.observe])],
    onProblem: (error) => logger.error({ err: error }, 'a call was not settled as it should be'),
  });
  // The service that knows people is made after this one, and then stays.
  let stopWatching: (() => void) | undefined;
  const ownerOf: OwnerOf = (id) => {
    const owners = options.owners?.();
    stopWatching ??= owners?.watch((owner) => {
      if (owner.state !== 'active') admissions.endCallsOf(owner.id);
    });
    return owners?.ownerOf(id);
  };
  const access = createKeyAccess({
    settings,
    lookup,
    budgets,
    throttle: createFailureThrottle({ clock }),
    clock,
    ownerOf,
    onFlood: (address) => logger.warn({ address }, 'many wrong keys from one address'),
  });
  const retention = startUsageRetention({
    store: createUsageRetentionStore(database),
    clock,
    keepMs: options.usageRetentionMs,
    onError: warnOf('old usage not removed'),
  });
  const report = createUsageReport({ store: usageStore, flush: meter.flush, clock });

  return {
    access,
    admissions,
    register,
    ownKeys: createOwnKeys(
      register,
      createOwnUsage({ keys: keyStore, store: usageStore, flush: meter.flush, emptyLog: database.emptyLog }),
    ),
    routes: (['', '/v1'] as const).flatMap((prefix) => [
      ...keyRoutes(prefix, { guard: access.withMasterKey, register }),
      ...usageRoutes(prefix, { access, report }),
    ]),
    figures: figures.sources,
    reload: access.reload,
    async stop() {
      stopWatching?.();
      await retention.stop();
      await meter.close();
      await spans?.stop();
    },
  };
}

const LOSS_LOG_INTERVAL_MS = 10_000;

/** Under overload records are dropped by the thousand: a line now and then says so. */
function logLosses(logger: Logger, clock: Pick<Clock, 'monotonic'>) {
  let nextAt = Number.NEGATIVE_INFINITY;
  let since = 0;
  return (what: 'records' | 'sums', count: number): void => {
    since += count;
    if (what === 'records' && clock.monotonic() < nextAt) return;
    nextAt = clock.monotonic() + LOSS_LOG_INTERVAL_MS;
    logger.warn({ what, count: since }, 'usage was not stored');
    since = 0;
  };
}
