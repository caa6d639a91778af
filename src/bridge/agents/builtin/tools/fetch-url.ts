import { Type } from 'typebox';
import { describeFailure } from '../../../../platform/callbacks/callback-post.ts';
import { matchesHost } from '../../../../platform/child-process/sandbox-network.ts';
import { type Deadline, deadline } from '../../../../platform/clock/clock.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { classifyHost } from '../../../../platform/network-address/classify-address.ts';
import { refuse } from './confinement.ts';
import { defineTool, type ToolOutput, type WebAccess } from './tool.ts';

const MAX_URL = 4096;
/** Of a response, after it is unpacked; the rest is not read. */
const MAX_BYTES = 4 * 1024 * 1024;
const MAX_OUTPUT_CHARACTERS = 32 * 1024;
const MAX_REDIRECTS = 5;
/** For all of it, from the lookup of the name to the last byte. */
const FETCH_MS = 30_000;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const TEXT_TYPE =
  /^(?:text\/|application\/(?:[\w.+-]*\+)?(?:json|xml|yaml|javascript|ecmascript|x-ndjson|toml|rtf|sql)$)/;
const HTML_TYPE = /^(?:text\/html|application\/xhtml\+xml)$/;

/** Reads a page of the web. What may be reached is decided by the address that a connection is made to. */
export const fetchUrlTool = defineTool({
  name: 'fetch_url',
  description: `Fetches a public web page by GET and returns its text; HTML is turned into plain text with its links. At most 32 KiB at a time; go on with start. A redirect to another host is not followed but returned.`,
  parameters: Type.Object({
    url: Type.String({ minLength: 1, maxLength: MAX_URL, description: 'An address with http or https.' }),
    start: Type.Optional(
      Type.Integer({ minimum: 0, description: 'First character of the text to return. Default 0.' }),
    ),
  }),
  toolKind: 'fetch',
  needsPermission: true,
  title: ({ url }) => `Fetch ${url}`,
  async run({ url, start = 0 }, { web, signal, commands }) {
    if (web === undefined) return refuse('There is no network here.');
    const limit = deadline(commands.clock, FETCH_MS, [signal]);
    try {
      return await fetchPage(url, start, web, limit);
    } catch (error) {
      signal.throwIfAborted();
      if (limit.hasPassed()) return refuse(`The page did not come within ${FETCH_MS} ms.`);
      return refuse(reasonOf(error));
    } finally {
      limit.release();
    }
  },
});

async function fetchPage(given: string, start: number, web: WebAccess, { signal }: Deadline): Promise<ToolOutput> {
  let url = given;
  for (let redirects = 0; ; redirects += 1) {
    checkHost(url, web);
    const headers = { accept: 'text/html, text/*;q=0.9, */*;q=0.5', 'user-agent': `trestle/${web.version}` };
    const response = await web.fetch(url, { headers, redirect: 'manual', signal });
    const location = REDIRECTS.has(response.status) ? response.headers.get('location') : null;
    if (location === null) return describe(url, start, response);
    await response.body?.cancel();
    const next = URL.parse(location, url);
    if (next === null) return refuse('The page redirects to something that is not an address.');
    if (next.hostname !== new URL(url).hostname) {
      return { text: `[redirected to another host: fetch ${next.href.slice(0, MAX_URL)} if you need it]` };
    }
    if (redirects === MAX_REDIRECTS) return refuse(`The page redirects more than ${MAX_REDIRECTS} times.`);
    url = next.href;
  }
}

/** By name; which address the name has is checked when the connection is made. */
function checkHost(url: string, { hosts }: WebAccess): void {
  const host = classifyHost(URL.parse(url)?.hostname ?? '');
  // What is not an address is refused with its reason by the rules.
  if (host.kind === 'invalid') return;
  const name = host.kind === 'name' ? host.name : host.address;
  if (!hosts.some((pattern) => matchesHost(pattern, name))) {
    refuse(
      `${name.slice(0, 200)} is not one of the hosts that may be reached; the operator lists them in bridge.sandbox_hosts.`,
    );
  }
}

async function describe(url: string, start: number, { status, headers, body }: Response): Promise<ToolOutput> {
  const [type = '', ...parameters] = (headers.get('content-type') ?? 'text/plain').toLowerCase().split(';');
  const failed = status >= 200 && status < 300 ? {} : { failed: true };
  const head = `[${url}, status ${status}]`;
  if (!TEXT_TYPE.test(type.trim()) && !HTML_TYPE.test(type.trim())) {
    await body?.cancel();
    return { text: `${head}\n[${type.trim().slice(0, 100)}, not shown]`, ...failed };
  }
  const { bytes, isCut } = await readBeginning(body);
  const isHtml = HTML_TYPE.test(type.trim());
  const text = decode(bytes, parameters.join(';'), isHtml);
  const shown = isHtml ? htmlToText(text, url) : text;
  const part = shown.slice(start, start + MAX_OUTPUT_CHARACTERS);
  const next = start + part.length;
  const more = next < shown.length ? [`[there is more: go on with start ${next}]`] : isCut ? [CUT] : [];
  return { text: [head, part === '' ? '[no text here]' : part, ...more].join('\n'), ...failed };
}

