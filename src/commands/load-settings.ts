import { type Configuration, loadConfiguration } from '../platform/config/load-configuration.ts';
import { type Settings, settingsDeclaration } from '../system/settings.ts';
import type { CommandContext } from './command-context.ts';
import { flagsFromOptions } from './setting-flags.ts';

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
