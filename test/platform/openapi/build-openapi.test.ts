import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Type } from 'typebox';
import type { DescribedSurface } from '../../../src/platform/http/openapi/component-schemas.ts';
import type { HttpSurface } from '../../../src/platform/http/surface.ts';
import { build, buildRoute, calls, common, methods, Note, notes } from './sample-surfaces.ts';

const document = build({ surfaces: [notes, calls, common], methods });
const operations = Object.values(document.paths).flatMap((byMethod) => Object.values(byMethod));

test('the document names its version, its groups and the bearer token, which may be left out', () => {
  assert.equal(document.openapi, '3.1.0');
  assert.deepEqual(document.info, { title: 'Sample', version: '1.2.3' });
  assert.deepEqual(document.tags, [
    { name: 'notes', description: 'Notes' },
    { name: 'calls', description: 'Calls' },
    { name: 'common', description: 'Common' },
  ]);
  assert.deepEqual(document.components.securitySchemes, { bearer: { type: 'http', scheme: 'bearer' } });
  assert.deepEqual(document.security, [{ bearer: [] }, {}]);
});

test('every row of the tables is one operation with its summary and the group it belongs to', () => {
  const listed = Object.entries(document.paths).flatMap(([path, byMethod]) =>
    Object.entries(byMethod).map(([method, { summary, tags }]) => [method, path, summary, ...tags].join(' ')),
  );
  assert.deepEqual(listed, [
    'get /notes All notes. notes',
    'post /notes Adds a note. notes',
    'delete /notes/{id} Ends a note. notes',
    'get /files/{path} One file. notes',
    'put /files/{path} Stores a file. notes',
    'post /rpc JSON-RPC. calls',
    'options /rpc Preflight. calls',
    'get /socket JSON-RPC. calls',
    'get /log Lines. calls',
    'get /healthz Alive? common',
  ]);
});

test('a group without any operation is left out', () => {
  const empty: DescribedSurface = { name: 'empty', title: 'Empty', routes: [], upgrades: [] };
  assert.deepEqual(build({ surfaces: [empty] }).tags, []);
});

test('operation ids follow from method and path, and do not depend on the other rows', () => {
  const ids = operations.map(({ operationId }) => operationId);
  assert.deepEqual(ids, [
    'getNotes',
    'postNotes',
    'deleteNotesById',
    'getFilesByPath',
    'putFilesByPath',
    'postRpc',
    'optionsRpc',
    'getSocket',
    'getLog',
    'getHealthz',
  ]);
  const reversed = build({ surfaces: [calls, { ...notes, routes: notes.routes.toReversed() }] });
  assert.equal(reversed.paths['/notes/{id}']?.delete?.operationId, 'deleteNotesById');
  assert.equal(buildRoute({ path: '/' }).operation.operationId, 'getRoot');
});

test('two paths that would give one operation id get two', () => {
  const routes = ['/a-b', '/a/b', '/a_b'].map((path) => ({ method: 'GET' as const, path, summary: 'It.' }));
  const { paths } = build({ surfaces: [{ name: 'one', title: 'One', routes, upgrades: [] }] });
  const ids = Object.values(paths).map(({ get }) => get?.operationId);
  assert.deepEqual(ids, ['getAB', 'getAB2', 'getAB3']);
});

test('the same tables give the same text, and are not changed', () => {
  const before = JSON.stringify([notes, calls]);
  const again = build({ surfaces: [notes, calls, common], methods });
  assert.equal(JSON.stringify(again), JSON.stringify(document));
  assert.equal(JSON.stringify([notes, calls]), before);
});

test('every reference in the document leads to a component', () => {
  const references = JSON.stringify(document).matchAll(/"\$ref":"([^"]*)"/g);
  const names = [...references].map(([, reference = '']) => reference);
  assert.ok(names.length > 5);
  for (const name of names) {
    assert.match(name, /^#\/components\/schemas\/[\w.-]+$/);
    assert.ok(document.components.schemas[name.slice('#/components/schemas/'.length)] !== undefined, name);
  }
});

