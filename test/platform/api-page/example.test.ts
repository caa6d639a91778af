import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type TSchema, Type } from 'typebox';
import { Check } from 'typebox/value';
import { browserModule, documentOf, type OpenApiDocument, type Schema } from './browser-modules.ts';

const { exampleOf } = await browserModule('schema-tree');
const none = documentOf();
const example = (schema: Schema | boolean | undefined, document: OpenApiDocument = none) => exampleOf(document, schema);
const ref = (name: string) => ({ $ref: `#/components/schemas/${name}` });

test('what the schema itself says comes first: example, default, constant, first choice', () => {
  assert.equal(example({ type: 'string', examples: ['e'], default: 'd' }), 'e');
  assert.equal(example({ type: 'string', default: 'd', enum: ['a', 'd'] }), 'd');
  assert.equal(example({ const: '2.0' }), '2.0');
  assert.equal(example({ enum: ['a', 'b'] }), 'a');
  assert.equal(example({ type: 'boolean', default: false }), false);
  assert.equal(example({ type: 'integer', examples: [0] }), 0);
});

test('required members are there; optional ones only with an example or a default', () => {
  const schema: Schema = {
    type: 'object',
    properties: {
      must: { type: 'string' },
      may: { type: 'string' },
      shown: { type: 'string', examples: ['x'] },
      preset: { type: 'boolean', default: true },
    },
    required: ['must'],
  };
  assert.deepEqual(example(schema), { must: 'text', shown: 'x', preset: true });
});

test('examples fit the limits of their schemas', () => {
  const schemas: TSchema[] = [
    Type.String({ minLength: 9 }),
    Type.String({ maxLength: 2 }),
    Type.Integer({ minimum: 5 }),
    Type.Integer({ maximum: -5 }),
    Type.Integer({ exclusiveMinimum: 1 }),
    Type.Integer({ exclusiveMaximum: 1 }),
    Type.Number({ minimum: 0, maximum: 0.5 }),
    Type.Boolean(),
    Type.Null(),
    Type.Array(Type.Integer(), { minItems: 3 }),
    Type.Array(Type.Integer(), { maxItems: 0 }),
    Type.Union([Type.Null(), Type.Object({ a: Type.String() })]),
    Type.Intersect([Type.Object({ a: Type.String() }), Type.Object({ b: Type.Integer() })]),
    Type.Record(Type.String(), Type.Number()),
    Type.Object({ a: Type.Array(Type.Object({ b: Type.Literal('c') })) }),
  ];
  for (const schema of schemas) {
    const plain = JSON.parse(JSON.stringify(schema));
    const value = example(plain);
    assert.ok(Check(schema, value), `${JSON.stringify(value)} for ${JSON.stringify(plain)}`);
  }
});

test('well-known formats have an example of their kind', () => {
  for (const [format, pattern] of [
    ['email', /^\S+@\S+$/],
    ['date-time', /^\d{4}-\d\d-\d\dT/],
    ['uuid', /^[0-9a-f-]{36}$/],
    ['uri', /^https:\/\//],
    ['unknown', /^text$/],
  ] as const) {
    assert.match(String(example({ type: 'string', format })), pattern);
  }
});

test('of several types the first that is not null is taken', () => {
  assert.equal(example({ type: ['null', 'integer'] }), 1);
  assert.equal(example({ anyOf: [{ type: 'null' }, { type: 'integer' }] }), 1);
  assert.equal(example({ oneOf: [{ const: 'a' }, { const: 'b' }] }), 'a');
});

test('tuples, and schemas that name no type', () => {
  assert.deepEqual(example({ type: 'array', prefixItems: [{ const: 'a' }, { type: 'integer' }], items: false }), [
    'a',
    1,
  ]);
  assert.deepEqual(example({ properties: { a: { const: 1 } }, required: ['a'] }), { a: 1 });
  for (const any of [undefined, true, {}]) assert.deepEqual(example(any), {});
});

test('references are followed, and what stands beside one wins', () => {
  const document = documentOf({ Name: { type: 'string', examples: ['Ada'] } });
  assert.equal(example(ref('Name'), document), 'Ada');
  assert.equal(example({ ...ref('Name'), examples: ['Bob'] }, document), 'Bob');
  assert.deepEqual(example(ref('Nobody'), document), {});
});

test('a recursive schema ends', () => {
  const document = documentOf({
    Tree: {
      type: 'object',
      properties: { children: { type: 'array', items: ref('Tree') }, parent: ref('Tree') },
      required: ['children', 'parent'],
    },
  });
  assert.deepEqual(example(ref('Tree'), document), { children: [], parent: null });
});

test('the same named schema twice side by side is no recursion', () => {
  const document = documentOf({ Name: { type: 'string' } });
  const both: Schema = { type: 'object', properties: { a: ref('Name'), b: ref('Name') }, required: ['a', 'b'] };
  assert.deepEqual(example(both, document), { a: 'text', b: 'text' });
});
