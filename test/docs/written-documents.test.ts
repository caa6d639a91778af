import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Command } from 'commander';
import { commandReference } from '../../scripts/docs/command-reference.ts';
import { documents } from '../../scripts/docs/documents.ts';
import { platformErrors } from '../../src/platform/errors/error-table.ts';
import { projectRoot } from '../architecture/source-file.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

for (const { path, make } of documents) {
  test(`${path} says what the sources say (npm run docs writes it)`, async () => {
    assert.equal(readFileSync(`${projectRoot}${path}`, 'utf8'), await make());
  });
}

test('the page of errors has every code of the platform', () => {
  const page = readFileSync(`${projectRoot}docs/errors.md`, 'utf8');
  for (const code of Object.keys(platformErrors)) assert.ok(page.includes(`| \`${code}\` |`), code);
});

test('the page of commands has the help of every visible command, at any depth', () => {
  const program = new Command('trestle').description('The program.');
  const config = program.command('config').description('Looks at settings.');
  const check = config.command('check').description('Says what is wrong.').option('--json', 'as one object');
  check.addHelpText('after', '\nExamples: none');
  program.command('complete', { hidden: true }).description('For the shell.');
  const page = commandReference(program);
  for (const heading of ['## trestle\n', '## trestle config\n', '## trestle config check\n']) {
    assert.ok(page.includes(heading), heading);
  }
  assert.match(page, /--json {2,}as one object/);
  assert.match(page, /Examples: none/);
  assert.doesNotMatch(page, /For the shell/);
});

/** Settings that a page shows with a value, such as `retention.events: 0s`, and the same as YAML. */
function settingsOf(page: string): readonly (readonly [written: string, yaml: string])[] {
  const groups =
    /`(agents|bridge|accounts|completions|cluster|console|database|gateway|jobs|retention)\.([a-z_.]+): ([^`]+)`/g;
  return [...page.matchAll(groups)].map(([written, group = '', path = '', value = '']) => {
    const names = [group, ...path.split('.')];
    const lines = names.map((name, depth) => `${'  '.repeat(depth)}${name}:`);
    return [written, `${lines.join('\n')} ${value}\n`];
  });
}

function problemsOf(page: string): readonly string[] {
  return settingsOf(page).flatMap(([written, yaml]) => {
    return resolveTrestle(yaml).problems.map(({ wrong }) => `${written}: ${wrong}`);
  });
}

test('settings that a document shows with a value are accepted by the program', () => {
  const pages = globSync(['*.md', 'docs/*.md'], { cwd: projectRoot });
  const refused = pages.flatMap((page) =>
    problemsOf(readFileSync(`${projectRoot}${page}`, 'utf8')).map((problem) => `${page}: ${problem}`),
  );
  assert.deepEqual(refused, []);
  assert.match(problemsOf('Set `retention.events: 0`.').join(), /`retention\.events: 0`: .*unit/);
});