test('path parameters are required and take their schema from the table; the rest of a path may hold slashes', () => {
  assert.deepEqual(document.paths['/notes/{id}']?.delete?.parameters, [
    {
      name: 'id',
      in: 'path',
      required: true,
      description: 'Not its text.',
      schema: { type: 'string', description: 'Not its text.' },
    },
  ]);
  assert.deepEqual(document.paths['/files/{path}']?.get?.parameters, [
    { name: 'path', in: 'path', required: true, schema: { type: 'string' }, 'x-multi-segment': true },
  ]);
  const rest = buildRoute({ path: '/a/*', schema: { params: Type.Object({ '*': Type.String({ minLength: 3 }) }) } });
  assert.deepEqual(rest.operation.parameters?.[0]?.schema, { type: 'string', minLength: 3 });
});

test('every parameter of a path template is declared', () => {
  for (const [path, byMethod] of Object.entries(document.paths)) {
    const named = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    for (const { parameters = [] } of Object.values(byMethod)) {
      const declared = parameters.filter((parameter) => parameter.in === 'path').map(({ name }) => name);
      assert.deepEqual(declared, named);
    }
  }
});

test('the members of the query schema are query parameters, required or not as the schema says', () => {
  const parameters = document.paths['/notes']?.get?.parameters;
  assert.deepEqual(parameters, [
    {
      name: 'limit',
      in: 'query',
      required: false,
      description: 'How many.',
      schema: { type: 'integer', minimum: 1, description: 'How many.' },
    },
    { name: 'owner', in: 'query', required: true, schema: { type: 'string' } },
  ]);
  assert.equal('parameters' in (document.paths['/notes']?.post ?? {}), false);
});

test("a surface's error shape is the default answer of each of its operations, and of no other", () => {
  for (const { tags, responses } of operations) {
    const expected = tags[0] === 'notes' ? { $ref: '#/components/schemas/notesError' } : undefined;
    const shape = JSON.parse(JSON.stringify(responses.default ?? {})).content?.['application/json'].schema;
    assert.deepEqual(shape, expected);
  }
  const upgrades = [{ path: '/live', summary: 'Live.' }];
  const withSocket = build({ surfaces: [{ ...notes, routes: [], upgrades }] });
  assert.deepEqual(Object.keys(withSocket.paths['/live']?.get?.responses ?? {}), ['101', 'default']);
});

test('an error shape that has a name of its own keeps it', () => {
  const errorSchema = Type.Object({ error: Type.String() }, { $id: 'Problem' });
  const { components } = build({ surfaces: [{ ...notes, errorSchema }] });
  assert.deepEqual(Object.keys(components.schemas), ['Note', 'Problem']);
});

test('a served surface fits as it is', () => {
  const served: HttpSurface = {
    name: 'served',
    title: 'Served',
    prefixes: [],
    errors: {},
    routes: [{ method: 'GET', path: '/it', summary: 'It.', guard: () => undefined, handle: () => undefined }],
    upgrades: [],
    errorBody: () => ({}),
    isOpen: () => true,
  };
  assert.deepEqual(build({ surfaces: [served] }).paths['/it']?.get, {
    operationId: 'getIt',
    summary: 'It.',
    tags: ['served'],
    responses: { 200: { description: 'OK' } },
  });
});

test('two routes at one address are a mistake, whichever surfaces they stand in', () => {
  const twin: DescribedSurface = { ...notes, name: 'twin', routes: notes.routes.slice(2, 3) };
  assert.throws(() => build({ surfaces: [notes, twin] }), /Two routes serve DELETE \/notes\/:id/);
  assert.throws(() => build({ surfaces: [notes, { ...common, routes: notes.routes.slice(0, 1) }] }), /Two routes/);
});

test('two upgrades at one address are a mistake', () => {
  assert.throws(
    () => build({ surfaces: [{ ...calls, upgrades: [...calls.upgrades, ...calls.upgrades] }] }),
    /Two upgrades/,
  );
});

test('one name for two different schemas is a mistake; the same schema twice is not', () => {
  const other = Type.Object({ other: Type.Null() }, { $id: 'Note' });
  assert.throws(() => buildRoute({ schema: { response: { 200: Note, 201: other } } }), /Two different .*"Note"/);
  buildRoute({ schema: { response: { 200: Note, 201: structuredClone(Note) } } });
});

test('a reference that leads nowhere is a mistake', () => {
  assert.throws(() => buildRoute({ schema: { response: { 200: Type.Ref('Nobody') } } }), /"Nobody"/);
});
