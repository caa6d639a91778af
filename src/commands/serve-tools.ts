import { once } from 'node:events';
import { startTools } from '../system/start-tools.ts';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { createStreamsLogger } from './streams-logger.ts';

/** Serves the standard streams until the agent closes them, or a signal comes. */
export async function serveToolsFromCommand(
  url: string | undefined,
  completionsUrl: string | undefined,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const { settings } = await loadSettings(options, context);
  const logger = createStreamsLogger(settings, context);
  const { stdin: input, stdout: output } = process;
  const served = startTools({ settings, url, completionsUrl, input, output, logger });
  const told = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]).then(() => void input.destroy());
  await Promise.race([served, told.then(() => served)]);
}
