// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resolveSettings } from '../../../src/platform/config/load-configuration.ts';
import { formatProblem } from '../../../src/platform/config/problem.ts';
import { setting } from '../../../src/platform/config/setting.ts';
import { garden, resolveGarden } from './sample-declaration.ts';

const lines = (...given: Parameters<typeof resolveGarden>): readonly string[] =>
  resolveGarden(...given).problems.map(formatProblem);

test('O-07: an unknown key is reported with file, line, column and the nearest name', () => {
  assert.deepEqual(lines('listn: x\ngate:\n  pasword: y\n'), [
    'garden.yaml:1:1: listn: there is no such setting; did you mean "listen"?',
    'garden.yaml:3:3: gate.pasword: there is no such setting; did you mean "password"?',
  ]);
});

test('O-07: a key in the wrong place is led to the right one, and one like no other gets the list', () => {
  assert.deepEqual(lines('width: 3\nstore: { zzzzzz: 1 }'), [
    'garden.yaml:1:1: width: there is no such setting; did you mean "gate.width"?',
    'garden.yaml:2:10: store.zzzzzz: there is no such setting; possible here: url',
  ]);
});

test('O-07: all problems of file, environment and flags are reported together, the file’s from top to bottom', () => {
  const file = 'verbose: maybe\ngate:\n  width: many\n  mood: opne\nbeds:\n  - { depth: 9 }\nlistn: 1\n';
  assert.deepEqual(lines(file, { GARDEN_GATE_WAIT: '30', GARDEN_LISTN: 'x' }, { '--listen': ':80' }), [
    'garden.yaml:1:10: verbose: "maybe" is neither true nor false; expected true or false',
    'garden.yaml:3:10: gate.width: "many" is not a whole number; expected a whole number from 1 to 9',
    'garden.yaml:4:9: gate.mood: "opne" is not a possible value; expected one of open, closed; did you mean "open"?',
    'garden.yaml:6:5: beds[0].name: this is required; add "name"',
    'garden.yaml:6:14: beds[0].depth: 9 is out of range; expected a number from 0 to 2',
    'garden.yaml:7:1: listn: there is no such setting; did you mean "listen"?',
    'environment variable GARDEN_GATE_WAIT: gate.wait: "30" has no unit; say 30s for seconds or 30ms for milliseconds',
    'flag --listen: listen: ":80" names no address; say 0.0.0.0:80 for every address of this machine',
    'environment variable GARDEN_LISTN: there is no such setting; did you mean GARDEN_LISTEN?',
  ]);
});

test('what the environment overrides in the file is still checked', () => {
  assert.equal(lines('gate: { width: many }', { GARDEN_GATE_WIDTH: '4' }).length, 1);
});

test('an unknown variable with the prefix is a problem; the file’s name and listed others are not', () => {
  const others = { GARDEN_CONFIG: 'x', GARDEN_SEASON: 'y', OTHER: 'z' };
  assert.deepEqual(lines(undefined, { ...others, GARDEN_BEDS_A_KEY: 'q', GARDEN_QQQQQQQQ: '' }), [
    'environment variable GARDEN_BEDS_A_KEY: there is no such setting; did you mean GARDEN_BEDS?',
    'environment variable GARDEN_QQQQQQQQ: there is no such setting; unset it',
  ]);
});

test('a key that is there twice is a problem and the first one counts', () => {
  const { problems, settings } = resolveGarden('gate:\n  width: 2\n  width: 4\n');
  assert.deepEqual(problems.map(formatProblem), [
    'garden.yaml:3:3: gate.width: the key is there twice, first on line 2; keep one of the two',
  ]);
  assert.equal(settings.gate.width, 2);
});

test('after a syntax error nothing else is guessed about the file', () => {
  const same = { GATE_PASSWORD: 'q', GARDEN_GATE_GUEST_PASSWORD: 'q' };
  const found = lines('gate: { password: a, guest_password: a\nlistn: "', same);
  assert.ok(found.length >= 1);
  for (const line of found) assert.match(line, /^garden\.yaml:\d+:\d+: /);
});

test('a check between settings is placed at the line of the setting it is about', () => {
  const file = 'gate:\n  password: a\n  guest_password: a\nbeds:\n  - { name: ok }\n  - { name: weeds }';
  assert.deepEqual(lines(file), [
    'garden.yaml:3:19: gate.guest_password: it is the same; change it',
    'garden.yaml:6:13: beds[1].name: there are weeds; pull them',
  ]);
});

