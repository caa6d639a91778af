// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { maskSettings, type Setting } from '../../src/platform/config/setting-declaration.ts';
import { settingsDeclaration } from '../../src/system/settings.ts';
import fc from '../kit/properties.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

const odd = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.constant([]),
  fc.constant({}),
  fc.constantFrom('${env:A}', 'http://a', 'builtin', 'lab/small', 'primary', '127.0.0.1:1', '10s'),
);

/** Values of the right shape, with something odd here and there. */
function valueFor(schema: Setting<unknown>): fc.Arbitrary<unknown> {
  if (schema.shape === 'leaf') return odd;
  const oddly = { arbitrary: odd, weight: 1 };
  if (schema.shape === 'list') {
    return fc.oneof({ arbitrary: fc.array(valueFor(schema.member), { maxLength: 3 }), weight: 5 }, oddly);
  }
  if (schema.shape === 'record') {
    const key = fc.oneof(fc.constantFrom('lab', 'A', 'lab/small', '__proto__'), fc.string({ maxLength: 4 }));
    return fc.oneof({ arbitrary: fc.dictionary(key, valueFor(schema.member), { maxKeys: 3 }), weight: 5 }, oddly);
  }
  const members = Object.entries(schema.members).map(([key, member]) => [key, valueFor(member)] as const);
  return fc.oneof({ arbitrary: fc.record(Object.fromEntries(members), { requiredKeys: [] }), weight: 8 }, oddly);
}

test('O-07: no file of about the right shape breaks reading, checking or printing', () => {
  fc.assert(
    fc.property(valueFor(settingsDeclaration.schema), (value) => {
      const { settings, problems } = resolveTrestle(JSON.stringify(value));
      for (const { where, wrong } of problems) assert.ok(where !== '' && wrong !== '');
      assert.doesNotThrow(() => JSON.stringify(maskSettings(settingsDeclaration.schema, settings)));
    }),
    { numRuns: 300 },
  );
});

const PLAIN_VALUES = ['x', 'a/b', 'http://a.example'];
/** For what has to be given and is not any text: one of some words, a number. */
const OTHER_VALUES = ['webhook', 1];

/** A file in which every secret of the schema is set to a value of its own, and whatever else has to be given is given. */
function withSecrets(schema: Setting<unknown>, made: string[]): unknown {
  if (schema.shape === 'list') return [withSecrets(schema.member, made)].filter((item) => item !== undefined);
  if (schema.shape === 'record') {
    const key = PLAIN_VALUES.find((candidate) => schema.keyPattern.test(candidate)) ?? '';
    return { [key]: withSecrets(schema.member, made) };
  }
  if (schema.shape === 'group') {
    const members = Object.entries(schema.members);
    return Object.fromEntries(members.map(([key, member]) => [key, withSecrets(member, made)]));
  }
  if (schema.secrecy === 'secret' || schema.secrecy === 'private') {
    const isKey = schema.type.includes('base64');
    made.push(isKey ? Buffer.alloc(32, 7).toString('base64') : `hidden-${made.length}-value`);
    return made.at(-1);
  }
  if (schema.fallback !== undefined) return undefined;
  const folders = { directory: '/', homeDirectory: '/' };
  return [...PLAIN_VALUES, ...OTHER_VALUES].find((candidate) => 'value' in schema.decode(candidate, false, folders));
}

test('P-37: with every secret of the whole schema set, none of them is printed or named in a problem', () => {
  const made: string[] = [];
  const { settings, problems } = resolveTrestle(JSON.stringify(withSecrets(settingsDeclaration.schema, made)));
  const loaded = JSON.stringify(settings);
  const printed = JSON.stringify([maskSettings(settingsDeclaration.schema, settings), problems]);
  assert.ok(made.length >= 18, String(made.length));
  for (const secret of made) assert.ok(loaded.includes(secret) && !printed.includes(secret), secret);
});
