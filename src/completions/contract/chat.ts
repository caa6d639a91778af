import { type Static, Type } from 'typebox';

/** Fields that we read ourselves; every other field is the model's business and travels on. */
export const ChatRequest = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
    messages: Type.Array(
      Type.Object({
        role: Type.String({ minLength: 1 }),
        content: Type.Optional(
          Type.Union([
            Type.String(),
            Type.Null(),
            Type.Array(Type.Object({ type: Type.String(), text: Type.Optional(Type.String()) })),
          ]),
        ),
      }),
      { minItems: 1, examples: [[{ role: 'user', content: 'Hello, Trestle' }]] },
    ),
    stream: Type.Optional(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
    stream_options: Type.Optional(Type.Object({ include_usage: Type.Optional(Type.Boolean()) })),
  },
  { $id: 'ChatRequest' },
);

export const Usage = Type.Object({
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  total_tokens: Type.Integer(),
});

export const ChatCompletion = Type.Object({
  id: Type.String(),
  object: Type.Literal('chat.completion'),
  created: Type.Union([Type.Integer(), Type.String()], { description: 'Seconds since 1970; text without /v1.' }),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer(),
      message: Type.Object({ role: Type.String(), content: Type.String() }),
      finish_reason: Type.String(),
    }),
  ),
  usage: Usage,
});

export type ChatRequest = Static<typeof ChatRequest>;
export type ChatCompletion = Static<typeof ChatCompletion>;
export type Usage = Static<typeof Usage>;
