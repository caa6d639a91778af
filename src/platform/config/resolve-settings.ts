import { defaultOf } from './default-of.ts';
import type { Environment } from './environment-reference.ts';
import { nearestName } from './nearest-name.ts';
import type { Complaint, Problem } from './problem.ts';
import {
  type ConfigurationFile,
  type FileLayer,
  type Flags,
  type Layer,
  type LayerValue,
  readEnvironmentLayer,
  readFileLayer,
  readFlagLayer,
} from './read-layers.ts';
import { UNREADABLE } from './reading-context.ts';
import { annotationOf, type Folders, type Setting } from './setting-annotation.ts';
import { type SettingEntry, settingEntries, variablesOf } from './setting-entries.ts';
import { isWithin, joinPath, selfAndAncestors } from './setting-path.ts';
import type { SettingsDeclaration } from './settings-declaration.ts';

export interface ResolveInput<T> {
  readonly declaration: SettingsDeclaration<T>;
  readonly file?: ConfigurationFile & {
    /** Permission bits, where the system has them. */
    readonly mode?: number;
  };
  readonly environment: Environment;
  readonly flags: Flags;
  readonly homeDirectory: string;
  readonly workingDirectory: string;
}

export interface Resolution<T> {
  /** Deeply frozen. Holds defaults in place of what could not be read: not to be used while there are problems. */
  readonly settings: T;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  /** By path: `default`, `trestle.yaml:12`, `env NAME`, `flag --name`. */
  readonly sources: Readonly<Record<string, string>>;
}

const MAX_PROBLEMS = 100;

/** Flags over environment over file over defaults. Reports every problem, throws none. */
export function resolveSettings<T>(input: ResolveInput<T>): Resolution<T> {
  const { declaration, file, environment, flags, homeDirectory, workingDirectory } = input;
  const { schema, environmentPrefix } = declaration;
  const problems: Problem[] = [];
  let unreported = 0;
  const report = (problem: Problem): void => {
    if (problems.length < MAX_PROBLEMS) problems.push(problem);
    else unreported += 1;
  };
  const surroundings = { homeDirectory, report };
  const entries = settingEntries(schema);
  const fromFile = file === undefined ? undefined : readFileLayer(schema, entries, file, environment, surroundings);
  const fromEnvironment = readEnvironmentLayer(entries, environmentPrefix, environment, workingDirectory, surroundings);
  const fromFlags = readFlagLayer(entries, flags, workingDirectory, surroundings);
  for (const problem of unknownVariables(declaration, entries, environment)) report(problem);

  const layers = [fromFlags, fromEnvironment, ...(fromFile === undefined ? [] : [fromFile.values])];
  const chosen = chooseValues(entries, layers);
  const whole = file?.name ?? 'configuration';
  const missing = entries.filter(({ path, annotation }) => annotation.fallback === undefined && !chosen.has(path));
  for (const { path, annotation } of missing) {
    report({ where: whole, path, wrong: 'this has to be given', right: `expected: ${annotation.type}` });
  }
  const settings = deepFreeze(assemble(schema, '', chosen, { directory: workingDirectory, homeDirectory })) as T;
  if (fromFile?.readable !== false && missing.length === 0) {
    const placeOf = (path: string): string => findPlace(path, chosen, fromFile?.places) ?? whole;
    const unset = fromFile?.unset ?? new Map<string, string>();
    for (const problem of placeComplaints(declaration.check(settings), problems, placeOf, unset)) report(problem);
  }
  if (unreported > 0) {
    problems.push({
      where: whole,
      path: '',
      wrong: `there are ${unreported} more problems`,
      right: 'fix these first',
    });
  }
  return {
    settings,
    problems: inFileOrder(problems, file?.name ?? ''),
    warnings: file === undefined || fromFile === undefined ? [] : warningsAbout(file, fromFile, chosen),
    sources: Object.fromEntries(entries.map(({ path }) => [path, chosen.get(path)?.source ?? 'default'])),
  };
}

/** The value of the strongest layer that has one. One that could not be read still hides the weaker ones. */
function chooseValues(entries: readonly SettingEntry[], layers: readonly Layer[]): ReadonlyMap<string, LayerValue> {
  const chosen = new Map<string, LayerValue>();
  for (const { path } of entries) {
    const found = layers.find((layer) => layer.has(path))?.get(path);
    if (found !== undefined) chosen.set(path, found);
  }
  return chosen;
}

