import type { ChatChunk, ChatCompletion, ChunkDelta, ToolCall, Usage } from '../contract/chat.ts';
import { packHiddenThinking, packThinking } from './anthropic/anthropic-messages.ts';
import { type Annotation, citedAt } from './citations.ts';
import type { DecodedAnswer, DialectContext, Steps, StreamStep, UpstreamFailure } from './dialect.ts';
import { asObject, type JsonObject } from './json-value.ts';

/** The members that every chunk of one response repeats. */
export interface AnswerHead {
  id: string;
  created: number;
  model: string;
}

export const NO_CHUNKS: readonly ChatChunk[] = Object.freeze([]);

export function headOf({ id, created, model }: DialectContext): AnswerHead {
  return { id, created, model };
}

export function deltaChunk(
  { id, created, model }: AnswerHead,
  delta: ChunkDelta,
  finishReason: string | null = null,
  index = 0,
  stopSequence?: string,
): ChatChunk {
  return {
    id,
    object: 'chat.completion.chunk',
    created,
    model,
    choices: [
      { index, delta, finish_reason: finishReason, ...(stopSequence !== undefined && { stop_reason: stopSequence }) },
    ],
  };
}

export function usageChunk({ id, created, model }: AnswerHead, usage: Usage): ChatChunk {
  return { id, object: 'chat.completion.chunk', created, model, choices: [], usage };
}

interface TokenCounts {
  readonly prompt: number;
  readonly completion: number;
  /** Of the prompt, read from a cache. */
  readonly cached?: number;
  /** Of the prompt, written into a cache. */
  readonly cacheWritten?: number;
  /** Of those, written into a cache that lasts an hour. */
  readonly cacheWritten1h?: number;
  /** Of the prompt, neither read from a cache nor written into one. */
  readonly audio?: number;
  readonly image?: number;
  /** Of the completion, spent on reasoning. */
  readonly reasoning?: number;
  /** Searches of the web, beside the tokens. */
  readonly searches?: number;
  /** Uses of other tools that the API runs for a fee. */
  readonly otherTools?: number;
}

export function usageOf(counts: TokenCounts): Usage {
  const { prompt, completion, cached = 0, cacheWritten = 0, audio = 0, image = 0, reasoning = 0 } = counts;
  const { searches = 0, otherTools = 0 } = counts;
  const cacheWritten1h = Math.min(counts.cacheWritten1h ?? 0, cacheWritten);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(cached + cacheWritten + audio + image > 0 && {
      prompt_tokens_details: {
        cached_tokens: cached,
        ...(cacheWritten > 0 && { cache_creation_tokens: cacheWritten }),
        ...(cacheWritten1h > 0 && { cache_creation_1h_tokens: cacheWritten1h }),
        ...(audio > 0 && { audio_tokens: audio }),
        ...(image > 0 && { image_tokens: image }),
      },
    }),
    ...(reasoning > 0 && { completion_tokens_details: { reasoning_tokens: reasoning } }),
    ...(searches + otherTools > 0 && {
      server_tool_use: { web_search_requests: searches, ...(otherTools > 0 && { other_requests: otherTools }) },
    }),
  };
}

interface AnswerParts {
  readonly text: string;
  readonly reasoning: string;
  readonly signature: string;
  readonly refusal?: string | undefined;
  readonly calls: readonly ToolCall[];
  readonly finishReason: string;
  readonly annotations?: readonly Annotation[];
  readonly stopSequence?: string | undefined;
}

/** A message of an answer; as in OpenAI's API, its content is null when there are only calls. */
export function choiceOf(
  { text, reasoning, signature, refusal, calls, finishReason, annotations = [], stopSequence }: AnswerParts,
  index = 0,
): ChatCompletion['choices'][number] {
  return {
    index,
    message: {
      role: 'assistant',
      content: text === '' && (calls.length > 0 || refusal !== undefined) ? null : text,
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(signature !== '' && { reasoning_signature: signature }),
      ...(refusal !== undefined && { refusal }),
      ...(calls.length > 0 && { tool_calls: [...calls] }),
      ...(annotations.length > 0 && { annotations: [...annotations] }),
    },
    finish_reason: finishReason,
    ...(stopSequence !== undefined && { stop_reason: stopSequence }),
  };
}

export function completionOf(
  { id, created, model }: AnswerHead,
  choices: ChatCompletion['choices'],
  usage: Usage | undefined,
): DecodedAnswer {
  return {
    completion: {
      id,
      object: 'chat.completion',
      created,
      model,
      choices,
      ...(usage !== undefined && { usage }),
    },
  };
}

export function stepOf<State>(state: State, chunks: readonly ChatChunk[]): StreamStep<State> {
  return { state, chunks };
}

/** Returns a step without chunks, for an event that the caller does not need. */
export function silentStep<State>(state: State): StreamStep<State> {
  return { state, chunks: NO_CHUNKS };
}

export function failedStep<State>(state: State, failure: UpstreamFailure): StreamStep<State> {
  return { state, chunks: NO_CHUNKS, failure };
}

export function lastStep<State>(state: State, chunks: readonly ChatChunk[] = NO_CHUNKS): StreamStep<State> {
  return { state, chunks, done: true };
}

