import { createHmac } from 'node:crypto';
import { Type } from 'typebox';
import { type RunnerFacts, RunnerList } from '../bridge/contract/surface.ts';
import { DEAD_AFTER_MS, describeInstance, type InstanceFacts } from '../bridge/instances/instance-registry.ts';
import { DRAIN_TOPIC } from '../bridge/instances/open-instance.ts';
import { describeRunner } from '../bridge/runners/create-runners.ts';
import { connectRunner, keyHashOf, runnerToken } from '../bridge/runners/runner-tunnel.ts';
import type { BridgeSchema } from '../bridge/storage/bridge-schema.ts';
import { createInstanceStore, createRunnerStore } from '../bridge/storage/instance-and-route-stores.ts';
import { pause, repeat } from '../platform/clock/clock.ts';
import { isWithin, settingEntries } from '../platform/config/setting-declaration.ts';
import type { Database, DatabaseLocation } from '../platform/database/database.ts';
import { readDatabaseTime, readRows } from '../platform/database/inspect-database.ts';
import { openDatabase } from '../platform/database/open-database.ts';
import type { ConnectionPool } from '../platform/database/postgres/connection-pool.ts';
import type { ClusterSchema } from '../platform/database/postgres/limit-buckets.ts';
import { wakeUpStatements } from '../platform/database/postgres/wake-ups.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { createSharedBuckets, createStoreWatch, type SharedLimits } from '../platform/limits/shared-buckets.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import type { SecretKeys } from '../platform/secrets/secret-keys.ts';
import { type Settings, settingsDeclaration } from './settings.ts';
import {
  existingDataFiles,
  openStores,
  placesOf,
  postgresLocation,
  type StoreAccessOptions,
  storeLocation,
} from './stores.ts';

/** The instances that share a database, for operators: `trestle cluster` and `GET /api/system/instances`. */

export const Instances = Type.Object(
  {
    instances: Type.Array(
      Type.Object({
        id: Type.String(),
        version: Type.String(),
        address: Type.String(),
        startedAt: Type.String(),
        heartbeatAt: Type.String({ description: 'On SQLite, where there is one instance, this is the start.' }),
        state: Type.Enum(['serving', 'leaving', 'silent'], {
          description: '`leaving`: it is being stopped. `silent`: its lease has ended, and the others end its turns.',
        }),
        leaseMs: Type.Integer({ description: 'Until its lease ends, unless a heartbeat renews it before.' }),
        clockDifferenceMs: Type.Integer({ description: 'How far its clock is ahead of that of the database.' }),
        sessions: Type.Integer({ description: 'Sessions with a turn that runs or waits there.' }),
        sockets: Type.Integer({ description: 'Open WebSockets.' }),
        settingsDigest: Type.String({
          description: 'A digest of the settings that must be equal on all instances.',
        }),
        isThis: Type.Boolean({ description: 'Whether this instance has sent the response.' }),
      }),
    ),
    runners: RunnerList,
  },
  { $id: 'SystemInstances' },
);

/** Settings that may differ between instances: addresses, data directory, and where reports are sent. */
const OWN_SETTINGS: readonly string[] = [
  ...['listen', 'data_dir', 'allowed_hosts', 'trusted_proxies', 'insecure', 'metrics_token', 'secret_key'],
  ...['listener', 'database', 'cluster', 'log', 'console', 'telemetry'],
];
const DIGEST_LENGTH = 16;
/** The time for a stop besides `cluster.notice` and `cluster.drain`: for WebSockets, agents and slow machines. */
const DRAIN_MARGIN_MS = 60_000;
const DRAIN_LOOK_MS = 500;

/** With a key, because some settings are secrets: nobody who reads the database can try out values. */
export function settingsDigest(settings: Settings, [key]: SecretKeys): string {
  const values = settingEntries(settingsDeclaration.schema)
    .filter(({ path }) => !OWN_SETTINGS.some((own) => isWithin(path, own)))
    .map(({ path }) => [path, valueAt(settings, path)]);
  const text = `settings\n${JSON.stringify(values)}`;
  return createHmac('sha256', key).update(text).digest('hex').slice(0, DIGEST_LENGTH);
}

function valueAt(settings: Settings, path: string): unknown {
  return path.split('.').reduce<unknown>((found, key) => (found as Record<string, unknown>)[key], settings);
}

/** Reads the list of instances beside them. Throws NEEDS_POSTGRES where there can be only one. */
export async function readInstances(
  options: StoreAccessOptions,
): Promise<{ readonly instances: readonly InstanceFacts[]; readonly runners: readonly RunnerFacts[] }> {
  return withBridgeStore(options, 'trestle cluster', async (database) => {
    const runners = createRunnerStore(database, () => '', DEAD_AFTER_MS);
    return { instances: await listInstances(database), runners: (await runners.list()).map(describeRunner) };
  });
}

/** The token of the bridge of a runner, and its connection to the server. */
export const tokenOfRunner = (key: string, process: string) => runnerToken(keyHashOf(key), process);
export const connectToServer = connectRunner;

