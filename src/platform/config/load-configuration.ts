import { type FileHandle, open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { errorCode } from '../errors/app-error.ts';
import type { Environment } from '../runtime/runtime.ts';
import { type Complaint, ConfigurationError, nearestName, type Problem } from './problem.ts';
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
import { defaultOf, UNREADABLE } from './read-setting.ts';
import {
  annotationOf,
  type Folders,
  isWithin,
  joinPath,
  type Setting,
  type SettingEntry,
  type SettingsDeclaration,
  selfAndAncestors,
  settingEntries,
  variablesOf,
} from './setting-annotation.ts';

export interface LoadInput<T> {
  readonly declaration: SettingsDeclaration<T>;
  /** What the `--config` flag says. */
  readonly configFile?: string | undefined;
  readonly environment: Environment;
  readonly flags: Flags;
  readonly homeDirectory: string;
  readonly workingDirectory: string;
}

export interface Configuration<T> extends Omit<Resolution<T>, 'problems'> {
  /** The file that was read, as an absolute path; undefined when there is none. */
  readonly file: string | undefined;
}

const MAX_FILE_BYTES = 256 * 1024;

/** Reads the file and resolves the settings. Throws a `ConfigurationError` with every problem. */
export async function loadConfiguration<T>(input: LoadInput<T>): Promise<Configuration<T>> {
  const { declaration, environment, flags, homeDirectory, workingDirectory } = input;
  const choice = chooseFile(input);
  const read = await readConfigurationFile(choice.name, resolve(workingDirectory, choice.name));
  const absent = 'code' in read && read.code === 'ENOENT';
  const file = 'text' in read ? read : undefined;
  const missing: readonly Problem[] =
    file !== undefined || (absent && !choice.mustExist) ? [] : [unreadableFile(choice, read)];
  const { problems, ...resolution } = resolveSettings({
    declaration,
    ...(file !== undefined && { file }),
    environment,
    flags,
    homeDirectory,
    workingDirectory,
  });
  if (missing.length + problems.length > 0)
    throw new ConfigurationError([...missing, ...problems], resolution.warnings);
  return { ...resolution, file: file && resolve(workingDirectory, choice.name) };
}

interface FileChoice {
  readonly name: string;
  /** Who asked for it. */
  readonly where: string;
  readonly mustExist: boolean;
}

function chooseFile<T>({ declaration, configFile, environment }: LoadInput<T>): FileChoice {
  if (configFile !== undefined) return { name: configFile, where: 'flag --config', mustExist: true };
  const { fileVariable, fileName } = declaration;
  const named = environment[fileVariable] ?? '';
  if (named !== '') return { name: named, where: `environment variable ${fileVariable}`, mustExist: true };
  return { name: fileName, where: fileName, mustExist: false };
}

type ReadFile = (ConfigurationFile & { readonly mode?: number }) | { readonly code: string };

async function readConfigurationFile(name: string, path: string): Promise<ReadFile> {
  try {
    await using handle = await open(path, 'r');
    const { mode } = await handle.stat();
    const bytes = await readAtMost(handle, MAX_FILE_BYTES + 1);
    if (bytes.length > MAX_FILE_BYTES) return { code: 'TOO_LARGE' };
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    const permissions = process.platform === 'win32' ? {} : { mode };
    return { text, name, directory: dirname(path), ...permissions };
  } catch (error) {
    return { code: errorCode(error) };
  }
}

/** The size of a pipe or device is not known before it is read. */
async function readAtMost(handle: FileHandle, limit: number): Promise<Uint8Array> {
  const buffer = Buffer.alloc(limit);
  let length = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, length, limit - length);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
  }
}

function unreadableFile({ name, where }: FileChoice, read: ReadFile): Problem {
  const code = 'code' in read ? read.code : '';
  const [wrong, right] = FILE_FAULTS[code] ?? ['cannot be read', 'check the path and the disk'];
  return { where, path: '', wrong: `the file ${name} ${wrong}`, right };
}

const FILE_FAULTS: Readonly<Record<string, readonly [wrong: string, right: string]>> = {
  ENOENT: ['does not exist', 'check the path'],
  EACCES: ['may not be read by this user', 'change its owner or mode'],
  EISDIR: ['is a folder', 'name the file in it'],
  ERR_ENCODING_INVALID_ENCODED_DATA: ['is not UTF-8 text', 'save it as UTF-8'],
  TOO_LARGE: [`is larger than ${MAX_FILE_BYTES} bytes`, 'name a configuration file'],
};

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
