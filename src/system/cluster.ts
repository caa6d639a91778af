import { createHmac } from 'node:crypto';
import { Type } from 'typebox';
import { describeInstance, type InstanceFacts } from '../bridge/instances/instance-registry.ts';
import { createInstanceStore } from '../bridge/storage/instance-and-route-stores.ts';
import { isWithin, settingEntries } from '../platform/config/setting-declaration.ts';
import { AppError } from '../platform/errors/app-error.ts';
import type { SecretKeys } from '../platform/secrets/secret-keys.ts';
import { type Settings, settingsDeclaration } from './settings.ts';
import { dataFilesOf, openStores, type StoreAccessOptions } from './stores.ts';

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
          description: 'Of the settings that all instances must agree on: equal where the settings are.',
        }),
        isThis: Type.Boolean({ description: 'Whether this instance has sent the response.' }),
      }),
    ),
  },
  { $id: 'SystemInstances' },
);

/** What may differ between instances: where each one listens, keeps its data, reaches the others, and reports to. */
const OWN_SETTINGS: readonly string[] = [
  ...['listen', 'data_dir', 'allowed_hosts', 'trusted_proxies', 'insecure', 'metrics_token', 'secret_key'],
  ...['listener', 'database', 'cluster', 'log', 'console', 'telemetry'],
];
const DIGEST_LENGTH = 16;

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
export async function readInstances(options: StoreAccessOptions): Promise<readonly InstanceFacts[]> {
  if (options.settings.database.url === '') throw new AppError('NEEDS_POSTGRES', { what: 'trestle cluster' });
  const files = await dataFilesOf(options);
  await using stores = await openStores({ ...options, names: ['bridge'], files, owner: 'command' });
  const { bridge } = stores.databases;
  if (bridge === undefined) return [];
  return (await createInstanceStore(bridge).list()).map(describeInstance);
}
