import { Buffer } from 'node:buffer';
import { asList, asNumber, asObject, asText, asWords, type JsonObject } from './json-value.ts';

/**
 * A source that an answer names, in the form of chat completions: `type`, and what is known of the source under the name of the type.
 * `url_citation` is OpenAI's; `file_citation` stands for documents and results of tools. `start_index` and `end_index` are places
 * in the text of the answer, and `cited_text` is what the source says. Members of one API alone stay beside them.
 */
export interface Annotation {
  readonly type: string;
  readonly [member: string]: unknown;
}

function citation(type: 'url_citation' | 'file_citation', told: JsonObject): Annotation {
  return { type, [type]: Object.fromEntries(Object.entries(told).filter(([, value]) => value !== undefined)) };
}

function toldIn(annotation: Annotation): JsonObject {
  return asObject(annotation[annotation.type]) ?? {};
}

function isUrl(text: string | undefined): text is string {
  return text !== undefined && /^https?:\/\//.test(text);
}

/** The same source, for a piece of the answer. */
export function citedAt(annotation: Annotation, start: number, end: number): Annotation {
  return { ...annotation, [annotation.type]: { ...toldIn(annotation), start_index: start, end_index: end } };
}

/** A citation of Claude's: a page of the web, a search result of the caller's, or a place in a document. */
export function readClaudeCitation(value: unknown): Annotation | undefined {
  const given = asObject(value);
  if (given === undefined) return undefined;
  const { type: _, url, source, title, document_title: document, ...own } = given;
  const address = asWords(url) ?? (isUrl(asWords(source)) ? asWords(source) : undefined);
  if (address !== undefined) return citation('url_citation', { url: address, title: title ?? undefined, ...own });
  const filename = asWords(document) ?? asWords(title) ?? asWords(source);
  return citation('file_citation', { filename, ...own });
}

/** What Claude calls a place in a document, by the member that only such a place has. */
const DOCUMENT_PLACES: readonly (readonly [member: string, type: string])[] = [
  ['start_char_index', 'char_location'],
  ['start_page_number', 'page_location'],
  ['document_index', 'content_block_location'],
];
/** The search result of a source that is none: Claude's own begin at 0. */
const NO_SEARCH_RESULT = -1;

/** A source as a citation of Claude's. What its own API would refuse to get back is found by `isForeignCitation`. */
export function claudeCitation(annotation: Annotation): JsonObject {
  const { url, title, filename, start_index: _, end_index: __, cited_text: quoted = '', ...own } = toldIn(annotation);
  const name = title ?? filename ?? null;
  if (typeof url === 'string' && own.search_result_index === undefined) {
    return { type: 'web_search_result_location', cited_text: quoted, url, title: name, encrypted_index: '', ...own };
  }
  const [, place] = DOCUMENT_PLACES.find(([member]) => own[member] !== undefined) ?? [];
  if (place !== undefined) return { type: place, cited_text: quoted, document_title: name, ...own };
  return {
    ...{ type: 'search_result_location', cited_text: quoted, source: url ?? own.file_id ?? name ?? '', title: name },
    ...{ search_result_index: NO_SEARCH_RESULT, start_block_index: 0, end_block_index: 0, ...own },
  };
}

/** Whether a citation in a request was made of another maker's answer. */
export function isForeignCitation(value: unknown): boolean {
  const { encrypted_index: index, search_result_index: result } = asObject(value) ?? {};
  return index === '' || result === NO_SEARCH_RESULT;
}

/** A citation of the Converse API: Claude's and Nova's. */
export function readBedrockCitation(value: unknown): Annotation | undefined {
  const given = asObject(value);
  if (given === undefined) return undefined;
  const { title, source, location, sourceContent } = given;
  const quoted = asList(sourceContent).map((piece) => asText(asObject(piece)?.text) ?? '');
  const [kind = '', place] = Object.entries(asObject(location) ?? {})[0] ?? [];
  const { url, domain: _, ...where } = asObject(place) ?? {};
  const told = { title, cited_text: quoted.length === 0 ? undefined : quoted.join('') };
  const address = asWords(url) ?? (isUrl(asWords(source)) ? asWords(source) : undefined);
  if (address !== undefined) return citation('url_citation', { url: address, ...told });
  const names = (Object.hasOwn(PLACE_NAMES, kind) ? PLACE_NAMES[kind] : undefined) ?? {};
  const own = Object.entries(where).flatMap(([name, at]) => (Object.hasOwn(names, name) ? [[names[name], at]] : []));
  return citation('file_citation', { filename: asWords(source) ?? title, ...told, ...Object.fromEntries(own) });
}

