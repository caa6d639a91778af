import {
  annotationOf,
  joinPath,
  keywordsOf,
  type Setting,
  type SettingAnnotation,
  type SettingsDeclaration,
  variablesOf,
} from './setting-annotation.ts';

interface Row {
  readonly path: string;
  readonly annotation: Exclude<SettingAnnotation, { shape: 'group' }>;
  readonly variables: readonly string[];
}

const HEADER = '| key | type | default | environment | what it does |\n| --- | --- | --- | --- | --- |';

/** Every setting in Markdown: one section with one table for each top-level group, after one for what stands at the top. */
export function settingsTables<T>({ schema, environmentPrefix }: SettingsDeclaration<T>): string {
  const top = annotationOf(schema);
  if (top.shape !== 'group') return '';
  const members = Object.entries(top.members);
  const isGroup = ([, member]: readonly [string, Setting<unknown>]): boolean => annotationOf(member).shape === 'group';
  const single = members
    .filter((member) => !isGroup(member))
    .flatMap(([key, member]) => rows(member, key, environmentPrefix));
  const sections = members.filter(isGroup).map(([key, member]) => {
    const { description } = annotationOf(member);
    return `## ${key}\n\n${description}\n\n${table(rows(member, key, environmentPrefix))}`;
  });
  return [`## At the top\n\n${top.description}\n\n${table(single)}`, ...sections].join('\n\n');
}

/** Without a prefix: inside lists and records, whose members no variable reaches. */
function rows(schema: Setting<unknown>, path: string, prefix?: string): readonly Row[] {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'group') {
    return Object.entries(annotation.members).flatMap(([key, member]) => rows(member, joinPath(path, key), prefix));
  }
  const variables = prefix === undefined ? [] : variablesOf({ path, annotation }, prefix);
  const own: Row = { path, annotation, variables };
  if (annotation.shape === 'leaf') return [own];
  const inner = annotation.member;
  if (annotationOf(inner).shape !== 'group') return [own];
  return [own, ...rows(inner, annotation.shape === 'list' ? `${path}[]` : `${path}.<name>`)];
}

function table(lines: readonly Row[]): string {
  return [HEADER, ...lines.map(line)].join('\n');
}

function line({ path, annotation, variables }: Row): string {
  const names = variables.map(code).join(', ');
  const cells = [code(path), annotation.type, fallback(annotation), names, annotation.description + marks(annotation)];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

function fallback({ fallback: value }: Row['annotation']): string {
  if (value === undefined) return 'has to be given';
  if (value === '') return 'empty';
  return code(typeof value === 'string' ? value : JSON.stringify(value));
}

function marks(annotation: Row['annotation']): string {
  return (isMasked(annotation) ? ' *Secret.*' : '') + (annotation.reload ? ' *Reloaded.*' : '');
}

function isMasked(annotation: SettingAnnotation): boolean {
  if (annotation.shape === 'leaf') return annotation.secrecy !== 'open';
  if (annotation.shape === 'group') return false;
  return isMasked(annotationOf(annotation.member));
}

function code(text: string): string {
  return `\`${text}\``;
}

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
  if (annotation.shape !== 'leaf') {
    const member = { [annotation.shape === 'list' ? 'items' : 'additionalProperties']: convert(annotation.member) };
    return { ...about, anyOf: [{ ...keywords, ...member }, REFERENCE] };
  }
  const restricted = keywords.type !== 'string' || keywords.pattern !== undefined || keywords.enum !== undefined;
  if (!restricted) return { ...about, ...keywords };
  return { ...about, anyOf: [keywords, ...(fallback === '' ? [{ const: '' }] : []), REFERENCE] };
}

/** `${env:NAME}` may stand for any value. */
const REFERENCE: Keywords = { type: 'string', pattern: '\\$\\{env:[A-Za-z_][A-Za-z0-9_]*\\}' };
