import { type Static, Type } from 'typebox';

/**
 * Fields that we check or translate (spec/completions 4, contract/completions 2). Every object is open: what is not
 * named here is the model's business and travels on untouched.
 */
const ContentPart = Type.Object({
  type: Type.String({ minLength: 1 }),
  text: Type.Optional(Type.String()),
  image_url: Type.Optional(
    Type.Union([Type.Object({ url: Type.String(), detail: Type.Optional(Type.String()) }), Type.String()]),
  ),
  input_audio: Type.Optional(Type.Object({ data: Type.String(), format: Type.String() })),
  file: Type.Optional(
    Type.Object({
      file_data: Type.Optional(Type.String()),
      file_id: Type.Optional(Type.String()),
      filename: Type.Optional(Type.String()),
    }),
  ),
  refusal: Type.Optional(Type.String()),
});

const FunctionCall = Type.Object({ name: Type.String(), arguments: Type.String() });

const ToolCall = Type.Object({ id: Type.String(), type: Type.Literal('function'), function: FunctionCall });

const ChatMessage = Type.Object({
  role: Type.String({ minLength: 1 }),
  content: Type.Optional(Type.Union([Type.String(), Type.Null(), Type.Array(ContentPart)])),
  name: Type.Optional(Type.String()),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  tool_call_id: Type.Optional(Type.String()),
  function_call: Type.Optional(Type.Union([FunctionCall, Type.Null()])),
  reasoning_content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  /** Proof that reasoning came from the model, given back to upstreams that ask for it. */
  reasoning_signature: Type.Optional(Type.String()),
});

const FunctionDefinition = Type.Object({
  name: Type.String({ minLength: 1 }),
  description: Type.Optional(Type.String()),
  parameters: Type.Optional(Type.Object({})),
  strict: Type.Optional(Type.Union([Type.Boolean(), Type.Null()])),
});

/** In the document a function definition carries `function_call` itself (spec/completions 2.2). */
const LegacyFunction = Type.Object({
  ...FunctionDefinition.properties,
  function_call: Type.Optional(Type.String()),
});

const Tool = Type.Object({ type: Type.String({ minLength: 1 }), function: Type.Optional(FunctionDefinition) });

const ToolChoice = Type.Union([
  Type.String(),
  Type.Object({ type: Type.String(), function: Type.Optional(Type.Object({ name: Type.String() })) }),
]);

const ResponseFormat = Type.Object({
  type: Type.String(),
  json_schema: Type.Optional(
    Type.Object({
      name: Type.Optional(Type.String()),
      schema: Type.Optional(Type.Object({})),
      strict: Type.Optional(Type.Union([Type.Boolean(), Type.Null()])),
    }),
  ),
});

const nullable = <T extends Parameters<typeof Type.Optional>[0]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

const Stop = Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 4 })]);

/** What chat completions and plain completions share. */
export const SamplingFields = {
  temperature: nullable(Type.Number({ minimum: 0, maximum: 2 })),
  top_p: nullable(Type.Number({ minimum: 0, maximum: 1 })),
  n: nullable(Type.Integer({ minimum: 1, maximum: 128 })),
  stream: nullable(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
  stream_options: nullable(Type.Object({ include_usage: Type.Optional(Type.Boolean()) })),
  stop: nullable(Stop),
  max_tokens: nullable(Type.Integer({ minimum: 1 })),
  presence_penalty: nullable(Type.Number({ minimum: -2, maximum: 2 })),
  frequency_penalty: nullable(Type.Number({ minimum: -2, maximum: 2 })),
  logit_bias: nullable(Type.Record(Type.String(), Type.Number({ minimum: -100, maximum: 100 }))),
  seed: nullable(Type.Integer()),
  user: nullable(Type.String()),
};

export const ChatRequest = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
    messages: Type.Array(ChatMessage, {
      minItems: 1,
      maxItems: 10_000,
      examples: [[{ role: 'user', content: 'Hello, Trestle' }]],
    }),
    ...SamplingFields,
    max_completion_tokens: nullable(Type.Integer({ minimum: 1 })),
    functions: nullable(Type.Array(LegacyFunction)),
    function_call: nullable(Type.Union([Type.String(), Type.Object({ name: Type.String() })])),
    tools: nullable(Type.Array(Tool)),
    tool_choice: nullable(ToolChoice),
    parallel_tool_calls: nullable(Type.Boolean()),
    response_format: nullable(ResponseFormat),
    reasoning_effort: nullable(Type.String()),
    logprobs: nullable(Type.Boolean()),
    top_logprobs: nullable(Type.Integer({ minimum: 0, maximum: 20 })),
    metadata: nullable(Type.Object({})),
  },
  { $id: 'ChatRequest' },
);

/** `estimated`: counted by us, because the upstream gave no figures (contract/completions 4). */
export const Usage = Type.Object({
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  total_tokens: Type.Integer(),
  prompt_tokens_details: Type.Optional(
    Type.Object({
      cached_tokens: Type.Optional(Type.Integer({ description: 'Read from a cache.' })),
      cache_creation_tokens: Type.Optional(Type.Integer({ description: 'Written into a cache.' })),
      cache_creation_1h_tokens: Type.Optional(Type.Integer({ description: 'Of those, into one that lasts an hour.' })),
      audio_tokens: Type.Optional(Type.Integer()),
      image_tokens: Type.Optional(Type.Integer()),
    }),
  ),
  completion_tokens_details: Type.Optional(
    Type.Object({
      reasoning_tokens: Type.Optional(Type.Integer()),
      audio_tokens: Type.Optional(Type.Integer()),
    }),
  ),
  estimated: Type.Optional(Type.Boolean()),
});

const AnswerMessage = Type.Object({
  role: Type.String(),
  content: Type.Union([Type.String(), Type.Null()]),
  reasoning_content: Type.Optional(Type.String()),
  reasoning_signature: Type.Optional(Type.String()),
  refusal: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  function_call: Type.Optional(FunctionCall),
});

export const ChatCompletion = Type.Object({
  id: Type.String(),
  object: Type.Literal('chat.completion'),
  created: Type.Union([Type.Integer(), Type.String()], { description: 'Seconds since 1970; text without /v1.' }),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer(),
      message: AnswerMessage,
      finish_reason: Type.Union([Type.String(), Type.Null()]),
    }),
  ),
  usage: Type.Optional(Usage),
});

export type ContentPart = Static<typeof ContentPart>;
export type ChatMessage = Static<typeof ChatMessage>;
export type ToolCall = Static<typeof ToolCall>;
export type ChatTool = Static<typeof Tool>;
export type ChatRequest = Static<typeof ChatRequest>;
export type ChatCompletion = Static<typeof ChatCompletion>;
export type Usage = Static<typeof Usage>;

/** The pieces in which a message grows while it is streamed. */
export interface ChunkDelta {
  role?: string;
  content?: string | null;
  reasoning_content?: string;
  reasoning_signature?: string;
  refusal?: string;
  tool_calls?: {
    index: number;
    id?: string;
    type?: 'function';
    function?: { name?: string; arguments?: string };
  }[];
  function_call?: { name?: string; arguments?: string };
}

export interface ChatChunk {
  readonly id: string;
  readonly object: 'chat.completion.chunk';
  readonly created: number;
  readonly model: string;
  readonly choices: readonly {
    readonly index: number;
    readonly delta: ChunkDelta;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: Usage | null;
}