/** Bedrock's places in a document under Claude's names. */
const PLACE_NAMES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  documentChar: { documentIndex: 'document_index', start: 'start_char_index', end: 'end_char_index' },
  documentPage: { documentIndex: 'document_index', start: 'start_page_number', end: 'end_page_number' },
  documentChunk: { documentIndex: 'document_index', start: 'start_block_index', end: 'end_block_index' },
  searchResultLocation: {
    searchResultIndex: 'search_result_index',
    start: 'start_block_index',
    end: 'end_block_index',
  },
};

/** A citation of Cohere's: one for each of its sources. */
export function readCohereCitation(value: unknown): readonly Annotation[] {
  const given = asObject(value);
  const start = asNumber(given?.start);
  const end = asNumber(given?.end);
  return asList(given?.sources).flatMap((each): readonly Annotation[] => {
    const source = asObject(each);
    if (source === undefined) return [];
    const document = asObject(source.document) ?? {};
    const { title, url } = document;
    const quoted = asWords(document.snippet) ?? asWords(document.text) ?? asWords(document.data);
    const text = quoted ?? (source.tool_output === undefined ? undefined : JSON.stringify(source.tool_output));
    const told = { title, cited_text: text, start_index: start, end_index: end };
    if (typeof url === 'string') return [citation('url_citation', { url, ...told })];
    return [citation('file_citation', { file_id: asWords(source.id), filename: asWords(title), ...told })];
  });
}

/** An annotation of the Responses API, whose members stand beside its type. `offset`: where its part of the text begins. */
export function readFlatAnnotation(value: unknown, offset: number): Annotation | undefined {
  const { type, ...told } = asObject(value) ?? {};
  if (typeof type !== 'string') return undefined;
  const [start, end] = [asNumber(told.start_index), asNumber(told.end_index)];
  return { type, [type]: told, ...(start !== undefined && end !== undefined && offset > 0 && shifted()) };

  function shifted(): JsonObject {
    return { [type as string]: { ...told, start_index: offset + (start ?? 0), end_index: offset + (end ?? 0) } };
  }
}

/** The other way round. A page without a place is named for the whole text. */
export function flatAnnotation(annotation: Annotation, textLength: number): JsonObject {
  const { type } = annotation;
  const place = type === 'url_citation' ? { start_index: 0, end_index: textLength, title: '' } : {};
  return { type, ...place, ...toldIn(annotation) };
}

/** Pages that some servers of chat completions (Perplexity, xAI) name beside the answer. */
export function listedPages({ citations, search_results: results }: JsonObject): readonly Annotation[] {
  const found = asList(results).flatMap((value) => {
    const { url, title, snippet } = asObject(value) ?? {};
    return typeof url === 'string' ? [citation('url_citation', { url, title, cited_text: asWords(snippet) })] : [];
  });
  if (found.length > 0) return found;
  return asList(citations).flatMap((url) => (typeof url === 'string' ? [citation('url_citation', { url })] : []));
}

