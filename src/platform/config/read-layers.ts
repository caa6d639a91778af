import type { Environment } from '../runtime/runtime.ts';
import { isAbsent, parseYaml, type ValueNode } from './parse-yaml.ts';
import { asMapping, type ReadingContext, readSetting, readText, reportUnknownKeys } from './read-setting.ts';
import { annotationOf, joinPath, type Setting, type SettingEntry, variablesOf } from './setting-annotation.ts';

/** One value for one setting, and where it stands. */
export interface LayerValue {
  readonly value: unknown;
  /** For people: `trestle.yaml:12`, `env NAME`, `flag --name`. */
  readonly source: string;
  /** The places of the value and of everything inside it, for problems that show later. */
  readonly places: ReadonlyMap<string, string>;
}

/** By the setting's path. */
export type Layer = ReadonlyMap<string, LayerValue>;

type Surroundings = Pick<ReadingContext, 'homeDirectory' | 'report'>;

export interface ConfigurationFile {
  readonly text: string;
  /** As problems name it. */
  readonly name: string;
  readonly directory: string;
}

export interface FileLayer {
  readonly values: Layer;
  /** Paths of secrets that stand in the file itself. */
  readonly clearSecrets: readonly string[];
  /** Settings that are empty because of a variable that is not set: its name, by their paths. */
  readonly unset: ReadonlyMap<string, string>;
  readonly readable: boolean;
  /** Places of the groups. */
  readonly places: ReadonlyMap<string, string>;
}

/** Reads the whole file: what is overridden elsewhere is still checked. */
export function readFileLayer(
  schema: Setting<unknown>,
  entries: readonly SettingEntry[],
  { text, name, directory }: ConfigurationFile,
  environment: Environment,
  { homeDirectory, report }: Surroundings,
): FileLayer {
  const values = new Map<string, LayerValue>();
  const places = new Map<string, string>();
  const clearSecrets: string[] = [];
  const unset = new Map<string, string>();
  const context: ReadingContext = {
    directory,
    homeDirectory,
    environment,
    textual: false,
    concealed: false,
    report,
    where: ({ line, column }) => `${name}:${line}:${column}`,
    note: (path, where) => places.set(path, where),
    noteClearSecret: (path) => clearSecrets.push(path),
    noteUnset: (path, variable) => unset.set(path, variable),
  };
  const { root, faults, readable } = parseYaml(text);
  for (const { at, path, wrong, right } of faults) report({ where: context.where(at), path, wrong, right });
  const everywhere = entries.map(({ path }) => path);

  function collect(member: Setting<unknown>, node: ValueNode, path: string): void {
    const annotation = annotationOf(member);
    if (annotation.shape !== 'group') {
      const value = readSetting(member, node, path, context);
      values.set(path, { value, source: sourceInFile(name, node), places });
      return;
    }
    context.note(path, context.where(node.at));
    const mapping = asMapping(annotation, node, path, context);
    if (mapping === undefined) return;
    reportUnknownKeys(mapping, annotation, path, context, everywhere);
    for (const [key, child] of Object.entries(annotation.members)) {
      const entry = mapping.entries.get(key);
      if (entry !== undefined && !isAbsent(entry.node)) collect(child, entry.node, joinPath(path, key));
    }
  }

  if (root !== undefined && !isAbsent(root)) collect(schema, root, '');
  return { values, clearSecrets, unset, readable, places };
}

/** Reads the variables that are set. An empty one counts as not set, unless the setting says that it clears. */
export function readEnvironmentLayer(
  entries: readonly SettingEntry[],
  prefix: string,
  environment: Environment,
  workingDirectory: string,
  surroundings: Surroundings,
): Layer {
  const values = new Map<string, LayerValue>();
  for (const entry of entries) {
    const { path, annotation } = entry;
    const emptyClears = annotation.shape === 'leaf' && annotation.emptyClears;
    for (const variable of variablesOf(entry, prefix)) {
      const text = environment[variable];
      if (text === undefined || (text === '' && !emptyClears)) continue;
      const read = readOutside(entry, text, `environment variable ${variable}`, workingDirectory, surroundings);
      if (!values.has(path)) values.set(path, { ...read, source: `env ${variable}` });
    }
  }
  return values;
}

/** Values by flag, such as `--listen`; undefined for those that were not given. */
export type Flags = Readonly<Record<string, string | boolean | undefined>>;

export function readFlagLayer(
  entries: readonly SettingEntry[],
  flags: Flags,
  workingDirectory: string,
  surroundings: Surroundings,
): Layer {
  const values = new Map<string, LayerValue>();
  for (const entry of entries) {
    const { flag } = entry.annotation;
    const given = flag === undefined ? undefined : flags[flag];
    if (flag === undefined || given === undefined) continue;
    const read = readOutside(entry, String(given), `flag ${flag}`, workingDirectory, surroundings);
    values.set(entry.path, { ...read, source: `flag ${flag}` });
  }
  return values;
}

function readOutside(
  { schema, path }: SettingEntry,
  text: string,
  where: string,
  directory: string,
  { homeDirectory, report }: Surroundings,
): Omit<LayerValue, 'source'> {
  const places = new Map<string, string>();
  const value = readText(schema, text, path, {
    directory,
    homeDirectory,
    environment: undefined,
    textual: true,
    concealed: false,
    report,
    where: () => where,
    note: (noted) => places.set(noted, where),
    noteClearSecret: () => {},
    noteUnset: () => {},
  });
  return { value, places };
}

function sourceInFile(name: string, node: ValueNode): string {
  const place = `${name}:${node.at.line}`;
  const text = node.kind === 'scalar' && typeof node.value === 'string' ? node.value : '';
  const [, variable] = /^\$\{env:(\w+)\}$/.exec(text) ?? [];
  return variable === undefined ? place : `${place}, env ${variable}`;
}
