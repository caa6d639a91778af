import { basename, dirname } from 'node:path/posix';
import { type Rule, type Violation, violation } from './source-file.ts';

const MAX_LINES = 400;
const KEBAB_CASE = /^[a-z0-9]+(?:-[a-z0-9]+)*$/;
/** Names that say nothing about what is inside. */
const EMPTY_NAMES = /^(?:.*-)?(?:utils?|helpers?|managers?|services?|common|misc|index)$/;
/** Words of the services: the platform is generic and knows none of them. */
const DOMAIN_WORDS = new Set(
  'bridge agent completion account subscription turn job chat prompt acp gateway artifact webhook mfa totp'.split(' '),
);

/** Every file and folder name, TypeScript or not. */
export function checkPath(path: string): Violation[] {
  const found: Violation[] = [];
  const report = (message: string) => found.push({ path, line: 1, message });
  const folders = dirname(path).split('/');
  const nameParts = basename(path).split('.');
  for (const part of [...folders, ...nameParts]) {
    if (!KEBAB_CASE.test(part)) report(`"${part}" is not kebab-case`);
  }
  for (const part of [...folders, nameParts[0] ?? '']) {
    if (EMPTY_NAMES.test(part)) report(`"${part}" does not say what is inside`);
  }
  return found;
}

export const shortFiles: Rule = (file) => {
  const lines = file.text.trimEnd().split('\n').length;
  return lines > MAX_LINES ? [violation(file, 0, `${lines} lines; the limit is ${MAX_LINES}`)] : [];
};

/** A name has one home: no file only hands on what others export, and nothing is exported without a name. */
export const noBarrelsNoDefaults: Rule = (file) => {
  const found: Violation[] = [];
  if (file.reExports) found.push(violation(file, 0, 're-exports from another file: import from where it is'));
  // React loads a screen of the console by its default export.
  const isScreen = file.path.startsWith('src/console/screens/');
  if (file.exportedNames.includes('default') && !isScreen) found.push(violation(file, 0, 'has a default export'));
  return found;
};

/** platform/ has no domain word in a path or in an exported name. */
export const genericPlatform: Rule = (file) => {
  if (!file.path.startsWith('src/platform/')) return [];
  return [file.path.slice('src/platform/'.length), ...file.exportedNames].flatMap((name) => {
    const word = wordsOf(name).find(
      (candidate) => DOMAIN_WORDS.has(candidate) || DOMAIN_WORDS.has(singular(candidate)),
    );
    return word === undefined ? [] : [violation(file, 0, `"${word}" in "${name}" is a word of a service`)];
  });
};

/** `createUserAgent` -> create, user, agent. */
function wordsOf(name: string): string[] {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
    .split(/[^A-Za-z0-9]+/)
    .map((word) => word.toLowerCase());
}

function singular(word: string): string {
  return word.endsWith('s') ? word.slice(0, -1) : word;
}

/** What is not done yet is not in the tree; and what is not in the tree cannot be looked up by its sections. */
export const closedComments: Rule = (file) =>
  file.comments.flatMap(({ value, start }) => [
    ...(/\b(?:TODO|FIXME|XXX|HACK)\b/.test(value) ? [violation(file, start, 'a comment that announces work')] : []),
    ...(/(?<!\/)\b(?:contract|spec)\/(?:bridge|completions|accounts)\b/i.test(value)
      ? [violation(file, start, 'a comment that cites a document outside of the tree')]
      : []),
  ]);

/** Limits are named `MAX_` and `MIN_` (glossary). */
export const limitNames: Rule = (file) =>
  [
    ...file.text.matchAll(/^ *(?:export )?const (?:MOST|LEAST|LONGEST|LARGEST|DEEPEST|SMALLEST|SHORTEST)(?:_\w+)?\b/gm),
  ].map(({ index, 0: found }) => violation(file, index, `${found.trim()}: limits are named MAX_ or MIN_`));

/** Durations end in `_MS` (glossary). `NO_TIMEOUT` and `CHECKS_PER_TIMEOUT` are not durations. */
export const durationNames: Rule = (file) =>
  [
    ...file.text.matchAll(
      /^ *(?:export )?const (?!NO_|\w+_PER_)\w*(?:TIMEOUT|DELAY|PAUSE|INTERVAL|GRACE|PATIENCE|DEADLINE|LIFETIME) = \d/gm,
    ),
  ].map(({ index, 0: found }) => violation(file, index, `${found.trim()}: durations end in _MS`));
