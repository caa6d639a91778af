import { resolve } from 'node:path';
import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { readPassword } from './read-password.ts';
import { tablesText } from './tables-text.ts';

/** `trestle backup FOLDER`. */
export function registerBackup(program: Command, context: CommandContext): void {
  program
    .command('backup')
    .summary('copy all data into a folder, while the server runs or not')
    .description(
      'Writes one file per service and a manifest with counts and checksums into a new folder. The manifest names the fingerprint of the secret key; the key itself is included only on request, encrypted with a passphrase.',
    )
    .argument('<folder>', 'folder to create; it must not exist yet')
    .option('--key-passphrase-stdin', 'include the secret key, encrypted with a passphrase read from standard input')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle backup /var/backups/trestle-monday\n  pass show trestle-backup | trestle backup ./copy --key-passphrase-stdin',
    )
    .action(async (folder: string, _options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const { settings } = await loadSettings(options, context);
      const { backUpDatabases } = await import('../platform/database/backup/back-up-databases.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { copyableStores, dataFilesOf } = await import('../system/own-stores.ts');
      const { describeBackupKey } = await import('../system/secret-key.ts');
      const { systemRandomness: randomness } = await import('../platform/clock/randomness.ts');
      const { PROGRAM_VERSION } = await import('../system/release.ts');
      await using opened = new AsyncDisposableStack();
      const target = resolve(context.workingDirectory, folder);
      const access = { ...context, settings, clock: systemClock };
      const { secretKey: file } = await dataFilesOf(access);
      const passphrase = options.keyPassphraseStdin === true ? await readPassword(context) : undefined;
      const secretKey = await describeBackupKey({ file, given: settings.secret_key, randomness }, passphrase);
      const manifest = await backUpDatabases({
        databases: await copyableStores(access, opened),
        folder: target,
        secretKey,
        programVersion: PROGRAM_VERSION,
        clock: systemClock,
      });
      if (options.json === true) context.stdout(`${JSON.stringify({ folder: target, ...manifest })}\n`);
      else context.stdout(`${tablesText(manifest.databases)}Backed up to ${target}. ${keyText(secretKey)}\n`);
    });
}

function keyText(secretKey: { readonly fingerprint: string; readonly packed?: string } | undefined): string {
  if (secretKey === undefined) return 'There is no secret key yet.';
  const { fingerprint, packed } = secretKey;
  if (packed !== undefined) return `It includes the secret key ${fingerprint}, encrypted.`;
  return `Keep the secret key ${fingerprint} in another place: the backup cannot be used without it.`;
}