/** Returns the id of a call that has none, from the unique part of the id of the response. */
export function callId(answerId: string, number: number): string {
  const dash = answerId.indexOf('-');
  return `call_${dash === -1 ? answerId : answerId.slice(dash + 1)}_${number}`;
}

type OpenBlock =
  | { readonly kind: 'thinking'; length: number; signature: string }
  /** `call` is its number among the calls, or undefined for the tool whose arguments are the answer. */
  | { readonly kind: 'tool'; readonly call: number | undefined; readonly input: unknown; hasArguments: boolean };

/** A response that consists of numbered blocks of text, thinking and calls, as those of Anthropic and Bedrock. */
export interface BlockStream {
  readonly head: AnswerHead;
  readonly open: Map<number, OpenBlock>;
  textLength: number;
  calls: number;
  /** The sources of the current block of text, and where that block begins. */
  readonly cited: Annotation[];
  blockStart: number;
}

/** The most blocks that may be open at the same time, so that an upstream that never closes any cannot fill the memory. */
const MAX_OPEN_BLOCKS = 256;

export function createBlockStream(context: DialectContext): BlockStream {
  return { head: headOf(context), open: new Map(), textLength: 0, calls: 0, cited: [], blockStart: 0 };
}

export function isOverfull({ open }: BlockStream): boolean {
  return open.size > MAX_OPEN_BLOCKS;
}

export function addText(stream: BlockStream, text: unknown): readonly ChatChunk[] {
  if (typeof text !== 'string' || text === '') return NO_CHUNKS;
  stream.textLength += text.length;
  return one(stream, { content: text });
}

/** `input`: all arguments, from upstreams that send them in one piece. */
export function startTool(
  stream: BlockStream,
  index: number,
  { id, name, input }: { id: string | undefined; name: string; input?: unknown },
): readonly ChatChunk[] {
  const call = name === ANSWER_TOOL ? undefined : stream.calls;
  stream.open.set(index, { kind: 'tool', call, input, hasArguments: false });
  if (call === undefined) return NO_CHUNKS;
  stream.calls += 1;
  return one(stream, {
    tool_calls: [
      { index: call, id: id ?? callId(stream.head.id, call), type: 'function', function: { name, arguments: '' } },
    ],
  });
}

export function addArguments(stream: BlockStream, index: number, text: unknown): readonly ChatChunk[] {
  const block = stream.open.get(index);
  if (block?.kind !== 'tool' || typeof text !== 'string' || text === '') return NO_CHUNKS;
  block.hasArguments = true;
  if (block.call === undefined) return addText(stream, text);
  return one(stream, { tool_calls: [{ index: block.call, function: { arguments: text } }] });
}

export function addThinking(stream: BlockStream, index: number, text: unknown): readonly ChatChunk[] {
  const block = thinkingBlock(stream, index);
  if (typeof text !== 'string' || text === '') return NO_CHUNKS;
  block.length += text.length;
  return one(stream, { reasoning_content: text });
}

export function addSignature(stream: BlockStream, index: number, signature: unknown): readonly ChatChunk[] {
  if (typeof signature === 'string') thinkingBlock(stream, index).signature += signature;
  return NO_CHUNKS;
}

export function addHiddenThinking(stream: BlockStream, data: unknown): readonly ChatChunk[] {
  const packed = packHiddenThinking(stream.textLength, typeof data === 'string' ? data : '');
  return packed === '' ? NO_CHUNKS : one(stream, { reasoning_signature: packed });
}

/** Keeps a source until its block is complete, because its place in the text is known only then. */
export function addCitation(stream: BlockStream, citation: Annotation | undefined): readonly ChatChunk[] {
  if (citation !== undefined) stream.cited.push(citation);
  return stream.cited.length > MAX_OPEN_BLOCKS ? takeCitations(stream) : NO_CHUNKS;
}

function takeCitations(stream: BlockStream): readonly ChatChunk[] {
  const { cited, blockStart, textLength } = stream;
  if (cited.length === 0) return NO_CHUNKS;
  const annotations = cited.splice(0).map((each) => citedAt(each, blockStart, textLength));
  return one(stream, { annotations });
}

/** Returns the chunks that need a complete block: sources, the proof of thinking, and arguments that did not come in pieces. */
export function closeBlock(stream: BlockStream, index: number): readonly ChatChunk[] {
  const cited = takeCitations(stream);
  stream.blockStart = stream.textLength;
  const closed = closeOpen(stream, index);
  return cited.length === 0 ? closed : [...cited, ...closed];
}

function closeOpen(stream: BlockStream, index: number): readonly ChatChunk[] {
  const block = stream.open.get(index);
  if (block === undefined) return NO_CHUNKS;
  stream.open.delete(index);
  if (block.kind === 'thinking') {
    const packed = packThinking(block.length, stream.textLength, block.signature);
    return packed === '' ? NO_CHUNKS : one(stream, { reasoning_signature: packed });
  }
  if (block.hasArguments) return NO_CHUNKS;
  const text = JSON.stringify(block.input ?? {});
  if (block.call === undefined) return addText(stream, text);
  return one(stream, { tool_calls: [{ index: block.call, function: { arguments: text } }] });
}