/** What Gemini found (grounding) and what it quotes; `text` is the whole text of the candidate. Google counts places in bytes. */
export function readGrounding(candidate: JsonObject, text: string): readonly Annotation[] {
  const { groundingChunks: chunks, groundingSupports: supports } = asObject(candidate.groundingMetadata) ?? {};
  const quotes = asObject(candidate.citationMetadata) ?? {};
  const sources = asList(chunks).map(readChunk);
  const quoted = asList(quotes.citationSources ?? quotes.citations).map((value) => asObject(value) ?? {});
  const segments = asList(supports).map((value) => asObject(asObject(value)?.segment) ?? {});
  const places = charactersAt(
    text,
    [...segments, ...quoted].flatMap(({ startIndex, endIndex }) => [bytesOf(startIndex), bytesOf(endIndex)]),
  );
  const placed = (source: Annotation, { startIndex, endIndex }: JsonObject): readonly Annotation[] => {
    if (endIndex === undefined) return [source];
    return [citedAt(source, places.get(bytesOf(startIndex)) ?? 0, places.get(bytesOf(endIndex)) ?? text.length)];
  };
  const used = new Set<number>();
  const found = asList(supports).flatMap((value, at) =>
    asList(asObject(value)?.groundingChunkIndices).flatMap((number) => {
      const source = sources[Number(number)];
      if (source === undefined) return [];
      used.add(Number(number));
      return placed(source, segments[at] ?? {});
    }),
  );
  const unplaced = sources.filter((source, number) => source !== undefined && !used.has(number));
  const quotations = quoted.flatMap((quote) => {
    const { uri, title, license } = quote;
    const source = typeof uri === 'string' ? { url: uri, title, license } : undefined;
    return source === undefined ? [] : placed(citation('url_citation', source), quote);
  });
  return [...found, ...unplaced.filter((source) => source !== undefined), ...quotations];
}

/** A page, a place on a map, or a passage of a document. */
function readChunk(value: unknown): Annotation | undefined {
  const chunk = asObject(value) ?? {};
  const { uri, title, text } = asObject(chunk.web) ?? asObject(chunk.maps) ?? asObject(chunk.retrievedContext) ?? {};
  if (typeof uri === 'string' && uri !== '') return citation('url_citation', { url: uri, title, cited_text: text });
  return typeof title === 'string' || typeof text === 'string'
    ? citation('file_citation', { filename: title, cited_text: text })
    : undefined;
}

function bytesOf(value: unknown): number {
  return Math.max(0, asNumber(value) ?? 0);
}

/** Where characters stand that Google counts in bytes, by the number of bytes. */
function charactersAt(text: string, offsets: readonly number[]): ReadonlyMap<number, number> {
  const bytes = Buffer.from(text);
  return inOrder(offsets, (from, to) => bytes.toString('utf8', from, to).length);
}

/** Adds up what `sizeOf` says of the pieces between the offsets. Each piece is read a single time. */
function inOrder(
  offsets: readonly number[],
  sizeOf: (from: number, to: number) => number,
): ReadonlyMap<number, number> {
  const places = new Map<number, number>();
  let from = 0;
  let size = 0;
  for (const to of [...new Set(offsets)].sort((a, b) => a - b)) {
    size += sizeOf(from, to);
    from = to;
    places.set(to, size);
  }
  return places;
}

/** Sources as what Gemini found; undefined where there are none. */
export function groundingOf(annotations: readonly Annotation[], text: string): JsonObject | undefined {
  if (annotations.length === 0) return undefined;
  const told = annotations.map(toldIn);
  const placesOf = ({ start_index: start, end_index: end }: JsonObject) => [bytesOf(start), bytesOf(end)];
  const bytes = inOrder(told.flatMap(placesOf), (from, to) => Buffer.byteLength(text.slice(from, to)));
  const chunks = new Map<string, number>();
  const supports = told.flatMap((source) => {
    const chunk = JSON.stringify(chunkOf(source));
    const number = chunks.get(chunk) ?? chunks.size;
    chunks.set(chunk, number);
    if (source.end_index === undefined) return [];
    const [start = 0, end = 0] = placesOf(source);
    const segment = { startIndex: bytes.get(start), endIndex: bytes.get(end), text: text.slice(start, end) };
    return [{ segment, groundingChunkIndices: [number] }];
  });
  const all = [...chunks.keys()].map((chunk) => JSON.parse(chunk) as unknown);
  return { groundingChunks: all, ...(supports.length > 0 && { groundingSupports: supports }) };
}

function chunkOf({ url, title, filename, file_id: id, cited_text: quoted }: JsonObject): JsonObject {
  const name = title ?? filename ?? id;
  if (typeof url === 'string' && quoted === undefined) return { web: { uri: url, title: name } };
  return { retrievedContext: { uri: url, title: name, text: quoted } };
}
