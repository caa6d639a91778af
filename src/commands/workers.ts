import cluster, { type Worker } from 'node:cluster';
import { realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pause, systemClock, withinTime } from '../platform/clock/clock.ts';
import { AppError } from '../platform/errors/app-error.ts';
import type { Figure } from '../platform/http/http-metrics.ts';
import type { Logger } from '../platform/log/logger.ts';
import { dataFiles } from '../system/data-directory.ts';
import { dataDirectory, SERVICE_NAMES, type ServiceName } from '../system/settings.ts';
import type { SystemSummary } from '../system/start-system.ts';
import { checkStart } from '../system/stores.ts';
import { type CommandContext, CommandExit, EXIT_FAILED, type Options } from './command-context.ts';
import { createCommandLogger, loadSettings } from './load-settings.ts';
import { printSummary, type WorkerLink } from './serve-until-stopped.ts';

/**
 * `trestle serve --workers N`: a parent that serves nothing, and N processes that serve one address. Each is an instance of the
 * database. The parent accepts the connections and hands them out in turn (`node:cluster`).
 */

/** What a worker sends. */
type ToParent =
  | { readonly kind: 'ready'; readonly summary: SystemSummary }
  | { readonly kind: 'gather'; readonly id: number }
  | { readonly kind: 'figures'; readonly id: number; readonly figures: readonly Figure[] };

/** What the parent sends. */
type ToWorker =
  | { readonly kind: 'leave' }
  | { readonly kind: 'figures'; readonly id: number }
  | { readonly kind: 'gathered'; readonly id: number; readonly all: readonly (readonly Figure[])[] };

/** A worker that is too busy to answer in this time is left out of the sum. */
const GATHER_MS = 3_000;
/** Between the end of a worker that has failed and the start of the next one; doubled while it does not start. */
const AGAIN_MS = 1_000;
const MAX_AGAIN_MS = 30_000;

/** Runs workers until a signal ends them, or all of them were drained. */
export async function serveWithWorkers(
  count: number,
  service: ServiceName | undefined,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const { settings, file } = await loadSettings(options, context);
  if (settings.database.url === '') throw new AppError('NEEDS_POSTGRES', { what: '--workers' });
  if (settings.cluster.address.startsWith('https:')) throw new AppError('WORKERS_WITHOUT_TLS');
  const { level, format } = settings.log;
  const logger = createCommandLogger(settings, context, { level, format: format === 'text' ? 'pretty' : 'json' });
  const names = service === undefined ? SERVICE_NAMES : [service];
  const folder = dataDirectory(settings, context.homeDirectory, context.environment.XDG_DATA_HOME);
  const say = (text: string) => logger.warn({}, text);
  await checkStart({ settings, names, files: dataFiles(folder), say });
  const parent = createParent(logger);
  let isOver = false;
  const forward = (signal: NodeJS.Signals) => {
    if (signal !== 'SIGHUP') isOver = true;
    parent.signal(signal === 'SIGHUP' ? signal : 'SIGTERM');
  };
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, forward);
  const started = Promise.withResolvers<void>();
  let replacing: Promise<void> = started.promise;
  let isAsked = false;
  // One round at a time, and many signals become one: a round that has not begun takes the program as it is then.
  process.on('SIGUSR2', () => {
    if (isAsked) return;
    isAsked = true;
    replacing = replacing.then(() => {
      isAsked = false;
      return replaceAll();
    });
  });

  async function replaceAll(): Promise<void> {
    for (let slot = 1; slot <= count && !isOver; slot += 1) {
      try {
        await parent.replace(slot);
        logger.info({ worker: slot }, 'worker replaced');
      } catch {
        if (!isOver) logger.error({ worker: slot }, 'the new worker did not start; the old workers keep running');
        return;
      }
    }
  }

  /** Keeps a place filled until its worker was stopped or drained. */
  async function keep(slot: number): Promise<void> {
    let pauseMs = AGAIN_MS;
    for (;;) {
      const code = await parent.ended(slot);
      if (isOver || code === 0) return;
      logger.error({ worker: slot, code }, 'a worker has failed and is being restarted');
      await pause(systemClock, pauseMs);
      if (isOver) return;
      pauseMs = await parent
        .fill(slot, () => isOver)
        .then(
          () => AGAIN_MS,
          () => Math.min(MAX_AGAIN_MS, pauseMs * 2),
        );
    }
  }

  try {
    // The first worker starts alone, because it creates what all share: the schemas of the database, and the secret key.
    const summary = await parent.start(1);
    if (!isOver) await Promise.all(Array.from({ length: count - 1 }, (_, index) => parent.start(index + 2)));
    if (!isOver) printSummary({ ...summary, pid: process.pid, workers: count }, options, context, file);
  } catch (error) {
    const wasStopped = isOver;
    isOver = true;
    parent.signal('SIGTERM');
    await parent.allEnded();
    if (wasStopped) return;
    throw error;
  }
  started.resolve();
  await Promise.all(Array.from({ length: count }, (_, index) => keep(index + 1)));
  await replacing;
  await parent.allEnded();
}

