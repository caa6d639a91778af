import { type Static, Type } from 'typebox';
import { SamplingFields, Usage } from './chat.ts';
import { optional } from './read-request.ts';

/** `POST /completions` (contract/completions 1). Open as all requests are: what is not named here travels on. */
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
