import { resolve } from 'node:path';
import type { Command } from 'commander';
import { AppError } from '../platform/errors/app-error.ts';
import { type CommandContext, print, readPassword } from './command-context.ts';
import { commandAccess } from './load-settings.ts';
import { moment } from './sessions.ts';

/** `trestle backup FOLDER`. */
export function registerBackup(program: Command, context: CommandContext): void {
  program
    .command('backup')
    .summary('copy all data into a folder, whether the server runs or not')
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
      const access = await commandAccess(options, context);
      const { backUpDatabases } = await import('../platform/database/backup/database-backup.ts');
      const { copyableStores, existingDataFiles } = await import('../system/stores.ts');
      const { describeBackupKey } = await import('../system/data-directory.ts');
      const { systemRandomness: randomness } = await import('../platform/clock/randomness.ts');
      const { PROGRAM_VERSION } = await import('../system/environment.ts');
      await using opened = new AsyncDisposableStack();
      const target = resolve(context.workingDirectory, folder);
      const { secretKey: file } = await existingDataFiles(access);
      const passphrase = options.keyPassphraseStdin === true ? await readPassword(context) : undefined;
      const secretKey = await describeBackupKey({ file, given: access.settings.secret_key, randomness }, passphrase);
      const manifest = await backUpDatabases({
        databases: await copyableStores(access, opened),
        folder: target,
        secretKey,
        programVersion: PROGRAM_VERSION,
        clock: access.clock,
      });
      print(
        command,
        context,
        { folder: target, ...manifest },
        `${tablesText(manifest.databases)}Backed up to ${target}. ${keyText(secretKey)}\n`,
      );
    });
}

function keyText(secretKey: { readonly fingerprint: string; readonly packed?: string } | undefined): string {
  if (secretKey === undefined) return 'There is no secret key yet.';
  const { fingerprint, packed } = secretKey;
  if (packed !== undefined) return `It includes the secret key ${fingerprint}, encrypted.`;
  return `Keep the secret key ${fingerprint} in another place: the backup cannot be used without it.`;
}

/** `trestle restore FOLDER`. */
export function registerRestore(program: Command, context: CommandContext): void {
  program
    .command('restore')
    .summary('restore a backup, while no server runs')
    .description(
      'Checks a backup against its manifest and restores it into the configured database, which must be empty. The secret key of the backup must be in place, or come with the backup.',
    )
    .argument('<folder>', 'folder that "trestle backup" created')
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
      const access = await commandAccess(options, context);
      const { settings, clock } = access;
      const { restoreDatabases } = await import('../platform/database/backup/database-backup.ts');
      const { placesOf, storeDefinition, storeLocation } = await import('../system/stores.ts');
      const { SERVICE_NAMES } = await import('../system/settings.ts');
      const { systemRandomness: randomness } = await import('../platform/clock/randomness.ts');
      const passphrase = options.keyPassphraseStdin === true ? await readPassword(context) : undefined;
      const { prepareDataDirectory, prepareRestoredKey } = await import('../system/data-directory.ts');
      const { refuseRunningInstances } = await import('../system/cluster.ts');
      const files = placesOf(access);
      const manifest = await restoreDatabases({
        folder: resolve(context.workingDirectory, folder),
        async beforeLocks() {
          await prepareDataDirectory(files.folder);
          await refuseRunningInstances(access);
        },
        targets: SERVICE_NAMES.map((name) => ({
          ...storeDefinition(name),
          location: storeLocation(settings.database, files, name),
        })),
        clock,
        replace: options.replace === true,
        beforeChange: ({ secretKey }) =>
          prepareRestoredKey({
            source: { file: files.secretKey, given: settings.secret_key, randomness },
            fingerprint: secretKey?.fingerprint,
            packed: secretKey?.packed,
            passphrase,
          }),
      });
      print(
        command,
        context,
        manifest,
        `${tablesText(manifest.databases)}Restored the backup of ${moment(manifest.createdAt)}.\n`,
      );
    });
}

