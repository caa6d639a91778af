import type { ChatRequest, ToolCall } from '../../contract/chat.ts';
import {
  ANSWER_TOOL,
  ANSWER_TOOL_DESCRIPTION,
  ANY_OBJECT,
  hasOpenObject,
  nameLostKeywords,
  strictSchema,
} from '../answer.ts';
import { joinTurns, type PlacedItem, placeThinking, toolUseId } from '../anthropic/anthropic-messages.ts';
import { type ClaudeModel, claudeModel, encodeThinking, readSampling } from '../anthropic/claude-model.ts';
import {
  type ContentItem,
  cacheMarkers,
  callArguments,
  droppedPiece,
  readConversation,
  type TextItem,
  type Turn,
} from '../conversation.ts';
import {
  type DialectContext,
  nearestEffort,
  pathSegment,
  type Steps,
  takenBy,
  thinkingOf,
  type UpstreamRequest,
} from '../dialect.ts';
import type { JsonObject } from '../json-value.ts';
import {
  type AnswerSchema,
  answerSchema,
  maxTokens,
  readTools,
  STRICT_FIELD,
  startTranslation,
  takenFields,
  thinkingBudget,
  visibleStops,
} from '../request-fields.ts';

const TAKEN = takenFields(
  ...['max_tokens', 'max_completion_tokens', 'temperature', 'top_p', 'stop', 'tools', 'tool_choice'],
  ...['response_format', 'reasoning_effort', 'metadata'],
);

/** Fields of Converse itself; any other field of the caller's is the model's own. */
const CONVERSE_FIELDS: ReadonlySet<string> = new Set([
  ...['guardrailConfig', 'performanceConfig', 'promptVariables', 'requestMetadata', 'serviceTier'],
  ...['additionalModelRequestFields', 'additionalModelResponseFieldPaths'],
]);

export function encodeBedrockRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const model = claudeModel(context);
  const { names, extra, steps } = startTranslation(request, TAKEN);
  if (cacheMarkers(request).some(({ ttl = '5m' }) => ttl !== '5m')) names.add('cache_control.ttl');
  const { system, turns, calledNames } = readConversation(request.messages, steps);
  const instructions = system.filter(({ text }) => text.trim() !== '');
  const messages = encodeConverseTurns(turns, names, steps);
  const schema = answerSchema(request);
  const canFollow = schema !== undefined && followsSchema(context, model);
  const bySchema = canFollow && (schema.strict || !hasOpenObject(schema.schema, steps));
  const wantsObject = request.response_format?.type === 'json_object';
  const toolSchema = bySchema ? undefined : (schema?.schema ?? (wantsObject ? ANY_OBJECT : undefined));
  const tools = encodeTools(request, toolSchema, calledNames, names, steps);
  const limit = maxTokens(request) ?? (isClaude(context) ? context.maxOutputTokens : undefined);
  const reasoning = encodeReasoning(request, context, model, {
    budget: thinkingBudget(request),
    limit: limit ?? model.defaultMaxTokens,
    lacksThinking: calledWithoutThinking(messages),
    forced: tools.forced,
    dropped: names,
  });
  const own = Object.entries(extra);
  const modelFields = {
    ...reasoning,
    ...Object.fromEntries(own.filter(([name]) => !CONVERSE_FIELDS.has(name))),
    ...(extra.additionalModelRequestFields as JsonObject | undefined),
  };
  const hasBudget = (reasoning.thinking as JsonObject | undefined)?.type === 'enabled';
  const warmest = takenBy(context).maxTemperature ?? (isClaude(context) ? 1 : 2);
  const sampling = readSampling(request, model, hasBudget, names, warmest);
  const config = encodeInference(request, limit, sampling, names);
  const body: JsonObject = {
    messages,
    ...(instructions.length > 0 && { system: instructions.flatMap(encodeTextBlock) }),
    ...(Object.keys(config).length > 0 && { inferenceConfig: config }),
    ...tools.fields,
    ...(bySchema && { outputConfig: { textFormat: jsonFormat(schema, names, steps) } }),
    ...(isTextMap(request.metadata) && { requestMetadata: request.metadata }),
    ...Object.fromEntries(own.filter(([name]) => CONVERSE_FIELDS.has(name))),
    ...(Object.keys(modelFields).length > 0 && { additionalModelRequestFields: modelFields }),
  };
  const path = `/model/${pathSegment(context.model)}/${context.stream ? 'converse-stream' : 'converse'}`;
  return { path, headers: {}, body, dropped: [...names] };
}

/** Claude's ways to think are its own, so that a row may say so of a model whose name does not. */
function isClaude(context: DialectContext): boolean {
  const style = context.facts?.thinking?.style;
  return style === undefined ? takenBy(context).isClaude === true : style === 'adaptive' || style === 'budget';
}

