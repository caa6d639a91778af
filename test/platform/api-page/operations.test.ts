import assert from 'node:assert/strict';
import { test } from 'node:test';
import { build, calls, common, methods, notes } from '../openapi/sample-surfaces.ts';
import { browserModule, documentOf, type OpenApiDocument, operationOf } from './browser-modules.ts';

const { groupOperations, matches, messageSchema, resolve, variantsOf } = await browserModule('operations');
const document: OpenApiDocument = JSON.parse(JSON.stringify(build({ surfaces: [notes, calls, common], methods })));
const groups = groupOperations(document);
const operations = groups.flatMap((group) => group.operations);
const found = (words: string) =>
  operations.filter((each) => matches(document, each, words)).map(({ method, path }) => `${method} ${path}`);

test('operations are listed by group, in the order of the document, sockets as such', () => {
  const listed = groups.map(({ title, operations: all }) => [
    title,
    ...all.map((each) => `${each.method} ${each.path}`),
  ]);
  assert.deepEqual(listed, [
    ['Notes', 'GET /notes', 'POST /notes', 'DELETE /notes/{id}', 'GET /files/{path}', 'PUT /files/{path}'],
    ['Calls', 'POST /rpc', 'POST /rpc', 'WS /socket', 'WS /log'],
    ['Common', 'GET /healthz'],
  ]);
});

test('a search finds by method, path and summary; every word must occur, in any case', () => {
  assert.deepEqual(found('delete'), ['DELETE /notes/{id}']);
  assert.deepEqual(found('FILES stores'), ['PUT /files/{path}']);
  assert.deepEqual(found(' alive? '), ['GET /healthz']);
  assert.deepEqual(found('files nowhere'), []);
  assert.equal(found('').length, operations.length);
});

test('a search for a JSON-RPC method finds where it can be called', () => {
  assert.deepEqual(found('note.list'), ['POST /rpc', 'WS /socket']);
});

test('each JSON-RPC method is an operation, with its own body and what the path answers to all of them', () => {
  const rows = operations.filter(({ path }) => path === '/rpc');
  assert.deepEqual(
    rows.map(({ operationId, variant }) => [operationId, variant]),
    [
      ['postRpc/note.add', 'note.add'],
      ['postRpc/note.list', 'note.list'],
    ],
  );
  for (const row of rows) assert.equal(messageSchema(row)?.title, row.variant);
  assert.deepEqual(found('post note.add'), ['POST /rpc']);
});

test('a path that is there with /v1 too is marked, so that the list shows it once', () => {
  const [group] = groupOperations({
    ...document,
    tags: [{ name: 'models', description: 'Models' }],
    paths: {
      '/models': { get: operationOf({ tags: ['models'] }) },
      '/v1/models': { get: operationOf({ tags: ['models'] }) },
      '/keys': { get: operationOf({ tags: ['models'] }) },
    },
  });
  assert.deepEqual(
    group?.operations.map(({ path, isRepeated }) => [path, isRepeated === true]),
    [
      ['/models', true],
      ['/v1/models', false],
      ['/keys', false],
    ],
  );
});

test('characters with a meaning in patterns are only characters', () => {
  assert.deepEqual(found('.*'), []);
  assert.deepEqual(found('{id}'), ['DELETE /notes/{id}']);
});

test('what can be sent is the body of a request or the message of a socket', () => {
  const schemas = operations.map((each) => [each.operationId, messageSchema(each)?.$ref]);
  assert.deepEqual(
    schemas.filter(([, reference]) => reference !== undefined),
    [
      ['postNotes', '#/components/schemas/Note'],
      ['getSocket', '#/components/schemas/JsonRpcRequest'],
    ],
  );
});

test('a union has variants only when each has a title', () => {
  const request = messageSchema(operations.find(({ path }) => path === '/socket') ?? operationOf());
  assert.deepEqual(
    variantsOf(document, request).map(({ title }) => title),
    ['note.add', 'note.list'],
  );
  assert.deepEqual(variantsOf(document, { anyOf: [{ title: 'a' }, { type: 'null' }] }), []);
  assert.deepEqual(variantsOf(document, undefined), []);
});

test('references to references are followed; what leads nowhere allows everything', () => {
  const chain = documentOf({ A: { $ref: '#/components/schemas/B' }, B: { type: 'string', description: 'b' } });
  assert.deepEqual(resolve(chain, { $ref: '#/components/schemas/A', description: 'own' }), {
    type: 'string',
    description: 'own',
  });
  assert.deepEqual(resolve(chain, { $ref: '#/components/schemas/C' }), {});
  assert.deepEqual(resolve(chain, true), {});
});
