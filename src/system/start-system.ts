import { join } from 'node:path';
import { reachableAt } from '../bridge/instances/open-instance.ts';
import { sweepLeftovers } from '../platform/child-process/process-table.ts';
import { systemClock, withinTime } from '../platform/clock/clock.ts';
import { type ChangedSettings, changedSettings } from '../platform/config/setting-declaration.ts';
import type { WakeUps } from '../platform/database/postgres/wake-ups.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { createHttpMetrics, type HttpMetrics } from '../platform/http/http-metrics.ts';
import { type BoundAddress, isLoopbackBind } from '../platform/http/listen-address.ts';
import { createListener, isBelow, type Listener } from '../platform/http/listener.ts';
import type { HttpSurface } from '../platform/http/surface.ts';
import type { LogOutput } from '../platform/log/log-output.ts';
import type { Logger } from '../platform/log/logger.ts';
import { withoutSlash } from '../platform/network-address/ip-address.ts';
import { useOutgoingProxy } from '../platform/network-address/outgoing-proxy.ts';
import type { Environment } from '../platform/runtime/runtime.ts';
import { openSharedLimits, settingsDigest } from './cluster.ts';
import { serveControls } from './controls.ts';
import { type DataFiles, dataFiles, prepareDataDirectory } from './data-directory.ts';
import { PROGRAM_VERSION } from './environment.ts';
import { createApiSurface, createConsoleFiles, createConsoleSurface } from './page-surfaces.ts';
import { prepareServiceParts, type ServiceParts, startServices, urlOf } from './service-wiring.ts';
import {
  accountsSettingsOf,
  dataDirectory,
  listenAddress,
  type ServiceName,
  type Settings,
  settingsDeclaration,
} from './settings.ts';
import { checkStart, databaseFigures, openServerStores, withoutRepeats } from './stores.ts';
import { type SettingsInForce, startSystemStatus } from './system-status.ts';

interface SystemOptions {
  readonly settings: Settings;
  /** Where each setting comes from, by path. */
  readonly sources?: SettingsInForce['sources'];
  /** The services to run; with one of them, its own default port is taken. */
  readonly services: readonly ServiceName[];
  readonly environment: Environment;
  readonly homeDirectory: string;
  /** What callers must not reach besides the data directory: the configuration file, the folder around the data directory. */
  readonly privatePaths: ServiceParts['privatePaths'];
  readonly logger: Logger;
  /** Receives the finished log lines of requests. Undefined: requests are not logged. */
  readonly requestLines: LogOutput | undefined;
  /** The methods that the bridge serves. Undefined: all. */
  readonly bridgeMethods?: Parameters<typeof startServices>[0]['bridgeMethods'];
  /** Set for a worker, which serves the address together with others. */
  readonly worker?: WorkerPart | undefined;
}

/** A worker is an instance: it has a data directory of its own within that of the program, and a port of its own for the others. */
interface WorkerPart {
  /** From 1. The worker that replaces another one has its number. */
  readonly slot: number;
  /** The figures of all workers. */
  readonly gather: NonNullable<Parameters<typeof createHttpMetrics>[0]>['gather'];
}

/** The running program: settings, databases, services and listener, and how to stop them. */
export interface System {
  summary(): SystemSummary;
  /** Resolves when the agents were checked for the first time, or soon after when some take long. */
  agentsKnown(): Promise<void>;
  /** Resolves when an operator wants this instance to leave. */
  readonly drainAsked: Promise<void>;
  /** What `/metrics` shows of this process. */
  figures(): ReturnType<HttpMetrics['figures']>;
  /** Applies settings that may change while running; returns the paths of changed settings and of those that need a restart. */
  reload(next: Settings, sources?: SettingsInForce['sources']): ChangedSettings;
  /**
   * Refuses new work, lets running work finish, then closes everything. `yields`: other workers serve the address, so
   * this one accepts no connections from the beginning of the stop.
   */
  stop(yields?: boolean): Promise<void>;
}

/** How long turns may go on during a drain on SQLite, and how long an agent may take to be quiet then. */
const TURNS_MS = 25_000;
const QUIET_MS = 5_000;
const AGENTS_WAIT_MS = 800;

