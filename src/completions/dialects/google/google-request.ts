import type { ChatRequest } from '../../contract/chat.ts';
import { cacheMarkers, nameLostMembers, readConversation } from '../conversation.ts';
import { createSteps, type DialectContext, pathSegment, type Steps, type UpstreamRequest } from '../dialect.ts';
import { asObject, type JsonObject } from '../json-value.ts';
import {
  answerSchema,
  maxTokens,
  readTools,
  sortFields,
  stopSequences,
  type ToolUse,
  takenFields,
} from '../request-fields.ts';
import { nameLostKeywords } from '../structured-answer.ts';
import { encodeContents, geminiVersion, takesJsonSchema, thinkingConfig } from './google-contents.ts';
import { googleJsonSchema, googleSchema, needsJsonSchema } from './google-schema.ts';

const TAKEN = takenFields(
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'n', 'stop', 'seed', 'presence_penalty'],
  ...['frequency_penalty', 'tools', 'tool_choice', 'response_format', 'reasoning_effort'],
);

export type GoogleHost = 'google' | 'google-vertex';

export function encodeGoogleRequest(host: GoogleHost, request: ChatRequest, context: DialectContext): UpstreamRequest {
  const { dropped, extra } = sortFields(request, TAKEN);
  const names = new Set(dropped);
  nameLostMembers(request.messages, names);
  if (cacheMarkers(request).length > 0) names.add('cache_control');
  const steps = createSteps();
  const { system, turns } = readConversation(request.messages, steps);
  const use = readTools(request, steps);
  const schemas: SchemaOptions = { model: context.model, dropped: names, steps };
  for (const name of use.dropped) names.add(name);
  const { generationConfig: ownConfig, ...ownFields } = extra;
  const body: JsonObject = {
    ...(system.length > 0 && { systemInstruction: { parts: system.map(({ text }) => ({ text })) } }),
    contents: encodeContents(turns, { model: context.model, withCallIds: host === 'google', dropped: names, steps }),
    ...encodeTools(use, schemas),
    generationConfig: {
      ...encodeConfig(request),
      ...encodeFormat(request, use.functions.length > 0, schemas),
      ...encodeThinking(request, context.model, names),
      ...asObject(ownConfig),
    },
    ...ownFields,
  };
  const method = context.stream ? ':streamGenerateContent?alt=sse' : ':generateContent';
  return { path: `${modelPath(host, context.model)}${method}`, headers: {}, body, dropped: [...names] };
}

/** Names may come with their whole path: `tunedModels/x`, `publishers/meta/models/y`, `endpoints/1`, `google/z`. */
export function modelPath(host: GoogleHost, model: string): string {
  const segments = model.split('/');
  const path = segments.map(pathSegment).join('/');
  if (host === 'google') return segments.length > 1 ? `/${path}` : `/models/${path}`;
  if (segments[0] === 'publishers' || segments[0] === 'endpoints') return `/${path}`;
  if (segments.length === 2) return `/publishers/${path.replace('/', '/models/')}`;
  return `/publishers/google/models/${path}`;
}

function encodeConfig(request: ChatRequest): JsonObject {
  const limit = maxTokens(request);
  const stop = stopSequences(request);
  const { temperature, top_p: topP, n, seed, presence_penalty: presence, frequency_penalty: frequency } = request;
  return {
    ...(typeof temperature === 'number' && { temperature }),
    ...(typeof topP === 'number' && { topP }),
    ...(limit !== undefined && { maxOutputTokens: limit }),
    ...(stop !== undefined && { stopSequences: stop }),
    ...(typeof n === 'number' && n > 1 && { candidateCount: n }),
    ...(typeof seed === 'number' && { seed }),
    ...(typeof presence === 'number' && presence !== 0 && { presencePenalty: presence }),
    ...(typeof frequency === 'number' && frequency !== 0 && { frequencyPenalty: frequency }),
  };
}

/** Before Gemini 3 a model either calls functions or answers in JSON. */
function encodeFormat(request: ChatRequest, hasTools: boolean, options: SchemaOptions): JsonObject {
  const { model, dropped } = options;
  const { response_format: format } = request;
  if (format?.type !== 'json_object' && format?.type !== 'json_schema') return {};
  if (hasTools && geminiVersion(model) < 300) {
    dropped.add('response_format');
    return {};
  }
  const schema = answerSchema(request);
  if (schema === undefined) return { responseMimeType: 'application/json' };
  const encoded = encodeSchema(schema.schema, 'response_format.json_schema.schema', options);
  return {
    responseMimeType: 'application/json',
    [encoded.isJsonSchema ? 'responseJsonSchema' : 'responseSchema']: encoded.schema,
  };
}

interface SchemaOptions {
  readonly model: string;
  /** Names of what cannot be sent are added to it. */
  readonly dropped: Set<string>;
  readonly steps: Steps;
}

/** A schema in Gemini's own kind, or as JSON Schema where only that holds all of it and the model takes it. */
function encodeSchema(
  schema: unknown,
  field: string,
  { model, dropped, steps }: SchemaOptions,
): { readonly isJsonSchema: boolean; readonly schema: JsonObject } {
  if (takesJsonSchema(model) && needsJsonSchema(schema, steps)) {
    return { isJsonSchema: true, schema: asObject(googleJsonSchema(schema, steps)) ?? {} };
  }
  const lost = new Set<string>();
  const converted = googleSchema(schema, lost, steps);
  nameLostKeywords(field, lost, dropped);
  return { isJsonSchema: false, schema: converted };
}

function encodeThinking({ reasoning_effort: effort }: ChatRequest, model: string, dropped: Set<string>): JsonObject {
  if (effort === null || effort === undefined) return {};
  const config = thinkingConfig(model, effort);
  if (config === undefined) dropped.add('reasoning_effort');
  return config === undefined ? {} : { thinkingConfig: config };
}

function encodeTools({ functions, choice }: ToolUse, options: SchemaOptions): JsonObject {
  if (functions.length === 0) return {};
  const declarations = functions.map(({ name, description, parameters }) => {
    const { isJsonSchema, schema } = encodeSchema(parameters ?? {}, 'tools.function.parameters', options);
    return {
      name,
      ...(description !== undefined && { description }),
      ...(isJsonSchema && { parametersJsonSchema: schema }),
      // An object without properties is refused; without parameters it means the same.
      ...(!isJsonSchema && schema.properties !== undefined && { parameters: schema }),
    };
  });
  const config = encodeChoice(choice);
  return {
    tools: [{ functionDeclarations: declarations }],
    ...(config !== undefined && { toolConfig: { functionCallingConfig: config } }),
  };
}

function encodeChoice(choice: ToolUse['choice']): JsonObject | undefined {
  if (choice === 'auto') return undefined;
  if (choice === 'none') return { mode: 'NONE' };
  if (choice === 'required') return { mode: 'ANY' };
  return { mode: 'ANY', allowedFunctionNames: [choice.name] };
}
