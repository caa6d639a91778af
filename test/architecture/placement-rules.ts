import { type Rule, type SourceFile, type Violation, violation } from './source-file.ts';

const ENVIRONMENT_FILE = 'src/system/environment.ts';
const DATABASE_PACKAGES = ['kysely', 'pg', 'node:sqlite'];

/** The environment is read in one file; everything else gets values. */
export const environmentInOnePlace: Rule = (file) => {
  if (file.path === ENVIRONMENT_FILE) return [];
  const message = `process.env outside ${ENVIRONMENT_FILE}`;
  const found = file.imports
    .filter(({ specifier, names }) => /^(node:)?process$/.test(specifier) && names.includes('env'))
    .map(({ offset }) => violation(file, offset, message));
  file.visit({
    MemberExpression(node) {
      const { object, property } = node;
      const name = property.type === 'Literal' ? property.value : property.type === 'Identifier' ? property.name : '';
      const isProcess =
        (object.type === 'Identifier' && object.name === 'process') ||
        (object.type === 'MemberExpression' && !object.computed && object.property.name === 'process');
      if (isProcess && name === 'env') found.push(violation(file, node.start, message));
    },
    VariableDeclarator(node) {
      if (node.init?.type !== 'Identifier' || node.init.name !== 'process' || node.id.type !== 'ObjectPattern') return;
      const takesEnvironment = node.id.properties.some(
        (property) => property.type === 'Property' && property.key.type === 'Identifier' && property.key.name === 'env',
      );
      if (takesEnvironment) found.push(violation(file, node.start, message));
    },
  });
  return found;
};

const SQL_KEYWORDS = [
  'select\\s[^]*\\sfrom\\s',
  'insert\\s+(?:or\\s+\\w+\\s+)?into\\s',
  'update\\s+\\S+\\s+set\\s',
  'delete\\s+from\\s',
  '(?:create|drop)\\s+(?:unique\\s+)?(?:table|index|schema|trigger|view|database)\\s',
  'alter\\s+table\\s',
  'with\\s+\\w+\\s+as\\s*\\(',
  'pragma\\s+\\w',
  'begin\\s+(?:immediate|exclusive|transaction)',
  'savepoint\\s+\\w',
].join('|');
/** All capitals or none: a sentence such as "Select one from ..." is not a statement. */
const SQL = [new RegExp(`^\\s*(?:${SQL_KEYWORDS})`), new RegExp(`^\\s*(?:${upperCaseWords(SQL_KEYWORDS)})`)];

function upperCaseWords(pattern: string): string {
  return pattern.replaceAll(/(?<!\\)\b[a-z]{2,}/g, (word) => word.toUpperCase());
}

/** SQL and its libraries stand in the storage/ folder of a service and in platform/database/. */
export const sqlInStorage: Rule = (file) => {
  if (/^src\/\w+\/storage\//.test(file.path) || file.path.startsWith('src/platform/database/')) return [];
  const found = file.imports
    .filter(({ specifier }) => DATABASE_PACKAGES.includes(specifier))
    .map(({ specifier, offset }) => violation(file, offset, `${specifier} outside storage/ and platform/database/`));
  const check = (text: string, offset: number) => {
    if (SQL.some((pattern) => pattern.test(text))) found.push(violation(file, offset, `SQL outside storage/: ${text}`));
  };
  file.visit({
    Literal(node) {
      if (typeof node.value === 'string') check(node.value, node.start);
    },
    TemplateLiteral(node) {
      check(node.quasis.map((part) => part.value.raw).join('?'), node.start);
    },
    TaggedTemplateExpression(node) {
      if (node.tag.type === 'Identifier' && node.tag.name === 'sql') {
        found.push(violation(file, node.start, 'an sql`` template outside storage/'));
      }
    },
  });
  return found;
};

/** Only commands talk to the terminal; everything else logs, or returns what there is to say. */
export const consoleInCommands: Rule = (file) =>
  file.path.startsWith('src/commands/') ? [] : findMembers(file, 'console', undefined, 'console outside src/commands/');

const TIMERS: ReadonlySet<string> = new Set(['setTimeout', 'setInterval']);

/** Time passes on the clock that is handed in, so that tests play it. The client and the console run without the platform. */
export const timersOnTheClock: Rule = (file) => {
  if (/^src\/(?:client|console|platform\/clock)\//.test(file.path)) return [];
  const message = 'a timer outside src/platform/clock: use pause, repeat, deadline or withinTime';
  const found = file.imports
    .filter(({ specifier }) => /^(?:node:)?timers(?:\/promises)?$/.test(specifier))
    .map(({ offset }) => violation(file, offset, message));
  file.visit({
    CallExpression({ callee, start }) {
      if (callee.type === 'Identifier' && TIMERS.has(callee.name)) found.push(violation(file, start, message));
    },
  });
  return found;
};

/** Randomness is a parameter, and never this one. */
export const noMathRandom: Rule = (file) =>
  findMembers(file, 'Math', 'random', 'Math.random: take a Randomness instead');

function findMembers(file: SourceFile, object: string, property: string | undefined, message: string): Violation[] {
  const found: Violation[] = [];
  file.visit({
    MemberExpression(node) {
      if (node.object.type !== 'Identifier' || node.object.name !== object) return;
      const name = node.property.type === 'Identifier' ? node.property.name : undefined;
      if (property === undefined || name === property) found.push(violation(file, node.start, message));
    },
  });
  return found;
}

/** Sources run as they are and as built: a path to a `.ts` file is only right in an import, which the build rewrites. */
export const noSourceExtensionInPaths: Rule = (file) => {
  const found: Violation[] = [];
  const importOffsets = new Set<number>();
  file.visit({
    ImportDeclaration: (node) => void importOffsets.add(node.source.start),
    ExportNamedDeclaration: (node) => void (node.source && importOffsets.add(node.source.start)),
    ExportAllDeclaration: (node) => void importOffsets.add(node.source.start),
    ImportExpression: (node) => void importOffsets.add(node.source.start),
    TSImportType: (node) => void importOffsets.add(node.source.start),
    TSModuleDeclaration: (node) => void importOffsets.add(node.id.start),
    Literal(node) {
      if (typeof node.value !== 'string' || !/^\.{1,2}\/.*\.ts$/.test(node.value)) return;
      if (importOffsets.has(node.start)) return;
      found.push(violation(file, node.start, `'${node.value}' does not exist once built: derive the extension`));
    },
  });
  return found;
};

/** A function from its first line to the next function at the margin. */
const FUNCTION = /^(?:export )?(?:async )?function\*? (\w+)/gm;
const PASSED_ON = /\b(\w+)(?:<[^>]{0,200}>)?\(\{\s*\.\.\.options\b(?!\.)/g;

/** `...options` goes to what is called, and not from there to the next: so each function says what it needs. */
export function findLayers(files: readonly SourceFile[]): Violation[] {
  const passed = files.flatMap((file) => {
    const starts = [...file.text.matchAll(FUNCTION)];
    return [...file.text.matchAll(PASSED_ON)].map(({ index, 1: target = '' }) => ({
      file,
      index,
      target,
      from: starts.findLast((start) => start.index < index)?.[1] ?? '',
    }));
  });
  const receivers = new Set(passed.map(({ target }) => target));
  return passed
    .filter(({ from, target }) => from !== target && receivers.has(from))
    .map(({ file, index, from, target }) =>
      violation(file, index, `${from} passes options to ${target} that were passed to it whole: name the members`),
    );
}
