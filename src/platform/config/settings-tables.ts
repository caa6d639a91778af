import { annotationOf, type Setting, type SettingAnnotation } from './setting-annotation.ts';
import { variablesOf } from './setting-entries.ts';
import { joinPath } from './setting-path.ts';
import type { SettingsDeclaration } from './settings-declaration.ts';

interface Row {
  readonly path: string;
  readonly annotation: Exclude<SettingAnnotation, { shape: 'group' }>;
  /** Undefined inside lists and records, whose members no variable reaches. */
  readonly variables: readonly string[] | undefined;
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
    .flatMap(([key, member]) => rows(member, key, [key], environmentPrefix));
  const sections = members.filter(isGroup).map(([key, member]) => {
    const { description } = annotationOf(member);
    return `## ${key}\n\n${description}\n\n${table(rows(member, key, [key], environmentPrefix))}`;
  });
  return [`## At the top\n\n${top.description}\n\n${table(single)}`, ...sections].join('\n\n');
}

function rows(
  schema: Setting<unknown>,
  path: string,
  keys: readonly string[] | undefined,
  prefix: string,
): readonly Row[] {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'group') {
    return Object.entries(annotation.members).flatMap(([key, member]) =>
      rows(member, joinPath(path, key), keys && [...keys, key], prefix),
    );
  }
  const variables = keys && variablesOf({ path, keys, schema, annotation }, prefix);
  const own: Row = { path, annotation, variables };
  if (annotation.shape === 'leaf') return [own];
  const inner = annotation.shape === 'list' ? annotation.item : annotation.value;
  if (annotationOf(inner).shape !== 'group') return [own];
  return [own, ...rows(inner, annotation.shape === 'list' ? `${path}[]` : `${path}.<name>`, undefined, prefix)];
}

function table(lines: readonly Row[]): string {
  return [HEADER, ...lines.map(line)].join('\n');
}

function line({ path, annotation, variables }: Row): string {
  const names = variables?.map(code).join(', ') ?? '';
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
  return isMasked(annotationOf(annotation.shape === 'list' ? annotation.item : annotation.value));
}

function code(text: string): string {
  return `\`${text}\``;
}
