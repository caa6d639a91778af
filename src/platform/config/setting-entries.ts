import {
  annotationOf,
  type LeafAnnotation,
  type ListAnnotation,
  type RecordAnnotation,
  type Setting,
} from './setting-annotation.ts';
import { joinPath } from './setting-path.ts';

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