const CUT = `[cut: the page has more than ${MAX_BYTES} bytes]`;

async function readBeginning(body: ReadableStream<Uint8Array> | null) {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    chunks.push(chunk);
    length += chunk.length;
    if (length > MAX_BYTES) break;
  }
  return { bytes: Buffer.concat(chunks).subarray(0, MAX_BYTES), isCut: length > MAX_BYTES };
}

const CHARSET = /charset\s?=\s?["']?([\w-]{1,40})/i;

function decode(bytes: Buffer, parameters: string, isHtml: boolean): string {
  const head = isHtml ? bytes.toString('latin1', 0, 1024) : '';
  const [, label = 'utf-8'] = CHARSET.exec(parameters) ?? CHARSET.exec(head) ?? [];
  try {
    return new TextDecoder(label).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}

/** What the model gets to know of a failure. It names no address that a name stands for. */
function reasonOf(error: unknown): string {
  for (const one of [error, Object(error).cause]) {
    if (one instanceof AppError && typeof one.details.reason === 'string') {
      return one.code === 'TOOL_CALL_REFUSED' ? one.details.reason : `This may not be fetched: ${one.details.reason}.`;
    }
  }
  return `The page could not be fetched: ${describeFailure(error)}.`;
}

/** Elements whose content is not for readers, and where that content ends. */
const UNREAD: Readonly<Record<string, RegExp>> = {
  script: /<\/script/gi,
  style: /<\/style/gi,
  noscript: /<\/noscript/gi,
  template: /<\/template/gi,
  svg: /<\/svg/gi,
  iframe: /<\/iframe/gi,
};
/** Elements that stand on lines of their own. */
const BLOCKS: ReadonlySet<string> = new Set(
  (
    'address article aside blockquote body br dd details dialog div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 ' +
    'head header hr html li main nav ol option p pre section summary table tbody tfoot thead title tr ul'
  ).split(' '),
);
/** Of these, those with an empty line before and after. */
const PARAGRAPHS: ReadonlySet<string> = new Set(
  'article blockquote dl h1 h2 h3 h4 h5 h6 ol p pre table title ul'.split(' '),
);
const CELLS: ReadonlySet<string> = new Set(['td', 'th']);
const HEADING = /^h([1-6])$/;
const NAME = /(\/?)([a-z][a-z0-9-]{0,30})/iy;
const ENTITY = /&(#x[0-9a-f]{1,6}|#[0-9]{1,7}|[a-z]{2,8});/gi;
const ENTITIES: Readonly<Record<string, string>> = {
  ...{ amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: ' ', copy: '©', reg: '®', trade: '™', euro: '€' },
  ...{ mdash: '—', ndash: '–', hellip: '…', lsquo: '‘', rsquo: '’', ldquo: '“', rdquo: '”', laquo: '«', raquo: '»' },
  ...{ bull: '•', middot: '·', times: '×', rarr: '→', larr: '←', deg: '°', sect: '§', para: '¶', shy: '' },
};

/**
 * The text of a page, for a model: headings, lists and links stay visible, everything else of the markup is dropped. Takes time in
 * proportion to the length, whatever the page contains.
 */
export function htmlToText(html: string, address: string): string {
  const lines = createLines();
  const quotes = createQuoteSearch(html);
  let link = '';
  let at = 0;
  while (at < html.length) {
    const open = html.indexOf('<', at);
    lines.add(decodeEntities(html.slice(at, open === -1 ? html.length : open)));
    if (open === -1) break;
    if (html.startsWith('<!--', open)) {
      at = after(html, '-->', open + 4);
      continue;
    }
    NAME.lastIndex = open + 1;
    const [, slash, written = ''] = NAME.exec(html) ?? [];
    if (written === '') {
      const isDeclaration = html[open + 1] === '!' || html[open + 1] === '?' || html[open + 1] === '/';
      if (!isDeclaration) lines.add('<');
      at = isDeclaration ? after(html, '>', open) : open + 1;
      continue;
    }
    const end = quotes.endOfTag(open + 1);
    const tag = html.slice(open, end);
    const name = written.toLowerCase();
    at = end;
    if (slash === '/') {
      close(name);
      continue;
    }
    // Pages have elements of any name, such as `constructor`, which every object has.
    const unread = Object.hasOwn(UNREAD, name) ? UNREAD[name] : undefined;
    if (unread !== undefined && !tag.endsWith('/>')) {
      unread.lastIndex = end;
      const found = unread.exec(html);
      at = found === null ? html.length : after(html, '>', found.index);
      continue;
    }
    begin(name, tag);
  }
  return lines.text();

  function begin(name: string, tag: string): void {
    if (BLOCKS.has(name)) lines.end(PARAGRAPHS.has(name));
    if (name === 'pre') lines.keepSpaces(true);
    if (name === 'li') lines.add('- ');
    if (CELLS.has(name)) lines.add(' | ');
    const [, level] = HEADING.exec(name) ?? [];
    if (level !== undefined) lines.add(`${'#'.repeat(Number(level))} `);
    if (name === 'img') {
      const alt = attribute(tag, ALT);
      if (alt !== '') lines.add(`[image: ${alt}]`);
    }
    if (name === 'a') link = linkOf(attribute(tag, HREF), address);
  }

  function close(name: string): void {
    if (name === 'a') {
      if (link !== '') lines.add(` (${link})`);
      link = '';
    }
    if (name === 'pre') lines.keepSpaces(false);
    if (BLOCKS.has(name)) lines.end(PARAGRAPHS.has(name));
  }
}

const HREF = /\shref\s?=\s?(?:"([^"]{0,2000})"|'([^']{0,2000})'|([^\s"'>]{1,2000}))/i;
const ALT = /\salt\s?=\s?(?:"([^"]{0,200})"|'([^']{0,200})'|([^\s"'>]{1,200}))/i;

function attribute(tag: string, pattern: RegExp): string {
  // Longer tags have data in them.
  const [, double, single, bare] = pattern.exec(tag.slice(0, 4096)) ?? [];
  return decodeEntities(double ?? single ?? bare ?? '').trim();
}

/** The whole address of a link to another page. Empty: it leads nowhere else. */
function linkOf(href: string, address: string): string {
  if (href === '' || href.startsWith('#')) return '';
  const url = URL.parse(href, address);
  return url !== null && /^https?:$/.test(url.protocol) ? url.href : '';
}

function after(text: string, mark: string, from: number): number {
  const at = text.indexOf(mark, from);
  return at === -1 ? text.length : at + mark.length;
}

/** Finds ends of tags: a `>` in a quoted value is not one. A quote that nothing closes counts as no quote. */
function createQuoteSearch(html: string) {
  const isOver = { '"': false, "'": false };
  function endOfTag(from: number): number {
    for (let at = from; at < html.length; at += 1) {
      const character = html[at];
      if (character === '>') return at + 1;
      if ((character !== '"' && character !== "'") || isOver[character]) continue;
      const closing = html.indexOf(character, at + 1);
      // There is none after this place: none is looked for again.
      if (closing === -1) isOver[character] = true;
      else at = closing;
    }
    return html.length;
  }
  return { endOfTag };
}

function decodeEntities(text: string): string {
  if (!text.includes('&')) return text;
  return text.replaceAll(ENTITY, (whole, name: string) => {
    if (!name.startsWith('#')) return ENTITIES[name.toLowerCase()] ?? whole;
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1));
    const isCharacter = code > 31 && code <= 0x10_ff_ff && (code < 0xd8_00 || code > 0xdf_ff);
    return isCharacter ? String.fromCodePoint(code) : ' ';
  });
}

/** Puts text together, with single spaces and at most one empty line in a row. */
function createLines() {
  const lines: string[] = [];
  let parts: string[] = [];
  let isAfterSpace = true;
  let keepsSpaces = false;
  function endLine(): void {
    const line = parts.join('').trimEnd();
    parts = [];
    isAfterSpace = true;
    if (line !== '') lines.push(line);
  }
  function end(isParagraph: boolean): void {
    endLine();
    if (isParagraph && lines.length > 0 && lines.at(-1) !== '') lines.push('');
  }
  return {
    add(text: string): void {
      if (keepsSpaces) {
        const [first = '', ...rest] = text.split(/\r?\n/);
        parts.push(first);
        for (const line of rest) {
          lines.push(parts.join('').trimEnd());
          parts = [line];
        }
        return;
      }
      let words = text.replaceAll(/[\s\u00a0]+/g, ' ');
      if (isAfterSpace && words.startsWith(' ')) words = words.slice(1);
      if (words === '') return;
      parts.push(words);
      isAfterSpace = words.endsWith(' ');
    },
    end,
    keepSpaces(keeps: boolean): void {
      keepsSpaces = keeps;
    },
    text(): string {
      endLine();
      return lines.join('\n').trim();
    },
  };
}
