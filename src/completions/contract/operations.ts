import { type Static, Type } from 'typebox';
import type { Operation } from '../../platform/http/surface.ts';
import { CallDetails, CallList, CallsQuery } from './calls.ts';
import { ChatCompletion, ChatRequest, SamplingFields, Usage } from './chat.ts';
import {
  BatchEmbedRequest,
  EmbedContentRequest,
  GeminiCountRequest,
  GeminiError,
  GeminiModel,
  GeminiModelList,
  GeminiModelsQuery,
  GeminiResults,
  GenerateContentRequest,
  GenerateContentResponse,
} from './gemini.ts';
import {
  ApiList,
  IssuedKey,
  KeyChange,
  KeyInfo,
  KeyList,
  KeyListQuery,
  KeyPath,
  KeyRotation,
  ModelEntry,
  ModelList,
  NewKey,
  TargetList,
  UsageQuery,
  UsageReport,
} from './keys.ts';
import { CountTokensRequest, MessageObject, MessagesError, MessagesRequest, TokenCount } from './messages.ts';
import { optional } from './read-request.ts';
import { ResponseObject, ResponsesRequest } from './responses.ts';

/** `POST /completions`. As all requests, it is open: a field that is not named here is passed on. */
export const TextRequest = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
    prompt: Type.Union(
      [
        Type.String(),
        Type.Array(Type.String(), { maxItems: 10_000 }),
        Type.Array(Type.Integer()),
        Type.Array(Type.Array(Type.Integer())),
      ],
      { examples: ['Hello, Trestle'] },
    ),
    ...SamplingFields,
    suffix: optional(Type.String()),
    echo: optional(Type.Boolean()),
    best_of: optional(Type.Integer({ minimum: 1, maximum: 20 })),
    logprobs: optional(Type.Integer({ minimum: 0, maximum: 5 })),
  },
  { $id: 'TextRequest' },
);

export const TextCompletion = Type.Object({
  id: Type.String(),
  object: Type.Literal('text_completion'),
  created: Type.Union([Type.Integer(), Type.String()], { description: 'Seconds since 1970; text without /v1.' }),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer(),
      text: Type.String(),
      logprobs: Type.Optional(Type.Unknown()),
      finish_reason: Type.Union([Type.String(), Type.Null()]),
    }),
  ),
  usage: Type.Optional(Usage),
});

export type TextRequest = Static<typeof TextRequest>;
export type TextCompletion = Static<typeof TextCompletion>;

/** `POST /v1/embeddings`. */
export const EmbeddingsRequest = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.' }),
    input: Type.Union([
      Type.String(),
      Type.Array(Type.String(), { minItems: 1, maxItems: 2048 }),
      Type.Array(Type.Integer(), { minItems: 1 }),
      Type.Array(Type.Array(Type.Integer()), { minItems: 1, maxItems: 2048 }),
    ]),
    encoding_format: optional(Type.Union([Type.Literal('float'), Type.Literal('base64')])),
    dimensions: optional(Type.Integer({ minimum: 1 })),
    user: optional(Type.String()),
    input_type: optional(
      Type.String({
        description: 'What the texts are for, as Cohere names it: `search_query`, `search_document`, ...',
      }),
    ),
    task_type: optional(Type.String({ description: 'The same as Google names it: `RETRIEVAL_QUERY`, ...' })),
  },
  { $id: 'EmbeddingsRequest' },
);

export const EmbeddingList = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(
    Type.Object({
      object: Type.Literal('embedding'),
      index: Type.Integer(),
      embedding: Type.Union([Type.Array(Type.Number()), Type.String()]),
    }),
  ),
  model: Type.String(),
  usage: Type.Object({
    prompt_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    estimated: Type.Optional(Type.Boolean()),
    cost: Type.Optional(Type.Number({ description: 'In USD, with `completions.usage_cost`.' })),
  }),
});

export type EmbeddingsRequest = Static<typeof EmbeddingsRequest>;
export type EmbeddingList = Static<typeof EmbeddingList>;

const EventStream = Type.String({ contentMediaType: 'text/event-stream' });

