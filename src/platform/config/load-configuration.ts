import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { errorCode } from '../errors/app-error.ts';
import type { Environment } from '../runtime/runtime.ts';
import { parseYaml } from './parse-yaml.ts';
import { ConfigurationError, type Finding, nearestName, type Problem } from './problem.ts';
import {
  defaultOf,
  isAbsent,
  type ReadingContext,
  type ReadingNotes,
  readGroup,
  readSetting,
  readText,
  UNREADABLE,
  variableNotSet,
  WHOLE_REFERENCE,
} from './read-setting.ts';
import {
  isWithin,
  type Setting,
  type SettingEntry,
  type SettingsDeclaration,
  selfAndAncestors,
  settingEntries,
  variablesOf,
} from './setting-declaration.ts';

/** `configFile` is the value of the flag `--config`. */
export type LoadInput<T> = Omit<ResolveInput<T>, 'file'> & { readonly configFile?: string | undefined };

/** `file` is the file that was read, as an absolute path; undefined when there is none. */
export type Configuration<T> = Omit<Resolution<T>, 'problems'> & { readonly file: string | undefined };

const MAX_FILE_BYTES = 256 * 1024;

/** Reads the file and resolves the settings. Throws a `ConfigurationError` with every problem. */
export async function loadConfiguration<T>({ configFile, ...input }: LoadInput<T>): Promise<Configuration<T>> {
  const { fileVariable, fileName } = input.declaration;
  const named = configFile ?? (input.environment[fileVariable] || undefined);
  const name = named ?? fileName;
  const path = resolve(input.workingDirectory, name);
  const read = await readConfigurationFile(name, path);
  const file = typeof read === 'string' ? undefined : read;
  const { problems, ...resolution } = resolveSettings({ ...input, file });
  const all = [...problems];
  if (typeof read === 'string' && (named !== undefined || read !== 'ENOENT')) {
    const [wrong, right] = FILE_FAULTS[read] ?? ['cannot be read', 'check the path and the disk'];
    const variable = named === undefined ? fileName : `environment variable ${fileVariable}`;
    const where = configFile === undefined ? variable : 'flag --config';
    all.unshift({ where, path: '', wrong: `the file ${name} ${wrong}`, right });
  }
  if (all.length > 0) throw new ConfigurationError(all, resolution.warnings);
  return { ...resolution, file: file && path };
}

interface ConfigurationFile {
  readonly text: string;
  /** As problems name it. */
  readonly name: string;
  readonly directory: string;
  /** Permission bits, where the system has them. */
  readonly mode?: number;
}

/** The file, or the code of why it cannot be read. */
async function readConfigurationFile(name: string, path: string): Promise<ConfigurationFile | string> {
  try {
    await using handle = await open(path, 'r');
    const { mode } = await handle.stat();
    // The size of a pipe or device is not known before it is read; the limit is the last byte that is read.
    const bytes = Buffer.concat(await handle.createReadStream({ end: MAX_FILE_BYTES, autoClose: false }).toArray());
    if (bytes.length > MAX_FILE_BYTES) return 'TOO_LARGE';
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return { text, name, directory: dirname(path), ...(process.platform !== 'win32' && { mode }) };
  } catch (error) {
    return errorCode(error);
  }
}

const FILE_FAULTS: Readonly<Record<string, readonly [wrong: string, right: string]>> = {
  ENOENT: ['does not exist', 'check the path'],
  EACCES: ['may not be read by this user', 'change its owner or mode'],
  EISDIR: ['is a folder', 'name the file in it'],
  ERR_ENCODING_INVALID_ENCODED_DATA: ['is not UTF-8 text', 'save it as UTF-8'],
  TOO_LARGE: [`is larger than ${MAX_FILE_BYTES} bytes`, 'name a configuration file'],
};

/** Values by flag, such as `--listen`; undefined for those that were not given. */
export type Flags = Readonly<Record<string, string | boolean | undefined>>;

