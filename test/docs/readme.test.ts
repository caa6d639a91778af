import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const commands = [...readme.matchAll(/^```sh\n(.*?)^```/gms)].flatMap((match) => (match[1] ?? '').trim().split('\n'));

test('every npm command of the README is a script', () => {
  const code = [...readme.replaceAll(/^```.*?^```/gms, '').matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? '');
  const scripts = [...[...commands, ...code].join('\n').matchAll(/npm (?:run (?:-s )?)?([a-z][\w:]*)/g)].map(
    (match) => match[1] ?? '',
  );
  assert.ok(scripts.includes('check'));
  const builtIn = ['install', 'pack', 'start', 'test'];
  for (const name of scripts.filter((script) => !builtIn.includes(script))) assert.ok(name in manifest.scripts, name);
  for (const name of ['start', 'test']) assert.ok(name in manifest.scripts);
  assert.ok(commands.includes('npm install && npm start'));
  assert.ok(commands.includes('npm install && npm test'));
});

test('DU-19: the first screen has a picture, the two commands, what a kill does, and that agents ask', () => {
  const first = readme.slice(0, readme.indexOf('\n## '));
  const picture = /!\[[^\]]{20,}\]\(([^)]+)\)/.exec(first)?.[1] ?? '';
  assert.ok(existsSync(new URL(`../../${picture}`, import.meta.url)) && picture.endsWith('.png'), picture);
  const order = [picture, 'Kill it with -9', 'npm install && npm start', '8787/console', 'bridge.permissions'];
  const places = order.map((words) => first.indexOf(words));
  assert.deepEqual(
    places,
    places.toSorted((one, other) => one - other),
  );
  assert.ok(
    places.every((place) => place >= 0),
    String(places),
  );
});

/** What the README says of a figure, the beginning of its row in docs/measurements.md, and what must hold of the ratio (or, without one, of the figure). */
const CLAIMS: readonly (readonly [says: string, row: string, holds: (measured: number) => boolean])[] = [
  [
    'in less than a third of the time that acpx takes',
    'the text of a turn is seen, beside the runtime of acpx',
    (it) => it < 1 / 3,
  ],
  ['more than four fifths of what the bare SDK relays', 'updates relayed, with the event log on', (it) => it > 0.8],
  [
    "more than five times as many requests a second as Portkey's gateway",
    "JSON, against Portkey's gateway",
    (it) => it > 5,
  ],
  ['more than half the requests of a raw proxy', 'JSON, everything on, against a raw node:http', (it) => it > 0.5],
  ['more streams than that proxy', 'streams, everything on, against a raw node:http', (it) => it > 1],
  ['at least four fifths of the logins', 'logins over HTTP, started by `npm start`', (it) => it >= 0.8],
  [
    'more than three quarters of the rate of a bare Fastify route',
    '`GET session` by bearer token on one process',
    (it) => it > 0.75,
  ],
  [
    'Paints the board in less than a second',
    'largest paint of the board, beside a page of one line',
    (it) => it < 1000,
  ],
];

test('what the README says of figures was measured', () => {
  const rows = readFileSync(new URL('../../docs/measurements.md', import.meta.url), 'utf8')
    .split('\n')
    .map((line) => line.split(' | ').map((cell) => cell.replace(/^\| /, '').trim()))
    // Tables of results have six columns; that of missed goals has four.
    .filter((cells) => cells.length >= 6);
  const [, table = ''] = /^\| Part .*\n\| ---.*\n((?:\|.*\n)+)/m.exec(readme) ?? [];
  let left = table;
  for (const [says, name, holds] of CLAIMS) {
    assert.ok(table.includes(says), `the README does not say "${says}"`);
    left = left.replace(says, '');
    const found = rows.filter(([what = '']) => what.startsWith(name));
    assert.equal(found.length, 1, `rows of docs/measurements.md that begin with "${name}"`);
    const [, measured = '', , ratio = ''] = found[0] ?? [];
    const figure = Number.parseFloat((ratio === '' ? measured : ratio).replaceAll(',', ''));
    assert.ok(holds(figure), `"${says}", and ${figure} was measured`);
  }
  assert.doesNotMatch(left, /\b(?:\d|times|third|half|fifths|tenths|quarters)/, 'a figure without a measurement');
});

test('the README leads to the tour, the examples and the documents', () => {
  for (const link of [
    'docs/tour.md',
    'docs/console.md',
    'docs/README.md',
    'docs/measurements.md',
    'examples/whole-story.ts',
  ]) {
    assert.ok(readme.includes(`](${link})`), link);
  }
});

test('the folders and files of the table of folders are there, and none of the sources is missing', () => {
  const rows = [...readme.matchAll(/^\| (`[^|]+`) \| ([^|]+) \|$/gm)].map(([, folders = '', within = '']) => ({
    folders: named(folders),
    within: named(within),
  }));
  const tops = rows.flatMap(({ folders }) => folders);
  assert.ok(tops.includes('src/bridge/'));
  for (const { folders, within } of rows) {
    for (const folder of folders) assert.ok(existsSync(new URL(`../../${folder}`, import.meta.url)), folder);
    const [folder = ''] = folders;
    for (const name of folders.length === 1 ? within : []) {
      assert.ok(existsSync(new URL(`../../${folder}${name}`, import.meta.url)), `${folder}${name}`);
    }
  }
  for (const entry of readdirSync(new URL('../../src/', import.meta.url), { withFileTypes: true })) {
    const path = entry.isDirectory() ? `src/${entry.name}/` : `src/${entry.name}`;
    assert.ok(tops.includes(path), `${path} is not in the table of the README`);
  }
});

/** The files and folders that a cell names. */
function named(cell: string): readonly string[] {
  return [...cell.matchAll(/`([\w./-]+(?:\/|\.ts))`/g)].map((match) => match[1] ?? '');
}
