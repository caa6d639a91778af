import { annotationOf, type Setting } from './setting-annotation.ts';
import { secretsOfUrl } from './url-secrets.ts';

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
