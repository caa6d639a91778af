import { UNREADABLE } from './reading-context.ts';
import { annotationOf, type Folders, type Setting } from './setting-annotation.ts';

/** The value of a setting that nobody set; `UNREADABLE` when it has to be given. */
export function defaultOf(schema: Setting<unknown>, folders: Folders): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'group') {
    const members = Object.entries(annotation.members).map(
      ([key, member]) => [key, defaultOf(member, folders)] as const,
    );
    return members.some(([, value]) => value === UNREADABLE) ? UNREADABLE : Object.fromEntries(members);
  }
  const { fallback } = annotation;
  if (fallback === undefined) return UNREADABLE;
  if (annotation.shape === 'record') return {};
  if (annotation.shape === 'list') {
    return (fallback as readonly unknown[]).map((item) => readDefault(annotation.item, item, folders));
  }
  return readDefault(schema, fallback, folders);
}

function readDefault(schema: Setting<unknown>, fallback: unknown, folders: Folders): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape !== 'leaf' || fallback === '') return fallback;
  const reading = annotation.read(fallback as string | number | boolean, false, folders);
  if ('value' in reading) return reading.value;
  throw new TypeError(`the default ${JSON.stringify(fallback)} ${reading.wrong}`);
}
