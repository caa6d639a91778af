import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { sweepLeftovers } from '../platform/child-process/process-table.ts';
import { systemClock } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { createLineChannel, type MessageChannel } from '../platform/json-rpc/message-channel.ts';
import type { Logger } from '../platform/log/logger.ts';
import { useOutgoingProxy } from '../platform/network-address/outgoing-proxy.ts';
import type { Environment } from '../platform/runtime/runtime.ts';
import { type DataFiles, dataFiles, prepareDataDirectory } from './data-directory.ts';
import { prepareServiceParts, startServices } from './service-wiring.ts';
import { dataDirectory, type Settings } from './settings.ts';
import { openStores, type Stores } from './stores.ts';

export interface StdioOptions {
  readonly settings: Settings;
  /** The agent of an editor's new sessions. Empty: by routing. */
  readonly agent: string;
  readonly input: Readable;
  readonly output: Writable;
  readonly environment: Environment;
  readonly homeDirectory: string;
  /** Files that callers must not reach: the configuration, and the login of the user. */
  readonly privateFiles: readonly string[];
  readonly logger: Logger;
}

/** The bridge on a pair of standard streams, without a listener. */
export interface StdioSystem {
  /** Resolves when the other side has closed its end. */
  readonly ended: Promise<void>;
  /** Ends what runs, and closes everything. */
  stop(): Promise<void>;
}

const clock = systemClock;
/** Editors start one program for each window. */
const MAX_AT_ONCE = 32;

export async function startStdio(options: StdioOptions): Promise<StdioSystem> {
  const { settings, agent, environment, homeDirectory, logger } = options;
  checkAgent(settings, agent);
  await useOutgoingProxy(environment);
  await using opened = new AsyncDisposableStack();
  const { files, stores } = await openOwnFolder(options);
  opened.use(stores);
  await sweepLeftovers(files.processes);
  const privatePaths = {
    // The folder of the servers, with their keys, is around ours.
    folders: [dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME)],
    files: options.privateFiles,
  };
  const shared = { settings, environment, homeDirectory, files, privatePaths, databases: stores.all, clock, logger };
  const parts = await prepareServiceParts({ ...shared, services: ['bridge'] });
  const { bridge } = await startServices({ parts, databases: stores.databases, opened });

  const { promise: ended, resolve } = Promise.withResolvers<void>();
  const channel = createLineChannel({
    readable: options.input,
    writable: options.output,
    maxLineBytes: settings.bridge.limits.message_bytes,
  });
  await bridge?.acceptStdio(withEnd(channel, resolve), agent);
  const owned = opened.move();
  return { ended, stop: () => owned.disposeAsync() };
}

function checkAgent({ agents }: Settings, agent: string): void {
  const known = [...agents.catalog, ...agents.custom.map(({ id }) => id)];
  if (agent !== '' && !known.includes(agent)) throw new AppError('AGENT_UNKNOWN', { agent, known: known.join(', ') });
}

/**
 * A data directory of its own: a server, or the program of another window, may have the usual one. The first free one is
 * taken, so that a lone editor finds its sessions again.
 */
async function openOwnFolder({ settings, homeDirectory, environment }: StdioOptions): Promise<{
  readonly files: DataFiles;
  readonly stores: Stores;
}> {
  const main = dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME);
  const folder = join(main, 'stdio');
  for (let number = 1; number <= MAX_AT_ONCE; number += 1) {
    const own = await prepareDataDirectory(join(folder, String(number)));
    // A shared database is encrypted with the key of the main data directory.
    const files = settings.database.url === '' ? own : { ...own, secretKey: dataFiles(main).secretKey };
    try {
      return { files, stores: await openStores({ settings, names: ['bridge'], files, clock, owner: 'server' }) };
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'STORAGE_IN_USE') throw error;
    }
  }
  throw new AppError('STDIO_CROWDED', { most: MAX_AT_ONCE, folder });
}

function withEnd(channel: MessageChannel, ended: () => void): MessageChannel {
  return {
    ...channel,
    onEnd: (listener) =>
      channel.onEnd((end) => {
        listener(end);
        ended();
      }),
  };
}
