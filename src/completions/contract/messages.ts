import { type Static, Type } from 'typebox';
import { optional } from './read-request.ts';

/**
 * Anthropic's Messages API. As in `chat.ts`, every object is open and only what we check or
 * translate is named. A block is one flat object: which fields count depends on `type`, and
 * `ingress/messages/messages-request.ts` shows it.
 */
const InnerBlock = Type.Object({
  type: Type.String({ minLength: 1 }),
  text: optional(Type.String()),
  source: optional(Type.Unknown()),
  title: optional(Type.String()),
});

const Block = Type.Object({
  ...InnerBlock.properties,
  id: optional(Type.String()),
  name: optional(Type.String()),
  input: optional(Type.Unknown()),
  tool_use_id: optional(Type.String()),
  content: optional(Type.Unknown()),
  is_error: optional(Type.Boolean()),
  thinking: optional(Type.String()),
  signature: optional(Type.String()),
  data: optional(Type.String()),
});

const Message = Type.Object({
  role: Type.String({ minLength: 1 }),
  content: Type.Union([Type.String(), Type.Array(Block)]),
});

const Tool = Type.Object({
  type: optional(Type.String()),
  name: optional(Type.String({ minLength: 1 })),
  description: optional(Type.String()),
  input_schema: optional(Type.Object({})),
  strict: optional(Type.Boolean()),
});

const PromptFields = {
  model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
  messages: Type.Array(Message, {
    minItems: 1,
    maxItems: 10_000,
    examples: [[{ role: 'user', content: 'Hello, Trestle' }]],
  }),
  system: optional(Type.Union([Type.String(), Type.Array(InnerBlock)])),
  tools: optional(Type.Array(Tool)),
  tool_choice: optional(
    Type.Object({
      type: Type.String(),
      name: optional(Type.String()),
      disable_parallel_tool_use: optional(Type.Boolean()),
    }),
  ),
  thinking: optional(Type.Object({ type: Type.String(), budget_tokens: optional(Type.Integer({ minimum: 1 })) })),
  output_config: optional(
    Type.Object({
      effort: optional(Type.String()),
      format: optional(Type.Object({ type: Type.String(), schema: optional(Type.Object({})) })),
    }),
  ),
};

export const MessagesRequest = Type.Object(
  {
    ...PromptFields,
    max_tokens: Type.Integer({ minimum: 1, examples: [1024] }),
    stream: optional(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
    temperature: optional(Type.Number({ minimum: 0, maximum: 2 })),
    top_p: optional(Type.Number({ minimum: 0, maximum: 1 })),
    top_k: optional(Type.Integer({ minimum: 0 })),
    stop_sequences: optional(Type.Array(Type.String(), { maxItems: 10_000 })),
    metadata: optional(Type.Object({ user_id: optional(Type.String()) })),
  },
  { $id: 'MessagesRequest' },
);

export const CountTokensRequest = Type.Object(PromptFields, { $id: 'CountTokensRequest' });

/** By the API of the model where it counts; otherwise an estimate. */
export const TokenCount = Type.Object({
  input_tokens: Type.Integer(),
  estimated: Type.Optional(Type.Literal(true)),
});

const MessagesUsage = Type.Object({
  input_tokens: Type.Integer({ description: 'Without those that were read from a cache or written into one.' }),
  output_tokens: Type.Integer(),
  cache_creation_input_tokens: Type.Integer(),
  cache_read_input_tokens: Type.Integer(),
  cache_creation: Type.Optional(
    Type.Object({ ephemeral_5m_input_tokens: Type.Integer(), ephemeral_1h_input_tokens: Type.Integer() }),
  ),
  output_tokens_details: Type.Optional(Type.Object({ thinking_tokens: Type.Integer() })),
  server_tool_use: Type.Optional(Type.Object({ web_search_requests: Type.Integer() })),
  estimated: Type.Optional(Type.Boolean()),
  cost: Type.Optional(Type.Number({ description: 'In USD, with `completions.usage_cost`.' })),
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
