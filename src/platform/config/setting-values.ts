import { isDeepStrictEqual } from 'node:util';
import { isSecretParameter } from '../log/hidden-secrets.ts';
import { annotationOf, joinPath, type LeafAnnotation, type Setting } from './setting-annotation.ts';

const MASK = '********';

/** Settings as a file would have them, with every secret replaced: for print, logs and support requests. */
export function maskSettings<T>(schema: Setting<T>, settings: T): unknown {
  return mask(schema, settings);
}

function mask(schema: Setting<unknown>, value: unknown): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'leaf') return maskLeaf(annotation, value);
  if (annotation.shape === 'list') return (value as readonly unknown[]).map((item) => mask(annotation.item, item));
  const entries = Object.entries(value as Readonly<Record<string, unknown>>);
  const memberOf = (key: string): Setting<unknown> =>
    annotation.shape === 'record' ? annotation.value : (annotation.members[key] as Setting<unknown>);
  return Object.fromEntries(entries.map(([key, member]) => [key, mask(memberOf(key), member)]));
}

function maskLeaf({ secrecy, write }: LeafAnnotation, value: unknown): unknown {
  const written = write(value);
  if (secrecy === 'open' || written === '') return written;
  return secrecy === 'url' ? maskUrl(String(written)) : MASK;
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
  if (annotation.shape === 'list') {
    return (value as readonly unknown[]).flatMap((item) => collect(annotation.item, item));
  }
  return Object.entries(value as Readonly<Record<string, unknown>>).flatMap(([key, member]) => {
    const memberSchema = annotation.shape === 'record' ? annotation.value : annotation.members[key];
    return memberSchema === undefined ? [] : collect(memberSchema, member);
  });
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

type Values = Readonly<Record<string | number, unknown>>;

function compare(schema: Setting<unknown>, before: unknown, after: unknown, path: string): readonly Change[] {
  if (isDeepStrictEqual(before, after)) return [];
  const annotation = annotationOf(schema);
  const whole: Change = { path, reload: annotation.shape !== 'group' && annotation.reload };
  if (annotation.shape === 'leaf' || whole.reload) return [whole];
  const old = before as Values;
  const now = after as Values;
  const members = Object.keys(now);
  // A list or record that gains or loses members changed as a whole; otherwise each member answers for itself.
  if (!isDeepStrictEqual(Object.keys(old), members)) return [whole];
  const memberOf = (key: string): Setting<unknown> | undefined => {
    if (annotation.shape === 'group') return annotation.members[key];
    return annotation.shape === 'list' ? annotation.item : annotation.value;
  };
  return members.flatMap((key) => {
    const member = memberOf(key);
    if (member === undefined) return [];
    return compare(member, old[key], now[key], joinPath(path, annotation.shape === 'list' ? Number(key) : key));
  });
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
