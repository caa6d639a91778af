import { once } from 'node:events';
import { startStdio } from '../system/start-stdio.ts';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { createStreamsLogger } from './streams-logger.ts';

/** Serves the standard streams until the other side closes them, or a signal comes. */
export async function serveStdio(
  agent: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const { settings, file: configurationFile, warnings } = await loadSettings(options, context);
  const logger = createStreamsLogger(settings, context);
  for (const warning of warnings) logger.warn({}, warning);
  const { environment, homeDirectory } = context;
  const { stdin: input, stdout: output } = process;
  const place = { environment, homeDirectory, configurationFile };
  const system = await startStdio({ settings, agent, input, output, logger, ...place });
  await Promise.race([system.ended, once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  await system.stop();
}
