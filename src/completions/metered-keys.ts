import type { Clock } from '../platform/clock/clock.ts';
import type { Database } from '../platform/database/database.ts';
import type { WakeUps } from '../platform/database/postgres/wake-ups.ts';
import { createFailureThrottle } from '../platform/http/failure-throttle.ts';
import type { FigureSource } from '../platform/http/http-metrics.ts';
import type { OwnerOf, WatchOwners } from '../platform/identity/owner.ts';
import type { Identify } from '../platform/identity/principal.ts';
import type { SharedLimits } from '../platform/limits/shared-buckets.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import type { PriceOf } from './apis/prices.ts';
import { type Admissions, costsByApi, type SettledCall } from './keys/admission.ts';
import { type ApiBudgets, createApiBudgets, createBudgets } from './keys/budgets.ts';
import { chargesOf, createAdmissions } from './keys/create-admissions.ts';
import { createKeyLookup } from './keys/issued-key.ts';
import { createKeyAccess, type KeyAccess } from './keys/key-access.ts';
import {
  createKeyRegister,
  createOwnKeys,
  type KeyEvent,
  type KeyRegister,
  type OwnKeys,
} from './keys/key-register.ts';
import { createSharedBudgets } from './keys/shared-budgets.ts';
import { createBudgetAlerts } from './metering/budget-alerts.ts';
import { startCallExports } from './metering/call-exports.ts';
import { type CallLog, createCallLog, startUsageRetention } from './metering/call-log.ts';
import { createCallFigures, createCallSpans } from './metering/call-telemetry.ts';
import { createOwnUsage, createUsageReport } from './metering/usage-cells.ts';
import { createUsageMeter } from './metering/usage-meter.ts';
import type { BatchMeter } from './operations/batch-file.ts';
import type { CompletionsSettings } from './settings.ts';
import type { CompletionsSchema } from './storage/completions-schema.ts';
import { createExportStore } from './storage/export-store.ts';
import { createKeyStore, KEY_CHANGED } from './storage/key-store.ts';
import { createObjectStore } from './storage/object-store.ts';
import { createUsageReportStore } from './storage/usage-report-store.ts';
import { createCallStore, createUsageRetentionStore, createUsageStore } from './storage/usage-store.ts';

/** Keys, their limits and budgets, and what is recorded of their use: made together, because each needs the others. */
export interface MeteredKeys {
  readonly access: KeyAccess;
  readonly admissions: Admissions;
  readonly register: KeyRegister;
  /** The keys of users, for the service that knows users. */
  readonly ownKeys: OwnKeys;
  readonly report: ReturnType<typeof createUsageReport>;
  readonly calls: CallLog;
  /** For batches, whose use is known hours after they were charged. */
  readonly batches: BatchMeter;
  readonly figures: readonly FigureSource[];
  reload(settings: Pick<CompletionsSettings, 'master_key'>): void;
  /** Stores and sends what is left. The last call must have been settled before. */
  stop(): Promise<void>;
}

export interface MeteredKeysOptions extends Runtime {
  readonly settings: Pick<CompletionsSettings, 'master_key' | 'store_content'> &
    Partial<Pick<CompletionsSettings, 'alerts' | 'exports' | 'tag_budgets' | 'api_budgets'>>;
  readonly usageRetentionMs: number;
  /** How long what was asked and answered is kept; 0: as long as the record of the call. */
  readonly contentRetentionMs?: number;
  /** Empty: no spans. */
  readonly otlpEndpoint: string;
  readonly programVersion: string;
  readonly database: Database<CompletionsSchema>;
  /** Messages between instances. Undefined: no other shares the database. */
  readonly wakeUps?: WakeUps | undefined;
  /** Limits and budgets that other instances count too. Undefined: this one counts alone. */
  readonly shared?: SharedLimits | undefined;
  readonly priceOf: PriceOf;
  /** The people that keys belong to; undefined while this service runs alone. */
  readonly owners?: KeyOwners | undefined;
  /** Finds people by their logins and access tokens; undefined where there are only keys. */
  readonly identify?: Identify | undefined;
}

export interface KeyOwners {
  readonly ownerOf: OwnerOf;
  readonly watch: WatchOwners;
  /** Keeps what happened to a key in the audit log. Absent where accounts does not run: then only our log has it. */
  readonly record?: (event: KeyEvent) => Promise<void>;
}

/** Where several instances share a database, a budget seems unspent for this long elsewhere. */
const SHARED_FRESH_MS = 1000;
/** There a call may be stored after one that ended later: exports wait for this long. */
const SHARED_LAG_MS = 60_000;
/** A key is known for this long while changes made by other instances arrive as messages, and while the database is away. */
const TOLD_FRESH_MS = 60_000;

