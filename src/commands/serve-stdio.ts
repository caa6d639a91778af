import { once } from 'node:events';
import { systemClock } from '../platform/clock/clock.ts';
import { secretValues } from '../platform/config/secret-values.ts';
import { createLogger } from '../platform/log/logger.ts';
import { settingsDeclaration } from '../system/settings.ts';
import { startStdio } from '../system/start-stdio.ts';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';

/** Serves the standard streams until the other side closes them, or a signal comes. */
export async function serveStdio(
  agent: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const { settings, warnings } = await loadSettings(options, context);
  const logger = createLogger({
    level: settings.log.level,
    format: settings.log.format === 'text' ? 'pretty' : 'json',
    // Standard output belongs to the messages.
    output: { write: context.stderr, flush: () => undefined },
    clock: systemClock,
    secrets: () => secretValues(settingsDeclaration.schema, settings),
  });
  for (const warning of warnings) logger.warn({}, warning);
  const { environment, homeDirectory } = context;
  const { stdin: input, stdout: output } = process;
  const system = await startStdio({ settings, agent, input, output, environment, homeDirectory, logger });
  await Promise.race([system.ended, once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  await system.stop();
}
