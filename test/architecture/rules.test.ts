import assert from 'node:assert/strict';
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
import { parseSource, type Rule } from './source-file.ts';
import { checkFolders, checkWalks } from './walks.ts';

interface Samples {
  readonly rule: Rule;
  /** Path and text of files that the rule must refuse, and of files that it must let pass. */
  readonly refused: readonly (readonly [path: string, text: string])[];
  readonly passed: readonly (readonly [path: string, text: string])[];
}

const samples: Readonly<Record<string, Samples>> = {
  clientStandsAlone: {
    rule: clientStandsAlone,
    refused: [
      ['src/client/a.ts', "import { X } from '../bridge/contract/b.ts';"],
      ['src/client/a.ts', "import { type X } from '../bridge/contract/b.ts';"],
      ['src/client/a.ts', "import { x } from 'node:crypto';"],
      ['src/client/a.ts', "const x = await import('typebox');"],
    ],
    passed: [
      ['src/client/a.ts', "import type { X } from '../bridge/contract/b.ts';"],
      ['src/client/a.ts', "import type { Static } from 'typebox';"],
      ['src/client/a.ts', "import { x } from './b.ts';"],
      ['src/bridge/a.ts', "import { x } from 'node:crypto';"],
    ],
  },
  consoleIsAClient: {
    rule: consoleIsAClient,
    refused: [
      ['src/console/a.ts', "import { X } from '../bridge/contract/b.ts';"],
      ['src/console/a.tsx', 'const a = <b dangerouslySetInnerHTML={x} />;'],
      ['src/console/a.ts', 'element.innerHTML = text;'],
    ],
    passed: [
      ['src/console/a.ts', "import type { X } from '../bridge/contract/b.ts';"],
      ['src/console/a.tsx', 'const a = <b>{text}</b>;'],
      ['src/bridge/a.ts', "const name = 'innerHTML';"],
    ],
  },
  importsRunOneWay: {
    rule: importsRunOneWay,
    refused: [
      ['src/bridge/a.ts', "import { x } from '../completions/b.ts';"],
      ['src/bridge/a.ts', "import type { X } from '../accounts/contract/b.ts';"],
      ['src/platform/http/a.ts', "import '../../bridge/b.ts';"],
      ['src/platform/http/a.ts', "export { x } from '../../system/b.ts';"],
      ['src/system/a.ts', "const x = await import('../commands/b.ts');"],
      ['src/commands/a.ts', "import { x } from '../bridge/b.ts';"],
      ['src/client/a.ts', "import { x } from '../bridge/routes.ts';"],
      ['src/platform/a/b.ts', "import { x } from '../../../test/kit/c.ts';"],
      ['src/extra/a.ts', ''],
    ],
    passed: [
      ['src/main.ts', "import { x } from './commands/a.ts';"],
      ['src/system/a.ts', "import { x } from '../bridge/b.ts';"],
      ['src/bridge/a.ts', "import { x } from '../platform/errors/b.ts';\nimport { y } from './sessions/c.ts';"],
      ['src/client/a.ts', "import type { X } from '../bridge/contract/b.ts';"],
      ['test/a.ts', "import { x } from '../src/bridge/b.ts';"],
    ],
  },
  onlyListedPackages: {
    rule: onlyListedPackages(['listed', '@scope/listed']),
    refused: [
      ['src/a.ts', "import 'other';"],
      ['src/a.ts', "import { readFile } from 'fs';"],
      ['src/a.ts', "await import('@scope/other/deep');"],
    ],
    passed: [
      ['src/a.ts', "import 'listed/deep';\nimport '@scope/listed/deep';\nimport 'node:fs';\nimport './own.ts';"],
    ],
  },
  environmentInOnePlace: {
    rule: environmentInOnePlace,
    refused: [
      ['src/system/a.ts', 'const home = process.env.HOME;'],
      ['src/system/a.ts', "const all = process['env'];"],
      ['src/system/a.ts', 'const all = globalThis.process.env;'],
      ['src/system/a.ts', 'const { env } = process;'],
      ['src/system/a.ts', "import { env } from 'node:process';"],
    ],
    passed: [
      ['src/system/environment.ts', 'export const all = process.env;'],
      ['src/system/a.ts', 'const x = options.env; const { pid } = process;'],
    ],
  },
  sqlInStorage: {
    rule: sqlInStorage,
    refused: [
      ['src/bridge/a.ts', "run('select id from jobs where id = ?');"],
      ['src/bridge/a.ts', "run('INSERT INTO jobs VALUES (1)');"],
      ['src/bridge/a.ts', "run('insert or ignore into jobs values (1)');"],
      ['src/bridge/a.ts', 'run(`\n  DELETE FROM jobs WHERE id = 1`);'],
      ['src/bridge/a.ts', 'const q = sql`whatever`;'],
      ['src/platform/http/a.ts', "run('PRAGMA journal_mode = WAL');"],
      ['src/system/a.ts', "import { sql } from 'kysely';"],
      ['src/system/a.ts', "const { DatabaseSync } = await import('node:sqlite');"],
    ],
    passed: [
      ['src/bridge/storage/a.ts', "import { sql } from 'kysely';\nrun('select id from jobs');"],
      ['src/platform/database/a.ts', "run('create table t (id)');"],
      ['src/bridge/a.ts', "const help = 'Select one from the list, then update it';"],
    ],
  },
  consoleInCommands: {
    rule: consoleInCommands,
    refused: [['src/platform/log/a.ts', "console.error('x');"]],
    passed: [['src/commands/a.ts', "console.log('x');"]],
  },
  noMathRandom: {
    rule: noMathRandom,
    refused: [['src/bridge/a.ts', 'const x = Math.random();']],
    passed: [['src/bridge/a.ts', 'const x = Math.max(randomness.below(3), 1);']],
  },
  timersOnTheClock: {
    rule: timersOnTheClock,
    refused: [
      ['src/bridge/a.ts', 'const timer = setTimeout(work, 5).unref();'],
      ['src/bridge/a.ts', 'setInterval(work, 5);'],
      ['src/bridge/a.ts', "import { setTimeout as pause } from 'node:timers/promises';"],
    ],
    passed: [
      ['src/bridge/a.ts', 'clock.after(5, work); socket.setTimeout(5); setImmediate(work);'],
      ['src/client/a.ts', 'setTimeout(work, 5);'],
      ['src/platform/clock/clock.ts', 'setTimeout(work, 5);'],
    ],
  },
  noSourceExtensionInPaths: {
    rule: noSourceExtensionInPaths,
    refused: [['src/platform/a.ts', "new Worker(new URL('./worker.ts', import.meta.url));"]],
    passed: [
      ['src/platform/a.ts', "import './b.ts';\nexport { x } from './c.ts';\nexport * from './d.ts';"],
      ['src/platform/a.ts', "import type { E } from './e.ts';\nawait import('./f.ts');\ntype G = import('./g.ts').G;"],
      ['src/platform/a.ts', "declare module './h.ts' { interface H {} }"],
    ],
  },
  genericPlatform: {
    rule: genericPlatform,
    refused: [
      ['src/platform/http/agent-pool.ts', ''],
      ['src/platform/http/pool.ts', 'export const createBridgePool = 1;'],
      ['src/platform/accounts/pool.ts', ''],
    ],
    passed: [
      ['src/platform/http/pool.ts', 'export const createReturnPool = 1;'],
      ['src/bridge/agents/pool.ts', 'export const createAgentPool = 1;'],
    ],
  },
  oneRuleForOwners: {
    rule: oneRuleForOwners,
    refused: [
      ['src/bridge/a.ts', "if (principal === 'main') go();"],
      ['src/bridge/a.ts', 'if (owner !== MAIN.id) go();'],
      ['src/completions/a.ts', 'if (caller.principal.seesAll) go();'],
    ],
    passed: [
      ['src/bridge/a.ts', "if (sees(principal, owner)) go('main');"],
      ['src/platform/identity/a.ts', 'if (principal.seesAll) go();'],
    ],
  },
  noForcedTypes: {
    rule: noForcedTypes,
    refused: [
      ['src/bridge/a.ts', 'const bytes = body as Buffer;'],
      ['src/completions/keys/a.ts', 'create(call.body as NewKey);'],
      ['src/bridge/create-bridge.ts', 'start(parts as unknown as Parts);'],
      ['src/system/a.ts', 'start(parts as unknown as Parts);'],
    ],
    passed: [
      ['src/bridge/a.ts', 'const text = row as unknown as Text;'],
      ['src/bridge/routes.ts', 'const body = [1] as const; send(bodies as Body[]);'],
    ],
  },
  noShell: {
    rule: noShell,
    refused: [
      ['src/platform/child-process/a.ts', "import { exec } from 'node:child_process';"],
      ['src/platform/child-process/a.ts', "import { execSync } from 'child_process';"],
      ['src/platform/child-process/a.ts', "import * as all from 'node:child_process';"],
      ['src/platform/child-process/a.ts', 'spawn(command, { shell: true });'],
      ['src/platform/child-process/a.ts', "spawn(command, { 'shell': path });"],
      ['src/bridge/a.ts', "import { spawn } from 'node:child_process';"],
    ],
    passed: [
      [
        'src/platform/child-process/a.ts',
        "import { spawn } from 'node:child_process';\nspawn('ls', { shell: false });",
      ],
      ['src/commands/a.ts', 'const f = ({ shell }) => shell;\n/x/.exec(text);'],
    ],
  },
  noEvaluation: {
    rule: noEvaluation,
    refused: [
      ['src/a.ts', "eval('1');"],
      ['src/a.ts', "globalThis.eval('1');"],
      ['src/a.ts', "const f = new Function('return 1');"],
      ['src/a.ts', "const f = Function('return 1');"],
      ['src/a.ts', "setTimeout('run()', 10);"],
      ['src/a.ts', "import { runInNewContext } from 'node:vm';"],
    ],
    passed: [['src/a.ts', 'setTimeout(() => run(), 10); const f = createFunction(1); await setTimeout(10);']],
  },
  noPlainSecretComparison: {
    rule: noPlainSecretComparison,
    refused: [
      ['src/a.ts', 'if (token === expected) allow();'],
      ['src/a.ts', 'if (given !== config.authToken) refuse();'],
      ['src/a.ts', "if (request['password'] == stored) allow();"],
      ['src/a.ts', 'if (user?.passwordDigest === digest(x)) allow();'],
      ['src/a.ts', 'if (signature.equals(expected)) allow();'],
      ['src/a.ts', 'if (Buffer.compare(given, apiKey) === 0) allow();'],
    ],
    passed: [
      ['src/a.ts', "if (token === undefined || secret === '' || typeof password === 'string') refuse();"],
      ['src/a.ts', 'if (token.length === limit || tokens === other || kind.equals(other)) refuse();'],
    ],
  },
  noDynamicPatterns: {
    rule: noDynamicPatterns,
    refused: [
      ['src/a.ts', 'const p = new RegExp(text);'],
      ['src/a.ts', 'const p = RegExp(`^a`);'],
    ],
    passed: [['src/a.ts', "const p = new RegExp('^a$', 'u'); const q = /^b$/;"]],
  },
  shortFiles: {
    rule: shortFiles,
    refused: [['src/a.ts', '\n'.repeat(400).concat('export {};\n')]],
    passed: [['src/a.ts', '\n'.repeat(399).concat('export {};\n')]],
  },
  noBarrelsNoDefaults: {
    rule: noBarrelsNoDefaults,
    refused: [
      ['src/a.ts', "export * from './b.ts';"],
      ['src/a.ts', "export type { B } from './b.ts';"],
      ['src/a.ts', 'export default 1;'],
    ],
    passed: [['src/a.ts', 'const b = 1;\nexport { b };']],
  },
  limitNames: {
    rule: limitNames,
    refused: [
      ['src/a.ts', 'const MOST_FILES = 3;'],
      ['src/a.ts', 'export const LONGEST_NAME = 3;'],
      ['src/a.ts', '  const DEEPEST = 3;'],
    ],
    passed: [['src/a.ts', 'const MAX_FILES = 3;']],
  },
  durationNames: {
    rule: durationNames,
    refused: [
      ['src/a.ts', 'const TIMEOUT = 5000;'],
      ['src/a.ts', '  export const RETRY_DELAY = 10;'],
    ],
    passed: [['src/a.ts', 'const TIMEOUT_MS = 5000;\nconst NO_TIMEOUT = 0;\nconst CHECKS_PER_TIMEOUT = 10;']],
  },
  closedComments: {
    rule: closedComments,
    refused: [
      ['src/a.ts', '// TODO: later'],
      ['src/a.ts', '/** Contract/bridge 4. */'],
    ],
    passed: [['src/a.ts', "import { a } from '../contract/bridge.ts'; // todos are listed elsewhere"]],
  },
};

