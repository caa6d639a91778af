import type { ContentPart } from '../../contract/chat.ts';
import type { MessagesBlock } from '../../contract/messages.ts';
import { cacheControl } from '../../dialects/content.ts';
import { invalidField, isRecord, requiredText } from '../decoded-request.ts';

/** Decodes text, images and documents, as a user or a tool may send them; undefined for any other kind of block. */
export function decodePart(block: MessagesBlock, path: string): readonly ContentPart[] | undefined {
  const parts = decodeBlock(block, path);
  const cache = cacheControl(block);
  const last = parts?.at(-1);
  if (parts === undefined || last === undefined || cache === undefined) return parts;
  return [...parts.slice(0, -1), Object.assign(last, { cache_control: cache })];
}

function decodeBlock(block: MessagesBlock, path: string): readonly ContentPart[] | undefined {
  switch (block.type) {
    case 'text':
      return [{ type: 'text', text: requiredText(block.text, `${path}/text`) }];
    case 'image':
      return [decodeImage(sourceOf(block, path), `${path}/source`)];
    case 'document':
      return decodeDocument(sourceOf(block, path), block.title ?? undefined, `${path}/source`);
    case 'search_result':
      return [{ type: 'text', text: searchResult(block) }];
    default:
      return undefined;
  }
}

/** What a tool gave back: text, or blocks. What no block of ours can hold goes as its JSON. */
export function decodeResult(content: unknown, isError: boolean, path: string): readonly ContentPart[] {
  const parts = typeof content === 'string' ? [{ type: 'text', text: content }] : resultBlocks(content, path);
  // Chat completions have no place for this; a model that reads it knows.
  return isError ? [{ type: 'text', text: 'The tool failed:' }, ...parts] : parts;
}

function resultBlocks(content: unknown, path: string): readonly ContentPart[] {
  if (content === undefined || content === null) return [{ type: 'text', text: '' }];
  if (!Array.isArray(content)) throw invalidField(path, 'must be a string or an array of blocks');
  return content.flatMap((block: unknown, index) => {
    if (!isRecord(block)) throw invalidField(`${path}/${index}`, 'must be an object');
    const known = typeof block.type === 'string' ? decodePart(block as MessagesBlock, `${path}/${index}`) : undefined;
    return known ?? [{ type: 'text', text: JSON.stringify(block) }];
  });
}

type Source = Readonly<Record<string, unknown>>;

function sourceOf({ source }: MessagesBlock, path: string): Source {
  if (!isRecord(source)) throw invalidField(`${path}/source`, 'must be an object');
  return source;
}

function decodeImage(source: Source, path: string): ContentPart {
  switch (source.type) {
    case 'base64':
      return { type: 'image_url', image_url: { url: dataUrl(source, path) } };
    case 'url':
      return { type: 'image_url', image_url: { url: requiredText(source.url, `${path}/url`) } };
    case 'file':
      return { type: 'file', file: { file_id: requiredText(source.file_id, `${path}/file_id`) } };
    default:
      throw invalidField(`${path}/type`, 'must be "base64", "url" or "file"');
  }
}

function decodeDocument(source: Source, title: string | undefined, path: string): readonly ContentPart[] {
  const filename = title ?? 'document.pdf';
  switch (source.type) {
    case 'base64':
      return [{ type: 'file', file: { file_data: dataUrl(source, path), filename } }];
    case 'url':
      return [{ type: 'file', file: { file_data: requiredText(source.url, `${path}/url`), filename } }];
    case 'file':
      return [{ type: 'file', file: { file_id: requiredText(source.file_id, `${path}/file_id`) } }];
    case 'text':
      return [{ type: 'text', text: titled(title, requiredText(source.data, `${path}/data`)) }];
    case 'content':
      return resultBlocks(typeof source.content === 'string' ? [textBlock(source.content)] : source.content, path);
    default:
      throw invalidField(`${path}/type`, 'must be "base64", "url", "file", "text" or "content"');
  }
}

function dataUrl(source: Source, path: string): string {
  const mediaType = requiredText(source.media_type, `${path}/media_type`);
  return `data:${mediaType};base64,${requiredText(source.data, `${path}/data`)}`;
}

function searchResult({ title, source, content }: MessagesBlock): string {
  const blocks = Array.isArray(content) ? content : [];
  const text = blocks.map((block: unknown) => (isRecord(block) && typeof block.text === 'string' ? block.text : ''));
  return titled([title, source].filter((part) => typeof part === 'string').join(', '), text.join('\n'));
}

function titled(title: string | undefined, text: string): string {
  return title === undefined || title === '' ? text : `${title}\n\n${text}`;
}

function textBlock(text: string): Readonly<Record<string, unknown>> {
  return { type: 'text', text };
}
