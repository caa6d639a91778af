import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Type } from 'typebox';
import { build, buildRoute, calls, eventStream, methods, Note, notes } from './sample-surfaces.ts';

const NOTE = { $ref: '#/components/schemas/Note' };

test('a JSON body is required and described by its schema', () => {
  const { operation } = buildRoute({ method: 'POST', body: 'json', schema: { body: Note } });
  assert.deepEqual(operation.requestBody, { required: true, content: { 'application/json': { schema: NOTE } } });
});

test('a body without a schema still names its media type; a route without a body has none', () => {
  const bytes = buildRoute({ method: 'PUT', body: 'bytes' }).operation.requestBody;
  assert.deepEqual(bytes, { required: true, content: { 'application/octet-stream': {} } });
  const json = buildRoute({ method: 'PUT', body: 'json' }).operation.requestBody;
  assert.deepEqual(json, { required: true, content: { 'application/json': {} } });
  assert.equal(buildRoute({ method: 'POST' }).operation.requestBody, undefined);
});

test('a body of bytes whose schema names a media type is sent as that', () => {
  const { operation } = buildRoute({
    method: 'POST',
    body: 'bytes',
    schema: { body: Type.String({ contentMediaType: 'text/csv' }) },
  });
  assert.deepEqual(Object.keys(Object(operation.requestBody?.content)), ['text/csv']);
});

test('an answer is described by status, with the words of its schema or of HTTP', () => {
  const { operation } = buildRoute({
    schema: { response: { 200: Type.Object({}, { description: 'All is well.' }), 503: Type.Object({}), 599: Note } },
  });
  const described = Object.entries(operation.responses).map(([status, { description }]) => [status, description]);
  assert.deepEqual(described, [
    ['200', 'All is well.'],
    ['503', 'Service Unavailable'],
    ['599', 'Status 599'],
  ]);
});

test('a union of JSON and an event stream gives both media types', () => {
  const { operation } = buildRoute({ schema: { response: { 200: Type.Union([Note, eventStream]) } } });
  assert.deepEqual(operation.responses[200]?.content, {
    'application/json': { schema: NOTE },
    'text/event-stream': { schema: { type: 'string', contentMediaType: 'text/event-stream' } },
  });
});

test('of a mixed union the JSON variants stay together; a union of JSON only stays as it is', () => {
  const json = [Note, Type.Array(Note)];
  const mixed = buildRoute({ schema: { response: { 200: Type.Union([...json, eventStream]) } } });
  const plain = buildRoute({ schema: { response: { 200: Type.Union(json) } } });
  const union = { schema: { anyOf: [NOTE, { type: 'array', items: NOTE }] } };
  assert.deepEqual(Object(mixed.operation.responses[200]?.content)['application/json'], union);
  assert.deepEqual(plain.operation.responses[200]?.content, { 'application/json': union });
});

test('an answer with the null schema has no body', () => {
  const { operation } = buildRoute({ schema: { response: { 204: Type.Null() } } });
  assert.deepEqual(operation.responses, { 204: { description: 'No Content' } });
});

test('a WebSocket address is a GET with status 101, its query and the mark of a WebSocket', () => {
  const { paths } = build({ surfaces: [calls], methods });
  assert.deepEqual(paths['/socket']?.get, {
    operationId: 'getSocket',
    summary: 'JSON-RPC.',
    description: 'A WebSocket: request an upgrade. Each message is a text frame with one JSON value.',
    tags: ['calls'],
    parameters: [{ name: 'after', in: 'query', required: false, schema: { type: 'integer' } }],
    responses: { 101: { description: 'Switching Protocols' } },
    'x-websocket': {
      message: { $ref: '#/components/schemas/JsonRpcRequest' },
      received: { $ref: '#/components/schemas/JsonRpcResponse' },
    },
  });
  assert.deepEqual(paths['/log']?.get?.['x-websocket'], {});
});