interface Parent {
  /** Resolves when the worker serves; throws CommandExit with its exit code when it ends before. */
  start(slot: number): Promise<SystemSummary>;
  /** Starts a worker in a place without one, unless that is no longer wanted; fails as `start` does. */
  fill(slot: number, isOver: () => boolean): Promise<void>;
  /** Starts another worker for a place, then lets the old one leave; resolves when it has ended. */
  replace(slot: number): Promise<void>;
  /** The exit code of the worker in a place, once it has ended and none has replaced it. */
  ended(slot: number): Promise<number>;
  signal(signal: NodeJS.Signals): void;
  allEnded(): Promise<void>;
}

interface Running {
  readonly worker: Worker;
  readonly ended: Promise<number>;
  readonly isServing: boolean;
  /** It was to read its settings again before it served: it may have read them before they were changed. */
  isReloadDue: boolean;
}

function createParent(logger: Logger): Parent {
  const places = new Map<number, Running>();
  const all = new Set<Running>();
  const gathering = new Map<number, { readonly got: (readonly Figure[])[]; wanted: number; done(): void }>();
  let lastId = 0;
  const turns = new Map<number, Promise<unknown>>();

  /** Starts one worker at a time in a place: a restart after a failure and a replacement would otherwise leave two there. */
  function inTurn<Result>(slot: number, work: () => Promise<Result>): Promise<Result> {
    const done = (turns.get(slot) ?? Promise.resolve()).then(work);
    turns.set(
      slot,
      done.catch(() => undefined),
    );
    return done;
  }

  /** Asks every worker for its metrics, and sends all of them to the worker that was asked for `/metrics`. */
  async function gather(asker: Worker, askedAs: number): Promise<void> {
    lastId += 1;
    const id = lastId;
    const asked = [...all].filter(({ worker }) => worker.isConnected());
    const { promise, resolve } = Promise.withResolvers<void>();
    const got: (readonly Figure[])[] = [];
    gathering.set(id, { got, wanted: asked.length, done: resolve });
    for (const { worker } of asked) send(worker, { kind: 'figures', id });
    await withinTime(systemClock, GATHER_MS, promise, () => undefined);
    gathering.delete(id);
    send(asker, { kind: 'gathered', id: askedAs, all: got });
  }

  function received(worker: Worker, message: ToParent): void {
    if (message.kind === 'gather') void gather(worker, message.id);
    if (message.kind !== 'figures') return;
    const round = gathering.get(message.id);
    round?.got.push(message.figures);
    if (round?.got.length === round?.wanted) round?.done();
  }

  function launch(slot: number): { readonly running: Running; readonly serves: Promise<SystemSummary> } {
    cluster.setupPrimary(commandLine(slot));
    const worker = cluster.fork();
    const { promise: serves, resolve, reject } = Promise.withResolvers<SystemSummary>();
    const ended = new Promise<number>((settle) => {
      worker.once('exit', (code: number | null, signal: string | null) => {
        all.delete(running);
        logger.info({ worker: slot, pid: worker.process.pid, code, signal }, 'worker ended');
        reject(new CommandExit(code || EXIT_FAILED));
        settle(code ?? EXIT_FAILED);
      });
    });
    const running = { worker, ended, isServing: false, isReloadDue: false };
    all.add(running);
    logger.info({ worker: slot, pid: worker.process.pid }, 'worker started');
    worker.on('message', (message: ToParent) => {
      if (message.kind !== 'ready') return received(worker, message);
      running.isServing = true;
      if (running.isReloadDue) worker.process.kill('SIGHUP');
      resolve(message.summary);
    });
    // Written to after its end.
    worker.on('error', (error) => logger.warn({ err: error, worker: slot }, 'a worker could not be reached'));
    return { running, serves };
  }

  async function start(slot: number): Promise<SystemSummary> {
    const { running, serves } = launch(slot);
    places.set(slot, running);
    return await serves;
  }

  /** Puts a worker that serves into a place, and returns the one before it. */
  async function exchange(slot: number): Promise<Running | undefined> {
    const old = places.get(slot);
    const { running, serves } = launch(slot);
    await serves;
    places.set(slot, running);
    return old !== undefined && all.has(old) ? old : undefined;
  }

  return {
    start,
    async fill(slot, isOver) {
      await inTurn(slot, async () => {
        const place = places.get(slot);
        const isFilled = place !== undefined && all.has(place);
        if (!isFilled && !isOver()) await start(slot);
      });
    },
    async replace(slot) {
      const old = await inTurn(slot, () => exchange(slot));
      if (old === undefined) return;
      send(old.worker, { kind: 'leave' });
      await old.ended;
    },
    async ended(slot) {
      for (;;) {
        const running = places.get(slot);
        const code = (await running?.ended) ?? EXIT_FAILED;
        if (places.get(slot) === running) return code;
      }
    },
    signal(signal) {
      for (const running of all) {
        // A worker that has just been started would end, because it does not listen for signals yet.
        if (signal === 'SIGHUP' && !running.isServing) running.isReloadDue = true;
        else running.worker.process.kill(signal);
      }
    },
    async allEnded() {
      await Promise.all([...all].map(({ ended }) => ended));
    },
  };
}

