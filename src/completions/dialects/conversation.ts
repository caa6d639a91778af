import { Buffer } from 'node:buffer';
import { AppError } from '../../platform/errors/app-error.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import type { ChatMessage, ChatRequest, ContentPart, GivenToolCall, ToolCall } from '../contract/chat.ts';
import { createSteps, type Reference, type Steps } from './dialect.ts';
import { asObject, type JsonObject } from './json-value.ts';

export type TurnItem =
  | ContentItem
  | { readonly kind: 'reasoning'; readonly text: string; readonly signature: string }
  | { readonly kind: 'call'; readonly call: ToolCall; readonly cache?: JsonObject | undefined }
  | {
      readonly kind: 'result';
      readonly callId: string;
      /** Of the function that was called; empty when no such call is in the conversation. */
      readonly name: string;
      readonly content: readonly ContentItem[];
      readonly failed: boolean;
      readonly cache?: JsonObject | undefined;
    };

export interface Turn {
  readonly role: 'user' | 'assistant';
  readonly items: TurnItem[];
}

/**
 * OpenAI's messages in the form of the other APIs: separate instructions, alternating turns, and the results of calls inside the
 * user's turn.
 */
interface Conversation {
  readonly system: readonly TextItem[];
  readonly turns: readonly Turn[];
  /** Names of the functions that were called so far. */
  readonly calledNames: ReadonlySet<string>;
}

export function readConversation(messages: readonly ChatMessage[], steps: Steps): Conversation {
  const system: TextItem[] = [];
  const turns: Turn[] = [];
  const names = new Map<string, string>();
  const add = (role: Turn['role'], items: readonly TurnItem[]): void => {
    if (items.length === 0) return;
    const last = turns.at(-1);
    if (last?.role === role) for (const item of items) last.items.push(item);
    else turns.push({ role, items: [...items] });
  };
  for (const message of messages) {
    steps.take(1 + (Array.isArray(message.content) ? message.content.length : 0) + (message.tool_calls?.length ?? 0));
    if (message.role === 'system' || message.role === 'developer') {
      for (const item of withCache(textItems(message.content), message)) system.push(item);
    } else if (message.role === 'assistant') {
      const calls = (message.tool_calls ?? []).map(asFunctionCall);
      for (const { id, function: called } of calls) names.set(id, called.name);
      add('assistant', assistantItems(message, calls));
    } else if (message.role === 'tool') {
      const callId = message.tool_call_id ?? '';
      const name = names.get(callId) ?? message.name ?? '';
      const failed = (message as { is_error?: unknown }).is_error === true;
      const content = readContent(message.content);
      add('user', withCache([{ kind: 'result', callId, name, content, failed }], message));
    } else {
      add('user', withCache(readContent(message.content), message));
    }
  }
  return { ...letUserBegin(system, turns), calledNames: new Set(names.values()) };
}

/**
 * Makes the user begin, because the other APIs refuse an empty conversation and one that the model begins: instructions
 * alone become the user's question, and a full stop goes before the model's first turn.
 */
function letUserBegin(system: readonly TextItem[], turns: readonly Turn[]): Pick<Conversation, 'system' | 'turns'> {
  const [first] = turns;
  if (first === undefined) return { system: [], turns: [{ role: 'user', items: [...system] }] };
  if (first.role === 'user') return { system, turns };
  return { system, turns: [{ role: 'user', items: [{ kind: 'text', text: '.' }] }, ...turns] };
}

/** Gives a marker of the cache that a message has to the message's last piece, because it holds for all of them. */
function withCache<Item extends TurnItem>(items: readonly Item[], message: ChatMessage): readonly Item[] {
  const cache = cacheControl(message);
  const last = items.at(-1);
  if (cache === undefined || last === undefined || last.kind === 'unknown' || last.kind === 'reasoning') return items;
  return [...items.slice(0, -1), { ...last, cache }];
}

/** Lists the markers of the cache in a request: of messages, parts, calls and tools. */
export function cacheMarkers({ messages, tools }: ChatRequest): readonly JsonObject[] {
  const marked: object[] = [];
  for (const message of messages) {
    marked.push(message, ...(Array.isArray(message.content) ? message.content : []), ...(message.tool_calls ?? []));
  }
  for (const tool of tools ?? []) marked.push(tool, tool.function ?? {});
  return marked.map(cacheControl).filter((marker) => marker !== undefined);
}

const MARKER = { cache_control: { type: 'ephemeral' } };
/** The last messages, which change with each call. */
const CHANGING_MESSAGES = 2;

