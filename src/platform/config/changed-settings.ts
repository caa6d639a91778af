import { isDeepStrictEqual } from 'node:util';
import { annotationOf, type Setting } from './setting-annotation.ts';
import { joinPath } from './setting-path.ts';

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
