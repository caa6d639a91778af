import { lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { readAtMost } from '../../platform/http/bounded-fetch.ts';
import { classifyAddress, classifyHost, isMetadataName } from '../../platform/network-address/classify-address.ts';
import { createAddressMatcher } from '../../platform/network-address/ip-address.ts';
import type { ChatRequest, ContentPart } from '../contract/chat.ts';
import type { CallerPresence } from '../routing/call-record.ts';

/** Fetches images and documents that a caller gives by URL, for model APIs that fetch nothing themselves. */
export type FetchLinkedFiles = (request: ChatRequest, presence: CallerPresence) => Promise<ChatRequest>;

export interface LinkedFilesOptions {
  /** Ranges that the operator lists although they are not public. */
  readonly allow: readonly string[];
  readonly clock: Clock;
  readonly lookUp?: LookupFunction;
  readonly ownAddresses?: () => readonly string[];
}

const MAX_LINKS = 20;
/** The largest file, and all files of one request: more than any model of Bedrock takes. */
const MAX_FILE_BYTES = 5 * 1024 * 1024;
const MAX_REQUEST_BYTES = 25 * 1024 * 1024;
const MAX_REDIRECTS = 3;
const TIMEOUT_MS = 10_000;
const MEDIA_TYPES: ReadonlySet<string> = new Set([
  ...['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'application/pdf'],
  ...['text/plain', 'text/markdown', 'text/html', 'text/csv'],
]);

/** Returns whether a request links to files that must be fetched. */
export function hasLinkedFiles({ messages }: ChatRequest): boolean {
  return messages.some(({ content }) => Array.isArray(content) && content.some((part) => linkOf(part) !== undefined));
}

/** Returns the request with all linked files as data. A file that cannot be fetched is 400 `invalid_image_url`. */
export function createFetchLinkedFiles(options: LinkedFilesOptions): FetchLinkedFiles {
  const { clock, lookUp = lookup, ownAddresses = addressesOfThisMachine } = options;
  const isListed = createAddressMatcher(options.allow);

  /** Allows public addresses that are not our own, and those that the operator lists, because callers choose these addresses. */
  function allows(address: string): boolean {
    const kind = classifyAddress(address);
    if (kind === 'loopback' || kind === 'private' || kind === 'carrier-nat') return isListed(address);
    return kind === 'public' && (isListed(address) || !createAddressMatcher(ownAddresses())(address));
  }

  const checkedLookup: LookupFunction = (hostname, given, callback) =>
    lookUp(hostname, given, (error, found, family) => {
      const addresses = typeof found === 'string' ? [found] : (found ?? []).map(({ address }) => address);
      if (error === null && !addresses.every(allows)) callback(notOpen(hostname), '', 0);
      else callback(error, found, family);
    });

  function checkedUrl(text: string): URL {
    const url = URL.parse(text);
    if (url === null || !/^https?:$/.test(url.protocol)) throw refused(text, 'only http and https can be fetched');
    if (url.username !== '' || url.password !== '') throw refused(text, 'the URL must not hold credentials');
    const host = classifyHost(url.hostname);
    const closed = host.kind === 'address' ? !allows(host.address) : host.kind !== 'name' || isMetadataName(host.name);
    if (closed) throw notOpen(text);
    return url;
  }

  async function fetchFile(link: string, signal: AbortSignal): Promise<FetchedFile> {
    const { Agent, request } = await import('undici');
    const connect = { lookup: checkedLookup, timeout: TIMEOUT_MS };
    const dispatcher = new Agent({ connect, headersTimeout: TIMEOUT_MS, bodyTimeout: TIMEOUT_MS, allowH2: false });
    try {
      let url = checkedUrl(link);
      for (let redirects = 0; ; redirects += 1) {
        const headers = { accept: [...MEDIA_TYPES].join(', '), 'user-agent': 'trestle' };
        const response = await request(url, { dispatcher, signal, headers });
        const { location } = response.headers;
        if (response.statusCode >= 300 && response.statusCode < 400 && typeof location === 'string') {
          if (redirects === MAX_REDIRECTS) throw refused(link, 'it redirects too often');
          url = checkedUrl(new URL(location, url).href);
          continue;
        }
        if (response.statusCode !== 200) throw refused(link, `the server answered with ${response.statusCode}`);
        const mediaType = String(response.headers['content-type']).split(';', 1)[0]?.trim().toLowerCase() ?? '';
        if (!MEDIA_TYPES.has(mediaType)) throw refused(link, 'it is not an image or document of a known content type');
        const bytes = await readAtMost(response.body, MAX_FILE_BYTES);
        if (bytes === undefined) throw refused(link, `it is larger than ${MAX_FILE_BYTES} bytes`);
        return { mediaType, bytes };
      }
    } catch (error) {
      throw error instanceof AppError ? error : causeOf(error, link, signal);
    } finally {
      await dispatcher.destroy();
    }
  }

  /** Requests with their fetched files, so that a retry does not fetch them again. */
  const fetched = new WeakMap<ChatRequest, ChatRequest>();

  return async (request, presence) => {
    const known = fetched.get(request);
    if (known !== undefined) return known;
    const links = new Set<string>();
    for (const { content } of request.messages) {
      if (Array.isArray(content)) for (const part of content) links.add(linkOf(part) ?? '');
    }
    links.delete('');
    if (links.size > MAX_LINKS) throw refused('messages', `a request may have ${MAX_LINKS} of them`);
    const gone = new AbortController();
    presence.watch(() => gone.abort());
    const { signal, release } = deadline(clock, TIMEOUT_MS, [gone.signal]);
    try {
      const files = new Map<string, FetchedFile>();
      const fetching = [...links].map(async (link) => files.set(link, await fetchFile(link, signal)));
      await Promise.all(fetching);
      const total = [...files.values()].reduce((sum, { bytes }) => sum + bytes.length, 0);
      if (total > MAX_REQUEST_BYTES) throw refused('messages', `all files are larger than ${MAX_REQUEST_BYTES} bytes`);
      const filled = withFiles(request, files);
      fetched.set(request, filled);
      return filled;
    } catch (error) {
      throw presence.gone ? presence.failure() : error;
    } finally {
      gone.abort();
      release();
    }
  };
}

interface FetchedFile {
  readonly mediaType: string;
  readonly bytes: Buffer;
}

function linkOf({ type, image_url: image, file }: ContentPart): string | undefined {
  const link = type === 'image_url' ? (typeof image === 'string' ? image : image?.url) : file?.file_data;
  return link !== undefined && /^https?:\/\//i.test(link) ? link : undefined;
}

function withFiles(request: ChatRequest, files: ReadonlyMap<string, FetchedFile>): ChatRequest {
  const inline = (part: ContentPart): ContentPart => {
    const link = linkOf(part);
    const file = link === undefined ? undefined : files.get(link);
    if (file === undefined) return part;
    const url = `data:${file.mediaType};base64,${file.bytes.toString('base64')}`;
    return part.type === 'image_url'
      ? { ...part, image_url: { url } }
      : { ...part, file: { ...part.file, file_data: url } };
  };
  return {
    ...request,
    messages: request.messages.map((message) =>
      Array.isArray(message.content) ? { ...message, content: message.content.map(inline) } : message,
    ),
  };
}

function addressesOfThisMachine(): readonly string[] {
  const found = Object.values(networkInterfaces()).flatMap((addresses = []) => addresses);
  return found.map(({ address }) => address.split('%')[0] ?? address);
}

/** Returns the error of a failed connection. Its cause may be our own refusal of an address. */
function causeOf(error: unknown, link: string, signal: AbortSignal): AppError {
  const cause = error instanceof Error ? error.cause : undefined;
  if (cause instanceof AppError) return cause;
  return refused(link, signal.aborted ? `it took longer than ${TIMEOUT_MS} ms` : 'the server cannot be reached');
}

const MAX_SHOWN_LENGTH = 200;

function notOpen(link: string): AppError {
  return refused(link, 'its address is not open; the operator may list it in completions.link_allow');
}

function refused(link: string, reason: string): AppError {
  const message = `Error while downloading ${link.slice(0, MAX_SHOWN_LENGTH)}: ${reason}.`;
  return new AppError('INVALID_PARAMETER', { message, apiCode: 'invalid_image_url', param: 'messages' });
}