/** Older Claude models and Nova must be made to call a tool instead. */
function followsSchema(context: DialectContext, model: ClaudeModel): boolean {
  return isClaude(context) ? model.followsSchema : (takenBy(context).structuredOutput ?? true);
}

function jsonFormat({ name, schema }: AnswerSchema, dropped: Set<string>, steps: Steps): JsonObject {
  const lost = new Set<string>();
  const closed = JSON.stringify(strictSchema(schema, steps, lost));
  nameLostKeywords('response_format.json_schema.schema', lost, dropped);
  return { type: 'json_schema', structure: { jsonSchema: { name, schema: closed } } };
}

function isTextMap(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.values(value).every((text) => typeof text === 'string');
}

function encodeInference(
  request: ChatRequest,
  limit: number | undefined,
  { temperature, topP }: ReturnType<typeof readSampling>,
  dropped: Set<string>,
): JsonObject {
  const stop = visibleStops(request, dropped);
  return {
    ...(limit !== undefined && { maxTokens: limit }),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(stop !== undefined && { stopSequences: stop }),
  };
}

/** Each family of models has its own field for it, beside those of Converse. */
function encodeReasoning(
  { reasoning_effort: effort }: ChatRequest,
  context: DialectContext,
  model: ClaudeModel,
  wish: Omit<Parameters<typeof encodeThinking>[0], 'effort' | 'model'>,
): JsonObject {
  if (effort === null || effort === undefined) return {};
  if (isClaude(context)) {
    const { thinking, effort: named } = encodeThinking({ ...wish, effort, model });
    return {
      ...(thinking !== undefined && { thinking }),
      ...(named !== undefined && { output_config: { effort: named } }),
    };
  }
  const thinks = thinkingOf(context);
  const known = thinks === undefined ? undefined : nearestEffort(thinks, effort);
  if (thinks?.style === 'effort' && known !== undefined) return { reasoning_effort: known };
  if (thinks?.style === 'config' && known !== undefined && effort !== 'none') {
    return { reasoningConfig: { type: 'enabled', maxReasoningEffort: known } };
  }
  if (effort !== 'none') wish.dropped.add('reasoning_effort');
  return {};
}

function encodeTools(
  request: ChatRequest,
  schema: JsonObject | undefined,
  calledNames: ReadonlySet<string>,
  dropped: Set<string>,
  steps: Steps,
): { readonly fields: JsonObject; readonly forced: boolean } {
  const { functions, choice, dropped: kinds } = readTools(request, steps);
  for (const kind of kinds) dropped.add(kind);
  if (functions.some(({ strict }) => strict === true)) dropped.add(STRICT_FIELD);
  const tools = functions.flatMap(({ name, description, parameters, cache_control: cache }) =>
    withPoint(toolSpec(name, description, parameters), cache),
  );
  if (schema !== undefined) {
    const all = [...tools, toolSpec(ANSWER_TOOL, ANSWER_TOOL_DESCRIPTION, schema)];
    const toolChoice = tools.length > 0 ? { any: {} } : { tool: { name: ANSWER_TOOL } };
    return { fields: { toolConfig: { tools: all, toolChoice } }, forced: true };
  }
  // Converse cannot forbid calls, and wants the tools of earlier ones: without such it is enough to name none.
  if (choice === 'none' && calledNames.size > 0 && tools.length > 0) dropped.add('tool_choice');
  if (tools.length === 0 || (choice === 'none' && calledNames.size === 0)) {
    if (calledNames.size === 0) return { fields: {}, forced: false };
    const called = [...calledNames].map((name) => toolSpec(name, undefined, undefined));
    return { fields: { toolConfig: { tools: called } }, forced: false };
  }
  const toolChoice =
    choice === 'required' ? { any: {} } : typeof choice === 'object' ? { tool: { name: choice.name } } : undefined;
  return {
    fields: { toolConfig: { tools, ...(toolChoice !== undefined && { toolChoice }) } },
    forced: toolChoice !== undefined,
  };
}

function toolSpec(name: string, description: string | undefined, parameters: unknown): JsonObject {
  const json = { type: 'object', ...(parameters as JsonObject | undefined) };
  return {
    toolSpec: {
      name,
      ...(description !== undefined && description !== '' && { description }),
      inputSchema: { json },
    },
  };
}

function calledWithoutThinking(messages: readonly JsonObject[]): boolean {
  const last = messages.findLast(({ role }) => role === 'assistant');
  const blocks = (last?.content ?? []) as readonly JsonObject[];
  return blocks.some(({ toolUse }) => toolUse !== undefined) && blocks[0]?.reasoningContent === undefined;
}