for (const [name, { rule, refused, passed }] of Object.entries(samples)) {
  test(`the rule ${name} refuses what it is there for and lets the rest pass`, () => {
    for (const [path, text] of refused) {
      assert.notDeepEqual(rule(parseSource(path, text)), [], `refused: ${path}: ${text}`);
    }
    for (const [path, text] of passed) {
      assert.deepEqual(rule(parseSource(path, text)), [], `passed: ${path}: ${text}`);
    }
  });
}

test('a cycle of imports is found, over types and over three files too', () => {
  const first = parseSource('src/a/one.ts', "import type { Two } from './two.ts';");
  const second = parseSource('src/a/two.ts', "import { three } from '../b/three.ts';");
  const third = parseSource('src/b/three.ts', "const one = await import('../a/one.ts');");
  assert.deepEqual(findCycles([first, second]), []);
  const [cycle, ...others] = findCycles([first, second, third]);
  assert.equal(cycle?.message, 'import cycle: src/a/one.ts -> src/a/two.ts -> src/b/three.ts -> src/a/one.ts');
  assert.deepEqual(others, []);
});

test('a cycle of folders is found although no file is in one, and files of the service itself do not count', () => {
  const first = parseSource('src/a/keys/one.ts', "import type { Two } from '../apis/two.ts';");
  const second = parseSource('src/a/apis/two.ts', 'export interface Two {}');
  const third = parseSource('src/a/apis/three.ts', "import type { Four } from '../keys/four.ts';");
  const fourth = parseSource('src/a/keys/four.ts', 'export interface Four {}');
  const whole = parseSource('src/a/wire.ts', "import { one } from './keys/one.ts';");
  assert.deepEqual(findFolderCycles([first, second, fourth, whole], 'src/a/'), []);
  const [cycle] = findFolderCycles([first, second, third, fourth, whole], 'src/a/');
  assert.equal(cycle?.message, 'import cycle: keys -> apis -> keys');
});

