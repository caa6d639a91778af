import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path/posix';
import { test } from 'node:test';
import {
  clientStandsAlone,
  consoleIsAClient,
  findCycles,
  findFolderCycles,
  findFragments,
  importsRunOneWay,
  onlyListedPackages,
  tooManyFiles,
} from './import-rules.ts';
import {
  checkPath,
  closedComments,
  durationNames,
  genericPlatform,
  limitNames,
  noBarrelsNoDefaults,
  shortFiles,
} from './naming-rules.ts';
import { noDynamicPatterns } from './pattern-rules.ts';
import {
  consoleInCommands,
  environmentInOnePlace,
  findLayers,
  noMathRandom,
  noSourceExtensionInPaths,
  sqlInStorage,
  timersOnTheClock,
} from './placement-rules.ts';
import { noEvaluation, noForcedTypes, noPlainSecretComparison, noShell, oneRuleForOwners } from './safety-rules.ts';
import { describe, listFiles, projectRoot, type Rule, readSources, type Violation } from './source-file.ts';
import { checkFolders, checkWalks } from './walks.ts';

const allFolders = ['src', 'test', 'bench', 'scripts', 'examples'];
const program = readSources(['src']);
const everything = readSources(allFolders);
const { dependencies } = JSON.parse(readFileSync(`${projectRoot}package.json`, 'utf8'));

/** What looks like a violation and is none, each with its reason. One that nothing needs any more fails the test too. */
const exceptions: readonly { path: string; contains: string; because: string }[] = [
  {
    path: 'src/bridge/check-bridge-settings.ts',
    contains: 'bridge.auth_token === bridge.review_auth_token',
    because: 'both are settings of this server, compared once when they are read: no caller can measure it',
  },
  ...['password === again', 'again === password'].map((contains) => ({
    path: 'src/console/screens/sign-in/setup.tsx',
    contains,
    because: 'a person has typed both into the same page, which compares them for that person alone',
  })),
  {
    path: 'src/console/shell/palette.tsx',
    contains: 'has a default export',
    because: 'React loads it when it is opened first, by its default export, as it does with screens',
  },
  {
    path: 'src/client/trestle-client.ts',
    contains: 're-exports from another file',
    because: 'apps import all they need from trestle/client: this is the list of what is public',
  },
  ...['src/commands/answer-permissions.ts', 'src/commands/login.ts'].map((path) => ({
    path,
    contains: 'a timer outside src/platform/clock',
    because: 'a command must stay alive while it waits, and the timers of the clock keep no process alive',
  })),
  ...['src/platform/child-process/process-table.ts', 'src/platform/database/sqlite/sqlite-file.ts'].map((path) => ({
    path,
    contains: 'a timer outside src/platform/clock',
    because: 'it waits for another process, also at the end of the program, when nothing else keeps this one alive',
  })),
  {
    path: 'src/platform/config/setting.ts',
    contains: 'a regular expression that is put together',
    because: 'the text is written in the declaration of a setting, where it is judged with all others',
  },
  ...['src/completions/content-settings.ts', 'src/completions/guardrails/find-content.ts'].map((path) => ({
    path,
    contains: 'a regular expression that is put together',
    because: 'the text is a setting of the operator, and one that can take very long is refused when it is read',
  })),
];

function assertNone(violations: readonly Violation[]): void {
  const left = violations.filter(
    ({ path, message }) => !exceptions.some((known) => known.path === path && message.includes(known.contains)),
  );
  assert.equal(left.length, 0, `\n${describe(left)}`);
}

const programRules: Readonly<Record<string, Rule>> = {
  'imports run one way, and services never import each other': importsRunOneWay,
  'the client stands alone': clientStandsAlone,
  'the console is a client, and makes no markup from data': consoleIsAClient,
  'the program imports only what production installs': onlyListedPackages(Object.keys(dependencies)),
  'the environment is read in one file': environmentInOnePlace,
  'SQL stands only in storage/ and platform/database/': sqlInStorage,
  'only commands write to the console': consoleInCommands,
  'no randomness but the one that is handed in': noMathRandom,
  'timers are on the clock that is handed in': timersOnTheClock,
  'paths in the program hold once it is built': noSourceExtensionInPaths,
  'the platform knows no word of a service': genericPlatform,
  'no barrels and no default exports': noBarrelsNoDefaults,
  'O-14: no shell, and one folder that starts programs': noShell,
  'O-14: text never becomes code': noEvaluation,
  'O-14: secrets are never compared with ===': noPlainSecretComparison,
  'O-14: no regular expression is put together at run time': noDynamicPatterns,
  'who sees what is decided in platform/identity alone': oneRuleForOwners,
  'bodies have the types of their schemas, and wiring fits without casts': noForcedTypes,
};

for (const [sentence, rule] of Object.entries(programRules)) {
  test(sentence, () => assertNone(program.flatMap(rule)));
}

