import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { tablesText } from './tables-text.ts';

/** `trestle backup FOLDER`. */
export function registerBackup(program: Command, context: CommandContext): void {
  program
    .command('backup')
    .summary('copy all data into a folder, while the server runs or not')
    .description(
      'Writes one file per service and a manifest with counts and checksums into a new folder. The key that encrypts secrets is not part of it: keep that apart.',
    )
    .argument('<folder>', 'folder to make; it must not exist yet')
    .addHelpText('after', '\nExamples:\n  trestle backup /var/backups/trestle-monday\n  trestle backup ./copy --json')
    .action(async (folder: string, _options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const { settings } = await loadSettings(options, context);
      const { backUpDatabases } = await import('../platform/database/back-up-databases.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { copyableStores } = await import('../system/own-stores.ts');
      const { PROGRAM_VERSION } = await import('../system/release.ts');
      await using opened = new AsyncDisposableStack();
      const target = resolve(context.workingDirectory, folder);
      const manifest = await backUpDatabases({
        databases: await copyableStores({ ...context, settings, clock: systemClock }, opened),
        folder: target,
        programVersion: PROGRAM_VERSION,
        clock: systemClock,
      });
      if (options.json === true) context.stdout(`${JSON.stringify({ folder: target, ...manifest })}\n`);
      else context.stdout(`${tablesText(manifest.databases)}Backed up to ${target}. Keep the secret key apart.\n`);
    });
}
