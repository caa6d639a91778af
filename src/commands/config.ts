import { styleText } from 'node:util';
import type { Command } from 'commander';
import type { YAMLMap } from 'yaml';
import type { Configuration } from '../platform/config/load-configuration.ts';
import { ConfigurationError } from '../platform/config/problem.ts';
import { joinPath, maskSettings } from '../platform/config/setting-declaration.ts';
import type { Finding } from '../system/doctor/findings.ts';
import { type Settings, settingsDeclaration } from '../system/settings.ts';
import {
  type CommandContext,
  CommandExit,
  describeFailure,
  EXIT_CONFIGURATION,
  EXIT_FAILED,
  type Options,
  print,
} from './command-context.ts';
import { commandAccess, loadSettings } from './load-settings.ts';

/** `trestle config check|print|schema|docs`. */
export function registerConfig(program: Command, context: CommandContext): void {
  const config = program
    .command('config')
    .summary('check, print and document the configuration')
    .description(
      'Checks, prints and documents the configuration. Flags override the environment, the environment overrides trestle.yaml, and trestle.yaml overrides the defaults.',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  trestle config check --config /etc/trestle.yaml\n  trestle config print --sources\n  trestle config schema > trestle.schema.json',
    );
  config
    .command('check')
    .description('Prints ok, or lists every problem with its location and exits with 78.')
    .action(async (_options: unknown, command: Command) => {
      await checkConfiguration(command.optsWithGlobals(), context);
    });
  config
    .command('print')
    .description('Prints all settings in force, with secrets masked, as YAML or (with --json) as JSON.')
    .option('--sources', 'show where each value comes from')
    .action(async (_options: unknown, command: Command) => {
      await printConfiguration(command.optsWithGlobals(), context);
    });
  config
    .command('schema')
    .description('Prints the JSON schema of trestle.yaml, for editors.')
    .action(async () => {
      const { jsonSchema } = await import('../platform/config/describe-settings.ts');
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

const COLORS = { ok: 'green', note: 'yellow', broken: 'red' } as const;

/** `trestle doctor`. */
export function registerDoctor(program: Command, context: CommandContext): void {
  program
    .command('doctor')
    .summary('check that everything the server needs is in place')
    .description(
      'Checks the runtime, data directory, database, port, disk, clock, tokens, other bridges and agents. Exits with 1 when something is broken.',
    )
    .addHelpText('after', '\nExamples:\n  trestle doctor\n  trestle doctor --json | jq .findings')
    .action(async (_options: unknown, command: Command) => {
      const { warnings, ...access } = await commandAccess(command.optsWithGlobals(), context);
      const { diagnose } = await import('../system/doctor/diagnose.ts');
      const found = await diagnose(access);
      const findings = [...found, ...warnings.map((text): Finding => ({ name: 'configuration', state: 'note', text }))];
      const ok = findings.every(({ state }) => state !== 'broken');
      print(command, context, { ok, findings }, findingsText(findings, context));
      if (!ok) throw new CommandExit(EXIT_FAILED);
    });
}

function findingsText(findings: readonly Finding[], { color }: CommandContext): string {
  const width = Math.max(...findings.map(({ name }) => name.length));
  const lines = findings.map(({ name, state, text }) => {
    const mark = state.padEnd(6);
    return `  ${color ? styleText(COLORS[state], mark) : mark}  ${name.padEnd(width)}  ${text}`;
  });
  return `${lines.join('\n')}\n`;
}

/** Prints that the configuration is correct, or every problem. */
async function checkConfiguration(options: Options, context: CommandContext): Promise<void> {
  const { warnings, file } = await load(options, context);
  if (options.json === true) {
    context.stdout(`${JSON.stringify({ ok: true, file: file ?? null, problems: [], warnings })}\n`);
    return;
  }
  context.stdout(file === undefined ? 'ok (no file; only defaults and the environment)\n' : `ok ${file}\n`);
  for (const warning of warnings) context.stderr(`warning: ${warning}\n`);
}

/** Prints the settings in force, secrets masked. */
async function printConfiguration(options: Options, context: CommandContext): Promise<void> {
  const { settings, sources } = await load(options, context);
  const masked = maskSettings(settingsDeclaration.schema, settings);
  const withSources = options.sources === true;
  if (options.json === true) {
    context.stdout(`${JSON.stringify(withSources ? { settings: masked, sources } : masked, undefined, 2)}\n`);
    return;
  }
  // Only this command writes YAML.
  const yaml = await import('yaml');
  const document = new yaml.Document(masked, { aliasDuplicateObjects: false });
  if (withSources && yaml.isMap(document.contents)) addSources(yaml, document.contents, '', sources);
  context.stdout(document.toString({ lineWidth: 0 }));
}

/** Loads the settings, or prints every problem and ends the command. */
async function load(options: Options, context: CommandContext): Promise<Configuration<Settings>> {
  try {
    return await loadSettings(options, context);
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    const { problems, warnings } = error;
    if (options.json === true) context.stdout(`${JSON.stringify({ ok: false, problems, warnings })}\n`);
    else context.stderr(describeFailure(error).text);
    throw new CommandExit(EXIT_CONFIGURATION);
  }
}

/** Adds the source of each setting as a comment. */
function addSources(
  yaml: typeof import('yaml'),
  mapping: YAMLMap,
  path: string,
  sources: Readonly<Record<string, string>>,
): void {
  const { isCollection, isMap, isScalar } = yaml;
  for (const { key, value } of mapping.items) {
    const name = isScalar(key) ? String(key.value) : '';
    const memberPath = joinPath(path, name);
    const source = sources[memberPath];
    if (source === undefined && isMap(value)) addSources(yaml, value, memberPath, sources);
    else if (source !== undefined && isCollection(value) && isScalar(key)) key.commentBefore = ` ${source}`;
    else if (source !== undefined && isScalar(value)) value.comment = ` ${source}`;
  }
}
