import { Buffer } from 'node:buffer';
import type { ToolCall } from '../../contract/chat.ts';
import {
  type ContentItem,
  callArguments,
  droppedPiece,
  packProof,
  type TextItem,
  type Turn,
  type TurnItem,
  unpackProofs,
} from '../conversation.ts';
import type { Steps } from '../dialect.ts';
import type { JsonObject } from '../json-value.ts';

/** Turns as Claude takes them; names of what it cannot take are added to `dropped`. */
export function encodeTurns(turns: readonly Turn[], dropped: Set<string>, steps: Steps): JsonObject[] {
  const encoded = turns.map(({ role, items }, position) => {
    const content = placeThinking(items, steps).flatMap((item) => encodeItem(item, dropped));
    if (role === 'assistant' && position === turns.length - 1) trimLastText(content);
    return { role, content };
  });
  return joinTurns(encoded, { type: 'text', text: '.' });
}

interface EncodedTurn {
  readonly role: Turn['role'];
  readonly content: JsonObject[];
}

/**
 * Removes empty turns, joins neighbours of one role, and makes the user begin. `stop`: the block to begin with when the
 * user has none.
 */
export function joinTurns(turns: readonly EncodedTurn[], stop: JsonObject): JsonObject[] {
  const joined: EncodedTurn[] = [];
  for (const { role, content } of turns) {
    if (content.length === 0) continue;
    const last = joined.at(-1);
    if (last?.role === role) for (const block of content) last.content.push(block);
    else joined.push({ role, content });
  }
  if (joined[0]?.role !== 'user') joined.unshift({ role: 'user', content: [stop] });
  return joined.map(({ role, content }) => ({ role, content }));
}

export function encodeText(item: TextItem): JsonObject {
  return { type: 'text', text: item.text, ...marker(item) };
}

function marker({ cache }: { readonly cache?: JsonObject | undefined }): JsonObject {
  return cache === undefined ? {} : { cache_control: cache };
}

/** An id that came from another API may have characters that Claude refuses. */
export function toolUseId(id: string): string {
  return id === '' ? 'call' : id.replaceAll(/[^\w-]/g, '_');
}

function encodeItem(item: PlacedItem, dropped: Set<string>): JsonObject[] {
  switch (item.kind) {
    case 'thinking':
      return [{ type: 'thinking', thinking: item.thinking, signature: item.signature }];
    case 'hidden':
      return [{ type: 'redacted_thinking', data: item.data }];
    case 'call':
      return [{ ...encodeCall(item.call), ...marker(item) }];
    case 'result': {
      const content = item.content.flatMap((piece) => encodeContent(piece, dropped));
      const marks = { ...(item.failed && { is_error: true }), ...marker(item) };
      const result = { type: 'tool_result', tool_use_id: toolUseId(item.callId), ...marks };
      return [content.length > 0 ? { ...result, content } : result];
    }
    default:
      return encodeContent(item, dropped);
  }
}

function encodeCall(call: ToolCall): JsonObject {
  return { type: 'tool_use', id: toolUseId(call.id), name: call.function.name, input: callArguments(call) };
}

/** Claude continues a last turn of its own, and refuses one that ends in white space. */
function trimLastText(blocks: JsonObject[]): void {
  const last = blocks.at(-1);
  if (last?.type !== 'text') return;
  last.text = String(last.text).trimEnd();
  if (last.text === '') blocks.pop();
}

function encodeContent(item: ContentItem, dropped: Set<string>): JsonObject[] {
  // Claude refuses text of white space alone.
  if (item.kind === 'text') return item.text.trim() === '' ? [] : [encodeText(item)];
  const block = encodeMedia(item);
  if (block !== undefined) return [block];
  dropped.add(droppedPiece(item));
  return [];
}

