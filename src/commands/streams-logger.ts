import { systemClock } from '../platform/clock/clock.ts';
import { secretValues } from '../platform/config/secret-values.ts';
import { createLogger, type Logger, type LoggerOptions } from '../platform/log/logger.ts';
import { type Settings, settingsDeclaration } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';

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