/** What each row of the service takes and returns. Rows that are `raw` pass the body on as the bytes that came. */
export const completionsOperations = {
  createChat: {
    summary: 'Create a chat completion; with "stream": true as a stream of events.',
    body: ChatRequest,
    raw: true,
    response: { 200: Type.Union([ChatCompletion, EventStream]) },
  },
  completeText: {
    summary: 'Complete a text; with "stream": true as a stream of events.',
    body: TextRequest,
    raw: true,
    response: { 200: Type.Union([TextCompletion, EventStream]) },
  },
  embed: {
    summary: 'Create embeddings: vectors of numbers that represent texts.',
    body: EmbeddingsRequest,
    raw: true,
    response: { 200: EmbeddingList },
  },
  createResponse: {
    summary: "Create a response, in the format of OpenAI's Responses API.",
    body: ResponsesRequest,
    raw: true,
    response: { 200: Type.Union([ResponseObject, EventStream]) },
  },
  createMessage: {
    summary: "Create a message, in the format of Anthropic's Messages API.",
    body: MessagesRequest,
    raw: true,
    response: { 200: Type.Union([MessageObject, EventStream]) },
    error: MessagesError,
  },
  countTokens: {
    summary: 'Count the input tokens of a message; an estimate if the API of the model cannot count.',
    body: CountTokensRequest,
    raw: true,
    response: { 200: TokenCount },
    error: MessagesError,
  },
  callGemini: {
    summary:
      "Call a model in the form of Google's Gemini API: `{model}:generateContent`, `:streamGenerateContent`, `:countTokens`, `:embedContent` or `:batchEmbedContents`.",
    body: Type.Union([GenerateContentRequest, GeminiCountRequest, EmbedContentRequest, BatchEmbedRequest]),
    raw: true,
    response: {
      200: Type.Union([GenerateContentResponse, Type.Array(GenerateContentResponse), GeminiResults, EventStream]),
    },
    error: GeminiError,
  },
  listGeminiModels: {
    summary: "List the models that your key may use, in the format of Google's Gemini API.",
    query: GeminiModelsQuery,
    response: { 200: GeminiModelList },
    error: GeminiError,
  },
  showGeminiModel: {
    summary: "Show one model, in the format of Google's Gemini API.",
    response: { 200: GeminiModel },
    error: GeminiError,
  },
  // In Google's form for a caller with `x-goog-api-key`.
  listModels: {
    summary: 'List the models that your key may use.',
    response: { 200: Type.Union([ModelList, GeminiModelList]) },
  },
  showModel: { summary: 'Show one model.', response: { 200: Type.Union([ModelEntry, GeminiModel]) } },
  listApis: {
    summary: 'List the known model APIs, and the key that each one needs.',
    response: { 200: ApiList },
  },
  listTargets: {
    summary: 'List the aliases that you may use, and the state of the models behind them.',
    response: { 200: TargetList },
  },
  issueKey: {
    summary: 'Create a key. The key is shown only in this response.',
    body: NewKey,
    response: { 201: IssuedKey },
  },
  listKeys: {
    summary: 'List keys: all keys with the master key, otherwise your own.',
    query: KeyListQuery,
    response: { 200: KeyList },
  },
  revokeKey: {
    summary: 'Revoke a key: it stops working immediately. Users revoke their own keys.',
    params: KeyPath,
  },
  changeKey: {
    summary: 'Change the name, limits or models of a key, or disable it. Users change their own keys.',
    params: KeyPath,
    body: KeyChange,
    response: { 200: KeyInfo },
  },
  rotateKey: {
    summary:
      'Replace a key with a new one, which is shown only in this response. The old key stays valid for `grace_seconds`.',
    params: KeyPath,
    body: KeyRotation,
    response: { 200: IssuedKey },
  },
  reportUsage: {
    summary: 'Report usage and cost: of your key, of all your calls, or of all calls with the master key.',
    query: UsageQuery,
    response: { 200: UsageReport },
  },
  listCalls: {
    summary: 'List calls, newest first: those of your key, or all with the master key.',
    query: CallsQuery,
    response: { 200: CallList },
  },
  showCall: {
    summary: 'Show one call: tokens by kind, cost, timings, failed attempts, and its content if it is stored.',
    response: { 200: CallDetails },
  },
} as const satisfies Readonly<Record<string, Operation>>;

const id = Type.String({ pattern: '^[A-Za-z0-9_.:-]{1,256}$', description: 'The name that the model API gave it.' });
const IdPath = Type.Object({ id });

/** `POST /v1/files`: a form with the file as `file`. */
export const FileForm = Type.Object(
  {
    file: Type.Unknown({ description: 'The file itself.' }),
    purpose: optional(Type.String({ description: '`batch`, `user_data`, or another value of the model API.' })),
  },
  { $id: 'FileForm' },
);

export const StoredFile = Type.Object({ id, filename: Type.Optional(Type.String()) }, { $id: 'StoredFile' });

const ListQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, description: 'The maximum number of entries. Default: 20.' }),
  ),
  after: Type.Optional(Type.String({ maxLength: 256, description: 'The last id of the page before.' })),
});

/** `POST /v1/batches`. Members that are not named here are not passed on. */
export const BatchRequest = Type.Object(
  {
    input_file_id: Type.String({ minLength: 1, description: 'A file that was uploaded with the purpose `batch`.' }),
    endpoint: Type.String({ description: 'The path that every line of the file names.' }),
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
    summary: 'Upload a file to a model API: a form with the file as `file`. The header `x-model-api` names the API.',
    body: FileForm,
    raw: true,
    anyType: true,
    response: { 200: StoredFile },
  },
  listFiles: { summary: 'List your files, newest first.', query: ListQuery, response: { 200: listOf(StoredFile) } },
  showFile: { summary: 'Show one of your files.', params: IdPath, response: { 200: StoredFile } },
  deleteFile: { summary: 'Delete one of your files at its model API.', params: IdPath, response: { 200: StoredFile } },
  readFile: {
    summary: 'Read the content of one of your files.',
    params: IdPath,
    response: { 200: Type.String({ contentMediaType: 'application/octet-stream' }) },
  },
  createBatch: {
    summary: 'Run the requests in a file within a day, at the batch price.',
    body: BatchRequest,
    response: { 200: Batch },
  },
  listBatches: {
    summary: 'List your batches, newest first.',
    query: ListQuery,
    response: { 200: listOf(Batch) },
  },
  showBatch: { summary: 'Show the progress of one of your batches.', params: IdPath, response: { 200: Batch } },
  cancelBatch: { summary: 'Cancel one of your batches.', params: IdPath, response: { 200: Batch } },
} as const satisfies Readonly<Record<string, Operation>>;