/**
 * Small buffers share a pool, and each keeps its whole pool in memory. With Node's 64 KB a request of a few bytes that waits
 * for a slow client costs as much as a large one; 8 KB was the earlier default of Node.
 */
const BUFFER_POOL_BYTES = 8 * 1024;

export async function startSystem(options: SystemOptions): Promise<System> {
  const { services: names, environment, homeDirectory, logger } = options;
  let { settings, sources = {} } = options;
  const clock = systemClock;
  Buffer.poolSize = BUFFER_POOL_BYTES;
  refuseSecondIssuer(settings, names);
  if (await useOutgoingProxy(environment)) logger.info({}, 'calls go out through the proxy of the environment');

  // Everything is closed in reverse order, when a later step of the start fails and when the system stops.
  await using opened = new AsyncDisposableStack();
  const folder = dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME);
  const address = listenAddress(settings, names.length === 1 ? names[0] : undefined);
  const say = withoutRepeats((text) => logger.warn({}, text));
  if (options.worker === undefined) await checkStart({ settings, names, files: dataFiles(folder), say });
  const files = await prepareFiles(folder, options.worker);
  const stores = opened.use(await openServerStores({ settings, names, files, clock, say }));
  const swept = await sweepLeftovers(files.processes);
  if (swept > 0) logger.warn({ swept }, 'ended processes that an earlier run had left behind');

  const wakeUps = await listenForOthers(settings, logger);
  if (wakeUps !== undefined) opened.defer(() => wakeUps.stop());
  const shared = await openSharedLimits(settings, stores.pool, { clock, logger }, opened);
  const prepared = await prepareServiceParts({
    settings,
    services: names,
    environment,
    homeDirectory,
    files,
    privatePaths: options.privatePaths,
    databases: stores.all,
    clock,
    logger,
  });
  const parts: ServiceParts = { ...prepared, wakeUps, shared };
  let listeningAt = '';
  /** Where other instances reach this one; empty until it listens. */
  let relayAt = '';
  const drain = Promise.withResolvers<void>();
  let digest = settingsDigest(settings, parts.relayKeys);
  /** How far the clock of this machine is ahead of that of the database, as of the last heartbeat. */
  let clockDifferenceMs = 0;
  /** None before there is a listener. */
  let countSockets = () => 0;
  /** Completions alone are called by programs. */
  const hasConsole = settings.console.enabled && names.some((name) => name !== 'completions');
  const services = await startServices({
    parts,
    databases: stores.databases,
    opened,
    bridgeMethods: options.bridgeMethods,
    ownUrl: () => listeningAt,
    relayUrl: () => relayAt,
    ofBridge: {
      load: () => ({ sockets: countSockets(), settingsDigest: digest }),
      onClock: (differenceMs) => {
        clockDifferenceMs = differenceMs;
      },
      outageMs: () => settings.cluster.outage,
      onDrain: drain.resolve,
      settleMs: () => turnsMs(settings),
    },
    async started(service, database, ownLogger) {
      if (database.engine !== 'sqlite') return;
      const file = files.controlSocket(service.name);
      const url = () => listeningAt;
      const socket = await serveControls({
        file,
        service,
        database,
        url,
        clock,
        makeId: parts.makeId,
        logger: ownLogger,
      });
      opened.defer(() => socket.close());
    },
  });
  const { bridge, completions, accounts } = services;
  const running = [bridge, completions, accounts].filter((service) => service !== undefined);
  const namesWhere = (isOpen: boolean) =>
    running.filter(({ surface }) => surface.isOpen() === isOpen).map(({ name }) => name);

  const metrics = createHttpMetrics({
    sources: [...databaseFigures(stores), ...(completions?.figures ?? [])],
    ofProcess: true,
    gather: options.worker?.gather,
  });
  countSockets = () => metrics.totals().sockets;
  const status =
    bridge === undefined || !hasConsole
      ? undefined
      : startSystemStatus({
          clock,
          bridge,
          totals: metrics.totals,
          queued: () => stores.all.reduce((sum, { statistics }) => sum + statistics().queued, 0),
          async diagnose() {
            // The doctor imports every part of the program, so it is loaded at its first use.
            const { diagnose } = await import('./doctor/diagnose.ts');
            return diagnose({ settings, environment, homeDirectory, clock });
          },
          inForce: () => ({ settings, started: options.settings, sources }),
          onError: (error) => logger.warn({ err: error }, 'the figures of the system were not taken'),
        });
  if (status !== undefined) opened.defer(() => status.stop());
  const consoleSurface = createConsoleSurface({
    statusRoutes: status?.routes ?? [],
    names,
    hasConsole,
    isOpen: () => bridge?.surface.isOpen() ?? false,
    setupNeeded: async () => (await accounts?.needsSetup()) ?? false,
    // As it was at the start: a reload does not change which paths there are.
    proxyNodes: accounts !== undefined && settings.accounts.proxy_nodes,
    publicPath: () => publicPath(settings),
    findFiles: createConsoleFiles({ environment, clock, logger }),
  });
  const common = {
    insecure: settings.insecure,
    allowedHosts: settings.allowed_hosts,
    trustedProxies: settings.trusted_proxies,
    logger,
    clock,
    randomness: parts.randomness,
  };
  const listener: Listener = createListener({
    ...common,
    surfaces: [
      ...running.map(({ surface }) => surface),
      ...(hasConsole || accounts !== undefined ? [consoleSurface] : []),
      createApiSurface({
        names,
        consolePath: hasConsole ? '/console' : undefined,
        methods: bridge?.methods,
        surfaces: () => listener.surfaces,
      }),
    ],
    address,
    limits: {
      connectionsPerAddress: settings.listener.connections_per_address,
      // Only the bridge has WebSockets.
      socketsPerAddress: settings.bridge.limits.connections_per_address,
      messageBytes: settings.bridge.limits.message_bytes,
      stalledAfterMs: settings.bridge.limits.stalled_after,
    },
    readinessChecks: { store: stores.check },
    clockDifferenceMs: () => clockDifferenceMs,
    mayBeAwayMs: () => (settings.database.url === '' ? 0 : settings.cluster.outage),
    metrics,
    metricsToken: () => settings.metrics_token,
    ...(options.requestLines === undefined ? {} : { requestLines: options.requestLines }),
  });
  opened.defer(() => listener.close());
  const bound = await listener.start();
  listeningAt = bound.url;
  let forOthers: BoundAddress = bound;
  if (options.worker !== undefined && bridge !== undefined) {
    const own = createListener({
      ...common,
      surfaces: [relaySurface(bridge.surface)],
      address: { host: address.host, port: 0 },
      exclusive: true,
      limits: { messageBytes: settings.bridge.limits.message_bytes },
      metrics: createHttpMetrics(),
    });
    opened.defer(() => own.close());
    forOthers = await own.start();
  }
  relayAt = relayUrl(settings, forOthers, options.worker !== undefined);
  await bridge?.announceAddress();
  const setupToken = await accounts?.offerSetup();
  const owned = opened.move();

  return {
    summary: () => ({
      version: PROGRAM_VERSION,
      url: bound.url,
      pid: process.pid,
      dataDirectory: files.folder,
      database: settings.database.url === '' ? 'SQLite' : 'PostgreSQL',
      services: names,
      guarded: namesWhere(false),
      exposure: describeExposure(bound.host, namesWhere(true)),
      ...(setupToken !== undefined && { firstAdmin: `${publicUrl(settings, bound.url)}/setup#${setupToken}` }),
      ...(hasConsole && { console: `${publicUrl(settings, bound.url)}/console` }),
      agents: bridge?.agents() ?? [],
    }),
    drainAsked: drain.promise,
    figures: metrics.figures,
    async agentsKnown() {
      await withinTime(clock, AGENTS_WAIT_MS, Promise.resolve(bridge?.probed), () => undefined);
    },
    reload(next, nextSources = sources) {
      sources = nextSources;
      const changes = changedSettings(settingsDeclaration.schema, settings, next);
      settings = next;
      digest = settingsDigest(settings, parts.relayKeys);
      for (const service of running) service.reload(next);
      services.issued?.reload(accountsSettingsOf(next));
      listener.revalidate();
      return changes;
    },
    async stop(yields = false) {
      await listener.drain(
        turnsMs(settings) + QUIET_MS,
        settings.database.url === '' ? 0 : settings.cluster.notice,
        yields,
      );
      await owned.disposeAsync();
    },
  };
}

