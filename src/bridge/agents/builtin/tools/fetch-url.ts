import { Type } from 'typebox';
import { describeFailure } from '../../../../platform/callbacks/callback-post.ts';
import { matchesHost } from '../../../../platform/child-process/sandbox-network.ts';
import { type Deadline, deadline } from '../../../../platform/clock/clock.ts';
import { AppError } from '../../../../platform/errors/app-error.ts';
import { classifyHost } from '../../../../platform/network-address/classify-address.ts';
import { refuse } from './confinement.ts';
import { htmlToText } from './html-text.ts';
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
