import { type Static, type TSchema, Type } from 'typebox';

/**
 * Anthropic's Messages API (contract/completions 1). As in `chat.ts`, every object is open and only what we check or
 * translate is named. A block is one flat object: which fields count depends on `type`, and
 * `decode-messages-request.ts` says so.
 */
const nullable = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));

const InnerBlock = Type.Object({
  type: Type.String({ minLength: 1 }),
  text: Type.Optional(Type.String()),
  source: Type.Optional(Type.Unknown()),
  title: nullable(Type.String()),
});

const Block = Type.Object({
  ...InnerBlock.properties,
  id: Type.Optional(Type.String()),
  name: Type.Optional(Type.String()),
  input: Type.Optional(Type.Unknown()),
  tool_use_id: Type.Optional(Type.String()),
  content: Type.Optional(Type.Unknown()),
  is_error: nullable(Type.Boolean()),
  thinking: Type.Optional(Type.String()),
  signature: Type.Optional(Type.String()),
  data: Type.Optional(Type.String()),
});

const Message = Type.Object({
  role: Type.String({ minLength: 1 }),
  content: Type.Union([Type.String(), Type.Array(Block)]),
});

const Tool = Type.Object({
  type: nullable(Type.String()),
  name: Type.String({ minLength: 1 }),
  description: Type.Optional(Type.String()),
  input_schema: Type.Optional(Type.Object({})),
  strict: nullable(Type.Boolean()),
});

const PromptFields = {
  model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
  messages: Type.Array(Message, {
    minItems: 1,
    maxItems: 10_000,
    examples: [[{ role: 'user', content: 'Hello, Trestle' }]],
  }),
  system: nullable(Type.Union([Type.String(), Type.Array(InnerBlock)])),
  tools: nullable(Type.Array(Tool)),
  tool_choice: nullable(
    Type.Object({
      type: Type.String(),
      name: Type.Optional(Type.String()),
      disable_parallel_tool_use: nullable(Type.Boolean()),
    }),
  ),
  thinking: nullable(Type.Object({ type: Type.String(), budget_tokens: Type.Optional(Type.Integer({ minimum: 1 })) })),
  output_config: nullable(
    Type.Object({
      effort: nullable(Type.String()),
      format: nullable(Type.Object({ type: Type.String(), schema: Type.Optional(Type.Object({})) })),
    }),
  ),
};

export const MessagesRequest = Type.Object(
  {
    ...PromptFields,
    max_tokens: Type.Integer({ minimum: 1, examples: [1024] }),
    stream: nullable(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
    temperature: nullable(Type.Number({ minimum: 0, maximum: 2 })),
    top_p: nullable(Type.Number({ minimum: 0, maximum: 1 })),
    top_k: nullable(Type.Integer({ minimum: 0 })),
    stop_sequences: nullable(Type.Array(Type.String(), { maxItems: 4 })),
    metadata: nullable(Type.Object({ user_id: nullable(Type.String()) })),
  },
  { $id: 'MessagesRequest' },
);

export const CountTokensRequest = Type.Object(PromptFields, { $id: 'CountTokensRequest' });

/** An estimate: only the model that will answer could count exactly. */
export const TokenCount = Type.Object({ input_tokens: Type.Integer(), estimated: Type.Literal(true) });

const MessagesUsage = Type.Object({
  input_tokens: Type.Integer({ description: 'Without those that were read from a cache or written into one.' }),
  output_tokens: Type.Integer(),
  cache_creation_input_tokens: Type.Integer(),
  cache_read_input_tokens: Type.Integer(),
  estimated: Type.Optional(Type.Boolean()),
});

export const MessageObject = Type.Object(
  {
    id: Type.String(),
    type: Type.Literal('message'),
    role: Type.Literal('assistant'),
    model: Type.String(),
    content: Type.Array(Type.Object({ type: Type.String() })),
    stop_reason: Type.Union([Type.String(), Type.Null()]),
    stop_sequence: Type.Union([Type.String(), Type.Null()]),
    usage: MessagesUsage,
  },
  { $id: 'Message' },
);

/** Errors of this path, in the shape that clients of Anthropic's API read. */
export const MessagesError = Type.Object(
  {
    type: Type.Literal('error'),
    error: Type.Object({ type: Type.String(), message: Type.String() }),
    request_id: Type.String(),
  },
  { $id: 'MessagesError' },
);

export type MessagesBlock = Static<typeof Block>;
export type InputMessage = Static<typeof Message>;
export type MessagesTool = Static<typeof Tool>;
export type CountTokensRequest = Static<typeof CountTokensRequest>;
export type MessagesRequest = Static<typeof MessagesRequest>;
export type MessagesUsage = Static<typeof MessagesUsage>;
export type MessageObject = Static<typeof MessageObject>;
