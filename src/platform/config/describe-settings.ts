import {
  joinPath,
  type Setting,
  type SettingEntry,
  type SettingsDeclaration,
  variablesOf,
} from './setting-declaration.ts';

interface Row extends SettingEntry {
  readonly variables: readonly string[];
}

const HEADER = '| key | type | default | environment | what it does |\n| --- | --- | --- | --- | --- |';

/** Every setting in Markdown: one section with one table for each top-level group, after one for what stands at the top. */
export function settingsTables<T>({ schema, environmentPrefix }: SettingsDeclaration<T>): string {
  const sections: string[] = [];
  const single: Row[] = [];
  for (const [key, member] of Object.entries(schema.shape === 'group' ? schema.members : {})) {
    const own = rows(member, key, environmentPrefix);
    if (member.shape === 'group') sections.push(`## ${key}\n\n${member.description}\n\n${table(own)}`);
    else single.push(...own);
  }
  return [`## At the top\n\n${schema.description}\n\n${table(single)}`, ...sections].join('\n\n');
}

/** Without a prefix: inside lists and records, whose members no variable reaches. */
function rows(setting: Setting<unknown>, path: string, prefix?: string): readonly Row[] {
  if (setting.shape === 'group') {
    return Object.entries(setting.members).flatMap(([key, member]) => rows(member, joinPath(path, key), prefix));
  }
  const own: Row = { path, setting, variables: prefix === undefined ? [] : variablesOf({ path, setting }, prefix) };
  if (setting.shape === 'leaf' || setting.member.shape !== 'group') return [own];
  return [own, ...rows(setting.member, setting.shape === 'list' ? `${path}[]` : `${path}.<name>`)];
}

function table(lines: readonly Row[]): string {
  return [HEADER, ...lines.map(line)].join('\n');
}

function line({ path, setting, variables }: Row): string {
  const { type, fallback, description, reload } = setting;
  const marks = (isMasked(setting) ? ' *Secret.*' : '') + (reload ? ' *Reloaded.*' : '');
  const cells = [code(path), type, defaultCell(fallback), variables.map(code).join(', '), description + marks];
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

function defaultCell(fallback: unknown): string {
  if (fallback === undefined) return 'has to be given';
  if (fallback === '') return 'empty';
  return code(typeof fallback === 'string' ? fallback : JSON.stringify(fallback));
}

function isMasked(setting: SettingEntry['setting'] | Setting<unknown>): boolean {
  if (setting.shape === 'leaf') return setting.secrecy !== 'open';
  return setting.shape !== 'group' && isMasked(setting.member);
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

function convert(setting: Setting<unknown>): Keywords {
  const about = setting.description === '' ? {} : { description: setting.description };
  if (setting.shape === 'group') {
    const members = Object.entries(setting.members);
    const isRequired = (member: Setting<unknown>) => member.shape !== 'group' && member.fallback === undefined;
    const required = members.flatMap(([key, member]) => (isRequired(member) ? [key] : []));
    const properties = Object.fromEntries(members.map(([key, member]) => [key, convert(member)]));
    return {
      ...{ ...about, type: 'object', properties, additionalProperties: false },
      ...(required.length > 0 && { required }),
    };
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
