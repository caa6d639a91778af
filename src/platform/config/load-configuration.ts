import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { errorCode } from '../errors/app-error.ts';
import type { Environment } from '../runtime/runtime.ts';
import { type Position, parseYaml } from './parse-yaml.ts';
import { type Complaint, ConfigurationError, nearestName, type Problem } from './problem.ts';
import {
  defaultOf,
  emptyNotes,
  isAbsent,
  own,
  type ReadingContext,
  type ReadingNotes,
  readKeys,
  readSetting,
  readText,
  UNREADABLE,
  variableNotSet,
  WHOLE_REFERENCE,
} from './read-setting.ts';
import {
  isWithin,
  joinPath,
  type Setting,
  type SettingEntry,
  type SettingsDeclaration,
  selfAndAncestors,
  settingEntries,
  variablesOf,
} from './setting-declaration.ts';

export interface LoadInput<T> extends Omit<ResolveInput<T>, 'file'> {
  /** What the `--config` flag says. */
  readonly configFile?: string | undefined;
}

export interface Configuration<T> extends Omit<Resolution<T>, 'problems'> {
  /** The file that was read, as an absolute path; undefined when there is none. */
  readonly file: string | undefined;
}

const MAX_FILE_BYTES = 256 * 1024;

/** Reads the file and resolves the settings. Throws a `ConfigurationError` with every problem. */
export async function loadConfiguration<T>({ configFile, ...input }: LoadInput<T>): Promise<Configuration<T>> {
  const choice = chooseFile(input, configFile);
  const path = resolve(input.workingDirectory, choice.name);
  const read = await readConfigurationFile(choice.name, path);
  const file = typeof read === 'string' ? undefined : read;
  const isMissing = file === undefined && (choice.mustExist || read !== 'ENOENT');
  const missing = isMissing ? [unreadableFile(choice, String(read))] : [];
  const { problems, ...resolution } = resolveSettings({ ...input, file });
  if (missing.length + problems.length > 0)
    throw new ConfigurationError([...missing, ...problems], resolution.warnings);
  return { ...resolution, file: file && path };
}

interface FileChoice {
  readonly name: string;
  /** Who asked for it. */
  readonly where: string;
  readonly mustExist: boolean;
}

function chooseFile<T>(
  { declaration: { fileVariable, fileName }, environment }: Pick<ResolveInput<T>, 'declaration' | 'environment'>,
  configFile: string | undefined,
): FileChoice {
  if (configFile !== undefined) return { name: configFile, where: 'flag --config', mustExist: true };
  const named = environment[fileVariable] ?? '';
  if (named !== '') return { name: named, where: `environment variable ${fileVariable}`, mustExist: true };
  return { name: fileName, where: fileName, mustExist: false };
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
    const permissions = process.platform === 'win32' ? {} : { mode };
    return { text, name, directory: dirname(path), ...permissions };
  } catch (error) {
    return errorCode(error);
  }
}

