import { type Static, Type } from 'typebox';

/** `/v1` adds what is known of a model; the document's own path has the plain entry (contract/completions 3). */
export const ModelEntry = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('model'),
    created: Type.Integer({ description: 'Seconds since 1970; 0 when it is not known.' }),
    owned_by: Type.String(),
    context_window: Type.Optional(Type.Integer({ description: 'Tokens of prompt and answer together.' })),
    max_output_tokens: Type.Optional(Type.Integer()),
    pricing: Type.Optional(
      Type.Object({ input: Type.Number(), output: Type.Number() }, { description: 'USD per token.' }),
    ),
    input_modalities: Type.Optional(Type.Array(Type.String())),
  },
  { $id: 'ModelEntry' },
);

export const ModelList = Type.Object({ object: Type.Literal('list'), data: Type.Array(ModelEntry) });

export type ModelEntry = Static<typeof ModelEntry>;
export type ModelList = Static<typeof ModelList>;
