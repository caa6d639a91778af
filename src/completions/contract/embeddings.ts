import { type Static, Type } from 'typebox';
import { optional } from './read-request.ts';

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
