import { type Static, type TSchema, Type } from 'typebox';

/**
 * OpenAI's Responses API (contract/completions 1). As in `chat.ts`, every object is open and only what we check or
 * translate is named. Items are one flat object: which fields count depends on `type`, and `decode-responses-request.ts`
 * says so.
 */
const nullable = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]));

const InputPart = Type.Object({
  type: Type.String({ minLength: 1 }),
  text: Type.Optional(Type.String()),
  refusal: Type.Optional(Type.String()),
  image_url: nullable(Type.String()),
  detail: nullable(Type.String()),
  file_id: nullable(Type.String()),
  file_data: nullable(Type.String()),
  file_url: nullable(Type.String()),
  filename: nullable(Type.String()),
  input_audio: Type.Optional(Type.Object({ data: Type.String(), format: Type.String() })),
});

const FlatTool = {
  type: Type.String({ minLength: 1 }),
  name: Type.Optional(Type.String({ minLength: 1 })),
  description: nullable(Type.String()),
  parameters: nullable(Type.Object({})),
  strict: nullable(Type.Boolean()),
  format: nullable(Type.Object({ type: Type.Optional(Type.String()), definition: Type.Optional(Type.String()) })),
};

const Tool = Type.Object({
  ...FlatTool,
  tools: nullable(Type.Array(Type.Object(FlatTool), { description: 'The tools of a namespace.' })),
});

const InputItem = Type.Object({
  type: Type.Optional(Type.String({ description: 'Without one it is a message.' })),
  role: Type.Optional(Type.String()),
  content: nullable(Type.Union([Type.String(), Type.Array(InputPart)])),
  call_id: nullable(Type.String()),
  name: nullable(Type.String()),
  namespace: nullable(Type.String()),
  arguments: Type.Optional(Type.Unknown()),
  input: Type.Optional(Type.Unknown()),
  output: Type.Optional(Type.Unknown()),
  summary: nullable(Type.Array(Type.Object({ text: Type.Optional(Type.String()) }))),
  encrypted_content: nullable(Type.String()),
  tools: nullable(Type.Array(Tool, { description: 'Of an item of type additional_tools.' })),
});

export const ResponsesRequest = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'An alias, or <api>/<model>.', examples: ['demo/echo'] }),
    input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1, maxItems: 10_000 })], {
      examples: ['Hello, Trestle'],
    }),
    instructions: nullable(Type.String()),
    stream: nullable(Type.Boolean({ description: 'Send the answer as a stream of events.' })),
    max_output_tokens: nullable(Type.Integer({ minimum: 1 })),
    temperature: nullable(Type.Number({ minimum: 0, maximum: 2 })),
    top_p: nullable(Type.Number({ minimum: 0, maximum: 1 })),
    tools: nullable(Type.Array(Tool)),
    tool_choice: nullable(
      Type.Union([Type.String(), Type.Object({ type: Type.String(), name: Type.Optional(Type.String()) })]),
    ),
    parallel_tool_calls: nullable(Type.Boolean()),
    text: nullable(
      Type.Object({
        format: nullable(
          Type.Object({
            type: Type.String(),
            name: Type.Optional(Type.String()),
            schema: Type.Optional(Type.Object({})),
            strict: nullable(Type.Boolean()),
          }),
        ),
        verbosity: nullable(Type.String()),
      }),
    ),
    reasoning: nullable(Type.Object({ effort: nullable(Type.String()), summary: nullable(Type.String()) })),
    metadata: nullable(Type.Object({})),
    store: nullable(Type.Boolean({ description: 'Nothing is stored: true is dropped and named.' })),
    previous_response_id: nullable(Type.String({ description: 'Refused: send the whole conversation as input.' })),
    include: nullable(Type.Array(Type.String())),
    user: nullable(Type.String()),
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
