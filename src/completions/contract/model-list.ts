import { type Static, Type } from 'typebox';

const Rates = {
  input: Type.Number(),
  output: Type.Number(),
  cache_read: Type.Optional(Type.Number()),
  cache_write: Type.Optional(Type.Number({ description: 'Into a cache that lasts five minutes.' })),
  cache_write_1h: Type.Optional(Type.Number({ description: 'Into a cache that lasts an hour.' })),
  audio_input: Type.Optional(Type.Number()),
  image_input: Type.Optional(Type.Number()),
  audio_output: Type.Optional(Type.Number()),
  reasoning: Type.Optional(Type.Number()),
};

const Pricing = Type.Object(
  {
    ...Rates,
    batch: Type.Optional(Type.Object(Rates)),
    tiers: Type.Optional(
      Type.Array(Type.Object({ above: Type.Integer({ description: 'Tokens of the prompt.' }), ...Rates })),
    ),
  },
  { description: 'USD per token. A kind of token that is absent costs as much as `input` or `output`.' },
);

/** `/v1` adds what is known of a model; the document's own path has the plain entry (contract/completions 3). */
export const ModelEntry = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('model'),
    created: Type.Integer({ description: 'Seconds since 1970; 0 when it is not known.' }),
    owned_by: Type.String(),
    context_window: Type.Optional(Type.Integer({ description: 'Tokens of prompt and answer together.' })),
    max_output_tokens: Type.Optional(Type.Integer()),
    pricing: Type.Optional(Pricing),
    input_modalities: Type.Optional(Type.Array(Type.String())),
  },
  { $id: 'ModelEntry' },
);

export const ModelList = Type.Object({ object: Type.Literal('list'), data: Type.Array(ModelEntry) });

export type ModelEntry = Static<typeof ModelEntry>;
export type ModelList = Static<typeof ModelList>;