test('a check names the variable when the value came from there, also when the file has one too', () => {
  const found = lines('gate: { password: a, guest_password: b }\nbeds: [{ name: x }]\ncolors: [a]', {
    GARDEN_GATE_GUEST_PASSWORD: 'a',
    GARDEN_BEDS: '[{ name: weeds }]',
  });
  assert.deepEqual(found, [
    'environment variable GARDEN_GATE_GUEST_PASSWORD: gate.guest_password: it is the same; change it',
    'environment variable GARDEN_BEDS: beds[0].name: there are weeds; pull them',
  ]);
});

test('a check that rests on a value which could not be read is left out, others are not', () => {
  const found = lines('gate: { password: "a b", guest_password: "" }\nbeds: [{ name: weeds }]');
  assert.equal(found.length, 2);
  assert.match(found[0] ?? '', /gate\.password: the value has a space/);
  assert.match(found[1] ?? '', /weeds/);
});

test('P-37: a problem never shows a secret, nor what a reference brought in', () => {
  const secret = 'hunter2 hunter2';
  const files = [
    `gate: { password: "${secret}" }`,
    `gate: { password: ["${secret}"] }`,
    `gate: "${secret}"`,
    `store: { url: "mysql://u:${secret}@h" }`,
    `beds: [{ name: a, key: "${secret}" }]`,
    `notes: { a: ["${secret}"], b: 1 }`,
    'gate: { width: "${env:S}", mood: "${env:S}", wait: "1${env:S}" }\nlisten: ":${env:S}"',
    'beds: "${env:S}"\nnotes: "${env:S}: ${env:S}"',
    'notes: "${env:Y}"',
    'beds: "${env:B}"',
    'beds: "${env:DEEP}"',
    'gate: { wait: "${env:DIGITS}" }',
    'listen: ":${env:DIGITS}"',
  ];
  const environment = {
    S: secret,
    Y: '{ hunter2X: [hunter2], b: *hunter2 }',
    B: '[{ nam: hunter2, hunter2: 1 }]',
    DEEP: '[{ name: a, depth: hunter2 }]',
    DIGITS: '31337',
  };
  for (const file of files) {
    const { problems } = resolveGarden(file, environment);
    assert.ok(problems.length > 0, file);
    assert.doesNotMatch(problems.map(formatProblem).join('\n'), /hunter2|31337/, file);
  }
  const fromVariable = resolveGarden(undefined, { GATE_PASSWORD: secret, GARDEN_STORE_URL: `mysql://${secret}` });
  assert.equal(fromVariable.problems.length, 2);
  assert.doesNotMatch(JSON.stringify(fromVariable.problems), /hunter2/);
});

test('a thousand problems are cut to a hundred and counted', () => {
  const file = Array.from({ length: 1000 }, (_, index) => `unknown${index}: 1`).join('\n');
  const found = lines(file);
  assert.equal(found.length, 101);
  assert.match(found.at(-1) ?? '', /there are 900 more problems/);
});

test('O-07: secrets in a file that others may read are a warning; references and private files are not', () => {
  const clear = 'gate: { password: abc }\nstore: { url: "shed://u:pw@h" }\nnotes: { a: b }';
  const { warnings } = resolveGarden(clear, {}, {}, 0o100644);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? '', /garden\.yaml holds secrets \(gate\.password, store\.url\).*chmod 600 garden\.yaml/);
  assert.doesNotMatch(warnings[0] ?? '', /abc|pw/);
  for (const mode of [0o640, 0o604, 0o620]) assert.equal(resolveGarden(clear, {}, {}, mode).warnings.length, 1);
  assert.deepEqual(resolveGarden(clear, {}, {}, 0o600).warnings, []);
  const harmless = 'gate: { password: "${env:P}" }\nstore: { url: "shed://h" }\nlisten: 127.0.0.1:1\nnotes: { a: b }';
  assert.deepEqual(resolveGarden(harmless, { P: 'abc' }, {}, 0o644).warnings, []);
});

test('a setting that has no default has to be given', () => {
  const schema = setting.group('', { name: setting.text({ description: 'Its name.' }) });
  const declaration = { ...garden, schema, check: () => [] };
  const nowhere = { environment: {}, flags: {}, homeDirectory: '/', workingDirectory: '/' };
  const { problems } = resolveSettings({ declaration, ...nowhere });
  assert.deepEqual(problems.map(formatProblem), ['configuration: name: this is required; expected: text']);
});
