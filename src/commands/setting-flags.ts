import type { Command } from 'commander';
import type { Flags } from '../platform/config/read-layers.ts';
import { settingEntries } from '../platform/config/setting-entries.ts';
import { settingsDeclaration } from '../system/settings.ts';

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