test('a small file that only a neighbour imports is found, and a folder on the list of unfinished ones must need it', () => {
  const short = 'export const x = 1;\n';
  const long = short.padEnd(short.length + 61, '\n').concat(short);
  const user = parseSource('src/a/user.ts', "import { x } from './part.ts';");
  const elsewhere = parseSource('src/b/user.ts', "const { x } = await import('../a/part.ts');");
  const part = parseSource('src/a/part.ts', short);
  assert.deepEqual(
    findFragments([user, part]).map(({ path }) => path),
    ['src/a/part.ts'],
  );
  assert.deepEqual(findFragments([user, elsewhere, part]), []);
  assert.deepEqual(findFragments([elsewhere, part]), []);
  assert.deepEqual(findFragments([user, parseSource('src/a/part.ts', long)]), []);
});

test('more files than the limit are found, and those of the console do not count', () => {
  const files = ['src/a.ts', 'src/b.ts', 'src/console/c.ts'].map((path) => parseSource(path, ''));
  assert.deepEqual(tooManyFiles(files, 2), []);
  assert.deepEqual(
    tooManyFiles(files, 1).map(({ message }) => message),
    ['2 files; the limit is 1: merge files of one topic'],
  );
});

test('options that are passed on whole twice are found', () => {
  const first = parseSource('src/a.ts', 'export function a(options) {\n  b({ ...options, x: 1 });\n}\n');
  const second = 'function b(options) {\n  return c({\n    ...options,\n  });\n}\n';
  assert.equal(findLayers([first, parseSource('src/b.ts', second)]).length, 1);
  assert.deepEqual(findLayers([first, parseSource('src/b.ts', second.replace('...options', 'x: options.x'))]), []);
});

