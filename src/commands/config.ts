import type { Command } from 'commander';
import type { CommandContext } from './command-context.ts';

/** `trestle config check|print|schema|docs`. */
export function registerConfig(program: Command, context: CommandContext): void {
  const config = program
    .command('config')
    .summary('check, print and document the configuration')
    .description('Works on the configuration: flags over environment over trestle.yaml over defaults.')
    .addHelpText(
      'after',
      '\nExamples:\n  trestle config check --config /etc/trestle.yaml\n  trestle config print --sources\n  trestle config schema > trestle.schema.json',
    );
  config
    .command('check')
    .description('Says ok, or prints every problem with its place and exits with 78.')
    .action(async (_options: unknown, command: Command) => {
      const { checkConfiguration } = await import('./config-report.ts');
      await checkConfiguration(command.optsWithGlobals(), context);
    });
  config
    .command('print')
    .description('Prints all settings as they are in force, secrets masked, as YAML or with --json as JSON.')
    .option('--sources', 'say where each value comes from')
    .action(async (_options: unknown, command: Command) => {
      const { printConfiguration } = await import('./config-report.ts');
      await printConfiguration(command.optsWithGlobals(), context);
    });
  config
    .command('schema')
    .description('Prints the JSON schema of trestle.yaml, for editors.')
    .action(async () => {
      const { jsonSchema } = await import('../platform/config/json-schema.ts');
      const { settingsDeclaration } = await import('../system/settings.ts');
      const schema = jsonSchema(settingsDeclaration.schema, settingsDeclaration.fileName);
      context.stdout(`${JSON.stringify(schema, undefined, 2)}\n`);
    });
  config
    .command('docs')
    .description('Prints the documentation of all settings as Markdown.')
    .action(async () => {
      const { configurationDocument } = await import('../system/configuration-document.ts');
      context.stdout(configurationDocument());
    });
}
