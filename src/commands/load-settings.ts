import type { Command } from 'commander';
import { systemClock } from '../platform/clock/clock.ts';
import { type Configuration, loadConfiguration } from '../platform/config/load-configuration.ts';
import type { Flags } from '../platform/config/read-layers.ts';
import { settingEntries } from '../platform/config/setting-annotation.ts';
import { secretValues } from '../platform/config/setting-values.ts';
import { createLogger, type Logger, type LoggerOptions } from '../platform/log/logger.ts';
import { type ServiceName, type Settings, settingsDeclaration } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';

/** The settings for a command, from its options (`command.optsWithGlobals()`). Throws a `ConfigurationError`. */
export function loadSettings(
  options: Readonly<Record<string, unknown>>,
  { environment, workingDirectory, homeDirectory }: CommandContext,
): Promise<Configuration<Settings>> {
  return loadConfiguration({
    declaration: settingsDeclaration,
    configFile: typeof options.config === 'string' ? options.config : undefined,
    environment,
    flags: flagsFromOptions(options),
    homeDirectory,
    workingDirectory,
  });
}

const ENTRIES = settingEntries(settingsDeclaration.schema).flatMap(({ annotation }) =>
  annotation.shape === 'leaf' && annotation.flag !== undefined ? [{ ...annotation, flag: annotation.flag }] : [],
);

/** Adds the flags that every command takes: those of the declared settings, `--config` and `--json`. */
export function addGlobalFlags(program: Command): void {
  program.option('--config <path>', `file to read instead of ./${settingsDeclaration.fileName}`);
  for (const { flag, type, description } of ENTRIES) {
    const argument = type === 'true or false' ? '' : ` <${/^[\w:-]+$/.test(type) ? type : 'value'}>`;
    program.option(flag + argument, description.replaceAll('`', ''));
  }
  program.option('--json', 'print one JSON object');
}

/** Picks the settings out of a command's options, by flag. */
export function flagsFromOptions(options: Readonly<Record<string, unknown>>): Flags {
  return Object.fromEntries(
    ENTRIES.map(({ flag }) => {
      const given = options[optionName(flag)];
      return [flag, typeof given === 'string' || typeof given === 'boolean' ? given : undefined];
    }),
  );
}

/** `--data-dir` is `dataDir` among a command's options. */
function optionName(flag: string): string {
  return flag.slice(2).replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** The log of a command whose standard output belongs to a protocol. */
export function createStreamsLogger(settings: Settings, context: CommandContext): Logger {
  return createCommandLogger(settings, context, {
    level: settings.log.level,
    format: settings.log.format === 'text' ? 'pretty' : 'json',
  });
}

/** Writes to standard error. The secrets are collected once: the log compares every line with them. */
export function createCommandLogger(
  settings: Settings,
  context: Pick<CommandContext, 'stderr'>,
  form: Pick<LoggerOptions, 'level' | 'format'>,
): Logger {
  const secrets = secretValues(settingsDeclaration.schema, settings);
  return createLogger({
    ...form,
    output: { write: context.stderr, flush: () => undefined },
    clock: systemClock,
    secrets: () => secrets,
  });
}

/** Asks a service for something on behalf of a command, whether its server runs or not. */
export async function callFromCommand(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
  name: ServiceName,
  method: string,
  params: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  const { settings } = await loadSettings(options, context);
  const { callControl } = await import('../system/controls.ts');
  const { environment, homeDirectory } = context;
  const logger = createCommandLogger(settings, context, { level: 'warn', format: 'pretty' });
  return callControl({ settings, environment, homeDirectory, clock: systemClock, logger }, name, method, params);
}
