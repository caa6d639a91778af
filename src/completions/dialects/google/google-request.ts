import type { ChatRequest, ToolCall } from '../../contract/chat.ts';
import { nameLostKeywords } from '../answer.ts';
import {
  type ContentItem,
  callArguments,
  droppedPiece,
  nothingStored,
  packProof,
  readConversation,
  type Turn,
  type TurnItem,
  unpackProofs,
} from '../conversation.ts';
import {
  type DialectContext,
  nearestEffort,
  pathSegment,
  type Steps,
  type TakenFacts,
  type ThinkingFacts,
  takenBy,
  thinkingOf,
  type UpstreamRequest,
} from '../dialect.ts';
import { asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import {
  answerSchema,
  dropCacheMarkers,
  maxTokens,
  readTools,
  STRICT_FIELD,
  startTranslation,
  stopSequences,
  type ToolUse,
  takenFields,
  thinkingBudget,
  topK,
} from '../request-fields.ts';
import { googleJsonSchema, googleSchema, needsJsonSchema } from './google-schema.ts';

const TAKEN = takenFields(
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'n', 'stop', 'seed', 'presence_penalty'],
  ...['frequency_penalty', 'tools', 'tool_choice', 'response_format', 'reasoning_effort'],
);

export type GoogleHost = 'google' | 'google-vertex';

export function encodeGoogleRequest(host: GoogleHost, request: ChatRequest, context: DialectContext): UpstreamRequest {
  const { names, extra, steps } = startTranslation(request, TAKEN);
  dropCacheMarkers(request, names);
  const { system, turns } = readConversation(request.messages, steps);
  const use = readTools(request, steps);
  const takes = takenBy(context);
  const schemas: SchemaOptions = { takes, dropped: names, steps };
  for (const name of use.dropped) names.add(name);
  const { generationConfig: ownConfig, top_k: _, contents, ...ownFields } = extra;
  if (contents !== undefined) names.add('contents');
  refuseCachedPrompt(ownFields);
  const body: JsonObject = {
    ...(system.length > 0 && { systemInstruction: { parts: system.map(({ text }) => ({ text })) } }),
    contents: encodeContents(turns, { takes, withCallIds: host === 'google', dropped: names, steps }),
    ...encodeTools(use, schemas),
    generationConfig: {
      ...encodeConfig(request),
      ...encodeFormat(request, use.functions.length > 0, schemas),
      ...encodeThinking(request, context, names),
      ...asObject(ownConfig),
    },
    ...ownFields,
  };
  return { path: generatePath(context.model, context.stream, host), headers: {}, body, dropped: [...names] };
}

/** Google takes both spellings. The prompt lies in the operator's account, which all callers share. */
function refuseCachedPrompt(fields: JsonObject): void {
  for (const name of ['cachedContent', 'cached_content']) {
    const id = asText(fields[name]);
    if (id !== undefined) throw nothingStored({ id, path: `/${name}` });
  }
}