/** Asks an instance to leave, as SIGTERM does, and resolves when it has stopped. `left` is called when it begins to leave. */
export async function drainInstance(options: StoreAccessOptions, id: string, left: () => void): Promise<void> {
  const { clock, settings } = options;
  const limitMs = settings.cluster.notice + settings.cluster.drain + DRAIN_MARGIN_MS;
  await withBridgeStore(options, 'trestle drain', async (database) => {
    const until = clock.monotonic() + limitMs;
    let isLeaving = false;
    for (let look = 0; ; look += 1) {
      const found = (await listInstances(database)).find((one) => one.id === id);
      if (found === undefined && look > 0) return;
      if (found === undefined) throw new AppError('INSTANCE_UNKNOWN', { id });
      if (clock.monotonic() > until) throw new AppError('INSTANCE_STAYS', { id, seconds: Math.round(limitMs / 1000) });
      if (found.state === 'leaving' && !isLeaving) {
        isLeaving = true;
        left();
      }
      // A message can be lost, so it is sent again until the instance leaves.
      if (!isLeaving) await database.write(wakeUpStatements('postgres', DRAIN_TOPIC, id));
      await pause(clock, DRAIN_LOOK_MS);
    }
  });
}

/**
 * For commands that work while no server runs: on SQLite the lock on the files refuses them, on PostgreSQL the list of instances.
 * Throws INSTANCES_RUNNING.
 */
export async function refuseRunningInstances(options: StoreAccessOptions): Promise<void> {
  const { database } = options.settings;
  if (database.url === '') return;
  const instances = await findInstances(storeLocation(database, placesOf(options), 'bridge'));
  const running = instances.map(({ id, address }) => `${id} (${address})`);
  if (running.length > 0) throw new AppError('INSTANCES_RUNNING', { instances: running.join(', ') });
}

interface FoundInstance {
  readonly id: string;
  readonly address: string;
  /** The name of its data directory; empty for an instance of 0.1.0. */
  readonly home: string;
}

/** The instances whose lease has not ended. Changes nothing, and reads any version of the schema. */
export async function findInstances(location: DatabaseLocation): Promise<readonly FoundInstance[]> {
  const column = 'heartbeat_at';
  const rows = await readRows(location, { table: 'instances', column, order: column, direction: 'DESC' });
  if (rows.length === 0) return [];
  const now = (await readDatabaseTime(location)) ?? 0;
  return rows
    .filter((row) => now - Number(row[column]) <= DEAD_AFTER_MS)
    .map(({ id, address, home = '' }) => ({ id: String(id), address: String(address), home: String(home) }))
    .sort((one, other) => (one.id < other.id ? -1 : 1));
}

async function listInstances(database: Database<BridgeSchema>): Promise<readonly InstanceFacts[]> {
  return (await createInstanceStore(database).list()).map(describeInstance);
}

async function withBridgeStore<Result>(
  options: StoreAccessOptions,
  what: string,
  work: (database: Database<BridgeSchema>) => Promise<Result>,
): Promise<Result> {
  if (options.settings.database.url === '') throw new AppError('NEEDS_POSTGRES', { what });
  const files = await existingDataFiles(options);
  await using stores = await openStores({ ...options, names: ['bridge'], files, owner: 'command' });
  const { bridge } = stores.databases;
  if (bridge === undefined) throw new Error('the database of the bridge is not open');
  return await work(bridge);
}

const SWEEP_MS = 10 * 60_000;

/** Limits that all instances of a PostgreSQL database count together; undefined on SQLite, where there is one. */
export async function openSharedLimits(
  { database: { url, listen_url: directUrl }, cluster }: Settings,
  pool: ConnectionPool | undefined,
  { clock, logger }: Pick<Runtime, 'clock' | 'logger'>,
  opened: AsyncDisposableStack,
): Promise<SharedLimits | undefined> {
  if (pool === undefined) return undefined;
  const { clusterMigrations, createBucketStore } = await import('../platform/database/postgres/limit-buckets.ts');
  const location = postgresLocation({ url, directUrl, schema: 'cluster', pool });
  const database = await openDatabase<ClusterSchema>({
    name: 'cluster',
    migrations: clusterMigrations,
    location,
    clock,
  });
  opened.defer(() => database.close());
  const store = createBucketStore(database);
  const onAway = (error: unknown) =>
    logger.warn({ err: error, calls: cluster.limits_without_database }, 'limits cannot be counted: no database');
  const watch = createStoreWatch({ clock, onAway });
  const passWhenAway = cluster.limits_without_database === 'pass';
  const buckets = createSharedBuckets({ store, clock, watch, passWhenAway });
  opened.defer(() => buckets.stop());
  const onError = (error: unknown) => logger.warn({ err: error }, 'old limits not removed');
  const sweeping = repeat({ clock, pauseMs: SWEEP_MS, work: store.sweep, onError });
  opened.defer(() => sweeping.stop());
  return { buckets, watch, passWhenAway };
}
