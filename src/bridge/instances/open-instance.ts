import { link, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Named } from '../../platform/runtime/runtime.ts';
import type { SecretKeys } from '../../platform/secrets/secret-keys.ts';
import { isTunnelAddress } from '../forwarding/endpoints.ts';
import type { Runners } from '../runners/create-runners.ts';
import { createInstanceStore } from '../storage/instance-and-route-stores.ts';
import { createRelay, type Relay, type RelayOptions } from './create-relay.ts';
import {
  CLOCK_DIFFERS,
  type RegisteredInstance,
  type RegisterInstanceOptions,
  registerInstance,
} from './instance-registry.ts';
import { createRelaySignatures } from './relay-call.ts';

export interface InstanceOptions
  extends Omit<RelayOptions, 'instance' | 'home' | 'signatures'>,
    Pick<RegisterInstanceOptions, 'load' | 'onClock' | 'outageMs'> {
  /** Sign requests between instances. */
  readonly keys: SecretKeys;
  readonly randomness: Randomness;
  readonly makeId: MakeId;
  readonly version: string;
  /** Where this instance is to listen, for the list of instances. */
  readonly address: string;
  /** Where other instances reach this one, as a URL; empty until it listens. */
  readonly reachableAt?: (() => string) | undefined;
  /** Undefined in tests. */
  readonly runners?: Runners | undefined;
  /** Called when an operator wants this instance to leave. */
  readonly onDrain?: (() => void) | undefined;
}

/** What the program gives the bridge for its instance. */
export type InstanceMembers = Pick<
  InstanceOptions,
  'address' | 'reachableAt' | 'load' | 'onClock' | 'outageMs' | 'onDrain' | 'wakeUps' | 'runners'
>;

/** Messages whose subject is the id of an instance that is to leave. */
export const DRAIN_TOPIC = 'drain';

/** Adds this bridge to the list of instances, and opens a relay to the others where they share the database. */
export async function openInstance(
  options: InstanceOptions,
): Promise<{ readonly instance: RegisteredInstance; readonly home: string; readonly relay: Relay | undefined }> {
  const { database, dataDirectory, version, keys, personTokens, wakeUps, clock, randomness, makeId, logger } = options;
  const isShared = database.engine === 'postgres';
  const home = isShared ? await readHome(dataDirectory, () => makeId('home_')) : '';
  const instance = await registerInstance({
    store: createInstanceStore(database),
    clock,
    version,
    id: makeId('ins_'),
    address: () => (isShared && options.reachableAt?.()) || options.address,
    load: options.load,
    onClock: options.onClock,
    outageMs: options.outageMs,
    home,
    isShared,
    onMissedBeat: (error) => logger.warn({ err: error }, 'heartbeat not stored'),
    onClockDifference: (differenceMs) => logger.warn({ differenceMs }, CLOCK_DIFFERS),
  } satisfies Named<RegisterInstanceOptions>);
  wakeUps?.on(DRAIN_TOPIC, (subject) => {
    if (subject === instance.id) options.onDrain?.();
  });
  const joining = { instance: instance.id, deadAfterMs: instance.lease.deadAfterMs, wakeUps };
  if (!isShared) {
    options.runners?.join(joining);
    return { instance, home, relay: undefined };
  }
  const signatures = createRelaySignatures({ ...instance, instance: instance.id, keys, clock, randomness });
  options.runners?.join({ ...joining, signatures });
  const shared = { database, dataDirectory, signatures, personTokens, wakeUps, clock, logger };
  return { instance, home, relay: createRelay({ ...shared, instance, home } satisfies Named<RelayOptions>) };
}

/**
 * Reads the name of a data directory, which says where files are. The first start on a shared database creates it, beside its place:
 * a start that is interrupted, or finds the disk full, leaves no empty name, which would stand for "anywhere".
 */
export async function readHome(dataDirectory: string, makeName: () => string): Promise<string> {
  const file = join(dataDirectory, 'home');
  const known = await readName(file);
  if (known !== undefined && known !== '') return known;
  const name = makeName();
  const partial = `${file}.${name}`;
  try {
    await writeFile(partial, name, { mode: 0o600, flush: true });
    // An empty file was left by an interrupted start.
    if (known === '') await rename(partial, file);
    else await link(partial, file);
  } catch (error) {
    if (NO_LINKS.has(errorCode(error))) await rename(partial, file);
    // Otherwise another process has created it in this moment.
    else if (errorCode(error) !== 'EEXIST') throw error;
  } finally {
    await rm(partial, { force: true });
  }
  return (await readName(file)) ?? name;
}

/** The name of a data directory, without creating it; undefined where no instance has worked there. */
export const findHome = (dataDirectory: string): Promise<string | undefined> => readName(join(dataDirectory, 'home'));

/** File systems such as those of some network shares have no hard links. */
const NO_LINKS: ReadonlySet<string> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

async function readName(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** Returns the URL for other machines. For a server that listens on all addresses, that is the first private address. */
export function reachableAt(url: string): string {
  const { hostname, port } = URL.parse(url) ?? { hostname: '', port: '' };
  if (hostname !== '0.0.0.0' && hostname !== '[::]') return url;
  const all = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
  const own = all.find(({ internal, family, address }) => !internal && family === 'IPv4' && isTunnelAddress(address));
  return `http://${own?.address ?? '127.0.0.1'}:${port}`;
}