export function createMeteredKeys(options: MeteredKeysOptions): MeteredKeys {
  const { owners, settings, otlpEndpoint, database, priceOf, clock, randomness, makeId, logger } = options;
  const freshMs = database.engine === 'postgres' ? SHARED_FRESH_MS : Number.POSITIVE_INFINITY;
  const keyStore = createKeyStore(database);
  const usageStore = createUsageStore(database);
  const reports = createUsageReportStore(database);
  const objects = createObjectStore(database);
  const { wakeUps } = options;
  const lookup = createKeyLookup({
    store: keyStore,
    clock,
    freshMs: () => (wakeUps?.isListening() === true ? TOLD_FRESH_MS : freshMs),
    usableMs: TOLD_FRESH_MS,
  });
  wakeUps?.on(KEY_CHANGED, (id) => (id === '' ? lookup.forgetAll() : lookup.forget(id)));
  const record = async (event: KeyEvent): Promise<void> => {
    const { event: what, actor, subject: owner, details } = event;
    logger.info({ actor, owner, ...details }, what);
    await owners?.record?.(event);
  };

  const { alerts: addressed = { url: '', token: '' } } = settings;
  const alerts = createBudgetAlerts({ settings: addressed, clock, randomness, logger });
  const { shared } = options;
  const sharedBudgets =
    shared && createSharedBudgets({ ...shared, store: keyStore, clock, onAlert: (alert) => alerts.tell(alert) });
  const meter = createUsageMeter({
    store: usageStore,
    clock,
    makeId,
    release: sharedBudgets?.release,
    onLost: logLosses(logger, clock),
  });
  const register = createKeyRegister({
    store: keyStore,
    clock,
    randomness,
    makeId,
    record,
    flush: meter.flush,
    onChanged: lookup.forget,
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
  const budgets =
    sharedBudgets ??
    createBudgets({ clock, readSpent: keyStore.spent, unstored: meter.unstored, freshMs, onAlert: alerts.tell });
  const apis = createApiBudgets({ given: settings.api_budgets ?? {}, budgets, clock });
  const admissions = createAdmissions({
    clock,
    budgets,
    shared: shared?.buckets,
    priceOf,
    keepsContent: settings.store_content,
    observers: [
      (call) => meter.observe(apis === undefined ? call : chargedAt(apis, call)),
      figures.observe,
      ...(spans === undefined ? [] : [spans.observe]),
    ],
    onProblem: (error) => logger.error({ err: error }, 'a call was not settled as it should be'),
  });
  const stopWatching = owners?.watch((owner) => {
    if (owner.state !== 'active') admissions.endCallsOf(owner.id);
  });
  const access = createKeyAccess({
    settings,
    lookup,
    budgets,
    throttle: createFailureThrottle({ clock, shared: shared && { ...shared, name: 'completions' } }),
    clock,
    randomness: options.randomness,
    ownerOf: owners?.ownerOf,
    identify: options.identify,
    onFlood: (address) => logger.warn({ address }, 'many wrong keys from one address'),
  });
  const retention = startUsageRetention({
    store: createUsageRetentionStore(database),
    objects,
    clock,
    keepMs: options.usageRetentionMs,
    keepContentMs: options.contentRetentionMs ?? 0,
    onError: warnOf('old usage not removed'),
  });
  const exporting = startCallExports({
    settings: settings.exports ?? [],
    store: createExportStore(database),
    clock,
    lagMs: database.engine === 'postgres' ? SHARED_LAG_MS : 0,
    logger,
  });
  const report = createUsageReport({ store: reports, flush: meter.flush, clock });

  return {
    access,
    admissions: { ...admissions, apis },
    register,
    ownKeys: createOwnKeys(
      register,
      createOwnUsage({
        keys: keyStore,
        store: usageStore,
        reports,
        objects,
        flush: meter.flush,
        clock,
        emptyLog: database.emptyLog,
      }),
    ),
    report,
    calls: createCallLog({ store: createCallStore(database), flush: meter.flush, clock }),
    batches: {
      priceOf,
      chargesOf(holder, api) {
        const charge = apis?.chargeOf(api);
        return [...chargesOf(holder, clock.now()), ...(charge === undefined ? [] : [charge])];
      },
      correct: (call, estimate) =>
        meter.correct(call, estimate, () => {
          for (const { bucket, period } of call.charges ?? []) budgets.correct(bucket, period, call.costNano);
        }),
      flush: meter.flush,
    },
    figures: figures.sources,
    reload: access.reload,
    async stop() {
      stopWatching?.();
      await retention.stop();
      await exporting.stop();
      await alerts.stop();
      await meter.close();
      await sharedBudgets?.stop();
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

/** Returns a call with the charges for the budgets of the APIs at which it cost something. */
function chargedAt(apis: ApiBudgets, call: SettledCall): SettledCall {
  if (call.costNano === 0) return call;
  const charges = [...costsByApi(call)].flatMap(([api, costNano]) => {
    const charge = costNano === 0 ? undefined : apis.chargeOf(api);
    return charge === undefined ? [] : [{ ...charge, costNano }];
  });
  return charges.length === 0 ? call : { ...call, charges: [...(call.charges ?? []), ...charges] };
}
