import type { ChatMessage, ChatRequest, ContentPart, GivenToolCall } from '../../contract/chat.ts';
import { cacheMarkers, nothingStored, unpackProofs } from '../conversation.ts';
import { createSteps, type DialectContext, type Reference, type Steps, type UpstreamRequest } from '../dialect.ts';
import { asObject, type JsonObject } from '../json-value.ts';
import { maxTokens, sortFields, spelledResult, takenFields } from '../request-fields.ts';

/** Fields that the Responses API has under the same name. */
const SAME = [
  ...['temperature', 'top_p', 'parallel_tool_calls', 'metadata', 'user', 'safety_identifier', 'service_tier'],
  ...['prompt_cache_key', 'prompt_cache_retention'],
] as const;
const TAKEN = takenFields(
  ...SAME,
  ...[
    'max_tokens',
    'max_completion_tokens',
    'tools',
    'tool_choice',
    'response_format',
    'reasoning_effort',
    'verbosity',
  ],
);
/** The API refuses a smaller limit. */
const MIN_OUTPUT_TOKENS = 16;

/**
 * A chat completion as a request of OpenAI's Responses API, for models that are served there alone. Nothing is stored; reasoning comes
 * encrypted, so that it can be sent back.
 */
export function encodeResponsesRequest(request: ChatRequest, context: DialectContext): UpstreamRequest {
  const { dropped, extra: given } = sortFields(request, TAKEN);
  const { input, ...extra } = given;
  if (input !== undefined) dropped.push('input');
  const { top_k: most, ...own } = extra;
  refuseStored(request, extra);
  if (most !== undefined && context.translated === true) dropped.push('top_k');
  const fields: Readonly<Record<string, unknown>> = request;
  if (cacheMarkers(request).length > 0) dropped.push('cache_control');
  const limit = maxTokens(request);
  const { reasoning_effort: effort } = request;
  const text = {
    ...textFormat(request.response_format),
    ...(typeof fields.verbosity === 'string' && { verbosity: fields.verbosity }),
  };
  const tools = (request.tools ?? []).map(encodeTool);
  const body: JsonObject = {
    model: context.model,
    input: encodeInput(request.messages, createSteps()),
    ...Object.fromEntries(SAME.flatMap((name) => (fields[name] === undefined ? [] : [[name, fields[name]]]))),
    ...(limit !== undefined && { max_output_tokens: Math.max(limit, MIN_OUTPUT_TOKENS) }),
    ...(tools.length > 0 && { tools, ...toolChoice(request.tool_choice) }),
    ...(Object.keys(text).length > 0 && { text }),
    reasoning: { ...(effort !== undefined && { effort }), summary: 'auto' },
    include: ['reasoning.encrypted_content'],
    store: false,
    ...(context.stream && { stream: true }),
    ...(context.translated === true ? own : extra),
  };
  return { path: '/responses', headers: {}, body, dropped };
}

/** Fields that name a response, a conversation or a prompt that OpenAI keeps in the operator's account. */
export const STORED_FIELDS = ['previous_response_id', 'conversation', 'prompt'] as const;

/**
 * Refuses the fields and the tools of a chat completion that name objects of the operator's account, because all callers share that
 * account, and a chat completion does not say which objects are the caller's own.
 */
function refuseStored({ tools }: ChatRequest, extra: JsonObject): void {
  const found = STORED_FIELDS.flatMap((name) => referencesIn(extra[name], `/${name}`));
  if (extra.background === true) found.push({ id: '', path: '/background' });
  const [stored] = [...found, ...storedInTools(tools ?? [], '/tools')];
  if (stored !== undefined) throw nothingStored(stored);
}

/** Returns the ids in a value: a text, an object with an `id`, or a list of these. */
export function referencesIn(value: unknown, path: string): readonly Reference[] {
  if (Array.isArray(value)) return value.flatMap((each, index) => referencesIn(each, `${path}/${index}`));
  const id = asObject(value)?.id ?? value;
  return typeof id === 'string' ? [{ id, path }] : [];
}

/** How the ids of skills begin that were uploaded to the account. OpenAI's own skills have names. */
const OWN_SKILL = /^skill_/;

/** Returns what tools name that OpenAI keeps: stores of vectors, containers, files and uploaded skills. */
export function storedInTools(tools: readonly object[], path: string): readonly Reference[] {
  return tools.flatMap((tool, index): readonly Reference[] => {
    const { container, vector_store_ids: stores, input_image_mask: mask, environment: given } = tool as JsonObject;
    const at = `${path}/${index}`;
    const own = asObject(container);
    const environment = asObject(given) ?? {};
    const skills = Array.isArray(environment.skills)
      ? environment.skills.map((skill) => asObject(skill)?.skill_id)
      : [];
    return [
      ...referencesIn(stores, `${at}/vector_store_ids`),
      ...referencesIn(own === undefined ? container : own.file_ids, `${at}/container`),
      ...referencesIn(asObject(mask)?.file_id, `${at}/input_image_mask/file_id`),
      ...referencesIn(environment.container_id, `${at}/environment/container_id`),
      ...referencesIn(environment.file_ids, `${at}/environment/file_ids`),
      ...referencesIn(
        skills.filter((id) => OWN_SKILL.test(String(id))),
        `${at}/environment/skills`,
      ),
    ];
  });
}

