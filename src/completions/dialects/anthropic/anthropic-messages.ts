import { Buffer } from 'node:buffer';
import type { ToolCall } from '../../contract/chat.ts';
import { type ContentItem, droppedPiece, type TextItem } from '../content.ts';
import { callArguments, type Turn } from '../conversation.ts';
import type { Steps } from '../dialect.ts';
import type { JsonObject } from '../json-value.ts';
import { type PlacedItem, placeThinking } from './claude-proofs.ts';

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
 * Turns without those in which nothing is left to say, alternating again, the user's first. A last turn of the model's
 * own may be empty no more than any other. `stop`: what the user says when nothing else is left.
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
      const result = { type: 'tool_result', tool_use_id: toolUseId(item.callId), ...marker(item) };
      return [content.length > 0 ? { ...result, content } : result];
    }
    default:
      return encodeContent(item, dropped);
  }
}

function encodeCall(call: ToolCall): JsonObject {
  return { type: 'tool_use', id: toolUseId(call.id), name: call.function.name, input: callArguments(call) };
}

/** Claude goes on from a last turn of its own, and refuses one that ends in white space. */
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
    if (!item.url.startsWith('http')) return undefined;
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
