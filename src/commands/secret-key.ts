import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';

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
      const options = command.optsWithGlobals();
      const { settings } = await loadSettings(options, context);
      const { dataFilesOf } = await import('../system/own-stores.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { readSecretKeys } = await import('../platform/secrets/secret-keys.ts');
      const { keyFingerprint } = await import('../platform/secrets/secret-box.ts');
      const files = await dataFilesOf({ ...context, settings, clock: systemClock });
      const keys = await readSecretKeys({ file: files.secretKey, given: settings.secret_key });
      const source = settings.secret_key === '' ? files.secretKey : 'the configuration';
      const fingerprints = (keys ?? []).map(keyFingerprint);
      if (options.json === true) context.stdout(`${JSON.stringify({ source, fingerprints })}\n`);
      else if (fingerprints.length === 0)
        context.stdout(`There is no secret key yet: the first start creates ${source}.\n`);
      else context.stdout(`${fingerprints.join('\n')}\nfrom ${source}\n`);
    });
  secretKey
    .command('adopt')
    .summary('use the present secret key for data whose key is lost')
    .description(
      'Makes the databases accept the present secret key (a new one where there is none) although their secrets are encrypted with another one. Those secrets stay unreadable: people with a second factor need "trestle user reset-mfa". Only while no server runs.',
    )
    .addHelpText('after', '\nExamples:\n  trestle secret-key adopt')
    .action(async (_given: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const { settings } = await loadSettings(options, context);
      const { dataFilesOf, openStoresAlone } = await import('../system/own-stores.ts');
      const { adoptSecretKey } = await import('../system/secret-key.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { systemRandomness } = await import('../platform/clock/randomness.ts');
      const { loadSecretKeys } = await import('../platform/secrets/secret-keys.ts');
      const access = { ...context, settings, clock: systemClock };
      const files = await dataFilesOf(access);
      await using opened = new AsyncDisposableStack();
      const databases = await openStoresAlone(access, opened);
      const source = { file: files.secretKey, given: settings.secret_key, randomness: systemRandomness };
      const fingerprint = await adoptSecretKey(databases, await loadSecretKeys(source));
      if (options.json === true) context.stdout(`${JSON.stringify({ fingerprint })}\n`);
      else context.stdout(`The databases now use the secret key ${fingerprint}.\n`);
    });
}