test('a walk that is too long, leads nowhere or skips an import is found', () => {
  const files = [
    parseSource('src/a.ts', "import { b } from './b.ts';\nimport { c } from './c.ts';"),
    parseSource('src/b.ts', ''),
    parseSource('src/c.ts', ''),
  ];
  const walk = (...lines: string[]) => `# X\n\n### Way\n\n${lines.join('\n')}\n\n## Other\n\n1. \`src/x.ts\`: y\n`;
  const check = (document: string, limit = 3) =>
    checkWalks(document, files, { Way: limit }).map(({ message }) => message);
  const good = walk('1. `src/a.ts`: one', '2. `src/b.ts`: two', '3. `src/c.ts` (from 1): three');
  assert.deepEqual(check(good), []);
  assert.deepEqual(check(walk('1. `src/b.ts`: one', '2. `src/c.ts` (called back): two')), []);
  assert.deepEqual(check(good, 2), ['Way: 3 files; the limit is 2']);
  assert.deepEqual(check(walk('1. `src/b.ts`: one', '2. `src/c.ts`: two')), ['Way: src/b.ts does not import src/c.ts']);
  assert.deepEqual(check(walk('1. `src/gone.ts`: one')), ['Way: src/gone.ts does not exist']);
  assert.deepEqual(check('# X\n'), ['Way: there is no such list']);
});

test('a folder of a service without a row, and a row without a folder, are seen', () => {
  const document = '\n### The folders of the services\n\n| `src/bridge/a/`, `src/bridge/gone/` | x |\n';
  const files = ['src/bridge/a/x.ts', 'src/accounts/b/y.ts'].map((path) => parseSource(path, ''));
  const found = checkFolders(document, files).map(({ message }) => message);
  assert.deepEqual(found, ['src/accounts/b/ has no row', 'src/bridge/gone/ does not exist']);
});

test('names that are not kebab-case or say nothing are refused', () => {
  for (const path of [
    'src/a/fooBar.ts',
    'src/Foo/bar.ts',
    'src/a/string-utils.ts',
    'src/helpers/a.ts',
    'src/a/index.ts',
  ]) {
    assert.notDeepEqual(checkPath(path), [], path);
  }
  for (const path of ['src/a/foo-bar.test.ts', 'src/platform/http/page.css', 'test/a/tsconfig.json']) {
    assert.deepEqual(checkPath(path), [], path);
  }
});