test('an address that is a WebSocket and a plain page is one operation that tells of both', () => {
  const routes = notes.routes.slice(0, 1);
  const query = Type.Object({ owner: Type.String(), after: Type.String() });
  const upgrades = [{ path: '/notes', summary: 'Live notes.', query }];
  const { paths } = build({ surfaces: [{ ...notes, routes, upgrades }] });
  const operation = paths['/notes']?.get;
  assert.equal(operation?.operationId, 'getNotes');
  assert.equal(operation.summary, 'Live notes. Without an upgrade: All notes.');
  assert.deepEqual(Object.keys(operation.responses), ['101', '200', 'default']);
  assert.deepEqual(
    operation.parameters?.map(({ name }) => name),
    ['owner', 'after', 'limit'],
  );
});

test('JSON-RPC methods are a union at their paths, told apart by the constant name', () => {
  const { paths, components } = build({ surfaces: [calls], methods });
  const content = { 'application/json': { schema: { $ref: '#/components/schemas/JsonRpcRequest' } } };
  assert.deepEqual(paths['/rpc']?.post?.requestBody, { required: true, content });
  const { oneOf } = Object(components.schemas.JsonRpcRequest);
  assert.deepEqual(
    oneOf.map((variant: ReturnType<typeof Object>) => [
      variant.title,
      variant.description,
      variant.properties.method,
      variant.properties.params,
      variant.required,
    ]),
    [
      ['note.add', 'Adds.', { const: 'note.add' }, NOTE, ['jsonrpc', 'method']],
      ['note.list', 'Lists.', { const: 'note.list' }, { type: 'object', properties: {} }, ['jsonrpc', 'method']],
    ],
  );
});

test('the answers of JSON-RPC methods are added to what the route says itself', () => {
  const { paths, components } = build({ surfaces: [calls], methods });
  assert.deepEqual(paths['/rpc']?.post?.responses[200], {
    description: 'OK',
    content: {
      'application/json': { schema: { $ref: '#/components/schemas/JsonRpcResponse' } },
      'text/event-stream': { schema: { type: 'string', contentMediaType: 'text/event-stream' } },
    },
  });
  const { anyOf } = Object(components.schemas.JsonRpcResponse);
  assert.deepEqual(
    anyOf.map(({ title }: { title: string }) => title),
    ['note.add', 'note.list'],
  );
  assert.deepEqual(anyOf[0].properties.result.required, ['id']);
});

test('a route whose errors look otherwise than those of its surface says so', () => {
  const [plain, own] = [{}, { error: Note }].map((schema, index) => {
    const route = { method: 'GET', path: `/notes/${index}`, summary: 'A note.', schema } as const;
    const { paths } = build({ surfaces: [{ ...notes, routes: [route] }] });
    return Object(paths[route.path]?.get?.responses.default?.content)['application/json'].schema;
  });
  assert.deepEqual(own, NOTE);
  assert.notDeepEqual(plain, NOTE);
});

test('a route without a body at a path of methods, and other paths, know nothing of them', () => {
  const { paths } = build({ surfaces: [calls, notes], methods });
  assert.equal(paths['/rpc']?.options?.requestBody, undefined);
  assert.deepEqual(paths['/rpc']?.options?.responses, { 200: { description: 'OK' } });
  assert.doesNotMatch(JSON.stringify(paths['/notes']), /JsonRpc/);
  const none = build({ surfaces: [calls], methods: { ...methods, rows: [] } });
  assert.doesNotMatch(JSON.stringify(none), /JsonRpc/);
});

test('DP-5: notifications of the server are described as what a client receives, in a stream and over a WebSocket', () => {
  const notifications = [{ name: 'note.added', summary: 'Somebody added a note.', params: Note }];
  const { event: _event, ...plain } = Object(calls.routes[0]?.schema?.response ?? {});
  const routes = [{ ...calls.routes[0], schema: { response: plain } } as (typeof calls.routes)[number]];
  const { paths, components } = build({ surfaces: [{ ...calls, routes }], methods: { ...methods, notifications } });
  const received = {
    anyOf: [{ $ref: '#/components/schemas/JsonRpcNotification' }, { $ref: '#/components/schemas/JsonRpcResponse' }],
  };
  assert.deepEqual(paths['/socket']?.get?.['x-websocket']?.received, received);
  const { properties, title } = Object(components.schemas.JsonRpcNotification).oneOf[0];
  assert.deepEqual([title, properties.method, properties.params], ['note.added', { const: 'note.added' }, NOTE]);
});
