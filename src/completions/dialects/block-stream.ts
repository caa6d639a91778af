import type { ChatChunk, ChunkDelta } from '../contract/chat.ts';
import { type AnswerHead, callId, deltaChunk, headOf, NO_CHUNKS } from './answer.ts';
import { packHiddenThinking, packThinking } from './anthropic/claude-proofs.ts';
import type { DialectContext } from './dialect.ts';
import { ANSWER_TOOL } from './structured-answer.ts';

type OpenBlock =
  | { readonly kind: 'thinking'; length: number; signature: string }
  /** `call` is its number among the calls, or undefined for the tool whose arguments are the answer. */
  | { readonly kind: 'tool'; readonly call: number | undefined; readonly input: unknown; hasArguments: boolean };

/** An answer that comes as numbered blocks of text, thinking and calls, as Anthropic's and Bedrock's do. */
export interface BlockStream {
  readonly head: AnswerHead;
  readonly open: Map<number, OpenBlock>;
  textLength: number;
  calls: number;
}

/** More blocks than this are never open at once; an upstream that never closes any must not fill our memory. */
const MAX_OPEN_BLOCKS = 256;

export function createBlockStream(context: DialectContext): BlockStream {
  return { head: headOf(context), open: new Map(), textLength: 0, calls: 0 };
}

export function isOverfull({ open }: BlockStream): boolean {
  return open.size > MAX_OPEN_BLOCKS;
}

export function addText(stream: BlockStream, text: unknown): readonly ChatChunk[] {
  if (typeof text !== 'string' || text === '') return NO_CHUNKS;
  stream.textLength += text.length;
  return one(stream, { content: text });
}

/** `input`: all of its arguments, from upstreams that send them at once. */
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

/** What can only be said once a block is whole: the proof of thinking, and arguments that never came in pieces. */
export function closeBlock(stream: BlockStream, index: number): readonly ChatChunk[] {
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
  return [...stream.open.keys()].flatMap((index) => closeBlock(stream, index));
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