function encodeMedia(item: Exclude<ContentItem, TextItem>): JsonObject | undefined {
  if (item.kind === 'unknown' || item.field === 'input_audio') return undefined;
  if (item.kind === 'link') {
    const source = { type: 'url', url: item.url };
    if (!item.url.startsWith('http') || /^(?:audio|video)\//.test(item.mediaType)) return undefined;
    const kind = item.field === 'image_url' ? 'image' : 'document';
    return { type: kind, source, ...marker(item) };
  }
  const { mediaType, base64, name } = item;
  const rest = { ...(name !== undefined && { title: name }), ...marker(item) };
  if (mediaType.startsWith('image/')) {
    return { type: 'image', source: { type: 'base64', media_type: mediaType, data: base64 }, ...marker(item) };
  }
  if (mediaType === 'application/pdf') {
    return { type: 'document', source: { type: 'base64', media_type: mediaType, data: base64 }, ...rest };
  }
  if (!mediaType.startsWith('text/') && mediaType !== 'application/json') return undefined;
  const data = Buffer.from(base64, 'base64').toString('utf8');
  return { type: 'document', source: { type: 'text', media_type: 'text/plain', data }, ...rest };
}

/**
 * A block of thinking has a signature, a hidden one only its data. The mark of a proof says which, how much of the
 * reasoning text belongs to the block, and after how much of the answer's text it stood: `t120@34`, `r@0`.
 */
type Thinking =
  | { readonly kind: 'thinking'; readonly thinking: string; readonly signature: string }
  | { readonly kind: 'hidden'; readonly data: string };

export type PlacedItem = Exclude<TurnItem, { kind: 'reasoning' }> | Thinking;

export function packThinking(length: number, position: number, signature: string): string {
  return signature === '' ? '' : packProof('claude', `t${length}@${position}`, signature);
}

export function packHiddenThinking(position: number, data: string): string {
  return data === '' ? '' : packProof('claude', `r@${position}`, data);
}

const MARK = /^(?:t(\d{1,9})|r)@(\d{1,9})$/;

type Placed = readonly { readonly position: number; readonly block: Thinking }[];

/**
 * The blocks that the proofs vouch for, in their order. None when the text is not what was signed: Claude refuses
 * altered thinking, and does without any.
 */
export function readProofs(text: string, signature: string, steps: Steps): Placed {
  const placed: Placed[number][] = [];
  let taken = 0;
  for (const { mark, proof } of unpackProofs('claude', signature, steps)) {
    const [, length, position] = MARK.exec(mark) ?? [];
    if (mark === '') {
      placed.push({ position: 0, block: { kind: 'thinking', thinking: text, signature: proof } });
      taken = text.length;
    } else if (length !== undefined) {
      const thinking = text.slice(taken, taken + Number(length));
      placed.push({ position: Number(position), block: { kind: 'thinking', thinking, signature: proof } });
      taken += Number(length);
    } else if (position !== undefined) {
      placed.push({ position: Number(position), block: { kind: 'hidden', data: proof } });
    }
  }
  return taken === text.length ? placed : [];
}

/** An assistant's turn with its thinking at the places in the text where it stood: its proofs hold nowhere else. */
export function placeThinking(items: readonly TurnItem[], steps: Steps): readonly PlacedItem[] {
  const result: PlacedItem[] = [];
  let waiting: Placed = [];
  /** How many of those that wait are placed already. */
  let placed = 0;
  let position = 0;
  const placeUpTo = (limit: number): void => {
    for (let next = waiting[placed]; next !== undefined && next.position <= limit; next = waiting[placed]) {
      result.push(next.block);
      placed += 1;
    }
  };
  for (const item of items) {
    if (item.kind === 'reasoning') {
      placeUpTo(Number.POSITIVE_INFINITY);
      position = 0;
      placed = 0;
      waiting = readProofs(item.text, item.signature, steps);
    } else if (item.kind === 'text') {
      let rest = item.text;
      placeUpTo(position);
      for (let next = waiting[placed]; next !== undefined; next = waiting[placed]) {
        const cut = next.position - position;
        if (cut >= rest.length) break;
        result.push({ ...item, text: rest.slice(0, cut) });
        rest = rest.slice(cut);
        position += cut;
        placeUpTo(position);
      }
      result.push({ ...item, text: rest });
      position += rest.length;
    } else {
      placeUpTo(Number.POSITIVE_INFINITY);
      result.push(item);
    }
  }
  placeUpTo(Number.POSITIVE_INFINITY);
  return result;
}