function textFormat(format: ChatRequest['response_format']): { readonly format?: object } {
  if (format === undefined || format.type === 'text') return {};
  if (format.type !== 'json_schema') return { format: { type: format.type } };
  return { format: { type: 'json_schema', name: 'answer', ...format.json_schema } };
}

/** A function is flat here, as is a tool of free text; tools that OpenAI runs are the same in both APIs. */
function encodeTool(tool: NonNullable<ChatRequest['tools']>[number]): JsonObject {
  const { type, function: definition, custom } = tool as typeof tool & { custom?: JsonObject };
  if (definition !== undefined) {
    const { name, description, parameters, strict } = definition;
    return {
      type,
      name,
      ...(description !== undefined && { description }),
      parameters: parameters ?? { type: 'object', properties: {} },
      // Without a word the Responses API is strict, and chat completions are not.
      strict: strict ?? false,
    };
  }
  if (custom === undefined) return { ...tool };
  const { format, ...rest } = custom as { format?: { type?: unknown; grammar?: JsonObject } };
  return { type, ...rest, ...(format !== undefined && { format: { type: format.type, ...format.grammar } }) };
}

function toolChoice(choice: ChatRequest['tool_choice']): { readonly tool_choice?: unknown } {
  if (choice === undefined) return {};
  if (typeof choice === 'string') return { tool_choice: choice };
  const { type, function: called, custom } = choice as typeof choice & { custom?: { name?: unknown } };
  if (called !== undefined || custom !== undefined)
    return { tool_choice: { type, name: called?.name ?? custom?.name } };
  const { allowed_tools: allowed } = choice as { allowed_tools?: { mode?: unknown; tools?: readonly JsonObject[] } };
  if (allowed === undefined) return { tool_choice: choice };
  const tools = (allowed.tools ?? []).map(({ type: kind, function: one, custom: other }) => ({
    type: kind,
    ...((one ?? other) as object | undefined),
  }));
  return { tool_choice: { type, mode: allowed.mode, tools } };
}

function encodeInput(messages: readonly ChatMessage[], steps: Steps): readonly JsonObject[] {
  const input: JsonObject[] = [];
  const custom = new Set<string>();
  for (const message of messages) {
    const { role, content, tool_calls: calls = [], tool_call_id: callId = '' } = spelledResult(message);
    steps.take(1 + (Array.isArray(content) ? content.length : 0) + calls.length);
    if (role === 'tool') {
      const type = custom.has(callId) ? 'custom_tool_call_output' : 'function_call_output';
      input.push({ type, call_id: callId, output: typeof content === 'string' ? content : encodeParts(content) });
    } else if (role === 'assistant') {
      for (const item of reasoningItems(message.reasoning_content ?? '', message.reasoning_signature ?? '', steps)) {
        input.push(item);
      }
      const parts = saidParts(message);
      if (parts.length > 0) input.push({ type: 'message', role, content: parts });
      for (const call of calls) {
        if (call.type === 'custom') custom.add(call.id);
        input.push(encodeCall(call));
      }
    } else input.push({ type: 'message', role, content: encodeParts(content) });
  }
  return input;
}

function encodeCall(call: GivenToolCall): JsonObject {
  return call.type === 'custom'
    ? { type: 'custom_tool_call', call_id: call.id, name: call.custom.name, input: call.custom.input }
    : { type: 'function_call', call_id: call.id, name: call.function.name, arguments: call.function.arguments };
}

function saidParts({ content }: ChatMessage): readonly JsonObject[] {
  const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : (content ?? []);
  return parts.flatMap(({ text, refusal }: Pick<ContentPart, 'text' | 'refusal'>): JsonObject[] => {
    if (refusal !== undefined) return [{ type: 'refusal', refusal }];
    return text === undefined || text === '' ? [] : [{ type: 'output_text', text }];
  });
}

function encodeParts(content: ChatMessage['content']): readonly JsonObject[] {
  if (typeof content === 'string') return [{ type: 'input_text', text: content }];
  return (content ?? []).map((part): JsonObject => {
    const { type, text, image_url: image, file } = part;
    if (type === 'image_url' && image !== undefined) {
      const { url, detail } = typeof image === 'string' ? { url: image } : image;
      return { type: 'input_image', image_url: url, ...(detail !== undefined && { detail }) };
    }
    if (type === 'file' && file !== undefined) return { type: 'input_file', ...file };
    return text === undefined ? { ...part } : { type: 'input_text', text };
  });
}

const MARK = /^s(\d{1,9})$/;

/** The items of reasoning that OpenAI's own proofs vouch for; without a proof the API knows nothing of them. */
export function reasoningItems(text: string, signature: string, steps: Steps): readonly JsonObject[] {
  if (!signature.includes(':')) return [];
  let taken = 0;
  return unpackProofs('openai', signature, steps).map(({ mark, proof }) => {
    const [, length = '0'] = MARK.exec(mark) ?? [];
    const summary = text.slice(taken, taken + Number(length));
    taken += Number(length);
    return {
      type: 'reasoning',
      summary: summary === '' ? [] : [{ type: 'summary_text', text: summary }],
      encrypted_content: proof,
    };
  });
}
