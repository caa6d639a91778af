import { AppError } from '../../platform/errors/app-error.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import type { ChatChunk, ChatCompletion, ChunkDelta, Usage } from '../contract/chat.ts';
import type { Annotation } from '../dialects/citations.ts';
import { isRecord } from './decoded-request.ts';

/** One part of a response. `text` grows; for a tool it is the JSON of its arguments, for an image its data URL. */
export interface AnswerBlock {
  readonly kind: 'reasoning' | 'text' | 'refusal' | 'tool' | 'image';
  /** Its place in the answer, from 0. */
  readonly index: number;
  readonly text: string;
  /** Of reasoning, else empty. */
  readonly signature: string;
  /** Of a tool call, else empty. */
  readonly id: string;
  readonly name: string;
  /** Of text: the sources that it names. */
  readonly annotations: readonly Annotation[];
  /** Of text: how likely its tokens were, as chat completions say it. */
  readonly logprobs: readonly object[];
}

/** A change of a block. At most one block is open; blocks open in the order of `index`, without gaps. `cite` may come after the close. */
export type BlockStep =
  | { readonly step: 'open'; readonly block: AnswerBlock }
  | { readonly step: 'grow'; readonly block: AnswerBlock; readonly text: string; readonly logprobs: readonly object[] }
  | { readonly step: 'cite'; readonly block: AnswerBlock; readonly annotation: Annotation }
  | { readonly step: 'close'; readonly block: AnswerBlock };

export interface AnswerReader {
  read(chunk: ChatChunk): readonly BlockStep[];
  /** Opens and closes the remaining blocks. Only for a complete response: a failed one leaves blocks open. */
  finish(): readonly BlockStep[];
  /** All blocks so far. */
  readonly blocks: readonly AnswerBlock[];
  readonly model: string;
  /** Undefined until the finish reason arrives. */
  readonly finishReason: string | undefined;
  /** The stop sequence that ended the answer, where the model API named it. */
  readonly stopSequence: string | undefined;
  readonly usage: Usage | undefined;
}

type GrowingBlock = { -readonly [Name in keyof Omit<AnswerBlock, 'annotations' | 'logprobs'>]: AnswerBlock[Name] } & {
  annotations: Annotation[];
  logprobs: object[];
};
type ToolDelta = NonNullable<ChunkDelta['tool_calls']>[number];

/** The longest response. It has a limit because all blocks are kept: dialects repeat them at the end. */
const MAX_LENGTH = 32 * 1024 * 1024;
/** The most sources of one answer, for the same reason. */
const MAX_SOURCES = 10_000;
const NONE: readonly never[] = Object.freeze([]);

/**
 * Orders the pieces of a streamed response, for dialects whose responses are a list of blocks. Upstreams may mix the pieces of several
 * tool calls, so a tool call stays open until the end, and later blocks wait. Chunks come from upstreams, so every member is checked.
 * `callIdPrefix`: for tool calls without an id. `takesImages`: the dialect supports generated images.
 */
