import { isDeepStrictEqual } from 'node:util';
import { isSecretParameter } from '../log/hidden-secrets.ts';
import {
  annotationOf,
  joinPath,
  type LeafAnnotation,
  memberSchema,
  type Setting,
  type SettingAnnotation,
} from './setting-annotation.ts';

const MASK = '********';

type Values = Readonly<Record<string, unknown>>;
type Member = readonly [key: string, schema: Setting<unknown>, value: unknown];

/** What a group, list or record holds, each value with its schema. */
function membersOf(annotation: Exclude<SettingAnnotation, LeafAnnotation>, value: unknown): readonly Member[] {
  return Object.entries(value as Values).flatMap(([key, member]) => {
    const schema = annotation.shape === 'group' ? annotation.members[key] : memberSchema(annotation);
    return schema === undefined ? [] : [[key, schema, member] as const];
  });
}

/** Settings as a file would have them, with every secret replaced: for print, logs and support requests. */
export function maskSettings(schema: Setting<unknown>, value: unknown): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'leaf') {
    const written = annotation.write(value);
    if (annotation.secrecy === 'open' || written === '') return written;
    return annotation.secrecy === 'url' ? maskUrl(String(written)) : MASK;
  }
  const masked = membersOf(annotation, value).map(([key, member, own]) => [key, maskSettings(member, own)] as const);
  return annotation.shape === 'list' ? masked.map(([, own]) => own) : Object.fromEntries(masked);
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
  return [...new Set(collect(schema, settings))];
}

function collect(schema: Setting<unknown>, value: unknown): readonly string[] {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'leaf') {
    const written = annotation.secrecy === 'open' ? '' : String(annotation.write(value));
    if (written === '') return [];
    return annotation.secrecy === 'url' ? secretsOfUrl(written) : [written];
  }
  return membersOf(annotation, value).flatMap(([, member, own]) => collect(member, own));
}

export interface ChangedSettings {
  /** Paths of what may change while the program runs. */
  readonly reloadable: readonly string[];
  /** Paths of what counts only after a restart. */
  readonly restart: readonly string[];
}

/** What differs between two readings of the configuration. */
export function changedSettings<T>(schema: Setting<T>, before: T, after: T): ChangedSettings {
  const changes = compare(schema, before, after, '');
  return {
    reloadable: changes.filter(({ reload }) => reload).map(({ path }) => path),
    restart: changes.filter(({ reload }) => !reload).map(({ path }) => path),
  };
}

interface Change {
  readonly path: string;
  readonly reload: boolean;
}

function compare(schema: Setting<unknown>, before: unknown, after: unknown, path: string): readonly Change[] {
  if (isDeepStrictEqual(before, after)) return [];
  const annotation = annotationOf(schema);
  const whole: Change = { path, reload: annotation.shape !== 'group' && annotation.reload };
  if (annotation.shape === 'leaf' || whole.reload) return [whole];
  // A list or record that gains or loses members changed as a whole; otherwise each member answers for itself.
  if (!isDeepStrictEqual(Object.keys(before as Values), Object.keys(after as Values))) return [whole];
  return membersOf(annotation, after).flatMap(([key, member, own]) =>
    compare(member, (before as Values)[key], own, joinPath(path, annotation.shape === 'list' ? Number(key) : key)),
  );
}

/** Returns the secrets inside a URL, as written there and decoded. */
export function secretsOfUrl(text: string): readonly string[] {
  const url = URL.parse(text);
  if (url === null) return [text];
  const parameters = [...url.searchParams].flatMap(([name, value]) => (isSecretParameter(name) ? [value] : []));
  return [url.password, decoded(url.password), ...parameters].filter((secret) => secret !== '');
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
