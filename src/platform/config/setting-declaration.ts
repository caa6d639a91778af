import querystring from 'node:querystring';
import { isDeepStrictEqual } from 'node:util';
import type { TUnsafe } from 'typebox';
import { isSecretParameter } from '../log/hidden-secrets.ts';
import type { Complaint } from './problem.ts';

/** What a printed configuration shows: all of it; nothing; nothing, for it may hold a secret; or a URL without its password. */
export type Secrecy = 'open' | 'secret' | 'private' | 'url';

/** Folders that relative paths and `~/` start from. */
export interface Folders {
  readonly directory: string;
  readonly homeDirectory: string;
}

/** What stands before `wrong` is the value itself, or "the value" where it must not be shown. */
export type Reading<T> = { readonly value: T } | { readonly wrong: string; readonly fix?: string };

export type RawValue = string | number | boolean;

interface ValueSetting {
  readonly description: string;
  /** A name that the variable had before this program; the derived one works besides. */
  readonly env: string | undefined;
  readonly flag?: string | undefined;
  readonly reload: boolean;
  /** In the form in which a file would have it. Undefined: has to be given. */
  readonly fallback: unknown;
  /** In a word or two, for the documentation. */
  readonly type: string;
  /** The JSON schema of what a file may hold, without the members of a list or record. */
  readonly json: Readonly<Record<string, unknown>>;
}

export interface LeafSetting extends ValueSetting {
  readonly shape: 'leaf';
  readonly secrecy: Secrecy;
  /** An empty environment variable sets it to empty; for all others that counts as not set. */
  readonly emptyClears: boolean;
  /** The expected value, in words: "a whole number from 1 to 10". */
  readonly expects: string;
  /** `textual`: the value comes from a variable or a flag, where numbers and booleans are strings. */
  decode(raw: RawValue, textual: boolean, folders: Folders): Reading<unknown>;
  /** The value in the form in which a file would have it. */
  encode(value: unknown): unknown;
}

/** Values of one kind: in a list, or under keys that the user chooses. */
export interface CollectionSetting<Shape = 'list' | 'record'> extends ValueSetting {
  readonly shape: Shape;
  readonly member: Setting<unknown>;
  readonly minimum: number;
  readonly keyPattern: RegExp;
  readonly keyExpects: string;
}

export interface GroupSetting {
  readonly shape: 'group';
  readonly description: string;
  readonly members: Readonly<Record<string, Setting<unknown>>>;
}

type AnyValueSetting = LeafSetting | CollectionSetting<'list'> | CollectionSetting<'record'>;

/** The declaration of a setting; `T` is its type in the frozen result, for `Static` only. */
export type Setting<T> = (AnyValueSetting | GroupSetting) & TUnsafe<T>;

/** A setting that can be set by itself: from a variable, a flag, or under its own key. */
export interface SettingEntry {
  readonly path: string;
  readonly setting: AnyValueSetting;
}

/** Every such setting, in the order of the declaration. */
export function settingEntries(setting: Setting<unknown>, path = ''): readonly SettingEntry[] {
  if (setting.shape !== 'group') return [{ path, setting }];
  return Object.entries(setting.members).flatMap(([key, member]) => settingEntries(member, joinPath(path, key)));
}

/** The variables that set it, the stronger one first. */
export function variablesOf({ path, setting: { env } }: SettingEntry, prefix: string): readonly string[] {
  const derived = prefix + path.replaceAll('.', '_').toUpperCase();
  return env === undefined || env === derived ? [derived] : [env, derived];
}

const PLAIN_KEY = /^[A-Za-z_][\w-]*$/;
const MAX_KEY_CHARACTERS = 100;

/** `log` + `level` = `log.level`; list items as `list[0]`, keys that are not plain words as `map["a/b"]`. */
export function joinPath(base: string, key: string | number): string {
  if (typeof key === 'number') return `${base}[${key}]`;
  const name = key.slice(0, MAX_KEY_CHARACTERS);
  if (!PLAIN_KEY.test(name)) return `${base}[${JSON.stringify(name)}]`;
  return base === '' ? name : `${base}.${name}`;
}

/** Whether `path` is `ancestor` itself or lies below it. */
export function isWithin(path: string, ancestor: string): boolean {
  return ancestor === '' || selfAndAncestors(path).includes(ancestor);
}