export function createAnswerReader(callIdPrefix: string, takesImages = false): AnswerReader {
  const blocks: GrowingBlock[] = [];
  const tools = new Map<number, GrowingBlock>();
  let open: GrowingBlock | undefined;
  let steps: BlockStep[] = [];
  let length = 0;
  let model = '';
  let finishReason: string | undefined;
  let stopSequence: string | undefined;
  let usage: Usage | undefined;
  /** Sources that came before the text that names them. */
  const early: Annotation[] = [];
  let sources = 0;

  function add(kind: AnswerBlock['kind']): GrowingBlock {
    const named = kind === 'text' ? early.splice(0) : [];
    const block = { kind, index: blocks.length, text: '', signature: '', id: '', name: '' };
    const made: GrowingBlock = { ...block, annotations: named, logprobs: [] };
    blocks.push(made);
    return made;
  }

  /** Returns the block for a piece: the last one if it has this kind, otherwise a new one. */
  function tail(kind: AnswerBlock['kind']): GrowingBlock {
    const last = blocks.at(-1);
    return last?.kind === kind ? last : add(kind);
  }

  function grow(block: GrowingBlock, text: unknown, logprobs: readonly object[] = NONE): void {
    if (typeof text !== 'string' || text === '') return;
    block.text += text;
    for (const each of logprobs) block.logprobs.push(each);
    length += text.length;
    if (length > MAX_LENGTH) throw new AppError('UPSTREAM_ERROR', { reason: 'its answer has no end' });
    if (block === open) steps.push({ step: 'grow', block, text, logprobs });
  }

  /** Adds a source to the last text, which may be closed already. */
  function cite(value: unknown): void {
    if (!isRecord(value) || typeof value.type !== 'string' || sources >= MAX_SOURCES) return;
    const annotation = value as unknown as Annotation;
    sources += 1;
    const block = blocks.findLast(({ kind }) => kind === 'text');
    if (block === undefined) early.push(annotation);
    else block.annotations.push(annotation);
    if (block !== undefined && open !== undefined && block.index <= open.index)
      steps.push({ step: 'cite', block, annotation });
  }

  function draw(value: unknown): void {
    const { url } = isRecord(value) && isRecord(value.image_url) ? value.image_url : {};
    if (isText(url)) grow(add('image'), url);
  }

  function readTool(piece: ToolDelta, position: number): void {
    const index = Number.isInteger(piece.index) ? piece.index : position;
    const block = tools.get(index) ?? add('tool');
    tools.set(index, block);
    if (block.id === '' && typeof piece.id === 'string') block.id = piece.id;
    if (block.name === '' && typeof piece.function?.name === 'string') block.name = piece.function.name;
    grow(block, piece.function?.arguments);
  }

  function readDelta(delta: ChunkDelta, logprobs: readonly object[]): void {
    if (isText(delta.reasoning_content)) grow(tail('reasoning'), delta.reasoning_content);
    if (isText(delta.reasoning_signature)) tail('reasoning').signature += delta.reasoning_signature;
    if (isText(delta.content)) grow(tail('text'), delta.content, logprobs);
    if (isText(delta.refusal)) grow(tail('refusal'), delta.refusal);
    if (Array.isArray(delta.annotations)) for (const each of delta.annotations) cite(each);
    if (takesImages && Array.isArray(delta.images)) for (const each of delta.images) draw(each);
    if (Array.isArray(delta.tool_calls)) {
      for (const [position, piece] of delta.tool_calls.entries()) {
        if (typeof piece === 'object' && piece !== null) readTool(piece, position);
      }
    }
  }

  /** Opens the next block where that is possible yet: a tool call needs its name. */
  function advance(atTheEnd: boolean): void {
    for (;;) {
      const next = blocks[open === undefined ? 0 : open.index + 1];
      const mayClose = atTheEnd || open?.kind !== 'tool';
      if (next === undefined || !mayClose || (next.kind === 'tool' && next.name === '' && !atTheEnd)) return;
      if (open !== undefined) steps.push({ step: 'close', block: open });
      open = next;
      if (next.kind === 'tool' && next.id === '') next.id = `${callIdPrefix}${next.index}`;
      steps.push({ step: 'open', block: next });
      const { text, logprobs } = next;
      if (text !== '') steps.push({ step: 'grow', block: next, text, logprobs });
      for (const annotation of next.annotations) steps.push({ step: 'cite', block: next, annotation });
    }
  }

  function taken(): readonly BlockStep[] {
    const result = steps;
    steps = [];
    return result;
  }

  return {
    read(chunk) {
      if (isText(chunk.model)) model = chunk.model;
      if (chunk.usage !== undefined && chunk.usage !== null) usage = chunk.usage;
      const choice = Array.isArray(chunk.choices) ? chunk.choices.find((each) => each?.index === 0) : undefined;
      if (choice === undefined) return [];
      if (isText(choice.finish_reason)) finishReason = choice.finish_reason;
      if (isText(choice.stop_reason)) stopSequence = choice.stop_reason;
      if (typeof choice.delta === 'object' && choice.delta !== null) readDelta(choice.delta, tokensIn(choice.logprobs));
      advance(false);
      return taken();
    },
    finish() {
      advance(true);
      if (open !== undefined) steps.push({ step: 'close', block: open });
      return taken();
    },
    blocks,
    get model() {
      return model;
    },
    get finishReason() {
      return finishReason;
    },
    get stopSequence() {
      return stopSequence;
    },
    get usage() {
      return usage;
    },
  };
}

function tokensIn(logprobs: unknown): readonly object[] {
  return isRecord(logprobs) && Array.isArray(logprobs.content) ? logprobs.content.filter(isRecord) : NONE;
}

/** Reads a complete response like a stream of one chunk. */
export function readWhole(completion: ChatCompletion, callIdPrefix: string, takesImages = false): AnswerReader {
  const reader = createAnswerReader(callIdPrefix, takesImages);
  const choice = completion.choices.find(({ index }) => index === 0);
  const { finish_reason: reason = null, stop_reason: stop, logprobs } = choice ?? {};
  reader.read({
    id: completion.id,
    object: 'chat.completion.chunk',
    created: 0,
    model: completion.model,
    choices:
      choice === undefined
        ? []
        : [{ index: 0, delta: deltaOf(choice.message), finish_reason: reason, stop_reason: stop, logprobs }],
    ...(completion.usage !== undefined && { usage: completion.usage }),
  });
  reader.finish();
  return reader;
}

function deltaOf(message: ChatCompletion['choices'][number]['message']): ChunkDelta {
  const { refusal, tool_calls: toolCalls, ...rest } = message;
  return {
    ...rest,
    ...(typeof refusal === 'string' && { refusal }),
    ...(Array.isArray(toolCalls) && { tool_calls: toolCalls.map((call, index) => ({ ...call, index })) }),
  };
}

/** The arguments of a call. Refuses a call whose arguments are not an object, except one that was cut off by the limit of tokens. */
export function callInput({ name, text }: AnswerBlock, cutShort: boolean): object {
  if (text.trim() === '') return {};
  try {
    const value = parseJson(text);
    if (isRecord(value)) return value;
  } catch {
    if (cutShort) return {};
  }
  throw new AppError('UPSTREAM_ERROR', {
    reason: `it called "${name.slice(0, 64)}" with arguments that are no JSON object`,
  });
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}
