import { type Static, Type } from 'typebox';
import { SamplingFields, Usage } from './chat.ts';
import { optional } from './read-request.ts';

/** `POST /completions` (contract/completions 1). As all requests, it is open: a field that is not named here is passed on. */
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

/** `POST /v1/embeddings` (contract/completions 1). */
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
  }),
});

export type EmbeddingsRequest = Static<typeof EmbeddingsRequest>;
export type EmbeddingList = Static<typeof EmbeddingList>;
