import type { ChatMessage, ChatRequest, ChatTool, ContentPart } from '../contract/chat.ts';
import { cacheControl, cacheMarkers, nameLostMembers } from './conversation.ts';
import { createSteps, type Steps } from './dialect.ts';
import type { JsonObject } from './json-value.ts';

/** Fields that are handled outside the dialects, so that no dialect names them as dropped. */
const COMMON = ['model', 'messages', 'stream', 'stream_options', 'functions', 'function_call', 'thinking_budget'];

/** All fields of OpenAI's chat completion. Any other field belongs to an upstream and is passed on to it. */
const OPENAI_FIELDS: ReadonlySet<string> = new Set([
  ...COMMON,
  ...['audio', 'frequency_penalty', 'logit_bias', 'logprobs', 'max_completion_tokens', 'max_tokens', 'metadata'],
  ...['modalities', 'n', 'parallel_tool_calls', 'prediction', 'presence_penalty', 'prompt_cache_key'],
  ...['prompt_cache_retention', 'reasoning_effort', 'response_format', 'safety_identifier', 'seed', 'service_tier'],
  ...['stop', 'store', 'temperature', 'tool_choice', 'tools', 'top_logprobs', 'top_p', 'user', 'verbosity'],
  'web_search_options',
]);

/** Values that have no effect, because they are the default. */
const NO_EFFECT: ReadonlyMap<string, (value: unknown) => boolean> = new Map([
  ['n', (value) => value === 1],
  ['presence_penalty', (value) => value === 0],
  ['frequency_penalty', (value) => value === 0],
  ['top_logprobs', (value) => value === 0],
  ['logprobs', (value) => value === false],
  ['store', (value) => value === false],
  ['parallel_tool_calls', (value) => value === true],
  ['tool_choice', (value) => value === 'auto'],
  ['response_format', (value) => (value as { type?: unknown }).type === 'text'],
  ['service_tier', (value) => value === 'auto' || value === 'default'],
  ['modalities', (value) => Array.isArray(value) && value.every((modality) => modality === 'text')],
  ['logit_bias', isEmpty],
  ['metadata', isEmpty],
  ['tools', isEmpty],
  ['stop', isEmpty],
]);

export interface SortedFields {
  /** Fields of OpenAI's that ask for something and are not among those taken. */
  readonly dropped: string[];
  /** The upstream's own fields. */
  readonly extra: JsonObject;
}

export function sortFields(request: ChatRequest, taken: ReadonlySet<string>): SortedFields {
  const dropped: string[] = [];
  const extra: [string, unknown][] = [];
  for (const [name, value] of Object.entries(request)) {
    if (!OPENAI_FIELDS.has(name)) extra.push([name, value]);
    else if (!taken.has(name) && asksForSomething(name, value)) dropped.push(name);
  }
  return { dropped, extra: Object.fromEntries(extra) };
}

/** Starts the translation of a request: returns the names of dropped fields, the upstream's own fields, and the counter of steps. */
export function startTranslation(
  request: ChatRequest,
  taken: ReadonlySet<string>,
): { readonly names: Set<string>; readonly extra: JsonObject; readonly steps: Steps } {
  const { dropped, extra } = sortFields(request, taken);
  const names = new Set(dropped);
  nameLostMembers(request.messages, names);
  return { names, extra, steps: createSteps() };
}

/** Names cache markers as dropped, for an upstream that does not support them. */
export function dropCacheMarkers(request: ChatRequest, names: Set<string>): void {
  if (cacheMarkers(request).length > 0) names.add('cache_control');
}

/** The fields that a dialect translates, besides those that are common to all. */
export function takenFields(...names: readonly string[]): ReadonlySet<string> {
  return new Set([...COMMON, ...names]);
}

export function asksForSomething(name: string, value: unknown): boolean {
  return value !== null && value !== undefined && NO_EFFECT.get(name)?.(value) !== true;
}

function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length === 0;
}

const FAILED = 'The tool failed:';
const SEE_BELOW = 'The result is attached below.';

/** Whether a message of a tool says that its call failed: a member that other APIs have and chat completions do not. */
export function hasFailed(message: ChatMessage): boolean {
  return message.role === 'tool' && (message as { is_error?: unknown }).is_error === true;
}

/** A message of a tool that says in words that its call failed, where it did: a model that reads it knows. */
export function spelledResult(message: ChatMessage): ChatMessage {
  if (!hasFailed(message)) return message;
  const { is_error: _, ...rest } = message as ChatMessage & { is_error?: unknown };
  const { content } = rest;
  if (!Array.isArray(content)) return { ...rest, content: `${FAILED}\n\n${content ?? ''}` };
  return { ...rest, content: [{ type: 'text', text: FAILED }, ...content] };
}

