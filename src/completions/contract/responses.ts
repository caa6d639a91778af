import { type Static, Type } from 'typebox';
import { optional } from './read-request.ts';

/**
 * OpenAI's Responses API. As in `chat.ts`, every object is open and only what we check or
 * translate is named. Items are one flat object: which fields count depends on `type`, and `ingress/responses/responses-request.ts`
 * shows it.
 */
const InputPart = Type.Object({
  type: Type.String({ minLength: 1 }),
  text: optional(Type.String()),
  refusal: optional(Type.String()),
  image_url: optional(Type.String()),
  detail: optional(Type.String()),
  file_id: optional(Type.String()),
  file_data: optional(Type.String()),
  file_url: optional(Type.String()),
  filename: optional(Type.String()),
  input_audio: optional(Type.Object({ data: Type.String(), format: Type.String() })),
});

const FlatTool = {
  type: Type.String({ minLength: 1 }),
  name: optional(Type.String({ minLength: 1 })),
  description: optional(Type.String()),
  parameters: optional(Type.Object({})),
  strict: optional(Type.Boolean()),
  format: optional(Type.Object({ type: optional(Type.String()), definition: optional(Type.String()) })),
};

const Tool = Type.Object({
  ...FlatTool,
  tools: optional(Type.Array(Type.Object(FlatTool), { description: 'The tools of a namespace.' })),
});

const InputItem = Type.Object({
  type: optional(Type.String({ description: 'Without one it is a message.' })),
  role: optional(Type.String()),
  content: optional(Type.Union([Type.String(), Type.Array(InputPart)])),
  call_id: optional(Type.String()),
  name: optional(Type.String()),
  namespace: optional(Type.String()),
  arguments: optional(Type.Unknown()),
  input: optional(Type.Unknown()),
  output: optional(Type.Unknown()),
  summary: optional(Type.Array(Type.Object({ text: optional(Type.String()) }))),
  encrypted_content: optional(Type.String()),
  tools: optional(Type.Array(Tool, { description: 'Of an item of type additional_tools.' })),
});

export const ResponsesRequest = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
    input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1, maxItems: 10_000 })], {
      examples: ['Hello, Trestle'],
    }),
    instructions: optional(Type.String()),
    stream: optional(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
    max_output_tokens: optional(Type.Integer({ minimum: 1 })),
    temperature: optional(Type.Number({ minimum: 0, maximum: 2 })),
    top_p: optional(Type.Number({ minimum: 0, maximum: 1 })),
    tools: optional(Type.Array(Tool)),
    tool_choice: optional(
      Type.Union([Type.String(), Type.Object({ type: Type.String(), name: optional(Type.String()) })]),
    ),
    parallel_tool_calls: optional(Type.Boolean()),
    text: optional(
      Type.Object({
        format: optional(
          Type.Object({
            type: Type.String(),
            name: optional(Type.String()),
            schema: optional(Type.Object({})),
            strict: optional(Type.Boolean()),
          }),
        ),
        verbosity: optional(Type.String()),
      }),
    ),
    reasoning: optional(Type.Object({ effort: optional(Type.String()), summary: optional(Type.String()) })),
    metadata: optional(Type.Object({})),
    store: optional(
      Type.Boolean({ description: 'Responses are not stored: `true` is ignored, and a header names it.' }),
    ),
    previous_response_id: optional(Type.String({ description: 'Refused: send the whole conversation as input.' })),
    include: optional(Type.Array(Type.String())),
    top_logprobs: optional(Type.Integer({ minimum: 0, maximum: 20 })),
    user: optional(Type.String()),
  },
  { $id: 'ResponsesRequest' },
);

const ResponsesUsage = Type.Object({
  input_tokens: Type.Integer(),
  input_tokens_details: Type.Object({ cached_tokens: Type.Integer() }),
  output_tokens: Type.Integer(),
  output_tokens_details: Type.Object({ reasoning_tokens: Type.Integer() }),
  total_tokens: Type.Integer(),
  estimated: Type.Optional(Type.Boolean()),
  cost: Type.Optional(Type.Number({ description: 'In USD, with `completions.usage_cost`.' })),
});

export const ResponseObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('response'),
    created_at: Type.Integer(),
    status: Type.String({ description: 'completed, incomplete, failed or in_progress.' }),
    model: Type.String(),
    output: Type.Array(Type.Object({ id: Type.String(), type: Type.String() })),
    error: Type.Union([Type.Object({ code: Type.String(), message: Type.String() }), Type.Null()]),
    incomplete_details: Type.Union([Type.Object({ reason: Type.String() }), Type.Null()]),
    usage: Type.Union([ResponsesUsage, Type.Null()]),
  },
  { $id: 'Response' },
);

export type InputPart = Static<typeof InputPart>;
export type InputItem = Static<typeof InputItem>;
export type ResponsesTool = Static<typeof Tool>;
export type ResponsesRequest = Static<typeof ResponsesRequest>;
export type ResponsesUsage = Static<typeof ResponsesUsage>;
export type ResponseObject = Static<typeof ResponseObject>;
