import { type Resolution, resolveSettings } from '../../src/platform/config/load-configuration.ts';
import { type Settings, settingsDeclaration } from '../../src/system/settings.ts';

/** Resolves the program's own settings from a file text and variables. */
export function resolveTrestle(text: string, environment: Readonly<Record<string, string>> = {}): Resolution<Settings> {
  return resolveSettings({
    declaration: settingsDeclaration,
    file: { text, name: 'trestle.yaml', directory: '/etc/trestle', mode: 0o600 },
    environment,
    flags: {},
    homeDirectory: '/home/ann',
    workingDirectory: '/work',
  });
}
