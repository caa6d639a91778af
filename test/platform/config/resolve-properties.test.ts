// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatProblem } from '../../../src/platform/config/problem.ts';
import { maskSettings } from '../../../src/platform/config/setting-declaration.ts';
import fc from '../../kit/properties.ts';
import { garden, resolveGarden } from './sample-declaration.ts';

const KEYS = 'listen folder gate password width wait store url colors beds name key notes x'.split(' ');
const key = fc.oneof(fc.constantFrom(...KEYS, '__proto__', 'constructor', 'toString'), fc.string({ maxLength: 6 }));
const scalar = fc.oneof(
  fc.string(),
  fc.constantFrom('${env:A}', '${env:', '$${env:A}', '30s', '~', '127.0.0.1:1', 'shed://a:b@c', '~/x'),
  fc.integer(),
  fc.double(),
  fc.boolean(),
  fc.constant(null),
);
const tree = fc.letrec((tie) => ({
  value: fc.oneof({ depthSize: 'small', withCrossShrink: true }, scalar, tie('list'), tie('mapping')),
  list: fc.array(tie('value'), { maxLength: 4 }),
  mapping: fc.dictionary(key, tie('value'), { maxKeys: 6 }),
}));

test('O-07: whatever a file holds, there is a frozen result or a list of problems, and never an exception', () => {
  const file = fc.oneof(
    fc.string({ unit: 'binary' }),
    tree.mapping.map((value) => JSON.stringify(value)),
  );
  const variables = fc.dictionary(fc.constantFrom('A', 'GARDEN_BEDS', 'GARDEN_NOTES', 'GARDEN_X'), fc.string());
  fc.assert(
    fc.property(file, variables, (text, environment) => {
      const { settings, problems } = resolveGarden(text, environment);
      assert.ok(Object.isFrozen(settings));
      assert.deepEqual(Object.keys(settings), Object.keys(resolveGarden().settings));
      for (const problem of problems) assert.match(formatProblem(problem), /^[^\n]+$/);
      assert.equal(({} as Record<string, unknown>).x, undefined);
    }),
    { numRuns: 1500 },
  );
});

test('the strongest of flag, variable and file always decides', () => {
  const port = fc.option(fc.integer({ min: 0, max: 65_535 }), { nil: undefined });
  fc.assert(
    fc.property(port, port, port, (flag, variable, file) => {
      const address = (given: number): string => `127.0.0.1:${given}`;
      const { settings, sources, problems } = resolveGarden(
        file === undefined ? '' : `listen: ${address(file)}`,
        variable === undefined ? {} : { GARDEN_LISTEN: address(variable) },
        flag === undefined ? {} : { '--listen': address(flag) },
      );
      const strongest = flag ?? variable ?? file;
      const listen = strongest === undefined ? '' : address(strongest);
      const fromFile = file === undefined ? 'default' : 'garden.yaml:1';
      const fromVariable = variable === undefined ? fromFile : 'env GARDEN_LISTEN';
      const source = flag === undefined ? fromVariable : 'flag --listen';
      assert.deepEqual({ listen: settings.listen, source: sources.listen, problems }, { listen, source, problems: [] });
    }),
  );
});

const secret = fc
  .array(fc.constantFrom(...'abcXYZ0189-_.~!*#&%@:/?=+$"\'[]{}|>'.split('')), { minLength: 12, maxLength: 24 })
  .map((letters) => `S3${letters.join('')}`);

test('P-37: neither masked settings nor problems contain a secret, wherever it came from', () => {
  fc.assert(
    fc.property(secret, fc.boolean(), (value, throughVariable) => {
      const written = value.replaceAll('${', '$');
      const quoted = JSON.stringify(throughVariable ? '${env:SECRET}' : written);
      const file = [
        `gate: { password: ${quoted}, guest_password: ${quoted} }`,
        `beds: [{ name: a, key: ${quoted} }]`,
        `notes: { a: ${quoted} }`,
      ];
      const plain = throughVariable ? value : written;
      const { settings, problems, warnings } = resolveGarden(file.join('\n'), { SECRET: value }, {}, 0o644);
      const printed = JSON.stringify([maskSettings(garden.schema, settings), problems, warnings]);
      assert.equal(settings.beds[0]?.key, plain);
      assert.ok(!printed.includes(plain) && !printed.includes(JSON.stringify(plain).slice(1, -1)));
    }),
  );
});

test('P-37: a password in a URL is never printed, however it is written', () => {
  fc.assert(
    fc.property(secret, fc.nat(99), fc.constantFrom('', '/', '?', '#'), (letters, digits, sign) => {
      const value = `${digits}${sign}${letters}`;
      const url = `shed://ann:${value}@host/db`;
      const { settings, problems } = resolveGarden(undefined, { GARDEN_STORE_URL: url });
      const printed = JSON.stringify([maskSettings(garden.schema, settings), problems]);
      assert.ok(!printed.includes(value) && !printed.includes(encodeURIComponent(value)), printed);
    }),
    { numRuns: 500 },
  );
});

test('a text without special signs survives the way through a variable, a reference and a file unchanged', () => {
  const letters = fc.constantFrom(...'abcdefXYZ0123456789-_.'.split(''));
  fc.assert(
    fc.property(fc.string({ unit: letters, minLength: 1, maxLength: 30 }), (value) => {
      assert.equal(resolveGarden(undefined, { GATE_PASSWORD: value }).settings.gate.password, value);
      assert.equal(resolveGarden('gate: { password: "${env:V}" }', { V: value }).settings.gate.password, value);
      assert.equal(resolveGarden(`gate: { password: "${value}" }`).settings.gate.password, value);
    }),
  );
});