const UPLOADED = /^(?:files\/|https?:\/\/[^/]{1,255}\.googleapis\.com\.?(?::\d{0,5})?\/(?:[^?#]{0,255}\/)?files\/)/i;

/** Returns whether a file was uploaded to Google's API, by its name or its address there. Any other address is a file of the web. */
export function isUploaded(uri: string): boolean {
  return UPLOADED.test(uri.trim());
}

export function generatePath(model: string, stream: boolean, host: GoogleHost = 'google'): string {
  return `${modelPath(host, model)}${stream ? ':streamGenerateContent?alt=sse' : ':generateContent'}`;
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
  const most = topK(request);
  const { temperature, top_p: topP, n, seed, presence_penalty: presence, frequency_penalty: frequency } = request;
  return {
    ...(typeof temperature === 'number' && { temperature }),
    ...(typeof topP === 'number' && { topP }),
    ...(limit !== undefined && { maxOutputTokens: limit }),
    ...(stop !== undefined && { stopSequences: stop }),
    ...(most !== undefined && { topK: most }),
    ...(typeof n === 'number' && n > 1 && { candidateCount: n }),
    ...(typeof seed === 'number' && { seed }),
    ...(typeof presence === 'number' && presence !== 0 && { presencePenalty: presence }),
    ...(typeof frequency === 'number' && frequency !== 0 && { frequencyPenalty: frequency }),
  };
}

/** Before Gemini 3 a model either calls functions or answers in JSON. */
function encodeFormat(request: ChatRequest, hasTools: boolean, options: SchemaOptions): JsonObject {
  const { takes, dropped } = options;
  const { response_format: format } = request;
  if (format?.type !== 'json_object' && format?.type !== 'json_schema') return {};
  if (hasTools && takes.jsonWithTools !== true) {
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
  readonly takes: TakenFacts;
  /** Names of what cannot be sent are added to it. */
  readonly dropped: Set<string>;
  readonly steps: Steps;
}

/** A schema in Gemini's own kind, or as JSON Schema where only that holds all of it and the model takes it. */
function encodeSchema(
  schema: unknown,
  field: string,
  { takes, dropped, steps }: SchemaOptions,
): { readonly isJsonSchema: boolean; readonly schema: JsonObject } {
  if (takes.jsonSchema === true && needsJsonSchema(schema, steps)) {
    return { isJsonSchema: true, schema: asObject(googleJsonSchema(schema, steps)) ?? {} };
  }
  const lost = new Set<string>();
  const converted = googleSchema(schema, lost, steps);
  nameLostKeywords(field, lost, dropped);
  return { isJsonSchema: false, schema: converted };
}

function encodeThinking(request: ChatRequest, context: DialectContext, dropped: Set<string>): JsonObject {
  const { reasoning_effort: effort } = request;
  const budget = thinkingBudget(request);
  const thinking = thinkingOf(context);
  if (effort === null || effort === undefined) {
    return thinking?.style === 'budget' && budget !== undefined ? { thinkingConfig: { thinkingBudget: budget } } : {};
  }
  const config = thinking === undefined ? undefined : thinkingConfig(thinking, effort, budget);
  if (config === undefined) dropped.add('reasoning_effort');
  return config === undefined ? {} : { thinkingConfig: config };
}

function encodeTools({ functions, choice }: ToolUse, options: SchemaOptions): JsonObject {
  if (functions.length === 0) return {};
  const declarations = functions.map(({ name, description, parameters, strict }) => {
    if (strict === true) options.dropped.add(STRICT_FIELD);
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

/** What Google tells callers to send for a call whose signature is lost, or that another model made. */
export const LOST_SIGNATURE = 'skip_thought_signature_validator';

interface ContentsOptions {
  readonly takes: TakenFacts;
  /** Vertex refuses ids of calls, and pairs calls and results by their order. */
  readonly withCallIds: boolean;
  /** Names of what cannot be sent are added to it. */
  readonly dropped: Set<string>;
  readonly steps: Steps;
}

function encodeContents(turns: readonly Turn[], options: ContentsOptions): JsonObject[] {
  return turns.map(({ role, items }) =>
    role === 'user'
      ? { role, parts: items.flatMap((item) => encodeItem(item, options)) }
      : { role: 'model', parts: encodeModelTurn(items, options) },
  );
}

/** Signatures of calls, by their number within the message, and that of the text. */
export function packCallSignature(call: number, signature: string): string {
  return packProof('google', `c${call}`, signature);
}

export function packTextSignature(signature: string): string {
  return packProof('google', 'p', signature);
}

/** A call carries its signature as in Google's own OpenAI API too, since some clients keep that and nothing else. */
export function signedCall(signature: string): { extra_content: { google: { thought_signature: string } } } {
  return { extra_content: { google: { thought_signature: signature } } };
}

function encodeModelTurn(items: readonly TurnItem[], options: ContentsOptions): JsonObject[] {
  const parts: JsonObject[] = [];
  let proofs = new Map<string, string>();
  let calls = 0;
  for (const item of items) {
    if (item.kind === 'reasoning') {
      proofs = new Map(unpackProofs('google', item.signature, options.steps).map(({ mark, proof }) => [mark, proof]));
      calls = 0;
    } else if (item.kind === 'call') {
      const signature = ownSignature(item.call) ?? proofs.get(`c${calls}`) ?? (calls === 0 ? lost(options) : undefined);
      calls += 1;
      parts.push({
        ...encodeCall(item.call, options),
        ...(signature !== undefined && { thoughtSignature: signature }),
      });
    } else {
      const encoded = encodeItem(item, options);
      const signature = proofs.get('p');
      const [first] = encoded;
      if (item.kind === 'text' && first !== undefined && signature !== undefined) first.thoughtSignature = signature;
      parts.push(...encoded);
    }
  }
  return parts;
}

/** From Gemini 3 on a turn's first call must have a signature. */
function lost({ takes }: ContentsOptions): string | undefined {
  return takes.needsProofs === true ? LOST_SIGNATURE : undefined;
}

function ownSignature(call: ToolCall): string | undefined {
  const { extra_content: extra } = call as { extra_content?: unknown };
  return asWords(asObject(asObject(extra)?.google)?.thought_signature);
}

function encodeCall(call: ToolCall, { withCallIds }: ContentsOptions): JsonObject {
  const id = withCallIds && call.id !== '' && { id: call.id };
  return { functionCall: { ...id, name: call.function.name, args: callArguments(call) } };
}

function encodeItem(item: TurnItem, options: ContentsOptions): JsonObject[] {
  if (item.kind === 'reasoning') return [];
  if (item.kind === 'call') return [encodeCall(item.call, options)];
  if (item.kind !== 'result') return encodePiece(item, options);
  const output = item.content.map((piece) => (piece.kind === 'text' ? asText(piece.text) : '')).join('');
  const media = item.content.filter((piece) => piece.kind !== 'text');
  const id = options.withCallIds && item.callId !== '' && { id: item.callId };
  return [
    { functionResponse: { ...id, name: item.name, response: item.failed ? { error: output } : { output } } },
    ...media.flatMap((piece) => encodePiece(piece, options)),
  ];
}

function encodePiece(item: ContentItem, { dropped }: ContentsOptions): JsonObject[] {
  switch (item.kind) {
    case 'text':
      return [{ text: item.text }];
    case 'data':
      return [{ inlineData: { mimeType: item.mediaType, data: item.base64 } }];
    case 'link':
      if (isUploaded(item.url)) throw nothingStored({ id: item.url, path: '/messages' });
      return [{ fileData: { mimeType: item.mediaType, fileUri: item.url } }];
    case 'unknown':
      dropped.add(droppedPiece(item));
      return [];
  }
}

const BUDGETS: ReadonlyMap<string, number> = new Map([
  ['minimal', 512],
  ['low', 1024],
  ['medium', 8192],
  ['high', 24_576],
  ['xhigh', 24_576],
]);

/** What a model thinks at the least that cannot be asked not to (Gemini 2.5 Pro). */
const MIN_BUDGET = 128;

/** OpenAI's `reasoning_effort` as a budget or, from Gemini 3 on, as a level. Undefined: the model has neither. */
function thinkingConfig(thinking: ThinkingFacts, effort: string, given: number | undefined): JsonObject | undefined {
  if (thinking.style === 'level') {
    const level = nearestEffort(thinking, effort);
    return level === undefined ? undefined : { thinkingLevel: level, includeThoughts: effort !== 'none' };
  }
  if (thinking.style !== 'budget') return undefined;
  if (effort === 'none') return { thinkingBudget: thinking.efforts.includes('none') ? 0 : MIN_BUDGET };
  const budget = given ?? BUDGETS.get(effort);
  return budget === undefined ? undefined : { thinkingBudget: budget, includeThoughts: true };
}
