import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { readPassword } from './read-password.ts';
import { tablesText } from './tables-text.ts';

/** `trestle restore FOLDER`. */
export function registerRestore(program: Command, context: CommandContext): void {
  program
    .command('restore')
    .summary('put a backup back, while no server runs')
    .description(
      'Checks a backup against its manifest and puts it into the configured database, which must be empty. The secret key of the backup must be in place, or come with the backup.',
    )
    .argument('<folder>', 'folder that "trestle backup" made')
    .option('--replace', 'replace the existing data')
    .option(
      '--key-passphrase-stdin',
      'restore the secret key that the backup includes; its passphrase is read from standard input',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  trestle restore ./backup-monday --data-dir ./fresh\n  trestle restore ./backup-monday --replace',
    )
    .action(async (folder: string, _options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const { settings } = await loadSettings(options, context);
      const { restoreDatabases } = await import('../platform/database/backup/restore-databases.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { dataFilesOf } = await import('../system/own-stores.ts');
      const { storeDefinitions, storeLocation } = await import('../system/store-location.ts');
      const { SERVICE_NAMES } = await import('../system/settings.ts');
      const { prepareRestoredKey } = await import('../system/secret-key.ts');
      const { systemRandomness: randomness } = await import('../platform/clock/randomness.ts');
      const passphrase = options.keyPassphraseStdin === true ? await readPassword(context) : undefined;
      const files = await dataFilesOf({ ...context, settings, clock: systemClock });
      const manifest = await restoreDatabases({
        folder: resolve(context.workingDirectory, folder),
        targets: storeDefinitions(SERVICE_NAMES).map((definition) => ({
          ...definition,
          location: storeLocation(settings.database.url, files, definition.name),
        })),
        clock: systemClock,
        replace: options.replace === true,
        beforeChange: ({ secretKey }) =>
          prepareRestoredKey({
            source: { file: files.secretKey, given: settings.secret_key, randomness },
            fingerprint: secretKey?.fingerprint,
            packed: secretKey?.packed,
            passphrase,
          }),
      });
      if (options.json === true) context.stdout(`${JSON.stringify(manifest)}\n`);
      else context.stdout(`${tablesText(manifest.databases)}Restored the backup of ${manifest.createdAt}.\n`);
    });
}