export interface ResolveInput<T> {
  readonly declaration: SettingsDeclaration<T>;
  readonly file?: ConfigurationFile | undefined;
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

/** One value for one setting, and its place. */
interface ChosenValue {
  readonly value: unknown;
  /** For people: `trestle.yaml:12`, `env NAME`, `flag --name`. */
  readonly source: string;
  /** The place of the value, or of something inside it, for problems that show later. */
  readonly placeOf: PlaceOf;
}

type PlaceOf = (path: string, part?: 'key') => Finding['at'];

/** Flags over environment over file over defaults. Reports every problem, throws none. */
export function resolveSettings<T>(input: ResolveInput<T>): Resolution<T> {
  const { declaration, environment, homeDirectory, workingDirectory } = input;
  const file = input.file ?? { name: 'configuration', text: '', directory: workingDirectory };
  const parsed = parseYaml(file.text);
  const found: Finding[] = [...parsed.faults];
  const foundInFlags: Finding[] = [];
  const missing: Finding[] = [];
  /** Returns the place of a value in the file, or of its nearest ancestor that the file has. */
  const inFile: PlaceOf = (path, part) => {
    const places = part === 'key' ? parsed.keys : parsed.values;
    return selfAndAncestors(path).flatMap((candidate) => places.get(candidate) ?? [])[0] ?? file.name;
  };
  const notes: ReadingNotes = { clearSecrets: [], unset: new Map() };
  const fileContext = { directory: file.directory, homeDirectory, environment, refuse: refuser(inFile, found), notes };
  const folders = { directory: workingDirectory, homeDirectory };
  const entries = settingEntries(declaration.schema);
  const everywhere = entries.map(({ path }) => path);
  const chosen = new Map<string, ChosenValue>();

  function resolveSetting(setting: Setting<unknown>, raw: unknown, path: string): unknown {
    if (setting.shape === 'group') {
      const read = (given: unknown) => readGroup(setting, given, path, fileContext, resolveSetting, everywhere);
      const members = read(raw);
      return members === UNREADABLE ? read({}) : members;
    }
    // Reads the value even if it is overridden elsewhere, so that the whole file is checked.
    if (!isAbsent(raw)) {
      const [, variable] = typeof raw === 'string' ? (WHOLE_REFERENCE.exec(raw) ?? []) : [];
      const line = `${file.name}:${parsed.values.get(path)?.line ?? 1}`;
      const source = variable === undefined ? line : `${line}, env ${variable}`;
      chosen.set(path, { value: readSetting(setting, raw, path, fileContext), source, placeOf: inFile });
    }
    // The stronger one comes later, and hides weaker ones even if it could not be read.
    for (const { text, name, isFlag } of textsGiven(input, { path, setting })) {
      const placeOf = (): string => `${isFlag ? 'flag' : 'environment variable'} ${name}`;
      const refuse = refuser(placeOf, isFlag ? foundInFlags : found);
      const value = readText(setting, text, path, { ...folders, refuse });
      chosen.set(path, { value, source: `${isFlag ? 'flag' : 'env'} ${name}`, placeOf });
    }
    if (setting.fallback === undefined && !chosen.has(path)) {
      missing.push({ at: file.name, path, wrong: 'this is required', right: `expected: ${setting.type}` });
    }
    const { value = UNREADABLE } = chosen.get(path) ?? {};
    if (value !== UNREADABLE) return value;
    return setting.fallback === undefined ? undefined : defaultOf(setting, folders);
  }

  const settings = deepFreeze(resolveSetting(declaration.schema, parsed.value, '')) as T;
  found.push(...foundInFlags, ...unknownVariables(input, entries), ...missing);
  if (parsed.readable && missing.length === 0 && found.length <= MAX_PROBLEMS) {
    const unreadable = found.map(({ path }) => path).filter((path) => path !== '');
    const isKnown = (path: string) => !unreadable.some((bad) => isWithin(bad, path) || isWithin(path, bad));
    for (const { path, wrong, right, involves = [] } of declaration.check(settings)) {
      // Omits complaints about values that could not be read.
      if (![path, ...involves].every(isKnown)) continue;
      const { placeOf = inFile } = [...chosen].find(([entry]) => isWithin(path, entry))?.[1] ?? {};
      const variable = notes.unset.get(path);
      const [cause, remedy] = variable === undefined ? [wrong, right] : variableNotSet(variable);
      found.push({ at: placeOf(path), path, wrong: cause, right: remedy });
    }
  }
  return {
    settings,
    problems: problemsOf(found, file.name),
    warnings: warningsAbout(file, notes, chosen),
    sources: Object.fromEntries(entries.map(({ path }) => [path, chosen.get(path)?.source ?? 'default'])),
  };
}

function refuser(placeOf: PlaceOf, found: Finding[]): ReadingContext['refuse'] {
  return (path, wrong, right, part) => {
    found.push({ at: placeOf(path, part), path, wrong, right });
    return UNREADABLE;
  };
}

/** Sorts problems: those in the file first, from top to bottom. */
function problemsOf(found: readonly Finding[], name: string): readonly Problem[] {
  const rank = ({ at }: Finding) =>
    typeof at === 'string' ? Number.MAX_SAFE_INTEGER : at.line * 1_000_000 + at.column;
  const sorted = found.toSorted((one, other) => rank(one) - rank(other));
  const problems = sorted.slice(0, MAX_PROBLEMS).map(({ at, path, wrong, right }) => {
    return { where: typeof at === 'string' ? at : `${name}:${at.line}:${at.column}`, path, wrong, right };
  });
  if (found.length <= MAX_PROBLEMS) return problems;
  const wrong = `there are ${found.length - MAX_PROBLEMS} more problems`;
  return [...problems, { where: name, path: '', wrong, right: 'fix these first' }];
}

/** The variables and the flag that are set, the stronger one later. An empty variable counts as not set, unless the setting says that it clears. */
function textsGiven<T>({ declaration, environment, flags }: ResolveInput<T>, entry: SettingEntry) {
  const { setting } = entry;
  const emptyClears = setting.shape === 'leaf' && setting.emptyClears;
  const texts = variablesOf(entry, declaration.environmentPrefix)
    .toReversed()
    .map((name) => ({ name, text: environment[name] ?? '', isFlag: false }))
    .filter(({ name, text }) => text !== '' || (emptyClears && environment[name] !== undefined));
  const { flag = '' } = setting;
  const given = flags[flag];
  return given === undefined ? texts : [...texts, { name: flag, text: String(given), isFlag: true }];
}

function unknownVariables<T>(
  { declaration: { environmentPrefix, fileVariable, otherVariables }, environment }: ResolveInput<T>,
  entries: readonly SettingEntry[],
): readonly Finding[] {
  const names = [...entries.flatMap((entry) => variablesOf(entry, environmentPrefix)), fileVariable, ...otherVariables];
  const known = new Set(names);
  return Object.keys(environment).flatMap((variable) => {
    if (environment[variable] === undefined) return [];
    if (!variable.startsWith(environmentPrefix) || known.has(variable)) return [];
    const longest = names.filter((name) => variable.startsWith(`${name}_`)).sort((a, b) => b.length - a.length)[0];
    const near = nearestName(variable, names) ?? longest;
    const right = near === undefined ? 'unset it' : `did you mean ${near}?`;
    return [{ at: `environment variable ${variable}`, path: '', wrong: 'there is no such setting', right }];
  });
}

function warningsAbout(
  { name, mode = 0 }: ConfigurationFile,
  { unset, clearSecrets }: ReadingNotes,
  chosen: ReadonlyMap<string, ChosenValue>,
): readonly string[] {
  const empty = [...unset].flatMap(([path, variable]) => {
    const overridden = [...chosen].some(([entry, { source }]) => isWithin(path, entry) && !source.startsWith(name));
    return overridden ? [] : [`${path} is empty: the environment variable ${variable} is not set`];
  });
  if (clearSecrets.length === 0 || (mode & 0o077) === 0) return empty;
  const which = clearSecrets.slice(0, 3).join(', ') + (clearSecrets.length > 3 ? ', ...' : '');
  return [`${name} holds secrets (${which}) and others on this machine may open it; run: chmod 600 ${name}`, ...empty];
}

function deepFreeze(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const member of Object.values(value)) deepFreeze(member);
  return Object.freeze(value);
}
