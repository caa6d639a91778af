import { systemClock } from '../platform/clock/clock.ts';
import type { ServiceName } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { createCommandLogger } from './streams-logger.ts';

/** Asks a service for something on behalf of a command, whether its server runs or not. */
export async function callFromCommand(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
  name: ServiceName,
  method: string,
  params: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  const { settings } = await loadSettings(options, context);
  const { callControl } = await import('../system/call-control.ts');
  const { environment, homeDirectory } = context;
  const logger = createCommandLogger(settings, context, { level: 'warn', format: 'pretty' });
  return callControl({ settings, environment, homeDirectory, clock: systemClock, logger }, name, method, params);
}
