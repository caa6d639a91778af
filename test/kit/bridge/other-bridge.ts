import { once } from 'node:events';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { AgentProvider } from '../../../src/bridge/agents/agent-provider.ts';
import { createConfinement } from '../../../src/bridge/agents/builtin/tools/confinement.ts';
import { createBridge } from '../../../src/bridge/create-bridge.ts';
import { createPrivatePlaces } from '../../../src/bridge/sessions/private-places.ts';
import { createOwnerRoots, createWorkingDirectories } from '../../../src/bridge/sessions/working-directory.ts';
import {
  agentsSettings,
  type BridgeGroups,
  bridgeSettings,
  distributedSettings,
  gatewaySettings,
} from '../../../src/bridge/settings.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { jobsSettings } from '../../../src/bridge/work-settings.ts';
import { systemCallbackNetwork } from '../../../src/platform/callbacks/callback-post.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { defaultOf } from '../../../src/platform/config/read-setting.ts';
import { createFailureThrottle } from '../../../src/platform/http/failure-throttle.ts';
import { createSecretBox } from '../../../src/platform/secrets/secret-keys.ts';
import { openServiceDatabase } from '../open-service-database.ts';
import { silentLogger } from '../silent-logger.ts';
import { startListener } from '../start-listener.ts';
import { makeId } from './builtin-agent.ts';
import { createTestCheckpoints, createTestFolderList, createTestWorktrees } from './test-checkpoints.ts';

export const TOKEN = 'the-token-of-the-other-bridge';
export const REVIEW_TOKEN = 'the-review-token-of-the-other-bridge';

/** A bridge of our own on a listener in this process, with one agent. */
export async function startOtherBridge(context: TestContext, provider: AgentProvider): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-other-')));
  const database = await openServiceDatabase<BridgeSchema>({
    name: 'bridge',
    migrations: bridgeMigrations,
    clock: systemClock,
    location: { engine: 'sqlite', file: join(folder, 'bridge.db') },
  });
  const places = createPrivatePlaces({ folders: [folder], files: [] });
  const roots = createOwnerRoots({ listed: [tmpdir()] });
  const directories = createWorkingDirectories({
    roots,
    dataDirectory: folder,
    places,
  });
  const confine = createConfinement({ places, isScratch: directories.isScratch });
  const groups = settings(folder);
  const bridge = await createBridge({
    settings: groups,
    database,
    ping: { status: 'ok', version: '1', contract: '1.0.0', commit: '', buildDate: '', image: '', tag: '' },
    address: '',
    dataDirectory: folder,
    secretBox: createSecretBox([new Uint8Array(32)], systemRandomness),
    throttle: createFailureThrottle({ clock: systemClock }),
    linkKeys: [new Uint8Array(32)],
    randomness: systemRandomness,
    clock: systemClock,
    makeId,
    logger: silentLogger,
    agents: [{ id: provider.id, label: provider.id, category: 'native', place: { kind: 'in-process' } }],
    providers: new Map([[provider.id, provider]]),
    directories,
    folders: createTestFolderList(folder, confine, roots, places),
    confine,
    checkpoints: createTestCheckpoints(folder, confine, groups.bridge.checkpoints),
    worktrees: createTestWorktrees(folder, confine, roots, directories),
    installer: { install: () => Promise.reject(new Error('nothing is installed here')) },
    retention: { events: 0, audit: 0, jobs: 0 },
    network: systemCallbackNetwork,
  });
  await bridge.probed;
  const { url } = await startListener(context, { surfaces: [bridge.surface] });
  // After the listener: what was registered first is ended first.
  context.after(async () => {
    await bridge.stop();
    await database.close();
    await rm(folder, { recursive: true, force: true });
  });
  return url;
}

function settings(folder: string): BridgeGroups {
  const groups = {
    bridge: bridgeSettings,
    agents: agentsSettings,
    jobs: jobsSettings,
    gateway: gatewaySettings,
    distributed: distributedSettings,
  };
  const folders = { directory: folder, homeDirectory: folder };
  const defaults = Object.fromEntries(
    Object.entries(groups).map(([name, group]) => [name, defaultOf(group, folders)]),
  ) as unknown as BridgeGroups;
  return { ...defaults, bridge: { ...defaults.bridge, auth_token: TOKEN, review_auth_token: REVIEW_TOKEN } };
}

/** A way to a server that can be cut. */
export async function startCuttableLink(context: TestContext, url: string) {
  const { port } = new URL(url);
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    const further = connect(Number(port), '127.0.0.1');
    for (const end of [socket, further]) {
      sockets.add(end);
      end.on('error', () => undefined);
      end.on('close', () => sockets.delete(end));
    }
    socket.pipe(further).pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  context.after(async () => {
    cut();
    server.close();
    await once(server, 'close');
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, cut, connections: () => connections };
}
