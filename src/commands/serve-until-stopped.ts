import { styleText } from 'node:util';
import { systemClock } from '../platform/clock/clock.ts';
import { secretValues } from '../platform/config/secret-values.ts';
import { createBufferedOutput } from '../platform/log/log-output.ts';
import { createLogger, type Logger } from '../platform/log/logger.ts';
import { dataDirectory, type ServiceName, type Settings, settingsDeclaration } from '../system/settings.ts';
import { type System, startSystem } from '../system/start-system.ts';
import { bannerText } from './banner.ts';
import type { CommandContext } from './command-context.ts';
import { describeFailure, EXIT_FAILED } from './command-failure.ts';
import { loadSettings } from './load-settings.ts';

type Options = Readonly<Record<string, unknown>>;
type LoadSettings = () => Promise<{
  readonly settings: Settings;
  /** As configured, before anything was narrowed. */
  readonly whole: Settings;
  readonly file: string | undefined;
  readonly warnings: readonly string[];
}>;

/** For a server that does less than its settings say. */
export interface Restriction {
  narrow(settings: Settings): Settings;
  /** Names of the methods that the bridge serves. */
  readonly bridgeMethods: readonly string[];
}

/** Runs the system until a signal ends it. Logs go to standard error, what a person reads to standard output. */
export async function serve(
  services: readonly ServiceName[],
  options: Options,
  context: CommandContext,
  restriction?: Restriction,
): Promise<void> {
  const load: LoadSettings = async () => {
    const { settings: whole, file, warnings } = await loadSettings(options, context);
    return { settings: restriction?.narrow(whole) ?? whole, whole, file, warnings };
  };
  const { settings, whole, file, warnings } = await load();
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
  for (const warning of warnings) logger.warn({}, warning);
  const { environment, homeDirectory } = context;
  const requestLines = format === 'json' && (level === 'info' || level === 'debug') ? output : undefined;
  const system = await startSystem({
    settings,
    services,
    environment,
    homeDirectory,
    privatePaths: {
      folders: [dataDirectory(whole, homeDirectory, environment.XDG_DATA_HOME)],
      files: file === undefined ? [] : [file],
    },
    logger,
    requestLines,
    bridgeMethods: restriction?.bridgeMethods,
  });
  const stopped = stopOnSignal(system, logger);
  process.on('SIGHUP', () => void reload(system, load, logger, secrets));

  await system.agentsKnown();
  const summary = system.summary();
  const bold = (text: string): string => (context.color ? styleText('bold', text) : text);
  context.stdout(options.json === true ? `${JSON.stringify(summary)}\n` : bannerText(summary, bold));
  logger.info({ url: summary.url, services }, 'ready');
  await stopped;
  logger.info({}, 'stopped');
  logger.flush();
}

function logFormat({ log }: Settings): 'json' | 'pretty' {
  if (log.format === 'auto') return process.stderr.isTTY ? 'pretty' : 'json';
  return log.format === 'text' ? 'pretty' : 'json';
}

/** An error that nobody caught, a rejected promise included, leaves the program in a state that nobody planned. */
function endOnUnexpectedError(logger: Logger): void {
  process.on('uncaughtException', (error) => {
    logger.error({ err: error }, 'unexpected failure, ending');
    logger.flush();
    process.exit(EXIT_FAILED);
  });
}

/** The first signal drains, a second one ends at once. */
function stopOnSignal(system: System, logger: Logger): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let stopping = false;
  const onSignal = (signal: string): void => {
    if (stopping) {
      logger.warn({ signal }, 'ending at once');
      logger.flush();
      process.exit(EXIT_FAILED);
    }
    stopping = true;
    logger.info({ signal }, 'stopping: new work is refused, running work may finish');
    system.stop().then(resolve, reject);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  return promise;
}

/** Reads the configuration again. One that has problems changes nothing. */
async function reload(
  system: System,
  load: LoadSettings,
  logger: Logger,
  secrets: { values: readonly string[] },
): Promise<void> {
  try {
    const { settings } = await load();
    // The old ones stay on the list: a line about what was replaced must not show it.
    secrets.values = [...new Set([...secrets.values, ...secretValues(settingsDeclaration.schema, settings)])];
    const { reloadable, restart } = system.reload(settings);
    logger.info({ changed: reloadable }, 'configuration read again');
    if (restart.length > 0) logger.warn({ changed: restart }, 'these changes count after a restart');
  } catch (error) {
    const reason = describeFailure(error).text.trim();
    logger.error({ reason }, 'configuration not read again; everything stays as it was');
  }
}
