import { type Static, Type } from 'typebox';
import type { Operation } from '../../platform/http/surface.ts';
import { optional } from './read-request.ts';

const id = Type.String({ pattern: '^[A-Za-z0-9_.:-]{1,256}$', description: 'As the model API named it.' });
const IdPath = Type.Object({ id });

/** `POST /v1/files`: a form with the file as `file`. */
export const FileForm = Type.Object(
  {
    file: Type.Unknown({ description: 'The file itself.' }),
    purpose: optional(Type.String({ description: '`batch`, `user_data`, ... as the model API has them.' })),
  },
  { $id: 'FileForm' },
);

export const StoredFile = Type.Object({ id, filename: Type.Optional(Type.String()) }, { $id: 'StoredFile' });

const ListQuery = Type.Object({
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, description: 'At most so many. Absent: 20.' })),
  after: Type.Optional(Type.String({ maxLength: 256, description: 'The last id of the page before.' })),
});

/** `POST /v1/batches`. Members that are not named here are not passed on. */
export const BatchRequest = Type.Object(
  {
    input_file_id: Type.String({ minLength: 1, description: 'A file that was uploaded with the purpose `batch`.' }),
    endpoint: Type.String({ description: 'The address that every line of the file names.' }),
    completion_window: Type.String({ description: 'Such as `24h`.' }),
    metadata: optional(Type.Record(Type.String(), Type.String())),
    output_expires_after: optional(Type.Object({ anchor: Type.String(), seconds: Type.Integer() })),
  },
  { $id: 'BatchRequest' },
);

export const Batch = Type.Object({ id, status: Type.String() }, { $id: 'Batch' });

function listOf<Item extends typeof StoredFile | typeof Batch>(item: Item) {
  return Type.Object({
    object: Type.Literal('list'),
    data: Type.Array(item),
    first_id: Type.Union([Type.String(), Type.Null()]),
    last_id: Type.Union([Type.String(), Type.Null()]),
    has_more: Type.Boolean(),
  });
}

export type BatchRequest = Static<typeof BatchRequest>;
export type ListQuery = Static<typeof ListQuery>;

/** What the rows take and return. */
export const storedOperations = {
  uploadFile: {
    summary: 'Store a file at a model API: a form with the file as `file`. The header `x-model-api` names the API.',
    body: FileForm,
    raw: true,
    anyType: true,
    response: { 200: StoredFile },
  },
  listFiles: { summary: 'List your files, the latest first.', query: ListQuery, response: { 200: listOf(StoredFile) } },
  showFile: { summary: 'Show one of your files.', params: IdPath, response: { 200: StoredFile } },
  deleteFile: { summary: 'Delete one of your files at its model API.', params: IdPath, response: { 200: StoredFile } },
  readFile: {
    summary: 'Read the content of one of your files.',
    params: IdPath,
    response: { 200: Type.String({ contentMediaType: 'application/octet-stream' }) },
  },
  createBatch: {
    summary: 'Run the requests of a file within a day, at the price of batches.',
    body: BatchRequest,
    response: { 200: Batch },
  },
  listBatches: {
    summary: 'List your batches, the latest first.',
    query: ListQuery,
    response: { 200: listOf(Batch) },
  },
  showBatch: { summary: 'Show how far one of your batches is.', params: IdPath, response: { 200: Batch } },
  cancelBatch: { summary: 'Cancel one of your batches.', params: IdPath, response: { 200: Batch } },
} as const satisfies Readonly<Record<string, Operation>>;
