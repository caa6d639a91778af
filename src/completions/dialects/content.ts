import { Buffer } from 'node:buffer';
import type { ChatMessage, ContentPart } from '../contract/chat.ts';
import { asObject, type JsonObject } from './json-value.ts';

/** A piece of a message, whatever form it came in. Base64 is never decoded nor copied on its way. */
export type ContentItem =
  | TextItem
  | {
      readonly kind: 'data';
      readonly field: MediaField;
      readonly mediaType: string;
      readonly base64: string;
      readonly name?: string | undefined;
      readonly cache?: JsonObject | undefined;
    }
  | {
      readonly kind: 'link';
      readonly field: MediaField;
      readonly mediaType: string;
      readonly url: string;
      readonly cache?: JsonObject | undefined;
    }
  /** Something that no other dialect knows: `field` is what its name in OpenAI's API is. */
  | { readonly kind: 'unknown'; readonly field: string };

export interface TextItem {
  readonly kind: 'text';
  readonly text: string;
  /** `cache_control` of a part: an upstream's own field that some APIs take. */
  readonly cache?: JsonObject | undefined;
}

export type MediaField = 'image_url' | 'input_audio' | 'file';

const TYPE_OF_EXTENSION: ReadonlyMap<string, string> = new Map([
  ['png', 'image/png'],
  ['jpg', 'image/jpeg'],
  ['jpeg', 'image/jpeg'],
  ['gif', 'image/gif'],
  ['webp', 'image/webp'],
  ['heic', 'image/heic'],
  ['pdf', 'application/pdf'],
  ['txt', 'text/plain'],
  ['md', 'text/markdown'],
  ['html', 'text/html'],
  ['csv', 'text/csv'],
  ['json', 'application/json'],
  ['docx', 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'],
  ['xlsx', 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet'],
  ['mp3', 'audio/mp3'],
  ['wav', 'audio/wav'],
]);

export function readContent(content: ChatMessage['content']): readonly ContentItem[] {
  if (content === null || content === undefined) return [];
  if (typeof content === 'string') return content === '' ? [] : [{ kind: 'text', text: content }];
  return content.flatMap((part): readonly ContentItem[] => {
    const item = readPart(part);
    if (item.kind === 'text' && item.text === '') return [];
    const cache = cacheControl(part);
    return [cache !== undefined && item.kind !== 'unknown' ? { ...item, cache } : item];
  });
}

/** The marker of the cache that a message, a part, a call or a tool may have: a field of Anthropic's API. */
export function cacheControl(given: object): JsonObject | undefined {
  return asObject((given as { cache_control?: unknown }).cache_control);
}

/** The pieces of text alone. */
export function textItems(content: ChatMessage['content']): readonly TextItem[] {
  return readContent(content).filter((item) => item.kind === 'text');
}

const NAME = /^[\w.-]{1,64}$/;

/** How a piece that an upstream cannot take is named to the caller; the field may be anything that a caller wrote. */
export function droppedPiece({ field }: Exclude<ContentItem, TextItem>): string {
  return `messages.content.${NAME.test(field) ? field : 'unknown'}`;
}

function readPart(part: ContentPart): ContentItem {
  if (part.type === 'image_url' && part.image_url !== undefined) {
    const url = typeof part.image_url === 'string' ? part.image_url : part.image_url.url;
    return readLocation('image_url', url, 'image/jpeg');
  }
  if (part.type === 'input_audio' && part.input_audio !== undefined) {
    const { data, format } = part.input_audio;
    return { kind: 'data', field: 'input_audio', mediaType: `audio/${format}`, base64: data };
  }
  if (part.type === 'file' && part.file !== undefined) return readFile(part.file);
  const text = part.text ?? part.refusal;
  return text === undefined ? { kind: 'unknown', field: part.type } : { kind: 'text', text };
}

function readFile({ file_data: data, file_id: id, filename }: NonNullable<ContentPart['file']>): ContentItem {
  const mediaType = typeOfName(filename ?? '') ?? 'application/pdf';
  if (data !== undefined) {
    if (isUrl(data))
      return { ...readLocation('file', data, mediaType), ...(filename !== undefined && { name: filename }) };
    return { kind: 'data', field: 'file', mediaType, base64: data, name: filename };
  }
  return id !== undefined && isUrl(id) ? readLocation('file', id, mediaType) : { kind: 'unknown', field: 'file' };
}

function readLocation(field: MediaField, url: string, fallbackType: string): ContentItem {
  if (!url.startsWith('data:')) return { kind: 'link', field, mediaType: typeOfName(url) ?? fallbackType, url };
  const comma = url.indexOf(',');
  if (comma === -1) return { kind: 'unknown', field };
  const header = url.slice('data:'.length, comma).toLowerCase();
  const mediaType = header.split(';', 1)[0] || fallbackType;
  const data = url.slice(comma + 1);
  return { kind: 'data', field, mediaType, base64: header.endsWith(';base64') ? data : encodeText(data) };
}

function encodeText(escaped: string): string {
  try {
    return Buffer.from(decodeURIComponent(escaped)).toString('base64');
  } catch {
    return Buffer.from(escaped).toString('base64');
  }
}

function isUrl(text: string): boolean {
  return ['data:', 'https://', 'http://', 'gs://', 's3://'].some((scheme) => text.startsWith(scheme));
}

/** What the extension says, of a file name or of a URL with or without a query. */
function typeOfName(name: string): string | undefined {
  const path = name.split(/[?#]/, 1)[0] ?? '';
  const dot = path.lastIndexOf('.');
  return dot === -1 ? undefined : TYPE_OF_EXTENSION.get(path.slice(dot + 1).toLowerCase());
}