/** `a.b[0].c`, then `a.b[0]`, `a.b`, `a`. */
export function selfAndAncestors(path: string): readonly string[] {
  const ends = [...path.matchAll(/[.[]/g)].map(({ index }) => index).filter((index) => index > 0);
  return [path, ...ends.reverse().map((end) => path.slice(0, end))];
}

/** The settings of a program, and where they are read from. */
export interface SettingsDeclaration<T> {
  readonly schema: Setting<T>;
  /** What a derived variable starts with: `NAME_` makes `log.level` NAME_LOG_LEVEL. */
  readonly environmentPrefix: string;
  /** The variable that names the file. */
  readonly fileVariable: string;
  /** The file that is read from the working directory unless one is named. */
  readonly fileName: string;
  /** Variables with the prefix that are not settings. */
  readonly otherVariables: readonly string[];
  /** What must hold between settings. */
  check(settings: T): readonly Complaint[];
}

const MASK = '********';

type Values = Readonly<Record<string, unknown>>;
type Member = readonly [key: string, setting: Setting<unknown>, value: unknown];

/** What a group, list or record holds, each value with its setting. */
function membersOf(setting: Exclude<Setting<unknown>, LeafSetting>, value: unknown): readonly Member[] {
  return Object.entries(value as Values).flatMap(([key, member]) => {
    const own = setting.shape === 'group' ? setting.members[key] : setting.member;
    return own === undefined ? [] : [[key, own, member] as const];
  });
}

/** Settings as a file would have them, each single value changed by `change`. */
function mapLeaves(
  setting: Setting<unknown>,
  value: unknown,
  change: (written: unknown, secrecy: Secrecy) => unknown,
): unknown {
  if (setting.shape === 'leaf') return change(setting.encode(value), setting.secrecy);
  const changed = membersOf(setting, value).map(([key, member, own]) => [key, mapLeaves(member, own, change)] as const);
  return setting.shape === 'list' ? changed.map(([, own]) => own) : Object.fromEntries(changed);
}

/** Settings as a file would have them, with every secret replaced: for print, logs and support requests. */
export function maskSettings(schema: Setting<unknown>, settings: unknown): unknown {
  return mapLeaves(schema, settings, (written, secrecy) => {
    if (secrecy === 'open' || written === '') return written;
    return secrecy === 'url' ? maskUrl(String(written)) : MASK;
  });
}

function maskUrl(text: string): string {
  const url = URL.parse(text);
  if (url === null) return MASK;
  if (url.password !== '') url.password = MASK;
  for (const name of new Set(url.searchParams.keys())) {
    if (isSecretParameter(name)) url.searchParams.set(name, MASK);
  }
  return url.href;
}

/** Every secret among the settings that is set, for the log to leave out. */
export function secretValues<T>(schema: Setting<T>, settings: T): readonly string[] {
  const found: string[] = [];
  mapLeaves(schema, settings, (written, secrecy) => {
    if (secrecy === 'open' || written === '') return;
    found.push(...(secrecy === 'url' ? secretsOfUrl(String(written)) : [String(written)]));
  });
  return [...new Set(found)];
}

/** Returns the secrets inside a URL, as written there and decoded. */
export function secretsOfUrl(text: string): readonly string[] {
  const url = URL.parse(text);
  if (url === null) return [text];
  const parameters = [...url.searchParams].flatMap(([name, value]) => (isSecretParameter(name) ? [value] : []));
  return [url.password, querystring.unescape(url.password), ...parameters].filter((secret) => secret !== '');
}

/** Paths of what may change while the program runs, and of what counts only after a restart. */
export type ChangedSettings = Readonly<Record<'reloadable' | 'restart', readonly string[]>>;

/** What differs between two readings of the configuration. */
export function changedSettings<T>(schema: Setting<T>, before: T, after: T): ChangedSettings {
  const reloadable: string[] = [];
  const restart: string[] = [];

  function compare(setting: Setting<unknown>, one: unknown, other: unknown, path: string): void {
    if (isDeepStrictEqual(one, other)) return;
    const reload = setting.shape !== 'group' && setting.reload;
    // A list or record that gains or loses members changed as a whole; otherwise each member is compared.
    const keysDiffer = (): boolean => !isDeepStrictEqual(Object.keys(one as Values), Object.keys(other as Values));
    if (setting.shape === 'leaf' || reload || keysDiffer()) {
      (reload ? reloadable : restart).push(path);
      return;
    }
    for (const [key, member, own] of membersOf(setting, other)) {
      compare(member, (one as Values)[key], own, joinPath(path, setting.shape === 'list' ? Number(key) : key));
    }
  }

  compare(schema, before, after, '');
  return { reloadable, restart };
}