/** A worker has a folder of its own, and the secret key of the program. */
async function prepareFiles(folder: string, worker: WorkerPart | undefined): Promise<DataFiles> {
  const files = await prepareDataDirectory(folder);
  if (worker === undefined) return files;
  const own = await prepareDataDirectory(join(folder, 'workers', String(worker.slot)));
  return { ...own, secretKey: files.secretKey };
}

/** The part of the bridge's surface that other instances call. */
function relaySurface(surface: HttpSurface): HttpSurface {
  const isRelay = (path: string) => surface.servedLast?.some((last) => isBelow(path, last)) ?? false;
  return {
    ...surface,
    routes: surface.routes.filter(({ path }) => isRelay(path)),
    upgrades: surface.upgrades.filter(({ path }) => isRelay(path)),
    leave: () => undefined,
    settle: async () => undefined,
  };
}

/** Of `cluster.address` workers take the host alone, because each has a port of its own. */
function relayUrl({ cluster }: Settings, { host, port }: BoundAddress, isWorker: boolean): string {
  if (cluster.address !== '' && !isWorker) return cluster.address;
  if (cluster.address === '') return reachableAt(urlOf(`${host}:${port}`));
  return `http://${new URL(cluster.address).hostname}:${port}`;
}

function turnsMs({ database, cluster }: Settings): number {
  return database.url === '' ? TURNS_MS : cluster.drain;
}

