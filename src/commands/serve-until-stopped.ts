import { styleText } from 'node:util';
import { systemClock } from '../platform/clock/clock.ts';
import { secretValues } from '../platform/config/setting-declaration.ts';
import type { Figure } from '../platform/http/http-metrics.ts';
import { createBufferedOutput } from '../platform/log/log-output.ts';
import { createLogger, type Logger } from '../platform/log/logger.ts';
import { dataDirectory, type ServiceName, type Settings, settingsDeclaration } from '../system/settings.ts';
import { type System, type SystemSummary, startSystem } from '../system/start-system.ts';
import { type CommandContext, describeFailure, EXIT_FAILED, type Options } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { loginFile } from './server-login.ts';

type LoadSettings = () => Promise<{
  readonly settings: Settings;
  /** As configured, before anything was narrowed. */
  readonly whole: Settings;
  /** Where each setting comes from, by path. */
  readonly sources: Readonly<Record<string, string>>;
  readonly file: string | undefined;
  readonly warnings: readonly string[];
}>;

/** A worker's connection to its parent. */
export interface WorkerLink {
  /** Reports that the worker serves. */
  ready(summary: SystemSummary): void;
  /** The figures of all workers, with the given ones as its own. */
  gather(own: readonly Figure[]): Promise<readonly (readonly Figure[])[]>;
  /** Calls the listener when it is to leave because another worker has its place. */
  onLeave(listener: () => void): void;
}

/** Restricts a server to less than its settings allow. */
interface Restriction {
  narrow(settings: Settings): Settings;
  /** The methods that the bridge serves. */
  readonly bridgeMethods: NonNullable<Parameters<typeof startSystem>[0]['bridgeMethods']>;
  /** Called when it serves; what it returns is stopped with the server, and stops the server when it fails. */
  served?(summary: SystemSummary, logger: Logger): { readonly ended: Promise<void>; stop(): void };
  /** Resolves when its work is done: then it ends as after a signal. */
  readonly done?: Promise<void> | undefined;
}

/** The place of this process among those that serve the address together. */
interface WorkerPlace {
  readonly slot: number;
  link(own: () => Promise<Awaited<ReturnType<System['figures']>>>): WorkerLink;
}

/** Runs the system until a signal ends it. Logs go to standard error, text for people to standard output. */
export async function serve(
  services: readonly ServiceName[],
  options: Options,
  context: CommandContext,
  restriction?: Restriction,
  worker?: WorkerPlace,
): Promise<void> {
  const link = worker?.link(async () => system?.figures() ?? []);
  const load: LoadSettings = async () => {
    const { settings: whole, ...loaded } = await loadSettings(options, context);
    return { ...loaded, settings: restriction?.narrow(whole) ?? whole, whole };
  };
  const started = Promise.withResolvers<() => Promise<void>>();
  reloadOnSignal(started.promise);
  const { settings, whole, sources, file, warnings } = await load();
  const secrets = { values: secretValues(settingsDeclaration.schema, settings) };
  const { level } = settings.log;
  const format = logFormat(settings);
  const output = createBufferedOutput({ clock: systemClock });
  const logger = createLogger({
    level,
    format,
    output,
    clock: systemClock,
    secrets: () => secrets.values,
  });
  endOnUnexpectedError(logger);
  // It is for the parent of workers, but may reach every process of a unit; without a listener it would end them.
  process.on('SIGUSR2', () => {
    if (worker === undefined) logger.warn({}, 'SIGUSR2 replaces workers, and this server has none: restart it instead');
  });
  for (const warning of warnings) logger.warn({}, warning);
  const { environment, homeDirectory } = context;
  const requestLines = format === 'json' && (level === 'info' || level === 'debug') ? output : undefined;
  let system: System | undefined;
  system = await startSystem({
    settings,
    sources,
    services,
    environment,
    homeDirectory,
    privatePaths: {
      folders: [dataDirectory(whole, homeDirectory, environment.XDG_DATA_HOME)],
      files: [...(file === undefined ? [] : [file]), loginFile(context)],
    },
    logger,
    requestLines,
    bridgeMethods: restriction?.bridgeMethods,
    ...(worker !== undefined && link !== undefined && { worker: { slot: worker.slot, gather: link.gather } }),
  });
  const stopped = stopOnSignal(system, logger, link, restriction?.done);
  started.resolve(() => reload(system, load, logger, secrets));

  await system.agentsKnown();
  const summary = system.summary();
  if (link === undefined) printSummary(summary, options, context, file, restriction === undefined);
  else link.ready(summary);
  logger.info({ url: summary.url, services }, 'ready');
  const beside = restriction?.served?.(summary, logger);
  const keepMemory = systemClock.after(GIVE_BACK_AFTER_MS, giveBackMemory);
  try {
    await Promise.race([stopped, ...(beside === undefined ? [] : [beside.ended])]);
  } catch (error) {
    await system.stop();
    throw error;
  } finally {
    keepMemory();
    beside?.stop();
  }
  logger.info({}, 'stopped');
  logger.flush();
}

