import type { ToolCall } from '../../contract/chat.ts';
import { joinTurns, type PlacedItem, placeThinking, toolUseId } from '../anthropic/anthropic-messages.ts';
import { type ContentItem, droppedPiece, type TextItem } from '../content.ts';
import { callArguments, type Turn } from '../conversation.ts';
import type { Steps } from '../dialect.ts';
import type { JsonObject } from '../json-value.ts';

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
export function encodeConverseTurns(turns: readonly Turn[], dropped: Set<string>, steps: Steps): JsonObject[] {
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

export function encodeTextBlock({ text, cache }: TextItem): JsonObject[] {
  return withPoint({ text }, cache);
}

const CACHE_POINT = { cachePoint: { type: 'default' } };

/** Puts the point up to which the prompt is cached after the block that has the marker. */
export function withPoint(block: JsonObject, marker: object | undefined): JsonObject[] {
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
      return withPoint({ toolResult: { toolUseId: toolUseId(item.callId), content: blocks } }, isMarked);
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
