import { systemClock } from '../platform/clock/clock.ts';
import { secretValues } from '../platform/config/secret-values.ts';
import { createLogger, type Logger } from '../platform/log/logger.ts';
import { type Settings, settingsDeclaration } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';

/** The log of a command whose standard output belongs to a protocol. */
export function createStreamsLogger(settings: Settings, context: CommandContext): Logger {
  return createLogger({
    level: settings.log.level,
    format: settings.log.format === 'text' ? 'pretty' : 'json',
    output: { write: context.stderr, flush: () => undefined },
    clock: systemClock,
    secrets: () => secretValues(settingsDeclaration.schema, settings),
  });
}