/** The program as it was started, also from its sources, where a script starts the entry. */
function commandLine(slot: number): { readonly exec: string; readonly args: string[] } {
  const [, entry = '', ...args] = process.argv;
  const exec = createRequire(import.meta.url).main?.filename ?? entry;
  // npm links the command of a package: the entry is then another name of the same file.
  const isEntry = exec === entry || exec === realpathSync(entry);
  return { exec, args: [...(isEntry ? [] : [entry]), ...args, '--worker', String(slot)] };
}

function send(worker: Worker, message: ToWorker): void {
  if (worker.isConnected()) worker.send(message);
}

/** Called in a worker. `own` reads its figures. */
export function linkToParent(own: () => Promise<readonly Figure[]>): WorkerLink {
  const waiting = new Map<number, (all: readonly (readonly Figure[])[]) => void>();
  const leaving: (() => void)[] = [];
  let lastId = 0;
  const tell = (message: ToParent) => void (process.connected && process.send?.(message));
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'leave') for (const listener of leaving) listener();
    if (message.kind === 'gathered') waiting.get(message.id)?.(message.all);
    if (message.kind === 'figures') {
      own().then(
        (figures) => tell({ kind: 'figures', id: message.id, figures }),
        () => tell({ kind: 'figures', id: message.id, figures: [] }),
      );
    }
  });
  return {
    ready: (summary) => tell({ kind: 'ready', summary }),
    onLeave: (listener) => void leaving.push(listener),
    async gather(figures) {
      lastId += 1;
      const id = lastId;
      const { promise, resolve } = Promise.withResolvers<readonly (readonly Figure[])[]>();
      waiting.set(id, resolve);
      tell({ kind: 'gather', id });
      // The parent does not respond: send only the metrics of this worker.
      const all = await withinTime(systemClock, 2 * GATHER_MS, promise, () => [figures]);
      waiting.delete(id);
      return all;
    },
  };
}