function assemble(schema: Setting<unknown>, path: string, chosen: Layer, folders: Folders): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'group') {
    const members = Object.entries(annotation.members);
    return Object.fromEntries(
      members.map(([key, member]) => [key, assemble(member, joinPath(path, key), chosen, folders)]),
    );
  }
  const value = chosen.get(path)?.value ?? UNREADABLE;
  return value === UNREADABLE ? defaultOf(schema, folders) : value;
}

function unknownVariables<T>(
  { environmentPrefix, fileVariable, otherVariables }: SettingsDeclaration<T>,
  entries: readonly SettingEntry[],
  environment: Environment,
): readonly Problem[] {
  const known = new Set(entries.flatMap((entry) => variablesOf(entry, environmentPrefix)));
  const names = [...known, fileVariable, ...otherVariables];
  return Object.keys(environment).flatMap((variable) => {
    if (environment[variable] === undefined) return [];
    if (!variable.startsWith(environmentPrefix) || names.includes(variable)) return [];
    const longest = names.filter((name) => variable.startsWith(`${name}_`)).sort((a, b) => b.length - a.length)[0];
    const near = nearestName(variable, names) ?? longest;
    const right = near === undefined ? 'unset it' : `did you mean ${near}?`;
    return [{ where: `environment variable ${variable}`, path: '', wrong: 'there is no such setting', right }];
  });
}

/** Leaves out what rests on a value that could not be read. */
function placeComplaints(
  complaints: readonly Complaint[],
  problems: readonly Problem[],
  placeOf: (path: string) => string,
  unset: ReadonlyMap<string, string>,
): readonly Problem[] {
  const unreadable = problems.map(({ path }) => path).filter((path) => path !== '');
  return complaints.flatMap(({ path, wrong, right, involves = [] }) => {
    const rests = [path, ...involves];
    if (rests.some((other) => unreadable.some((bad) => isWithin(bad, other) || isWithin(other, bad)))) return [];
    const variable = unset.get(path);
    if (variable === undefined) return [{ where: placeOf(path), path, wrong, right }];
    const cause = `the environment variable ${variable} is not set`;
    return [{ where: placeOf(path), path, wrong: cause, right: `set ${variable}, or write the value` }];
  });
}

/** The place of a value, or of the nearest thing around it that was written down. */
function findPlace(path: string, chosen: Layer, groups: ReadonlyMap<string, string> | undefined): string | undefined {
  const owner = [...chosen].find(([own]) => isWithin(path, own))?.[1];
  for (const candidate of selfAndAncestors(path)) {
    const place = owner?.places.get(candidate) ?? groups?.get(candidate);
    if (place !== undefined) return place;
  }
  return undefined;
}

/** What stands in the file comes first, from top to bottom. */
function inFileOrder(problems: readonly Problem[], name: string): readonly Problem[] {
  const rank = ({ where }: Problem): number => {
    const [, line, column] = where.startsWith(`${name}:`) ? (/:(\d+):(\d+)$/.exec(where) ?? []) : [];
    return line === undefined ? Number.MAX_SAFE_INTEGER : Number(line) * 1_000_000 + Number(column);
  };
  return problems.toSorted((one, other) => rank(one) - rank(other));
}

function warningsAbout(file: { readonly name: string; readonly mode?: number }, layer: FileLayer, chosen: Layer) {
  const unset = [...layer.unset].flatMap(([path, variable]) => {
    const overridden = [...chosen].some(([own, { source }]) => isWithin(path, own) && !source.startsWith(file.name));
    return overridden ? [] : [`${path} is empty: the environment variable ${variable} is not set`];
  });
  return [...openSecrets(file, layer.clearSecrets), ...unset];
}

function openSecrets(
  { name, mode = 0 }: { readonly name: string; readonly mode?: number },
  secrets: readonly string[],
): readonly string[] {
  if (secrets.length === 0 || (mode & 0o077) === 0) return [];
  const which = secrets.slice(0, 3).join(', ') + (secrets.length > 3 ? ', ...' : '');
  return [`${name} holds secrets (${which}) and others on this machine may open it; run: chmod 600 ${name}`];
}

function deepFreeze(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
