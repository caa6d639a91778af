import type { Command } from 'commander';
import { AppError } from '../platform/errors/app-error.ts';
import type { CommandContext } from './command-context.ts';
import { loadSettings } from './load-settings.ts';
import { tablesText } from './tables-text.ts';

/** `trestle copy --to postgres://...`. */
export function registerCopy(program: Command, context: CommandContext): void {
  program
    .command('copy')
    .summary('copy all data to a PostgreSQL database, while no server runs')
    .description(
      'Copies every table of the configured database to an empty PostgreSQL database, and compares counts and checksums before it counts.',
    )
    .requiredOption('--to <url>', 'database to fill; leave the password out and set PGPASSWORD')
    .addHelpText('after', '\nExamples:\n  PGPASSWORD=... trestle copy --to postgres://trestle@db.example/trestle')
    .action(async (_options: unknown, command: Command) => {
      const options = command.optsWithGlobals();
      const url = postgresUrl(String(options.to));
      const { settings } = await loadSettings(options, context);
      const { copyDatabase } = await import('../platform/database/backup/copy-into.ts');
      const { systemClock } = await import('../platform/clock/clock.ts');
      const { openStoresAlone } = await import('../system/own-stores.ts');
      const { storeDefinitions } = await import('../system/store-location.ts');
      const { SERVICE_NAMES } = await import('../system/settings.ts');
      await using opened = new AsyncDisposableStack();
      const databases = await openStoresAlone({ ...context, settings, clock: systemClock }, opened);
      const copied = [];
      for (const definition of storeDefinitions(SERVICE_NAMES)) {
        const source = databases.find(({ name }) => name === definition.name);
        if (source === undefined) continue;
        const location = { engine: 'postgres', url, schema: definition.name } as const;
        const tables = await copyDatabase(source, { ...definition, location, clock: systemClock });
        copied.push({ name: definition.name, tables });
      }
      if (options.json === true) context.stdout(`${JSON.stringify({ databases: copied })}\n`);
      else context.stdout(`${tablesText(copied)}Copied; counts and checksums are equal.\n`);
    });
}

function postgresUrl(text: string): string {
  if (/^postgres(ql)?:$/.test(URL.parse(text)?.protocol ?? '')) return text;
  throw new AppError('COPY_TARGET_INVALID');
}
