// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatProblem } from '../../../src/platform/config/problem.ts';
import { resolveGarden } from './sample-declaration.ts';

const lines = (...given: Parameters<typeof resolveGarden>): readonly string[] =>
  resolveGarden(...given).problems.map(formatProblem);

test('without any configuration every setting has its default', () => {
  const { settings, problems, sources, warnings } = resolveGarden();
  assert.deepEqual({ problems, warnings }, { problems: [], warnings: [] });
  assert.deepEqual(settings, {
    listen: '',
    folder: '',
    verbose: false,
    gate: { password: '', guest_password: '', width: 3, mood: 'open', wait: 30_000 },
    store: { url: '' },
    colors: ['green'],
    friends: [],
    beds: [],
    notes: {},
  });
  assert.deepEqual(new Set(Object.values(sources)), new Set(['default']));
});

test('the result is frozen all the way down', () => {
  const { settings } = resolveGarden('beds: [{ name: a }]\nnotes: { a: b }');
  for (const part of [settings, settings.gate, settings.colors, settings.beds, settings.beds[0], settings.notes]) {
    assert.ok(Object.isFrozen(part));
  }
});

test('flags win over the environment, the environment over the file, the file over defaults; sources say so', () => {
  const file = 'listen: 127.0.0.1:1\nfolder: data\ngate: { width: 2, mood: closed }\n';
  const environment = { GARDEN_LISTEN: '127.0.0.1:2', GARDEN_GATE_WIDTH: '5', GARDEN_FOLDER: 'other' };
  const { settings, sources, problems } = resolveGarden(file, environment, { '--listen': '127.0.0.1:3' });
  assert.deepEqual(problems, []);
  assert.equal(settings.listen, '127.0.0.1:3');
  assert.equal(settings.folder, '/work/other');
  assert.equal(settings.gate.width, 5);
  assert.equal(settings.gate.mood, 'closed');
  assert.equal(settings.gate.wait, 30_000);
  assert.equal(sources.listen, 'flag --listen');
  assert.equal(sources.folder, 'env GARDEN_FOLDER');
  assert.equal(sources['gate.width'], 'env GARDEN_GATE_WIDTH');
  assert.equal(sources['gate.mood'], 'garden.yaml:3');
  assert.equal(sources['gate.wait'], 'default');
});

test('a relative path starts at the file’s folder in a file and at the working directory elsewhere', () => {
  assert.equal(resolveGarden('folder: ./data').settings.folder, '/etc/garden/data');
  assert.equal(resolveGarden(undefined, { GARDEN_FOLDER: './data' }).settings.folder, '/work/data');
  assert.equal(resolveGarden(undefined, {}, { '--folder': 'data' }).settings.folder, '/work/data');
  assert.equal(resolveGarden('folder: ~/data').settings.folder, '/home/ann/data');
});

test('the given name of a variable wins over the derived one, and both work', () => {
  assert.equal(resolveGarden(undefined, { GARDEN_GATE_PASSWORD: 'b' }).settings.gate.password, 'b');
  const { settings, sources } = resolveGarden(undefined, { GATE_PASSWORD: 'a', GARDEN_GATE_PASSWORD: 'b' });
  assert.equal(settings.gate.password, 'a');
  assert.equal(sources['gate.password'], 'env GATE_PASSWORD');
});

test('an empty variable counts as not set, except where it clears', () => {
  const file = 'gate: { password: a, guest_password: b, width: 2 }\ncolors: [red]';
  const empty = { GATE_PASSWORD: '', GARDEN_GATE_GUEST_PASSWORD: '', GARDEN_GATE_WIDTH: '', GARDEN_COLORS: '' };
  const { settings, problems, sources } = resolveGarden(file, empty);
  assert.deepEqual(problems, []);
  assert.equal(settings.gate.password, 'a');
  assert.equal(settings.gate.guest_password, '');
  assert.equal(sources['gate.guest_password'], 'env GARDEN_GATE_GUEST_PASSWORD');
  assert.equal(settings.gate.width, 2);
  assert.deepEqual(settings.colors, ['red']);
});

