import { Type } from 'typebox';
import { buildOpenApi, type OpenApiInput } from '../../../src/platform/http/openapi/build-openapi.ts';
import type { DescribedRoute, DescribedSurface } from '../../../src/platform/http/openapi/component-schemas.ts';

export const Note = Type.Object(
  { text: Type.String({ examples: ['Hello'] }), pinned: Type.Optional(Type.Boolean()) },
  { $id: 'Note' },
);
export const eventStream = Type.String({ contentMediaType: 'text/event-stream' });

export const notes: DescribedSurface = {
  name: 'notes',
  title: 'Notes',
  errorSchema: Type.Object({ error: Type.Object({ code: Type.String(), message: Type.String() }) }),
  routes: [
    {
      method: 'GET',
      path: '/notes',
      summary: 'All notes.',
      schema: {
        query: Type.Object({
          limit: Type.Optional(Type.Integer({ minimum: 1, description: 'How many.' })),
          owner: Type.String(),
        }),
        response: { 200: Type.Array(Note) },
      },
    },
    {
      method: 'POST',
      path: '/notes',
      summary: 'Adds a note.',
      body: 'json',
      schema: { body: Note, response: { 201: Type.Union([Note, eventStream]) } },
    },
    {
      method: 'DELETE',
      path: '/notes/:id',
      summary: 'Ends a note.',
      schema: {
        params: Type.Object({ id: Type.String({ description: 'Not its text.' }) }),
        response: { 204: Type.Null() },
      },
    },
    { method: 'GET', path: '/files/*', summary: 'One file.' },
    { method: 'PUT', path: '/files/*', summary: 'Stores a file.', body: 'bytes' },
  ],
  upgrades: [],
};

export const calls: DescribedSurface = {
  name: 'calls',
  title: 'Calls',
  routes: [
    {
      method: 'POST',
      path: '/rpc',
      summary: 'JSON-RPC.',
      body: 'bytes',
      schema: { response: { 200: eventStream } },
    },
    { method: 'OPTIONS', path: '/rpc', summary: 'Preflight.' },
  ],
  upgrades: [
    { path: '/socket', summary: 'JSON-RPC.', query: Type.Object({ after: Type.Optional(Type.Integer()) }) },
    { path: '/log', summary: 'Lines.' },
  ],
};

export const methods = {
  paths: ['/rpc', '/socket'],
  rows: [
    { name: 'note.add', summary: 'Adds.', params: Note, result: Type.Object({ id: Type.String() }) },
    { name: 'note.list', summary: 'Lists.', params: Type.Object({}), result: Type.Object({ notes: Type.Array(Note) }) },
  ],
};

export const common: DescribedSurface = {
  name: 'common',
  title: 'Common',
  routes: [{ method: 'GET', path: '/healthz', summary: 'Alive?' }],
  upgrades: [],
};

export function build(input: Partial<OpenApiInput> = {}) {
  return buildOpenApi({ title: 'Sample', version: '1.2.3', surfaces: [], ...input });
}

/** A document of one route, as it is after a trip over the wire. */
export function buildRoute(route: Partial<DescribedRoute>) {
  const full: DescribedRoute = { method: 'GET', path: '/', summary: 'It.', ...route };
  const document = build({ surfaces: [{ name: 'one', title: 'One', routes: [full], upgrades: [] }] });
  const parsed: typeof document = JSON.parse(JSON.stringify(document));
  const operation = Object.values(Object.values(parsed.paths)[0] ?? {})[0];
  if (operation === undefined) throw new Error('no operation');
  return { document: parsed, operation };
}
