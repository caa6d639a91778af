import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AgentProvider } from '../../../src/bridge/agents/agent-provider.ts';
import { createConfinement } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import { type Bridge, type BridgeOptions, createBridge } from '../../../src/bridge/create-bridge.ts';
import { createPrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import { createOwnerRoots, createWorkingDirectories } from '../../../src/bridge/sessions/working-directory.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { type CallbackNetwork, systemCallbackNetwork } from '../../../src/platform/callbacks/callback-post.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Database, DatabaseLocation } from '../../../src/platform/database/database.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createFailureThrottle } from '../../../src/platform/http/failure-throttle.ts';
import { createHttpMetrics } from '../../../src/platform/http/http-metrics.ts';
import { createListener } from '../../../src/platform/http/listener.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { createSecretBox } from '../../../src/platform/secrets/secret-keys.ts';
import { handOnDatabaseThread } from '../hand-on-database-thread.ts';
import { openServiceDatabase } from '../open-service-database.ts';
import { resolveTrestle } from '../resolve-trestle.ts';
import type { Scope } from '../running-program.ts';
import { silentLogger } from '../silent-logger.ts';
import { createTestCheckpoints, createTestFolderList, createTestWorktrees } from './test-checkpoints.ts';

export const MAIN_TOKEN = 'main-token-5f1d0c1e9b7a';
export const REVIEW_TOKEN = 'review-token-a81c2b3d4e5f';

export interface BridgeUnderTest {
  readonly url: string;
  /** The data directory; the allowed root is `root`, beside it. */
  readonly folder: string;
  readonly root: string;
  readonly database: Database<BridgeSchema>;
  readonly bridge: Bridge;
  /** Drains and stops; the database stays open for who comes after. */
  stop(): Promise<void>;
  /** Bridges that came after on the same database. */
  readonly successors: BridgeUnderTest[];
}

export interface BridgeUnderTestOptions {
  readonly providers: readonly AgentProvider[];
  /** YAML of the configuration. */
  readonly settings?: string;
  /** With both tokens configured; without, the bridge is open. */
  readonly isGuarded?: boolean;
  /** To start where another bridge has stopped, or died. */
  readonly after?: BridgeUnderTest;
  readonly location?: DatabaseLocation;
  /** Instead of a new one; it is closed in the end. */
  readonly database?: Database<BridgeSchema>;
  /** Of all that the bridge itself does; connections have the real time. */
  readonly clock?: Clock;
  /** For ever, unless it is said. */
  readonly retention?: BridgeOptions['retention'];
  readonly network?: CallbackNetwork;
  readonly installer?: BridgeOptions['installer'];
  readonly logger?: Logger;
  readonly forwarding?: BridgeOptions['forwarding'];
  readonly settleMs?: BridgeOptions['settleMs'];
  readonly owners?: BridgeOptions['owners'];
  readonly identify?: BridgeOptions['identify'];
  /** Signs its links: 32 bytes of this number; 7 unless given. */
  readonly linkKey?: number | undefined;
}

/** An installer that knows no agent. */
const NO_INSTALLER: BridgeOptions['installer'] = {
  install: (agent) => Promise.reject(new AppError('AGENT_UNKNOWN', { agent, known: '' })),
};
const ids = createSortableIds(systemClock, systemRandomness);

/** A bridge with agents of the test behind a real listener, in this process. */
export async function startBridge(scope: Scope, options: BridgeUnderTestOptions): Promise<BridgeUnderTest> {
  const { providers, after } = options;
  const tokens = `bridge: { auth_token: ${MAIN_TOKEN}, review_auth_token: ${REVIEW_TOKEN} }\n`;
  const custom = providers.map(({ id }) => `{ id: ${id}, command: none }`).join(', ');
  const first = providers[0]?.id ?? 'builtin';
  const agents = `agents: { catalog: [${providers.map(({ id }) => id).join(', ')}], default: ${first}, custom: [${custom}] }\n`;
  const { settings } = resolveTrestle(`${options.isGuarded ? tokens : ''}${agents}${options.settings ?? ''}`);
  const folder = after?.folder ?? (await realpath(await mkdtemp(join(tmpdir(), 'trestle-bridge-'))));
  const root = after?.root ?? (await realpath(await mkdtemp(join(tmpdir(), 'trestle-root-'))));
  const location = options.location ?? { engine: 'sqlite' as const, file: join(folder, 'bridge.db') };
  const { clock = systemClock } = options;
  const places = createPrivatePlaces({ folders: [folder], files: [] });
  const roots = createOwnerRoots({ listed: [root] });
  const directories = createWorkingDirectories({
    roots,
    dataDirectory: folder,
    places,
  });
  const confine = createConfinement({ places, isScratch: directories.isScratch });
  const database =
    after?.database ??
    options.database ??
    (await openServiceDatabase<BridgeSchema>({
      name: 'bridge',
      migrations: bridgeMigrations,
      clock: systemClock,
      location,
    }));
  const bridge = await createBridge({
    settings,
    database,
    ping: { status: 'ok', version: '0', contract: '1.0.0', commit: '', buildDate: '', image: '', tag: '' },
    address: 'test',
    dataDirectory: folder,
    secretBox: createSecretBox([new Uint8Array(32).fill(9)], systemRandomness),
    throttle: createFailureThrottle({ clock }),
    linkKeys: [new Uint8Array(32).fill(options.linkKey ?? 7)],
    randomness: systemRandomness,
    clock,
    makeId: clock === systemClock ? ids : createSortableIds(clock, systemRandomness),
    logger: options.logger ?? silentLogger,
    agents: providers.map(({ id }) => ({ id, label: id, category: 'native', place: { kind: 'in-process' } })),
    providers: new Map(providers.map((provider) => [provider.id, provider])),
    directories,
    folders: createTestFolderList(folder, confine, roots, places),
    confine,
    checkpoints: createTestCheckpoints(folder, confine, settings.bridge.checkpoints, options.logger),
    worktrees: createTestWorktrees(folder, confine, roots, directories),
    installer: options.installer ?? NO_INSTALLER,
    retention: options.retention ?? { events: 0, audit: 0, jobs: 0 },
    network: options.network ?? systemCallbackNetwork,
    owners: options.owners,
    identify: options.identify,
    settleMs: options.settleMs,
    ...(options.forwarding !== undefined && { forwarding: options.forwarding }),
  });
  await bridge.probed;
  const listener = createListener({
    surfaces: [bridge.surface],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger: silentLogger,
    clock: systemClock,
    randomness: systemRandomness,
    limits: { lingerMs: 200, closeTimeoutMs: 500 },
  });
  const { url } = await listener.start();
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= (async () => {
      await listener.drain(500);
      await bridge.stop();
    })();
    return stopped;
  };
  const running: BridgeUnderTest = { url, folder, root, database, bridge, stop, successors: [] };
  if (after !== undefined) {
    after.successors.push(running);
    return running;
  }
  scope.after(async () => {
    await Promise.all([running, ...running.successors].map((one) => one.stop()));
    if (location.engine === 'sqlite') handOnDatabaseThread();
    await database.close();
    await rm(folder, { recursive: true, force: true });
    await rm(root, { recursive: true, force: true });
  });
  return running;
}
