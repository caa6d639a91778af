import { type TSchema, type TUnsafe, Type } from 'typebox';
import type { Complaint } from './problem.ts';

/** A setting's schema; `T` is its type in the frozen result. */
export type Setting<T> = TUnsafe<T>;

/** What a printed configuration shows: all of it; nothing; nothing, for it may hold a secret; or a URL without its password. */
export type Secrecy = 'open' | 'secret' | 'private' | 'url';

/** Folders that relative paths and `~/` start from. */
export interface Folders {
  readonly directory: string;
  readonly homeDirectory: string;
}

/** What stands before `wrong` is the value itself, or "the value" where it must not be shown. */
export type Reading<T> = { readonly value: T } | { readonly wrong: string; readonly mend?: string };

interface CommonAnnotation {
  readonly description: string;
  /** A name that the variable had before this program; the derived one works besides. */
  readonly env: string | undefined;
  readonly flag: string | undefined;
  readonly reload: boolean;
  /** In the form in which a file would have it. Undefined: has to be given. */
  readonly fallback: unknown;
  /** In a word or two, for the documentation. */
  readonly type: string;
}

export interface LeafAnnotation extends CommonAnnotation {
  readonly shape: 'leaf';
  readonly secrecy: Secrecy;
  /** An empty environment variable sets it to empty; for all others that counts as not set. */
  readonly emptyClears: boolean;
  /** What would be right, said without knowing the value: "a whole number from 1 to 10". */
  readonly expects: string;
  /** `textual`: the value comes from a variable or a flag, where numbers and booleans are strings. */
  read(raw: string | number | boolean, textual: boolean, folders: Folders): Reading<unknown>;
  /** The value in the form in which a file would have it. */
  write(value: unknown): unknown;
}

export interface ListAnnotation extends CommonAnnotation {
  readonly shape: 'list';
  readonly item: Setting<unknown>;
  readonly minimum: number;
}

export interface RecordAnnotation extends CommonAnnotation {
  readonly shape: 'record';
  readonly value: Setting<unknown>;
  readonly keyPattern: RegExp;
  readonly keyExpects: string;
}

export interface GroupAnnotation {
  readonly shape: 'group';
  readonly description: string;
  readonly members: Readonly<Record<string, Setting<unknown>>>;
}

export type SettingAnnotation = LeafAnnotation | ListAnnotation | RecordAnnotation | GroupAnnotation;

const ANNOTATION = 'x-setting';

/** A JSON schema of what a file may hold, which carries its annotation along. */
export function annotate<T>(json: Readonly<Record<string, unknown>>, annotation: SettingAnnotation): Setting<T> {
  return Type.Unsafe<T>({ ...json, description: annotation.description, [ANNOTATION]: annotation } as TSchema);
}

export function annotationOf(schema: Setting<unknown>): SettingAnnotation {
  return (schema as unknown as Record<typeof ANNOTATION, SettingAnnotation>)[ANNOTATION];
}

/** The schema of everything in a list or record. */
export function memberSchema(annotation: ListAnnotation | RecordAnnotation): Setting<unknown> {
  return annotation.shape === 'list' ? annotation.item : annotation.value;
}

/** The JSON schema's own keywords. */
export function keywordsOf(schema: Setting<unknown>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(schema).filter(([key]) => key !== ANNOTATION));
}

/** A setting that can be set by itself: from a variable, a flag, or under its own key. */
export interface SettingEntry {
  readonly path: string;
  readonly keys: readonly string[];
  readonly schema: Setting<unknown>;
  readonly annotation: LeafAnnotation | ListAnnotation | RecordAnnotation;
}

/** Every such setting, in the order of the declaration. */
export function settingEntries(
  schema: Setting<unknown>,
  path = '',
  keys: readonly string[] = [],
): readonly SettingEntry[] {
  const annotation = annotationOf(schema);
  if (annotation.shape !== 'group') return [{ path, keys, schema, annotation }];
  return Object.entries(annotation.members).flatMap(([key, member]) =>
    settingEntries(member, joinPath(path, key), [...keys, key]),
  );
}

/** The variables that set it, the stronger one first. */
export function variablesOf({ keys, annotation }: SettingEntry, prefix: string): readonly string[] {
  const derived = prefix + keys.join('_').toUpperCase();
  return annotation.env === undefined || annotation.env === derived ? [derived] : [annotation.env, derived];
}

const PLAIN_KEY = /^[A-Za-z_][\w-]*$/;

/** `log` + `level` = `log.level`; list items as `list[0]`, keys that are no plain words as `map["a/b"]`. */
export function joinPath(base: string, key: string | number): string {
  if (typeof key === 'number') return `${base}[${key}]`;
  if (!PLAIN_KEY.test(key)) return `${base}[${JSON.stringify(key)}]`;
  return base === '' ? key : `${base}.${key}`;
}

/** Whether `path` is `ancestor` itself or lies below it. */
export function isWithin(path: string, ancestor: string): boolean {
  if (!path.startsWith(ancestor)) return false;
  const next = path.charAt(ancestor.length);
  return ancestor === '' || next === '' || next === '.' || next === '[';
}

/** `a.b[0].c`, then `a.b[0]`, `a.b`, `a`. */
export function selfAndAncestors(path: string): readonly string[] {
  const paths = [path];
  for (let end = path.length - 1; end > 0; end -= 1) {
    if (path[end] === '.' || path[end] === '[') paths.push(path.slice(0, end));
  }
  return paths;
}

/** All that a program says about its settings. */
export interface SettingsDeclaration<T> {
  readonly schema: Setting<T>;
  /** What a derived variable starts with: `NAME_` makes `log.level` NAME_LOG_LEVEL. */
  readonly environmentPrefix: string;
  /** The variable that names the file. */
  readonly fileVariable: string;
  /** Looked for in the working directory when nobody names a file. */
  readonly fileName: string;
  /** Variables with the prefix that are no settings. */
  readonly otherVariables: readonly string[];
  /** What must hold between settings. */
  check(settings: T): readonly Complaint[];
}