const DOCUMENT_FORMATS: ReadonlyMap<string, string> = new Map([
  ['application/pdf', 'pdf'],
  ['text/plain', 'txt'],
  ['text/markdown', 'md'],
  ['text/html', 'html'],
  ['text/csv', 'csv'],
  ['application/vnd.openxmlformats-officedocument.wordprocessingml.document', 'docx'],
  ['application/vnd.openxmlformats-officedocument.spreadsheetml.sheet', 'xlsx'],
]);

/** Turns as Converse takes them; names of what it cannot take are added to `dropped`. */
function encodeConverseTurns(turns: readonly Turn[], dropped: Set<string>, steps: Steps): JsonObject[] {
  const encoded = turns.map(({ role, items }) => ({
    role,
    content: placeThinking(items, steps).flatMap((item) => encodeItem(item, dropped)),
  }));
  const messages = joinTurns(encoded, { text: '.' });
  nameDocuments(messages);
  return messages;
}

/** No two documents of a request may have the same name, and Converse wants text beside them. */
function nameDocuments(messages: readonly JsonObject[]): void {
  const names = new Set<string>();
  let number = 1;
  for (const { content } of messages) {
    const blocks = content as JsonObject[];
    let hasDocument = false;
    for (const { document } of blocks) {
      if (document === undefined) continue;
      hasDocument = true;
      const named = document as { name: string };
      const wanted = named.name;
      while (names.has(named.name)) {
        number += 1;
        named.name = `${wanted}-${number}`;
      }
      names.add(named.name);
    }
    if (hasDocument && !blocks.some(({ text }) => text !== undefined)) blocks.push({ text: 'See the documents.' });
  }
}

function encodeTextBlock({ text, cache }: TextItem): JsonObject[] {
  return withPoint({ text }, cache);
}

const CACHE_POINT = { cachePoint: { type: 'default' } };

/** Puts the point up to which the prompt is cached after the block that has the marker. */
function withPoint(block: JsonObject, marker: object | undefined): JsonObject[] {
  return marker === undefined ? [block] : [block, CACHE_POINT];
}

function encodeItem(item: PlacedItem, dropped: Set<string>): JsonObject[] {
  switch (item.kind) {
    case 'thinking':
      return [{ reasoningContent: { reasoningText: { text: item.thinking, signature: item.signature } } }];
    case 'hidden':
      return [{ reasoningContent: { redactedContent: item.data } }];
    case 'call':
      return withPoint(encodeCall(item.call), item.cache);
    case 'result': {
      const content = item.content.flatMap((piece) => encodeContent(piece, dropped));
      const blocks = content.length === 0 ? [{ json: {} }] : content.filter((block) => block !== CACHE_POINT);
      const isMarked =
        item.cache ?? item.content.find((piece) => piece.kind !== 'unknown' && piece.cache !== undefined);
      const status = item.failed && { status: 'error' };
      return withPoint({ toolResult: { toolUseId: toolUseId(item.callId), content: blocks, ...status } }, isMarked);
    }
    default:
      return encodeContent(item, dropped);
  }
}

function encodeCall(call: ToolCall): JsonObject {
  return { toolUse: { toolUseId: toolUseId(call.id), name: call.function.name, input: callArguments(call) } };
}

function encodeContent(item: ContentItem, dropped: Set<string>): JsonObject[] {
  // Converse refuses text of white space alone.
  if (item.kind === 'text') return item.text.trim() === '' ? [] : encodeTextBlock(item);
  const block = encodeMedia(item);
  if (block === undefined) {
    dropped.add(droppedPiece(item));
    return [];
  }
  return withPoint(block, item.kind === 'unknown' ? undefined : item.cache);
}

/** Bytes, or an object in S3: Converse fetches nothing from the web. */
function encodeMedia(item: Exclude<ContentItem, TextItem>): JsonObject | undefined {
  if (item.kind === 'unknown') return undefined;
  if (item.kind === 'link' && !item.url.startsWith('s3://')) return undefined;
  const source = item.kind === 'link' ? { s3Location: { uri: item.url } } : { bytes: item.base64 };
  const [family = '', kind = ''] = item.mediaType.split('/', 2);
  if (family === 'image') return { image: { format: kind === 'jpg' ? 'jpeg' : kind, source } };
  if (family === 'audio') return { audio: { format: kind, source } };
  const format = DOCUMENT_FORMATS.get(item.mediaType);
  if (format === undefined) return undefined;
  return { document: { format, name: documentName(item.kind === 'data' ? item.name : undefined), source } };
}

/** Bedrock allows few characters in it, and no two spaces in a row. */
function documentName(name = 'document'): string {
  const dot = name.lastIndexOf('.');
  const stem = (dot > 0 ? name.slice(0, dot) : name).slice(0, 100);
  return stem.replaceAll(/[^\w()[\]-]/g, '-') || 'document';
}
