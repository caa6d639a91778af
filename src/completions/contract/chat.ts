import { type Static, Type } from 'typebox';
import { optional } from './read-request.ts';

/**
 * Fields that Trestle checks or translates. Every object is open: a field
 * that is not named here is passed on unchanged.
 */
const ContentPart = Type.Object({
  type: Type.String({ minLength: 1 }),
  text: optional(Type.String()),
  image_url: optional(
    Type.Union([Type.Object({ url: Type.String(), detail: optional(Type.String()) }), Type.String()]),
  ),
  input_audio: optional(Type.Object({ data: Type.String(), format: Type.String() })),
  file: optional(
    Type.Object({
      file_data: optional(Type.String()),
      file_id: optional(Type.String()),
      filename: optional(Type.String()),
    }),
  ),
  refusal: optional(Type.String()),
});

const FunctionCall = Type.Object({ name: Type.String(), arguments: Type.String() });

const ToolCall = Type.Object({ id: Type.String(), type: Type.Literal('function'), function: FunctionCall });

/** A call of a tool that takes free text instead of JSON. */
const CustomToolCall = Type.Object({
  id: Type.String(),
  type: Type.Literal('custom'),
  custom: Type.Object({ name: Type.String(), input: Type.String() }),
});

const GivenToolCall = Type.Union([ToolCall, CustomToolCall]);

const ChatMessage = Type.Object({
  role: Type.String({ minLength: 1 }),
  /** Keeps its null, which some servers want beside calls. */
  content: Type.Optional(Type.Union([Type.String(), Type.Null(), Type.Array(ContentPart)])),
  name: optional(Type.String()),
  tool_calls: optional(Type.Array(GivenToolCall)),
  tool_call_id: optional(Type.String()),
  function_call: optional(FunctionCall),
  reasoning_content: optional(Type.String()),
  /** Proof that reasoning came from the model, sent back to upstreams that require it. */
  reasoning_signature: optional(Type.String()),
});

const FunctionDefinition = Type.Object({
  name: Type.String({ minLength: 1 }),
  description: optional(Type.String()),
  parameters: optional(Type.Object({})),
  strict: optional(Type.Boolean()),
});

/** Without `/v1` a function definition has `function_call` itself. */
const LegacyFunction = Type.Object({
  ...FunctionDefinition.properties,
  function_call: optional(Type.String()),
});

const Tool = Type.Object({ type: Type.String({ minLength: 1 }), function: optional(FunctionDefinition) });

const ToolChoice = Type.Union([
  Type.String(),
  Type.Object({ type: Type.String(), function: optional(Type.Object({ name: Type.String() })) }),
]);

const ResponseFormat = Type.Object({
  type: Type.String(),
  json_schema: optional(
    Type.Object({
      name: optional(Type.String()),
      schema: optional(Type.Object({})),
      strict: optional(Type.Boolean()),
    }),
  ),
});

const Stop = Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 4 })]);

/** The fields that chat completions and plain completions share. */
export const SamplingFields = {
  temperature: optional(Type.Number({ minimum: 0, maximum: 2 })),
  top_p: optional(Type.Number({ minimum: 0, maximum: 1 })),
  n: optional(Type.Integer({ minimum: 1, maximum: 128 })),
  stream: optional(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
  stream_options: optional(Type.Object({ include_usage: optional(Type.Boolean()) })),
  stop: optional(Stop),
  max_tokens: optional(Type.Integer({ minimum: 1 })),
  presence_penalty: optional(Type.Number({ minimum: -2, maximum: 2 })),
  frequency_penalty: optional(Type.Number({ minimum: -2, maximum: 2 })),
  logit_bias: optional(Type.Record(Type.String(), Type.Number({ minimum: -100, maximum: 100 }))),
  seed: optional(Type.Integer()),
  user: optional(Type.String()),
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
    max_completion_tokens: optional(Type.Integer({ minimum: 1 })),
    functions: optional(Type.Array(LegacyFunction)),
    function_call: optional(Type.Union([Type.String(), Type.Object({ name: Type.String() })])),
    tools: optional(Type.Array(Tool)),
    tool_choice: optional(ToolChoice),
    parallel_tool_calls: optional(Type.Boolean()),
    response_format: optional(ResponseFormat),
    reasoning_effort: optional(Type.String()),
    logprobs: optional(Type.Boolean()),
    top_logprobs: optional(Type.Integer({ minimum: 0, maximum: 20 })),
    metadata: optional(Type.Object({})),
  },
  { $id: 'ChatRequest' },
);

/** `estimated`: counted by Trestle, because the upstream sent no figures. */
export const Usage = Type.Object({
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  total_tokens: Type.Integer(),
  prompt_tokens_details: Type.Optional(
    Type.Object({
      cached_tokens: Type.Optional(Type.Integer({ description: 'Read from a cache.' })),
      cache_creation_tokens: Type.Optional(Type.Integer({ description: 'Written into a cache.' })),
      cache_creation_1h_tokens: Type.Optional(
        Type.Integer({ description: 'Of these, written into a cache that lasts an hour.' }),
      ),
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
  server_tool_use: Type.Optional(
    Type.Object({
      web_search_requests: Type.Integer({ description: 'Web searches that the API made.' }),
      other_requests: Type.Optional(
        Type.Integer({
          description: 'Uses of other tools that the API charges for (code, files, images): the cost is unknown.',
        }),
      ),
    }),
  ),
  estimated: Type.Optional(Type.Boolean()),
  cost: Type.Optional(
    Type.Number({ description: 'What the call cost, in USD. In translated answers, with `completions.usage_cost`.' }),
  ),
});

const AnswerMessage = Type.Object({
  role: Type.String(),
  content: Type.Union([Type.String(), Type.Null()]),
  reasoning_content: Type.Optional(Type.String()),
  reasoning_signature: Type.Optional(Type.String()),
  refusal: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  function_call: Type.Optional(FunctionCall),
  annotations: Type.Optional(
    Type.Array(Type.Object({ type: Type.String() }), {
      description: 'Sources that the answer names: `url_citation`, `file_citation`.',
    }),
  ),
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
      stop_reason: Type.Optional(
        Type.Unknown({ description: 'The stop sequence that ended the answer, if the model API names it.' }),
      ),
      logprobs: Type.Optional(Type.Unknown()),
    }),
  ),
  usage: Type.Optional(Usage),
});

export type ContentPart = Static<typeof ContentPart>;
export type ChatMessage = Static<typeof ChatMessage>;
export type ToolCall = Static<typeof ToolCall>;
/** A call in a request. */
export type GivenToolCall = Static<typeof GivenToolCall>;
export type ChatTool = Static<typeof Tool>;
export type ChatRequest = Static<typeof ChatRequest>;
export type ChatCompletion = Static<typeof ChatCompletion>;
export type Usage = Static<typeof Usage>;

/** A piece of a streamed message. */
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
  /** Sources that the answer names (`dialects/citations.ts`). */
  annotations?: readonly { readonly type: string }[];
  /** Images that the model drew: `image_url` with the data. */
  images?: readonly { readonly image_url?: { readonly url?: string } }[];
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
    /** The stop sequence that ended the answer. Servers that have the field write other things into it too. */
    readonly stop_reason?: unknown;
    readonly logprobs?: unknown;
  }[];
  readonly usage?: Usage | null;
}