export function closeAll(stream: BlockStream): readonly ChatChunk[] {
  return [...takeCitations(stream), ...[...stream.open.keys()].flatMap((index) => closeBlock(stream, index))];
}

function thinkingBlock(stream: BlockStream, index: number): Extract<OpenBlock, { kind: 'thinking' }> {
  const known = stream.open.get(index);
  if (known?.kind === 'thinking') return known;
  const block: OpenBlock = { kind: 'thinking', length: 0, signature: '' };
  stream.open.set(index, block);
  return block;
}

function one({ head }: BlockStream, delta: ChunkDelta): readonly ChatChunk[] {
  return [deltaChunk(head, delta)];
}

/**
 * Structured output for models without it: they must call this tool, and its arguments become the text of the response. The caller
 * sees no call.
 */
export const ANSWER_TOOL = 'structured_answer';

export const ANSWER_TOOL_DESCRIPTION =
  'Gives the answer, a JSON object. Call it exactly once: its arguments are the whole answer, with every member.';

/** Constraints that strict decoding does not know; APIs refuse a schema that has them. */
const UNKNOWN_CONSTRAINTS: ReadonlySet<string> = new Set([
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'minLength', 'maxLength'],
  ...['maxItems', 'uniqueItems', 'minProperties', 'maxProperties', 'patternProperties', 'propertyNames'],
  ...['contains', 'minContains', 'maxContains', 'not', 'if', 'then', 'else', '$schema', '$id', 'examples'],
]);

const MAX_DEPTH = 64;

/**
 * Returns a schema for strict decoding: closed objects, no numeric or length constraints, `anyOf` instead of `oneOf`. Adds the names
 * of removed constraints to `lost`.
 */
export function strictSchema(schema: unknown, steps: Steps, lost: Set<string>, depth = 0): unknown {
  steps.take();
  if (Array.isArray(schema)) return schema.map((item) => strictSchema(item, steps, lost, depth + 1));
  if (typeof schema !== 'object' || schema === null) return schema;
  if (depth > MAX_DEPTH) {
    lost.add('depth');
    return {};
  }
  const entries = Object.entries(schema).flatMap(([name, value]): [string, unknown][] => {
    if (name === 'minItems' && (value === 0 || value === 1)) return [[name, value]];
    if (name === 'minItems' || UNKNOWN_CONSTRAINTS.has(name)) {
      if (!ANNOTATIONS.has(name)) lost.add(name);
      return [];
    }
    if (name === 'additionalProperties' && value !== false) lost.add(name);
    if (name === 'properties' || name === '$defs' || name === 'definitions')
      return [[name, strictMembers(value, steps, lost, depth)]];
    if (name === 'enum' || name === 'const' || name === 'default') return [[name, value]];
    return [[name === 'oneOf' ? 'anyOf' : name, strictSchema(value, steps, lost, depth + 1)]];
  });
  const strict: JsonObject = Object.fromEntries(entries);
  if (strict.type === 'object' || strict.properties !== undefined) strict.additionalProperties = false;
  return strict;
}

function strictMembers(members: unknown, steps: Steps, lost: Set<string>, depth: number): unknown {
  if (typeof members !== 'object' || members === null) return members;
  return Object.fromEntries(
    Object.entries(members).map(([name, member]) => [name, strictSchema(member, steps, lost, depth + 1)]),
  );
}

/** Returns whether an object in a schema may have members that the schema does not name. Closing it would lose those members. */
export function hasOpenObject(schema: unknown, steps: Steps): boolean {
  steps.take();
  if (Array.isArray(schema)) return schema.some((item) => hasOpenObject(item, steps));
  const given = asObject(schema);
  if (given === undefined) return false;
  const { additionalProperties: more, patternProperties: patterns, properties, type } = given;
  if (more === undefined ? type === 'object' && properties === undefined : more !== false) return true;
  if (patterns !== undefined) return true;
  return Object.entries(given).some(([name, value]) => {
    if (VALUES.has(name)) return false;
    if (!MEMBERS.has(name)) return hasOpenObject(value, steps);
    return Object.values(asObject(value) ?? {}).some((member) => hasOpenObject(member, steps));
  });
}

const VALUES: ReadonlySet<string> = new Set(['enum', 'const', 'default', 'examples', 'required']);
const MEMBERS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions']);
const ANNOTATIONS: ReadonlySet<string> = new Set(['$schema', '$id', 'examples']);

/** Asks for any JSON object, as the tool whose arguments are the answer. */
export const ANY_OBJECT: JsonObject = Object.freeze({ type: 'object', additionalProperties: true });

const KEYWORD = /^[$\w.-]{1,64}$/;

/** Adds the keywords that a translated schema lacks to what is dropped: `tools.function.parameters.uniqueItems`. */
export function nameLostKeywords(field: string, lost: Iterable<string>, dropped: Set<string>): void {
  for (const keyword of lost) dropped.add(`${field}.${KEYWORD.test(keyword) ? keyword : 'unknown'}`);
}
