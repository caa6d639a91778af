import { Document, isCollection, isMap, isScalar, type YAMLMap } from 'yaml';
import type { Configuration } from '../platform/config/load-configuration.ts';
import { maskSettings } from '../platform/config/mask-settings.ts';
import { ConfigurationError } from '../platform/config/problem.ts';
import { joinPath } from '../platform/config/setting-path.ts';
import { type Settings, settingsDeclaration } from '../system/settings.ts';
import { type CommandContext, CommandExit, describeFailure, EXIT_CONFIGURATION } from './command-context.ts';
import { loadSettings } from './load-settings.ts';

type Options = Readonly<Record<string, unknown>>;

/** Says ok, or all that is wrong. */
export async function checkConfiguration(options: Options, context: CommandContext): Promise<void> {
  const { warnings, file } = await load(options, context);
  if (options.json === true) {
    context.stdout(`${JSON.stringify({ ok: true, file: file ?? null, problems: [], warnings })}\n`);
    return;
  }
  context.stdout(file === undefined ? 'ok (no file, only defaults and environment)\n' : `ok ${file}\n`);
  for (const warning of warnings) context.stderr(`warning: ${warning}\n`);
}

/** Prints the settings in force, secrets masked. */
export async function printConfiguration(options: Options, context: CommandContext): Promise<void> {
  const { settings, sources } = await load(options, context);
  const masked = maskSettings(settingsDeclaration.schema, settings);
  const withSources = options.sources === true;
  if (options.json === true) {
    context.stdout(`${JSON.stringify(withSources ? { settings: masked, sources } : masked, undefined, 2)}\n`);
    return;
  }
  const document = new Document(masked, { aliasDuplicateObjects: false });
  if (withSources && isMap(document.contents)) addSources(document.contents, '', sources);
  context.stdout(document.toString({ lineWidth: 0 }));
}

/** Loads, or says all that is wrong and ends the command. */
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

/** Writes each setting's source beside it, as a comment. */
function addSources(mapping: YAMLMap, path: string, sources: Readonly<Record<string, string>>): void {
  for (const { key, value } of mapping.items) {
    const name = isScalar(key) ? String(key.value) : '';
    const memberPath = joinPath(path, name);
    const source = sources[memberPath];
    if (source === undefined && isMap(value)) addSources(value, memberPath, sources);
    else if (source !== undefined && isCollection(value) && isScalar(key)) key.commentBefore = ` ${source}`;
    else if (source !== undefined && isScalar(value)) value.comment = ` ${source}`;
  }
}