/** Marks for the cache what the next call probably repeats: the instructions, the tools, and all but the last two messages. */
export function markStablePrefix(request: ChatRequest): ChatRequest {
  const { messages, tools = [] } = request;
  const firstTurn = messages.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  const places = [(firstTurn === -1 ? messages.length : firstTurn) - 1, messages.length - CHANGING_MESSAGES - 1];
  return {
    ...request,
    messages: messages.map((message, index) => (places.includes(index) ? { ...message, ...MARKER } : message)),
    ...(tools.length > 0 && {
      tools: tools.map((tool, index) => (index === tools.length - 1 ? { ...tool, ...MARKER } : tool)),
    }),
  };
}

/** Members of a message, except those of tools, that only OpenAI's API has. */
const ONLY_OPENAI = ['name', 'refusal', 'audio'] as const;

/** Adds what another API cannot take of messages to what is dropped: `messages.name`, images of instructions, `detail` of images. */
export function nameLostMembers(messages: readonly ChatMessage[], dropped: Set<string>): void {
  for (const message of messages) {
    nameLostPieces(message, dropped);
    if (message.role === 'tool' || message.role === 'function') continue;
    const given: JsonObject = message;
    for (const name of ONLY_OPENAI) {
      if (given[name] !== undefined && given[name] !== null && given[name] !== '') dropped.add(`messages.${name}`);
    }
  }
}

/** Names how closely a model looks at an image. */
export const DETAIL_FIELD = 'messages.content.image_url.detail';

function nameLostPieces({ role, content }: ChatMessage, dropped: Set<string>): void {
  if (!Array.isArray(content)) return;
  const isSystem = role === 'system' || role === 'developer';
  for (const part of content) {
    const { image_url: image } = part;
    const detail = typeof image === 'object' ? image.detail : undefined;
    const item = isSystem ? readPart(part) : undefined;
    if (item !== undefined && item.kind !== 'text') dropped.add(droppedPiece(item));
    else if (detail !== undefined && detail !== 'auto') dropped.add(DETAIL_FIELD);
  }
}

function assistantItems(message: ChatMessage, calls: readonly ToolCall[]): readonly TurnItem[] {
  const reasoning = message.reasoning_content ?? '';
  const signature = message.reasoning_signature ?? '';
  return [
    ...(reasoning === '' && signature === ''
      ? []
      : [{ kind: 'reasoning', text: reasoning, signature } satisfies TurnItem]),
    ...withCache<TurnItem>(
      [
        ...readContent(message.content),
        ...calls.map((call): TurnItem => ({ kind: 'call', call, cache: cacheControl(call) })),
      ],
      message,
    ),
  ];
}

/** The arguments of the function that stands for a tool of free text. */
export function customArguments(input: string): string {
  return JSON.stringify({ input });
}

/** A call as a call of a function, the only kind that the other APIs have. */
export function asFunctionCall(call: GivenToolCall): ToolCall {
  if (call.type === 'function') return call;
  const { id, custom, type: _, ...own } = call;
  return { ...own, id, type: 'function', function: { name: custom.name, arguments: customArguments(custom.input) } };
}

/** Returns the arguments as an object, because the other APIs require one. Text that is not JSON is kept as text. */
export function callArguments({ function: { arguments: text } }: ToolCall): JsonObject {
  if (text.trim() === '') return {};
  try {
    const value = parseJson(text);
    return asObject(value) ?? { arguments: value };
  } catch {
    return { arguments: text };
  }
}

/**
 * A proof of reasoning. Clients have only one text for all proofs (`reasoning_signature`), which they send back unchanged. Each proof
 * is a segment `<maker>:<mark>:<proof>;`, so that pieces of a stream can be concatenated, and so that proofs of one maker are not
 * sent to another, which would refuse them.
 */
interface Proof {
  readonly mark: string;
  readonly proof: string;
}

type ProofMaker = 'claude' | 'google' | 'openai';

/** Escapes for proofs that are not base64, so that one proof is not read as two. */
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['%', '%25'],
  [':', '%3A'],
  [';', '%3B'],
]);

export function packProof(maker: ProofMaker, mark: string, proof: string): string {
  return `${maker}:${mark}:${proof.replaceAll(/[%:;]/g, (sign) => ESCAPES.get(sign) ?? sign)};`;
}

/** Returns this maker's proofs in a packed text. Text that is not packed is one proof without a mark. */
export function unpackProofs(maker: ProofMaker, packed: string, steps: Steps = createSteps()): readonly Proof[] {
  if (packed === '') return [];
  if (!packed.includes(':')) return [{ mark: '', proof: packed }];
  const proofs: Proof[] = [];
  let start = 0;
  while (start < packed.length) {
    steps.take();
    const found = packed.indexOf(';', start);
    const end = found === -1 ? packed.length : found;
    const proof = readSegment(maker, packed, start, end);
    if (proof !== undefined) proofs.push(proof);
    start = end + 1;
  }
  return proofs;
}

function readSegment(maker: ProofMaker, packed: string, start: number, end: number): Proof | undefined {
  if (!packed.startsWith(`${maker}:`, start)) return undefined;
  const [, mark, proof] = packed.slice(start, end).split(':', 3);
  return mark === undefined || proof === undefined || proof === '' ? undefined : { mark, proof: withoutEscapes(proof) };
}