/** `trestle copy --to postgres://...`. */
export function registerCopy(program: Command, context: CommandContext): void {
  program
    .command('copy')
    .summary('copy all data to a PostgreSQL database, while no server runs')
    .description(
      'Copies every table of the configured database to an empty PostgreSQL database, and compares counts and checksums before the copy becomes valid.',
    )
    .requiredOption('--to <url>', 'database to fill; leave the password out and set PGPASSWORD')
    .addHelpText('after', '\nExamples:\n  PGPASSWORD=... trestle copy --to postgres://trestle@db.example/trestle')
    .action(async (_options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const url = postgresUrl(String(options.to));
      const access = await commandAccess(options, context);
      const { copyDatabases } = await import('../platform/database/backup/copy-into.ts');
      const { inspectCopyTarget } = await import('../platform/database/inspect-database.ts');
      const { openStoresAlone, storeDefinition } = await import('../system/stores.ts');
      const { SERVICE_NAMES } = await import('../system/settings.ts');
      const { refuseRunningInstances } = await import('../system/cluster.ts');
      await using opened = new AsyncDisposableStack();
      await refuseRunningInstances(access);
      const targets = SERVICE_NAMES.map((name) => ({
        ...storeDefinition(name),
        location: { engine: 'postgres', url, schema: name } as const,
        clock: access.clock,
      }));
      // Before the source is opened, because that brings its schema up to date.
      for (const target of targets) await inspectCopyTarget(target, target.location, false);
      const databases = await openStoresAlone(access, opened);
      const copies = targets.flatMap((to) => {
        const from = databases.find(({ name }) => name === to.name);
        return from === undefined ? [] : [{ from, to }];
      });
      const tables = await copyDatabases(copies);
      const copied = copies.map(({ to: { name } }, index) => ({ name, tables: tables[index] ?? [] }));
      print(command, context, { databases: copied }, `${tablesText(copied)}Copied; counts and checksums are equal.\n`);
    });
}

function postgresUrl(text: string): string {
  if (/^postgres(ql)?:$/.test(URL.parse(text)?.protocol ?? '')) return text;
  throw new AppError('COPY_TARGET_INVALID');
}

interface CountedDatabase {
  readonly name: string;
  readonly tables: readonly { readonly name: string; readonly rows: number }[];
}

/** A line for each table: how many rows it has. */
function tablesText(databases: readonly CountedDatabase[]): string {
  const lines = databases.flatMap(({ name, tables }) =>
    tables.map((table) => `  ${`${name}.${table.name}`.padEnd(36)} ${String(table.rows).padStart(10)} rows\n`),
  );
  return lines.join('');
}

/** `trestle secret-key show|adopt`. */
export function registerSecretKey(program: Command, context: CommandContext): void {
  const secretKey = program
    .command('secret-key')
    .summary('show the fingerprint of the secret key, or replace a lost one')
    .description(
      'The secret key encrypts the secrets in the databases, such as second factors. The databases and every backup store its fingerprint, and the program refuses to start with another key.',
    );
  secretKey
    .command('show')
    .summary('print the fingerprint and the place of the secret key')
    .description('Prints the fingerprint of the secret key in use and where the key comes from; never the key itself.')
    .addHelpText('after', '\nExamples:\n  trestle secret-key show --json')
    .action(async (_given: unknown, command: Command) => {
      const access = await commandAccess(command.optsWithGlobals(), context);
      const { placesOf } = await import('../system/stores.ts');
      const { keyFingerprint, readSecretKeys } = await import('../platform/secrets/secret-keys.ts');
      const { secretKey: file } = placesOf(access);
      const { secret_key: given } = access.settings;
      const keys = await readSecretKeys({ file, given });
      const source = given === '' ? file : 'the configuration';
      const fingerprints = (keys ?? []).map(keyFingerprint);
      const none = `There is no secret key yet: the first start creates ${source}.\n`;
      const text = fingerprints.length === 0 ? none : `${fingerprints.join('\n')}\nfrom ${source}\n`;
      print(command, context, { source, fingerprints }, text);
    });
  secretKey
    .command('adopt')
    .summary('use the present secret key for data whose key is lost')
    .description(
      'Makes the databases accept the present secret key (a new one where there is none) although their secrets are encrypted with another one. Those secrets stay unreadable: users with a second factor need "trestle user reset-mfa". Only while no server runs.',
    )
    .addHelpText('after', '\nExamples:\n  trestle secret-key adopt')
    .action(async (_given: unknown, command: Command) => {
      const access = await commandAccess(command.optsWithGlobals(), context);
      const { openStoresAlone, placesOf } = await import('../system/stores.ts');
      const { adoptSecretKey } = await import('../system/data-directory.ts');
      const { systemRandomness: randomness } = await import('../platform/clock/randomness.ts');
      const { loadSecretKeys } = await import('../platform/secrets/secret-keys.ts');
      const { secretKey: file } = placesOf(access);
      const { refuseRunningInstances } = await import('../system/cluster.ts');
      await using opened = new AsyncDisposableStack();
      await refuseRunningInstances(access);
      const databases = await openStoresAlone(access, opened);
      const source = { file, given: access.settings.secret_key, randomness };
      const fingerprint = await adoptSecretKey(databases, await loadSecretKeys(source));
      print(command, context, { fingerprint }, `The databases now use the secret key ${fingerprint}.\n`);
    });
}
