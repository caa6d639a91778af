import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type TSchema, Type } from 'typebox';
import { buildRoute, Note } from './sample-surfaces.ts';

/** How a schema comes out, and the components beside it. */
function written(schema: TSchema) {
  const { document, operation } = buildRoute({ schema: { response: { 200: schema } } });
  const { content } = Object(operation.responses[200]);
  return { schema: content['application/json'].schema, components: document.components.schemas };
}

test('a schema with an $id is a component, however deep it stands, and is written once', () => {
  const { schema, components } = written(
    Type.Object({
      first: Note,
      list: Type.Array(Note),
      byName: Type.Record(Type.String(), Note),
      either: Type.Union([Note, Type.Null()]),
      both: Type.Intersect([Note, Type.Object({ more: Type.Tuple([Note]) })]),
    }),
  );
  assert.deepEqual(Object.keys(components), ['Note']);
  assert.equal(JSON.stringify(schema).split('#/components/schemas/Note').length - 1, 6);
  assert.equal('$id' in Object(components.Note), false);
});

test('components stand in order of their names, which hold only allowed characters', () => {
  const { components, schema } = written(
    Type.Tuple([Type.Null({ $id: 'b' }), Type.Null({ $id: 'https://example.com/c' }), Type.Null({ $id: 'A' })]),
  );
  assert.deepEqual(Object.keys(components), ['A', 'b', 'https___example.com_c']);
  assert.equal(schema.prefixItems[1].$ref, '#/components/schemas/https___example.com_c');
});

test('a reference by name leads to the component of that name', () => {
  const { schema, components } = written(Type.Object({ note: Note, same: Type.Ref('Note') }));
  assert.deepEqual(schema.properties.same, { $ref: '#/components/schemas/Note' });
  assert.deepEqual(Object.keys(components), ['Note']);
});

test('a recursive schema becomes a component that refers to itself', () => {
  const Tree = Type.Cyclic({ Tree: Type.Object({ children: Type.Array(Type.Ref('Tree')) }) }, 'Tree');
  const { schema, components } = written(Tree);
  assert.deepEqual(schema, { $ref: '#/components/schemas/Tree' });
  assert.deepEqual(components.Tree, {
    type: 'object',
    properties: { children: { type: 'array', items: { $ref: '#/components/schemas/Tree' } } },
    required: ['children'],
  });
});

test('the marks of the schema library stay out of the document', () => {
  const marked = { ...Type.Object({ a: Type.Optional(Type.String()) }), '~kind': 'Object', $schema: 'x' };
  const { schema } = written(marked);
  assert.deepEqual(schema, { type: 'object', properties: { a: { type: 'string' } } });
});

test('a property may be named like a keyword', () => {
  const inner = { items: Type.String(), $ref: Type.Integer(), $id: Type.Null(), '~x': Type.Boolean() };
  const { schema } = written(Type.Object(inner));
  assert.deepEqual(schema.properties, {
    items: { type: 'string' },
    $ref: { type: 'integer' },
    $id: { type: 'null' },
    '~x': { type: 'boolean' },
  });
});

test('a tuple is written as OpenAPI 3.1 reads it', () => {
  const { schema } = written(Type.Tuple([Type.String(), Type.Integer()]));
  assert.deepEqual(schema.prefixItems, [{ type: 'string' }, { type: 'integer' }]);
  assert.equal(schema.items, false);
  assert.equal('additionalItems' in schema, false);
});

test('limits, examples, defaults and descriptions are kept, data in them untouched', () => {
  const options = { default: { $id: 'data', '~mine': 1 }, examples: [{ $ref: 'text' }], description: 'd', title: 't' };
  const { schema, components } = written(Type.Object({}, { ...options, additionalProperties: false }));
  assert.deepEqual(schema, { type: 'object', properties: {}, ...options, additionalProperties: false });
  assert.deepEqual(components, {});
});