/** Messages between instances; undefined where no other instance can share the database. */
async function listenForOthers({ database }: Settings, logger: Logger): Promise<WakeUps | undefined> {
  if (database.url === '') return undefined;
  const { openWakeUps } = await import('../platform/database/postgres/wake-ups.ts');
  return openWakeUps({ url: database.listen_url || database.url, clock: systemClock, logger });
}

function publicUrl({ accounts }: Settings, ownUrl: string): string {
  return withoutSlash(accounts.public_url === '' ? ownUrl : accounts.public_url);
}

/** Throws SECOND_ISSUER if accounts would run here although another server issues the users. */
function refuseSecondIssuer(settings: Settings, names: readonly ServiceName[]): void {
  const { issuer, public_url: own } = settings.accounts;
  if (!names.includes('accounts') || issuer === '' || withoutSlash(issuer) === withoutSlash(own)) return;
  throw new AppError('SECOND_ISSUER', { issuer });
}

/** The path of the address that browsers use, behind a proxy; empty otherwise. */
function publicPath(settings: Settings): string {
  const { pathname } = URL.parse(publicUrl(settings, '')) ?? { pathname: '/' };
  return pathname === '/' ? '' : pathname;
}

function describeExposure(host: string, open: readonly ServiceName[]): string {
  const reach = isLoopbackBind(host) ? 'loopback only' : 'reachable from other machines';
  return `${reach}, ${open.length === 0 ? 'token needed' : `no token needed for ${open.join(' and ')}`}`;
}

interface AgentStatus {
  readonly id: string;
  readonly status: string;
  readonly version: string;
  /** Of an agent that has one model unless a turn names another. */
  readonly model?: string;
  /** What the operator can do about a status that is not `ok`. */
  readonly advice?: string | undefined;
}

/** What runs and where, for the lines that `serve` prints (with `--json`, this very object). */
export interface SystemSummary {
  readonly version: string;
  readonly url: string;
  readonly pid: number;
  /** How many processes serve the address; absent when there is one. */
  readonly workers?: number;
  readonly dataDirectory: string;
  readonly database: 'SQLite' | 'PostgreSQL';
  readonly services: readonly ServiceName[];
  /** The services that ask for a credential. */
  readonly guarded: readonly ServiceName[];
  /** Who can reach it, in words: `loopback only, no token`. */
  readonly exposure: string;
  /** The address that creates the first administrator, once and within 15 minutes; absent when there is one. */
  readonly firstAdmin?: string;
  /** The address of the console; absent where it is switched off. */
  readonly console?: string;
  readonly agents: readonly AgentStatus[];
}
