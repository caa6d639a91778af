import { joinPath, type Setting, type SettingsDeclaration, variablesOf } from './setting-declaration.ts';

/** Every setting in Markdown: one section with one table for each top-level group, after one for what stands at the top. */
export function settingsTables<T>({ schema, environmentPrefix }: SettingsDeclaration<T>): string {
  const members = Object.entries(schema.shape === 'group' ? schema.members : {});
  const single = members.flatMap(([key, one]) => (one.shape === 'group' ? [] : rows(one, key, environmentPrefix)));
  const groups = members.flatMap(([key, one]) =>
    one.shape === 'group' ? section(key, one.description, rows(one, key, environmentPrefix)) : [],
  );
  return [section('Top level', schema.description, single), ...groups].join('\n\n');
}

function section(title: string, description: string, lines: readonly string[]): string {
  const header = '| key | type | default | environment | what it does |\n| --- | --- | --- | --- | --- |';
  return [`## ${title}\n\n${description}\n\n${header}`, ...lines].join('\n');
}

/** Without a prefix: inside lists and records, whose members no variable reaches. */
function rows(setting: Setting<unknown>, path: string, prefix?: string): readonly string[] {
  if (setting.shape === 'group') {
    return Object.entries(setting.members).flatMap(([key, member]) => rows(member, joinPath(path, key), prefix));
  }
  const { type, fallback, description, reload } = setting;
  const variables = prefix === undefined ? [] : variablesOf({ path, setting }, prefix);
  const marks = (isMasked(setting) ? ' *Secret.*' : '') + (reload ? ' *Reloaded.*' : '');
  const cells = [code(path), type, defaultCell(fallback), variables.map(code).join(', '), description + marks];
  const own = `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  if (setting.shape === 'leaf' || setting.member.shape !== 'group') return [own];
  return [own, ...rows(setting.member, setting.shape === 'list' ? `${path}[]` : `${path}.<name>`)];
}

function defaultCell(fallback: unknown): string {
  if (fallback === undefined) return 'required';
  if (fallback === '') return 'empty';
  return code(typeof fallback === 'string' ? fallback : JSON.stringify(fallback));
}

function isMasked(setting: Setting<unknown>): boolean {
  if (setting.shape === 'leaf') return setting.secrecy !== 'open';
  return setting.shape !== 'group' && isMasked(setting.member);
}

const code = (text: string): string => `\`${text}\``;

type Keywords = Readonly<Record<string, unknown>>;

/** The JSON schema of the file, as editors use it. */
export function jsonSchema(schema: Setting<unknown>, title: string): Keywords {
  return { $schema: 'https://json-schema.org/draft/2020-12/schema', title, ...convert(schema) };
}

function convert(setting: Setting<unknown>): Keywords {
  const about = setting.description === '' ? {} : { description: setting.description };
  if (setting.shape === 'group') {
    const members = Object.entries(setting.members);
    const isRequired = (member: Setting<unknown>) => member.shape !== 'group' && member.fallback === undefined;
    const required = members.flatMap(([key, member]) => (isRequired(member) ? [key] : []));
    const properties = Object.fromEntries(members.map(([key, member]) => [key, convert(member)]));
    const object = { ...about, type: 'object', properties, additionalProperties: false };
    return required.length > 0 ? { ...object, required } : object;
  }
  const { json, fallback } = setting;
  const known = fallback === undefined ? about : { ...about, default: fallback };
  if (setting.shape !== 'leaf') {
    const member = { [setting.shape === 'list' ? 'items' : 'additionalProperties']: convert(setting.member) };
    return { ...known, anyOf: [{ ...json, ...member }, REFERENCE] };
  }
  const restricted = json.type !== 'string' || json.pattern !== undefined || json.enum !== undefined;
  if (!restricted) return { ...known, ...json };
  return { ...known, anyOf: [json, ...(fallback === '' ? [{ const: '' }] : []), REFERENCE] };
}

/** `${env:NAME}` may stand for any value. */
const REFERENCE: Keywords = { type: 'string', pattern: '\\$\\{env:[A-Za-z_][A-Za-z0-9_]*\\}' };