test('a flag may be given as a boolean or as empty text', () => {
  assert.equal(resolveGarden(undefined, {}, { '--verbose': true }).settings.verbose, true);
  assert.equal(resolveGarden('folder: x', {}, { '--folder': '' }).settings.folder, '');
});

test('lists come comma separated from the environment, groups and maps as YAML or JSON', () => {
  const { settings, problems } = resolveGarden('beds: [{ name: z }]', {
    GARDEN_COLORS: 'red, blue',
    GARDEN_BEDS: '[{"name": "a", "depth": 1}, {"name": "b"}]',
    GARDEN_NOTES: 'one: x\ntwo: "y"',
  });
  assert.deepEqual(problems, []);
  assert.deepEqual(settings.colors, ['red', 'blue']);
  assert.deepEqual(settings.beds, [
    { name: 'a', key: '', depth: 1 },
    { name: 'b', key: '', depth: 0.5 },
  ]);
  assert.deepEqual(settings.notes, { one: 'x', two: 'y' });
});

test('a key with nothing after it counts as not written', () => {
  const { settings, problems } = resolveGarden('gate:\nlisten: ~\ncolors:\nbeds:\n');
  assert.deepEqual(problems, []);
  assert.deepEqual(settings, resolveGarden().settings);
});

test('a file of comments, and an empty one, are fine', () => {
  assert.deepEqual(lines('# nothing yet\n'), []);
  assert.deepEqual(lines(''), []);
});

test('a file that is a list or a single value is a problem', () => {
  assert.match(lines('- a')[0] ?? '', /^garden\.yaml:1:1: there is a list where keys belong/);
  assert.match(lines('hello')[0] ?? '', /^garden\.yaml:1:1: there is a single value where keys belong/);
});

test('a reference is replaced anywhere in a value; numbers, lists and maps may come from one', () => {
  const file = [
    'gate: { password: "a-${env:PART}-z", width: "${env:WIDTH}" }',
    'colors: "${env:COLORS}"',
    'notes: "${env:NOTES}"',
    'friends: ["${env:PART}", "$${env:PART}"]',
  ].join('\n');
  const environment = { PART: 'b', WIDTH: '7', COLORS: 'red,blue', NOTES: '{a: "${env:PART}"}' };
  const { settings, problems } = resolveGarden(file, environment);
  assert.deepEqual(problems, []);
  assert.equal(settings.gate.password, 'a-b-z');
  assert.equal(settings.gate.width, 7);
  assert.deepEqual(settings.colors, ['red', 'blue']);
  assert.deepEqual(settings.friends, ['b', '${env:PART}']);
  assert.deepEqual(settings.notes, { a: '${env:PART}' });
});

test('a variable that is not set counts as empty where empty is the default and the reference is all there is', () => {
  const { settings, problems, sources } = resolveGarden('gate: { password: "${env:NONE}" }\nfriends: "${env:NONE}"\n');
  assert.deepEqual(problems, []);
  assert.equal(settings.gate.password, '');
  assert.deepEqual(settings.friends, []);
  assert.equal(sources['gate.password'], 'garden.yaml:1, env NONE');
});

test('anywhere else a variable that is not set is a problem that names it', () => {
  const file = [
    'gate:',
    '  password: "x${env:NONE}"',
    '  width: "${env:WIDE}"',
    'colors: "${env:COLORS}"',
    'beds: [{ name: "${env:BED}" }]',
  ];
  assert.deepEqual(lines(file.join('\n')), [
    'garden.yaml:2:13: gate.password: the environment variable NONE is not set; set NONE, or write the value',
    'garden.yaml:3:10: gate.width: the environment variable WIDE is not set; set WIDE, or write the value',
    'garden.yaml:4:9: colors: the environment variable COLORS is not set; set COLORS, or write the value',
    'garden.yaml:5:16: beds[0].name: the environment variable BED is not set; set BED, or write the value',
  ]);
});

test('a reference that is not closed is a problem', () => {
  const [line] = lines('listen: "${env:NONE"');
  assert.match(line ?? '', /garden\.yaml:1:9: listen: a reference to the environment is not complete/);
});
