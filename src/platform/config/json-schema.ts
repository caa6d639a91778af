import { annotationOf, keywordsOf, type Setting } from './setting-annotation.ts';

type Keywords = Readonly<Record<string, unknown>>;

const DIALECT = 'https://json-schema.org/draft/2020-12/schema';

/** The JSON schema of the file, as editors use it. */
export function jsonSchema(schema: Setting<unknown>, title: string): Keywords {
  return { $schema: DIALECT, title, ...convert(schema) };
}

function convert(schema: Setting<unknown>): Keywords {
  const annotation = annotationOf(schema);
  const { description, default: fallback, ...keywords } = keywordsOf(schema);
  const about = { ...(description !== '' && { description }), ...(fallback !== undefined && { default: fallback }) };
  if (annotation.shape === 'group') {
    const members = Object.entries(annotation.members).map(([key, member]) => [key, convert(member)] as const);
    return { ...about, ...keywords, properties: Object.fromEntries(members) };
  }
  if (annotation.shape === 'list')
    return { ...about, anyOf: [{ ...keywords, items: convert(annotation.item) }, REFERENCE] };
  if (annotation.shape === 'record') {
    return { ...about, anyOf: [{ ...keywords, additionalProperties: convert(annotation.value) }, REFERENCE] };
  }
  const restricted = keywords.type !== 'string' || keywords.pattern !== undefined || keywords.enum !== undefined;
  if (!restricted) return { ...about, ...keywords };
  return { ...about, anyOf: [keywords, ...(fallback === '' ? [{ const: '' }] : []), REFERENCE] };
}

/** `${env:NAME}` may stand for any value. */
const REFERENCE: Keywords = { type: 'string', pattern: '\\$\\{env:[A-Za-z_][A-Za-z0-9_]*\\}' };