const rulesForEverything: Readonly<Record<string, Rule>> = {
  'no file is longer than 400 lines': shortFiles,
  'no comment announces work, or cites a document outside of the tree': closedComments,
  'limits are named MAX_ and MIN_': limitNames,
  'durations end in _MS': durationNames,
};

for (const [sentence, rule] of Object.entries(rulesForEverything)) {
  test(sentence, () => assertNone(everything.flatMap(rule)));
}

test('files and folders have kebab-case names that say what is inside', () => {
  assertNone(listFiles(allFolders).flatMap(checkPath));
});

test('the program has at most 520 files without the console', () => assertNone(tooManyFiles(program)));

test('a small file has several importers, or one in another folder', () => assertNone(findFragments(program)));

const architecture = readFileSync(`${projectRoot}ARCHITECTURE.md`, 'utf8');

test('the walks of ARCHITECTURE.md lead from file to file', () => assertNone(checkWalks(architecture, program)));

test('ARCHITECTURE.md says what is in each folder of the services', () =>
  assertNone(checkFolders(architecture, program)));

test('options are passed on whole through one layer alone', () => assertNone(findLayers(program)));

test('no file imports itself over others', () => assertNone(findCycles(everything)));

test('no folder of completions, and none of the platform, imports itself over others', () =>
  assertNone(['src/completions/', 'src/platform/'].flatMap((part) => findFolderCycles(program, part))));

test('every exception is still needed', () => {
  const ofFiles = program.flatMap((file) => Object.values(programRules).flatMap((rule) => rule(file)));
  const violations = [...ofFiles, ...findFragments(program)];
  const unused = exceptions.filter(
    ({ path, contains }) => !violations.some((found) => found.path === path && found.message.includes(contains)),
  );
  assert.deepEqual(unused, []);
});

const kit = everything.filter(({ path }) => path.startsWith('test/kit/'));

test('test/kit imports nothing from other folders of tests, and its map names every file', () => {
  const map = readFileSync(`${projectRoot}test/kit/map.md`, 'utf8');
  assert.deepEqual(
    kit.map(({ path }) => path.slice('test/kit/'.length)).filter((name) => !map.includes(`\`${name}\``)),
    [],
  );
  const outside = kit.flatMap(({ path, imports }) =>
    imports
      .filter(({ specifier }) => specifier.startsWith('.'))
      .map(({ specifier }) => join(dirname(path), specifier))
      .filter((target) => !/^(?:src|test\/kit|test\/architecture)\//.test(target))
      .map((target) => `${path} imports ${target}`),
  );
  assert.deepEqual(outside, []);
});

test('properties are tried with the seed of the kit', () => {
  const users = everything.filter(({ imports }) => imports.some(({ specifier }) => specifier === 'fast-check'));
  assert.deepEqual(
    users.map(({ path }) => path),
    ['test/kit/properties.ts'],
  );
});

/** Folders that measure or start the whole program: what they share with other folders is in the kit. */
const USERS_OF_THE_KIT = [
  'bench/',
  'scripts/',
  'test/faults/',
  'test/e2e/',
  'test/guards/',
  'test/agents/',
  'test/pages/',
];

/** A benchmark that lies with the tests of pages, because the browser is installed there. */
const PAGE_BENCHMARK = 'test/pages/measure-console.ts';

test('benchmarks, fault runs and tests of the whole program take shared tools from test/kit', () => {
  const elsewhere = everything.flatMap(({ path, imports }) => {
    const own = USERS_OF_THE_KIT.find((folder) => path.startsWith(folder));
    if (own === undefined) return [];
    return imports
      .filter(({ specifier }) => specifier.startsWith('.'))
      .map(({ specifier }) => join(dirname(path), specifier))
      .filter((target) => /^(?:test|bench)\//.test(target) && !target.startsWith(own))
      .filter((target) => !/^test\/(?:kit|architecture)\//.test(target))
      .filter((target) => path !== PAGE_BENCHMARK || !target.startsWith('bench/'))
      .map((target) => `${path} imports ${target}`);
  });
  assert.deepEqual(elsewhere, []);
});

test('every test file is run by exactly one script', () => {
  const { scripts } = JSON.parse(readFileSync(`${projectRoot}package.json`, 'utf8')) as {
    scripts: Record<string, string>;
  };
  const files = (pattern: string) =>
    globSync(pattern, { cwd: projectRoot, exclude: (path) => path.includes('node_modules') });
  const ran = Object.values(scripts).flatMap((script) =>
    [...script.matchAll(/"(test\/[^"]+)"/g)].flatMap(([, pattern = '']) => files(pattern)),
  );
  // These have a program in scripts/ that installs or starts something first.
  const byProgram = /^test\/(?:agents|clients|faults|gateway|pages|patterns)\//;
  const wanted = files('test/**/*.test.ts').filter((path) => !byProgram.test(path));
  assert.deepEqual(ran.toSorted(), wanted.toSorted());
});