function withoutEscapes(proof: string): string {
  return proof.replaceAll('%3A', ':').replaceAll('%3B', ';').replaceAll('%25', '%');
}

/** A piece of a message, from any form of request. Base64 is neither decoded nor copied. */
export type ContentItem =
  | TextItem
  | {
      readonly kind: 'data';
      readonly field: MediaField;
      readonly mediaType: string;
      readonly base64: string;
      readonly detail?: string | undefined;
      readonly name?: string | undefined;
      readonly cache?: JsonObject | undefined;
    }
  | {
      readonly kind: 'link';
      readonly field: MediaField;
      readonly mediaType: string;
      readonly url: string;
      readonly detail?: string | undefined;
      readonly cache?: JsonObject | undefined;
    }
  /** Content that no other dialect has; `field` is its name in OpenAI's API. */
  | { readonly kind: 'unknown'; readonly field: string };

export interface TextItem {
  readonly kind: 'text';
  readonly text: string;
  /** `cache_control` of a part: an upstream's own field that some APIs take. */
  readonly cache?: JsonObject | undefined;
}

type MediaField = 'image_url' | 'input_audio' | 'file';

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
  ['mov', 'video/quicktime'],
  ['flv', 'video/x-flv'],
  ...['aac', 'aiff', 'flac', 'ogg', 'wav'].map((ending) => [ending, `audio/${ending}`] as const),
  ...['3gpp', 'avi', 'mp4', 'mpeg', 'mpg', 'webm', 'wmv'].map((ending) => [ending, `video/${ending}`] as const),
]);

const FILM_SITE = /^https:\/\/(?:(?:www|m)\.)?(?:youtube\.com|youtu\.be)\//i;

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

/** Returns only the pieces of text. */
function textItems(content: ChatMessage['content']): readonly TextItem[] {
  return readContent(content).filter((item) => item.kind === 'text');
}

const NAME = /^[\w.-]{1,64}$/;

/** Returns the name of a dropped piece for the caller. Callers choose the field, so other characters are not repeated. */
export function droppedPiece({ field }: Exclude<ContentItem, TextItem>): string {
  return `messages.content.${NAME.test(field) ? field : 'unknown'}`;
}

function readPart(part: ContentPart): ContentItem {
  if (part.type === 'image_url' && part.image_url !== undefined) {
    const { url, detail } = typeof part.image_url === 'string' ? { url: part.image_url } : part.image_url;
    const image = readImage(url);
    return detail !== undefined && (image.kind === 'data' || image.kind === 'link') ? { ...image, detail } : image;
  }
  if (part.type === 'input_audio' && part.input_audio !== undefined) {
    const { data, format } = part.input_audio;
    return { kind: 'data', field: 'input_audio', mediaType: `audio/${format}`, base64: data };
  }
  if (part.type === 'file' && part.file !== undefined) return readFile(part.file);
  const text = part.text ?? part.refusal;
  return text === undefined ? { kind: 'unknown', field: part.type } : { kind: 'text', text };
}

export function readImage(url: string): ContentItem {
  return readLocation('image_url', url, 'image/jpeg');
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

/**
 * Refuses files that a chat names by their id at a model API: they lie in the operator's account, which all callers share, and a
 * chat completion does not say which of them are the caller's own. An id that is an address is not one of an account.
 */
export function refuseStoredFiles(messages: readonly ChatMessage[]): void {
  for (const [index, { content }] of messages.entries()) {
    if (!Array.isArray(content)) continue;
    for (const [place, part] of content.entries()) {
      // Mistral has the id in the part itself.
      const { file, file_id: flat } = part as ContentPart & { file_id?: unknown };
      const id = file?.file_id ?? flat;
      if (typeof id !== 'string' || isUrl(id)) continue;
      throw nothingStored({ id, path: `/messages/${index}/content/${place}/${file ? 'file/' : ''}file_id` });
    }
  }
}

/** The refusal of a request that names something which is not stored for the caller. */
export function nothingStored({ path }: Reference): AppError {
  return new AppError('NOTHING_STORED', { field: path.slice(1).replaceAll('/', '.'), issues: [{ path }] });
}

function isUrl(text: string): boolean {
  return text.startsWith('data:') || /^[a-z][a-z\d+.-]{0,30}:\/\//i.test(text);
}

/** Returns the media type for the extension of a file name or of a URL. */
export function typeOfName(name: string): string | undefined {
  if (FILM_SITE.test(name)) return 'video/mp4';
  const path = name.split(/[?#]/, 1)[0] ?? '';
  const dot = path.lastIndexOf('.');
  return dot === -1 ? undefined : TYPE_OF_EXTENSION.get(path.slice(dot + 1).toLowerCase());
}
