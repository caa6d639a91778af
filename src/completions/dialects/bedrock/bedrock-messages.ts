import type { ToolCall } from '../../contract/chat.ts';
import { toolUseId } from '../anthropic/anthropic-messages.ts';
import { type PlacedItem, placeThinking } from '../anthropic/claude-proofs.ts';
import { type ContentItem, droppedPiece, type TextItem } from '../content.ts';
import { callArguments, type Turn } from '../conversation.ts';
import type { JsonObject } from '../json-value.ts';
import type { Steps } from '../steps.ts';

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
  return turns.map(({ role, items }) => ({
    role,
    content: placeThinking(items, steps).flatMap((item) => encodeItem(item, dropped)),
  }));
}

/** A point up to which the prompt is cached stands behind what it ends with. */
export function encodeTextBlock({ text, cache }: TextItem): JsonObject[] {
  return cache === undefined ? [{ text }] : [{ text }, CACHE_POINT];
}

const CACHE_POINT = { cachePoint: { type: 'default' } };

function encodeItem(item: PlacedItem, dropped: Set<string>): JsonObject[] {
  switch (item.kind) {
    case 'thinking':
      return [{ reasoningContent: { reasoningText: { text: item.thinking, signature: item.signature } } }];
    case 'hidden':
      return [{ reasoningContent: { redactedContent: item.data } }];
    case 'call':
      return [encodeCall(item.call)];
    case 'result': {
      const content = item.content.flatMap((piece) => encodeContent(piece, dropped));
      return [
        { toolResult: { toolUseId: toolUseId(item.callId), content: content.length === 0 ? [{ json: {} }] : content } },
      ];
    }
    default:
      return encodeContent(item, dropped);
  }
}

function encodeCall(call: ToolCall): JsonObject {
  return { toolUse: { toolUseId: toolUseId(call.id), name: call.function.name, input: callArguments(call) } };
}

function encodeContent(item: ContentItem, dropped: Set<string>): JsonObject[] {
  if (item.kind === 'text') return encodeTextBlock(item);
  const block = encodeMedia(item);
  if (block === undefined) {
    dropped.add(droppedPiece(item));
    return [];
  }
  return item.kind === 'data' && item.cache !== undefined ? [block, CACHE_POINT] : [block];
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