/** Messages whose results are text alone, as chat completions want them: images that tools gave follow in a message of the user's. */
export function plainResults(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  if (!messages.some((message) => message.role === 'tool' && (Array.isArray(message.content) || hasFailed(message)))) {
    return messages;
  }
  const plain: ChatMessage[] = [];
  let attachments: ContentPart[] = [];
  const attach = (): void => {
    if (attachments.length > 0) plain.push({ role: 'user', content: attachments });
    attachments = [];
  };
  for (const message of messages) {
    if (message.role !== 'tool') attach();
    const spelled = spelledResult(message);
    const { content } = spelled;
    if (message.role !== 'tool' || !Array.isArray(content)) {
      plain.push(spelled);
      continue;
    }
    const texts = content.flatMap(({ type, text }) => (type === 'text' && text !== undefined ? [text] : []));
    for (const part of content) if (part.type !== 'text' || part.text === undefined) attachments.push(part);
    plain.push({ ...spelled, content: texts.length === 0 && content.length > 0 ? SEE_BELOW : texts.join('\n\n') });
  }
  attach();
  return plain;
}

/** How many tokens a caller of another API wants thought, which chat completions have no field for. */
export function thinkingBudget(request: ChatRequest): number | undefined {
  const { thinking_budget: budget } = request as { thinking_budget?: unknown };
  return typeof budget === 'number' && Number.isSafeInteger(budget) ? budget : undefined;
}

/** The number of likely tokens to choose from: a field of most APIs other than OpenAI's own. */
export function topK(request: ChatRequest): number | undefined {
  const { top_k: most } = request as { top_k?: unknown };
  return typeof most === 'number' ? most : undefined;
}

export function maxTokens({ max_completion_tokens: modern, max_tokens: old }: ChatRequest): number | undefined {
  return modern ?? old ?? undefined;
}

export function stopSequences({ stop }: ChatRequest): string[] | undefined {
  if (stop === null || stop === undefined) return undefined;
  const sequences = (typeof stop === 'string' ? [stop] : stop).filter((sequence) => sequence !== '');
  return sequences.length === 0 ? undefined : sequences;
}

/** Claude refuses stop sequences of white space alone: they are left out, and `stop` is named. */
export function visibleStops(request: ChatRequest, dropped: Set<string>): string[] | undefined {
  const sequences = stopSequences(request);
  const visible = sequences?.filter((sequence) => sequence.trim() !== '');
  if (visible?.length !== sequences?.length) dropped.add('stop');
  return visible?.length === 0 ? undefined : visible;
}

/** Names a promise that the model keeps to the schema of a function, where it cannot be had. */
export const STRICT_FIELD = 'tools.function.strict';

export type FunctionDefinition = NonNullable<ChatTool['function']> & { readonly cache_control?: JsonObject };

export interface ToolUse {
  readonly functions: readonly FunctionDefinition[];
  readonly choice: 'auto' | 'none' | 'required' | { readonly name: string };
  /** Kinds of tools that only OpenAI has. */
  readonly dropped: readonly string[];
}

interface AllowedTools {
  readonly mode?: unknown;
  readonly tools?: readonly { readonly function?: { readonly name?: unknown } }[];
}

/** Returns what the model may call. Keeps only the functions in `allowed_tools`, because no other API has that field. */
export function readTools({ tools, tool_choice: choice }: ChatRequest, steps: Steps): ToolUse {
  const functions: FunctionDefinition[] = [];
  const dropped = new Set<string>();
  for (const { type, function: definition, ...own } of tools ?? []) {
    steps.take();
    // A marker of the cache stands beside the function or in it.
    const cache = cacheControl(own);
    if (type === 'function' && definition !== undefined) {
      functions.push(cache === undefined ? definition : { ...definition, cache_control: cache });
    } else dropped.add(`tools.${type}`);
  }
  const use = { functions, dropped: [...dropped] };
  if (typeof choice === 'object' && choice !== null) {
    if (choice.function !== undefined) return { ...use, choice: { name: choice.function.name } };
    const allowed = (choice as { allowed_tools?: AllowedTools }).allowed_tools;
    if (allowed === undefined || !Array.isArray(allowed.tools)) return { ...use, choice: 'auto' };
    const names = new Set(allowed.tools.map((tool) => tool?.function?.name));
    return {
      ...use,
      functions: functions.filter(({ name }) => names.has(name)),
      choice: allowed.mode === 'required' ? 'required' : 'auto',
    };
  }
  return { ...use, choice: choice === 'none' || choice === 'required' ? choice : 'auto' };
}

export interface AnswerSchema {
  readonly name: string;
  readonly schema: JsonObject;
  /** The caller wants exactly this schema enforced; objects are closed then, as OpenAI demands. */
  readonly strict: boolean;
}

/** The schema that an answer must follow, when one was asked for. */
export function answerSchema({ response_format: format }: ChatRequest): AnswerSchema | undefined {
  if (format?.type !== 'json_schema' || format.json_schema?.schema === undefined) return undefined;
  const { name = 'answer', schema, strict } = format.json_schema;
  return { name, schema: schema as JsonObject, strict: strict === true };
}
