import { AppError } from '../../platform/errors/app-error.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import type { ChatChunk, ChatCompletion, ChunkDelta, Usage } from '../contract/chat.ts';
import { isRecord } from './decoded-request.ts';

/** One part of an answer. `text` is what grows; for a tool it is the JSON text of its arguments. */
export interface AnswerBlock {
  readonly kind: 'reasoning' | 'text' | 'refusal' | 'tool';
  /** Its place in the answer, from 0. */
  readonly index: number;
  readonly text: string;
  /** Of reasoning, else empty. */
  readonly signature: string;
  /** Of a tool call, else empty. */
  readonly id: string;
  readonly name: string;
}

/** What happened to a block. At any time at most one is open; blocks open in the order of `index`, without a gap. */
export type BlockStep =
  | { readonly step: 'open'; readonly block: AnswerBlock }
  | { readonly step: 'grow'; readonly block: AnswerBlock; readonly text: string }
  | { readonly step: 'close'; readonly block: AnswerBlock };

export interface AnswerReader {
  read(chunk: ChatChunk): readonly BlockStep[];
  /** Opens and closes what is left. Only for an answer that came to its end: a broken one leaves blocks open. */
  finish(): readonly BlockStep[];
  /** All of them, as far as they have come. */
  readonly blocks: readonly AnswerBlock[];
  readonly model: string;
  /** Undefined until the finish reason arrives. */
  readonly finishReason: string | undefined;
  readonly usage: Usage | undefined;
}

type GrowingBlock = { -readonly [Name in keyof AnswerBlock]: AnswerBlock[Name] };
type ToolDelta = NonNullable<ChunkDelta['tool_calls']>[number];

/** The longest answer: all blocks are kept, because dialects repeat them at the end. No model writes as much as this. */
const MAX_LENGTH = 32 * 1024 * 1024;

/**
 * Puts the pieces of a streamed answer in order, for dialects whose answers are a list of blocks. Upstreams may mix the
 * pieces of several tool calls: a tool call stays open until the end, and what comes after it waits. Chunks are read as
 * an upstream wrote them, so nothing in them is taken for granted. `callIdPrefix`: for tool calls that came without an id.
 */
export function createAnswerReader(callIdPrefix: string): AnswerReader {
  const blocks: GrowingBlock[] = [];
  const tools = new Map<number, GrowingBlock>();
  let open: GrowingBlock | undefined;
  let steps: BlockStep[] = [];
  let length = 0;
  let model = '';
  let finishReason: string | undefined;
  let usage: Usage | undefined;

  function add(kind: AnswerBlock['kind']): GrowingBlock {
    const block = { kind, index: blocks.length, text: '', signature: '', id: '', name: '' };
    blocks.push(block);
    return block;
  }

  /** The block that such a piece belongs to: the last one, or a new one. */
  function tail(kind: AnswerBlock['kind']): GrowingBlock {
    const last = blocks.at(-1);
    return last?.kind === kind ? last : add(kind);
  }

  function grow(block: GrowingBlock, text: unknown): void {
    if (typeof text !== 'string' || text === '') return;
    block.text += text;
    length += text.length;
    if (length > MAX_LENGTH) throw new AppError('UPSTREAM_ERROR', { reason: 'its answer has no end' });
    if (block === open) steps.push({ step: 'grow', block, text });
  }

  function readTool(piece: ToolDelta, position: number): void {
    const index = Number.isInteger(piece.index) ? piece.index : position;
    const block = tools.get(index) ?? add('tool');
    tools.set(index, block);
    if (block.id === '' && typeof piece.id === 'string') block.id = piece.id;
    if (block.name === '' && typeof piece.function?.name === 'string') block.name = piece.function.name;
    grow(block, piece.function?.arguments);
  }

  function readDelta(delta: ChunkDelta): void {
    if (isText(delta.reasoning_content)) grow(tail('reasoning'), delta.reasoning_content);
    if (isText(delta.reasoning_signature)) tail('reasoning').signature += delta.reasoning_signature;
    if (isText(delta.content)) grow(tail('text'), delta.content);
    if (isText(delta.refusal)) grow(tail('refusal'), delta.refusal);
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
      if (next.text !== '') steps.push({ step: 'grow', block: next, text: next.text });
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
      if (typeof choice.delta === 'object' && choice.delta !== null) readDelta(choice.delta);
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
    get usage() {
      return usage;
    },
  };
}

/** A whole answer, read like a stream of one chunk. */
export function readWhole(completion: ChatCompletion, callIdPrefix: string): AnswerReader {
  const reader = createAnswerReader(callIdPrefix);
  const choice = completion.choices.find(({ index }) => index === 0);
  reader.read({
    id: completion.id,
    object: 'chat.completion.chunk',
    created: 0,
    model: completion.model,
    choices:
      choice === undefined
        ? []
        : [{ index: 0, delta: deltaOf(choice.message), finish_reason: choice.finish_reason ?? null }],
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