function unreadableFile({ name, where }: FileChoice, code: string): Problem {
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

/** Flags over environment over file over defaults. Reports every problem, throws none. */
export function resolveSettings<T>(input: ResolveInput<T>): Resolution<T> {
  const { declaration, environment, homeDirectory, workingDirectory } = input;
  const file = input.file ?? { name: 'configuration', text: '', directory: workingDirectory };
  const problems: Problem[] = [];
  let unreported = 0;
  const report = (problem: Problem): void => {
    if (problems.length < MAX_PROBLEMS) problems.push(problem);
    else unreported += 1;
  };
  const parsed = parseYaml(file.text);
  for (const { at, path, wrong, right } of parsed.faults) report({ where: placed(file, at), path, wrong, right });
  /** The place of a value in the file, or of the nearest thing around it that was written down. */
  const inFile: Where = (path, part) => {
    const places = part === 'key' ? parsed.keys : parsed.values;
    const written = selfAndAncestors(path).find((candidate) => places.has(candidate));
    return placed(file, written === undefined ? undefined : places.get(written));
  };
  const notes = emptyNotes();
  const fileContext = { directory: file.directory, homeDirectory, environment, refuse: refuser(inFile, report), notes };
  const folders = { directory: workingDirectory, homeDirectory };
  const entries = settingEntries(declaration.schema);
  const everywhere = entries.map(({ path }) => path);
  const chosen = new Map<string, ChosenValue>();
  const flagProblems: Problem[] = [];
  const missing: Problem[] = [];

  function resolveSetting(setting: Setting<unknown>, raw: unknown, path: string): unknown {
    if (setting.shape === 'group') {
      const mapping = isAbsent(raw) ? {} : (readKeys(setting, raw, path, fileContext, everywhere) ?? {});
      const members = Object.entries(setting.members);
      return Object.fromEntries(
        members.map(([key, member]) => [key, resolveSetting(member, own(mapping, key), joinPath(path, key))]),
      );
    }
    // The whole file is read: what is overridden elsewhere is still checked.
    if (!isAbsent(raw)) {
      const [, variable] = typeof raw === 'string' ? (WHOLE_REFERENCE.exec(raw) ?? []) : [];
      const line = `${file.name}:${parsed.values.get(path)?.line ?? 1}`;
      const source = variable === undefined ? line : `${line}, env ${variable}`;
      chosen.set(path, { value: readSetting(setting, raw, path, fileContext), source, where: inFile });
    }
    // The stronger one comes later. One that could not be read still hides the weaker ones.
    for (const { text, name, isFlag } of textsGiven(input, { path, setting })) {
      const where = (): string => (isFlag ? `flag ${name}` : `environment variable ${name}`);
      const source = isFlag ? where() : `env ${name}`;
      const refuse = refuser(where, isFlag ? (problem) => flagProblems.push(problem) : report);
      const context = { ...folders, refuse, notes: emptyNotes() };
      chosen.set(path, { value: readText(setting, text, path, context), source, where });
    }
    if (setting.fallback === undefined && !chosen.has(path)) {
      missing.push({ where: file.name, path, wrong: 'this has to be given', right: `expected: ${setting.type}` });
    }
    const value = chosen.get(path)?.value ?? UNREADABLE;
    return value === UNREADABLE ? defaultOf(setting, folders) : value;
  }

  const settings = deepFreeze(resolveSetting(declaration.schema, parsed.value, '')) as T;
  for (const problem of [...flagProblems, ...unknownVariables(input, entries), ...missing]) report(problem);
  if (parsed.readable && missing.length === 0) {
    const placeOf = (path: string): string => {
      const owner = [...chosen].find(([entry]) => isWithin(path, entry))?.[1];
      return (owner?.where ?? inFile)(path);
    };
    for (const problem of placeComplaints(declaration.check(settings), problems, placeOf, notes.unset)) report(problem);
  }
  if (unreported > 0) {
    const wrong = `there are ${unreported} more problems`;
    problems.push({ where: file.name, path: '', wrong, right: 'fix these first' });
  }
  return {
    settings,
    problems: inFileOrder(problems, file.name),
    warnings: warningsAbout(file, notes, chosen),
    sources: Object.fromEntries(entries.map(({ path }) => [path, chosen.get(path)?.source ?? 'default'])),
  };
}

type Where = (path: string, part?: 'key') => string;

function refuser(where: Where, report: (problem: Problem) => void): ReadingContext['refuse'] {
  return (path, wrong, right, part) => {
    report({ where: where(path, part), path, wrong, right });
    return UNREADABLE;
  };
}

function placed({ name }: ConfigurationFile, at: Position | undefined): string {
  return at === undefined ? name : `${name}:${at.line}:${at.column}`;
}

/** One value for one setting, and where it stands. */
interface ChosenValue {
  readonly value: unknown;
  /** For people: `trestle.yaml:12`, `env NAME`, `flag --name`. */
  readonly source: string;
  /** The place of the value, or of something inside it, for problems that show later. */
  readonly where: Where;
}

/** A text for a setting from outside of the file, and the name of its variable or flag. */
interface GivenText {
  readonly text: string;
  readonly name: string;
  readonly isFlag: boolean;
}

/** The variables and the flag that are set, the stronger one later. An empty variable counts as not set, unless the setting says that it clears. */
function textsGiven<T>(
  { declaration, environment, flags }: ResolveInput<T>,
  entry: SettingEntry,
): readonly GivenText[] {
  const { setting } = entry;
  const emptyClears = setting.shape === 'leaf' && setting.emptyClears;
  const variables = variablesOf(entry, declaration.environmentPrefix).toReversed();
  const texts = variables.flatMap((name) => {
    const text = environment[name];
    return text === undefined || (text === '' && !emptyClears) ? [] : [{ text, name, isFlag: false }];
  });
  const { flag = '' } = setting;
  const given = flags[flag];
  return given === undefined ? texts : [...texts, { text: String(given), name: flag, isFlag: true }];
}

function unknownVariables<T>(
  { declaration: { environmentPrefix, fileVariable, otherVariables }, environment }: ResolveInput<T>,
  entries: readonly SettingEntry[],
): readonly Problem[] {
  const names = [...entries.flatMap((entry) => variablesOf(entry, environmentPrefix)), fileVariable, ...otherVariables];
  const known = new Set(names);
  return Object.keys(environment).flatMap((variable) => {
    if (environment[variable] === undefined) return [];
    if (!variable.startsWith(environmentPrefix) || known.has(variable)) return [];
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
    const [cause, remedy] = variable === undefined ? [wrong, right] : variableNotSet(variable);
    return [{ where: placeOf(path), path, wrong: cause, right: remedy }];
  });
}

/** What stands in the file comes first, from top to bottom. */
function inFileOrder(problems: readonly Problem[], name: string): readonly Problem[] {
  const rank = ({ where }: Problem): number => {
    const [, line, column] = where.startsWith(`${name}:`) ? (/:(\d+):(\d+)$/.exec(where) ?? []) : [];
    return line === undefined ? Number.MAX_SAFE_INTEGER : Number(line) * 1_000_000 + Number(column);
  };
  return problems.toSorted((one, other) => rank(one) - rank(other));
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