const GIVE_BACK_AFTER_MS = 1000;

/**
 * Gives the memory that only the start needed back to the system, once. V8 does not: it would keep the room that its young
 * objects took then (docs/decisions/0149). Nothing happens where Node was started without `--expose-gc`.
 */
function giveBackMemory(): void {
  globalThis.gc?.({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}

function logFormat({ log }: Settings): 'json' | 'pretty' {
  if (log.format === 'auto') return process.stderr.isTTY ? 'pretty' : 'json';
  return log.format === 'text' ? 'pretty' : 'json';
}

/** Ends the program after an uncaught error or rejected promise, because its state is unknown then. */
function endOnUnexpectedError(logger: Logger): void {
  process.on('uncaughtException', (error) => {
    logger.error({ err: error }, 'unexpected failure, exiting');
    logger.flush();
    process.exit(EXIT_FAILED);
  });
}

/** The first signal drains, a second one ends the program immediately. */
function stopOnSignal(system: System, logger: Logger, link?: WorkerLink, done?: Promise<void>): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let stopping = false;
  const onSignal = (signal: string): void => {
    if (stopping) {
      logger.warn({ signal }, 'ending immediately');
      logger.flush();
      process.exit(EXIT_FAILED);
    }
    stop(signal, false);
  };
  function stop(reason: string, yields: boolean): void {
    if (stopping) return;
    stopping = true;
    logger.info({ signal: reason }, 'stopping: new work is refused, running work may finish');
    system.stop(yields).then(resolve, reject);
  }
  process.on('SIGTERM', onSignal);
  // A terminal sends it to the workers, too: the parent passes on what counts.
  process.on('SIGINT', link === undefined ? onSignal : () => undefined);
  link?.onLeave(() => stop('leave', true));
  void system.drainAsked.then(() => stop('drain', link !== undefined));
  void done?.then(() => stop('done', false));
  return promise;
}

/**
 * Reloads on SIGHUP: one reload at a time, and many signals become one. Called first, because a signal without a listener ends the
 * process: one that arrives during the start counts once the server runs.
 */
function reloadOnSignal(started: Promise<() => Promise<void>>): void {
  let isAsked = false;
  let last: Promise<unknown> = started;
  process.on('SIGHUP', () => {
    if (isAsked) return;
    isAsked = true;
    last = last.then(async () => {
      isAsked = false;
      await (await started)();
    });
  });
}

/** Reads the configuration again. A configuration with problems changes nothing. */
async function reload(
  system: System,
  load: LoadSettings,
  logger: Logger,
  secrets: { values: readonly string[] },
): Promise<void> {
  try {
    const { settings, sources } = await load();
    // The old ones stay on the list: a line about what was replaced must not show it.
    secrets.values = [...new Set([...secrets.values, ...secretValues(settingsDeclaration.schema, settings)])];
    const { reloadable, restart } = system.reload(settings, sources);
    logger.info({ changed: reloadable }, 'configuration read again');
    if (restart.length > 0) logger.warn({ changed: restart }, 'these changes apply after a restart');
  } catch (error) {
    const reason = describeFailure(error).text.trim();
    logger.error({ reason }, 'configuration not read again; everything stays as it was');
  }
}

/** Prints what runs and where: for a person, or with `--json` for a program. */
export function printSummary(
  summary: SystemSummary,
  options: Options,
  context: CommandContext,
  file: string | undefined,
  isWhole = true,
): void {
  const bold = (text: string): string => (context.color ? styleText('bold', text) : text);
  context.stdout(
    options.json === true
      ? `${JSON.stringify(summary)}\n`
      : bannerText(summary, bold, isWhole ? commandsFor(options, context) : undefined, file),
  );
}

const LABEL_WIDTH = 14;

/**
 * What a person sees when the server is ready. `bold` marks up the names, or leaves them as they are. Without `command`
 * nothing is suggested: a runner or an adapter is used by another server alone.
 */
function bannerText(
  summary: SystemSummary,
  bold: (text: string) => string,
  command: ((words: string) => string) | undefined,
  file: string | undefined,
): string {
  const { version, dataDirectory, database, url, exposure, agents } = summary;
  const line = (label: string, text: string) => `  ${bold(label)}${' '.repeat(LABEL_WIDTH - label.length)}${text}`;
  const socketUrl = url.replace(/^http/, 'ws');
  const lines = [
    `  ${bold(`trestle ${version}`)}   data ${dataDirectory} (${database})   ${exposure}`,
    '',
    ...(summary.console === undefined ? [] : [line('Console', summary.console)]),
    ...summary.services.flatMap((service) => {
      if (service === 'bridge') return [line('Bridge', `${socketUrl}/acp        POST /acp/rpc`)];
      if (service === 'completions') return [line('Completions', `${url}/v1       OPENAI_BASE_URL=${url}/v1`)];
      return [line('Accounts', `${url}/api/auth`)];
    }),
    line('API page', `${url}/docs`),
    ...(summary.workers === undefined ? [] : [line('Workers', `${summary.workers}      (trestle cluster)`)]),
  ];
  if (agents.length > 0) {
    const found = agents.map((agent) => `${agent.id} ${stateOf(agent)}`).join('   ');
    lines.push(line('Agents', `${found}      (trestle doctor)`));
  }
  if (summary.firstAdmin !== undefined) lines.push(line('First admin', `${summary.firstAdmin}  (once, 15 min)`));
  if (command !== undefined) lines.push('', line('Try', tryLine(summary, command)));
  if (command !== undefined && file === undefined)
    lines.push(line('Next', `${command('init')}   finds keys, local models and agents, and writes trestle.yaml`));
  lines.push('');
  return `${lines.join('\n')}\n`;
}

/** Returns how to call commands for this server: by npm in a checkout, otherwise as an installed program. */
function commandsFor(options: Options, { environment }: CommandContext): (words: string) => string {
  const script = environment.npm_lifecycle_event;
  const program = script === undefined || script === 'npx' ? 'trestle' : 'npm run -s trestle --';
  const place = typeof options.dataDir === 'string' ? ` --data-dir ${options.dataDir}` : '';
  return (words) => `${program} ${words}${place}`;
}

function stateOf({ status, model }: SystemSummary['agents'][number]): string {
  const state = status.replaceAll('_', ' ');
  return model === undefined ? state : `${state} (${model})`;
}

/** Returns a command that works as printed. On a server with a token, it names the variable instead of showing the token. */
function tryLine({ services, url, guarded, database }: SystemSummary, command: (words: string) => string): string {
  if (services.includes('bridge') && database === 'SQLite') return command('run "Hello"');
  const json = `-H 'content-type: application/json'`;
  if (services.includes('bridge')) {
    const body = `{"jsonrpc":"2.0","id":"1","method":"session.start","params":{"sessionId":"first","taskPrompt":"Hello"}}`;
    const token = guarded.includes('bridge') ? ` -H "authorization: Bearer $BRIDGE_AUTH_TOKEN"` : '';
    return `curl ${url}/acp/rpc ${json}${token} -d '${body}'`;
  }
  if (services.includes('completions')) {
    const body = `{"model":"demo/echo","messages":[{"role":"user","content":"Hello"}]}`;
    const key = guarded.includes('completions') ? ` -H "authorization: Bearer $COMPLETIONS_MASTER_KEY"` : '';
    return `curl ${url}/v1/chat/completions ${json}${key} -d '${body}'`;
  }
  return `curl ${url}/healthz`;
}
