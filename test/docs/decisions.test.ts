import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';

const decision = (name: string): string =>
  readFileSync(`${projectRoot}docs/decisions/${name}.md`, 'utf8').replaceAll(/\s+/g, ' ');

/** A number in the sources, by the name of its constant. */
function constant(file: string, name: string): number {
  const [, digits] = new RegExp(`const ${name} = ([0-9_]+);`).exec(readFileSync(`${projectRoot}${file}`, 'utf8')) ?? [];
  return Number(digits?.replaceAll('_', ''));
}

test('DP-8: decision 7 names the time after which an instance counts as dead', () => {
  const seconds = constant('src/bridge/instances/instance-registry.ts', 'DEAD_AFTER_MS') / 1000;
  assert.ok(seconds > 0);
  assert.ok(decision('0007-numbered-updates-in-chunks').includes(`heartbeat is ${seconds} seconds old`));
});

test('DP-8: decisions 1 and 9 agree that the published program is a bundle', () => {
  assert.doesNotMatch(decision('0001-runtime-pinned-by-npm'), /nothing is bundled/);
  assert.match(decision('0001-runtime-pinned-by-npm'), /0009-bundled-program\.md/);
});

const records = globSync('docs/decisions/*.md', { cwd: projectRoot }).map((path) => ({
  name: path.slice('docs/decisions/'.length, -'.md'.length),
  text: readFileSync(`${projectRoot}${path}`, 'utf8'),
}));

/** The paragraph below the title. */
function statusOf(text: string): string | undefined {
  return /^# \d{1,4}\. [^\n]+\n\n(Status: (?:accepted|replaced)(?:.|\n(?!\n)){0,600})/.exec(text)?.[1];
}

test('every decision has its number in its title, and says whether it holds', () => {
  for (const { name, text } of records) {
    assert.ok(text.startsWith(`# ${Number(name.slice(0, 4))}. `), name);
    assert.ok(
      statusOf(text) !== undefined,
      `${name}: the title is not followed by "Status: accepted." or "Status: replaced by …"`,
    );
  }
});

test('where a decision replaces, changes or continues another, both say so', () => {
  const links = records.flatMap(({ name, text }) =>
    [...(statusOf(text) ?? '').matchAll(/\]\((\d{4}-[\w-]+)\.md\)/g)].map(([, other = '']) => ({ name, other })),
  );
  assert.ok(links.length > 10);
  for (const { name, other } of links) {
    assert.ok(
      links.some((back) => back.name === other && back.other === name),
      `the status of ${other} does not name ${name}`,
    );
  }
});

const SECTIONS = new Set(['Context', 'Figures', 'Decision', 'Alternatives', 'Cost', 'Consequences']);

test('every decision says why and what, under the same headings', () => {
  for (const { name, text } of records) {
    const headings = [...text.matchAll(/^## (.+)$/gm)].map(([, heading = '']) => heading);
    assert.ok(headings.includes('Context') && headings.includes('Decision'), name);
    assert.deepEqual(
      headings.filter((heading) => !SECTIONS.has(heading)),
      [],
      name,
    );
  }
});
