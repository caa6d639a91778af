import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { type AppError, errorCode } from '../../platform/errors/app-error.ts';
import { afterReads } from '../../platform/queue/after-reads.ts';
import type { Dialect } from '../dialects/dialect.ts';
import type { CallerPresence } from '../routing/call-record.ts';
import {
  failureToError,
  type HideSecrets,
  readRetryAfter,
  readRetryInfo,
  type UpstreamHeaders,
  upstreamError,
} from '../routing/upstream-failure.ts';
import type { Exchange, ExchangeListener } from '../upstream/upstream-exchange.ts';

export interface OpenOptions {
  /** Sends the request. */
  readonly start: (listener: ExchangeListener) => Exchange;
  readonly decodeFailure: Dialect['decodeFailure'];
  /** Removes the secrets of the API from messages. */
  readonly hide: HideSecrets;
  readonly presence: CallerPresence;
  readonly now: () => number;
  /** Called with the headers of a success. */
  onHeaders?(headers: UpstreamHeaders): void;
}

/** The largest response, also after decompression, because a small body can unpack to any size. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const MAX_REFUSAL_BYTES = 64 * 1024;
const DECOMPRESSIONS = { gzip: promisify(gunzip), deflate: promisify(inflate), br: promisify(brotliDecompress) };

/** Returns the bytes of a response with status 2xx. Throws for any other response. */
export function openAnswer(options: OpenOptions): Promise<Buffer> {
  return new Promise((resolve, reject) => new WholeAnswer(options, resolve, reject).open());
}

/** A class, because there is one for each call. */
class WholeAnswer implements ExchangeListener {
  readonly #options: OpenOptions;
  readonly #resolve: (body: Buffer) => void;
  readonly #reject: (error: unknown) => void;
  #exchange: Exchange | undefined = undefined;
  #chunks: Buffer[] = [];
  #length = 0;
  #status = 0;
  #headers: UpstreamHeaders = NO_HEADERS;

  constructor(options: OpenOptions, resolve: (body: Buffer) => void, reject: (error: unknown) => void) {
    this.#options = options;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  open(): void {
    const { start, presence } = this.#options;
    const exchange = start(this);
    this.#exchange = exchange;
    presence.watch(() => {
      exchange.abort();
      this.#reject(presence.failure());
    });
  }

  onHead(status: number, headers: UpstreamHeaders): void {
    this.#status = status;
    this.#headers = headers;
  }

  onData(chunk: Buffer): void {
    this.#length += chunk.length;
    const limit = isSuccess(this.#status) ? MAX_ANSWER_BYTES : MAX_REFUSAL_BYTES;
    if (this.#length <= limit) {
      this.#chunks.push(chunk);
      return;
    }
    this.#exchange?.abort();
    if (isSuccess(this.#status)) this.#reject(tooLarge());
    // The start says enough: a refusal may have no end.
    else this.#finish(Buffer.concat([...this.#chunks, chunk], limit));
  }

  onEnd(): void {
    this.#options.presence.watch(ignore);
    const { 'content-encoding': encoding } = this.#headers;
    const [first] = this.#chunks;
    const body = this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks);
    if (encoding === undefined || encoding === 'identity') afterReads(() => this.#finish(body));
    else decompress(body, String(encoding)).then((unpacked) => this.#finish(unpacked), this.#reject);
  }

  onFailed(error: AppError): void {
    this.#reject(error);
  }

  #finish(body: Buffer): void {
    if (isSuccess(this.#status)) {
      this.#options.onHeaders?.(this.#headers);
      this.#resolve(body);
    } else this.#reject(refusal(this.#status, this.#headers, body.toString('utf8'), this.#options));
  }
}

const NO_HEADERS: UpstreamHeaders = {};

function ignore(): void {}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** Returns the error that our caller gets for a response that is not a success. */
export function refusal(
  status: number,
  headers: UpstreamHeaders,
  text: string,
  { decodeFailure, hide, now }: Pick<OpenOptions, 'decodeFailure' | 'hide' | 'now'>,
): AppError {
  // Not statuses of HTTP: there is nothing to read in the body of such a response.
  if (status < 200 || status > 599) return upstreamError(`it answered with status ${status}, which is not one of HTTP`);
  if (status < 400) return upstreamError(`it answered with status ${status}, and redirects are not followed`);
  const body = parseIfJson(text);
  const retryAfterMs = readRetryAfter(headers, now()) ?? readRetryInfo(body);
  return failureToError(decodeFailure(status, body), hide, { retryAfterMs });
}

/** Keeps only the start of a refusal's text. */
export function createRefusalText() {
  const chunks: Buffer[] = [];
  let length = 0;
  return {
    /** Returns false when there is enough of it: a refusal may have no end. */
    add(chunk: Buffer): boolean {
      chunks.push(chunk);
      length += chunk.length;
      return length < MAX_REFUSAL_BYTES;
    },
    read: () => Buffer.concat(chunks).toString('utf8', 0, MAX_REFUSAL_BYTES),
  };
}

async function decompress(body: Buffer, encoding: string): Promise<Buffer> {
  const unpack = Object.hasOwn(DECOMPRESSIONS, encoding)
    ? DECOMPRESSIONS[encoding as keyof typeof DECOMPRESSIONS]
    : undefined;
  if (unpack === undefined) throw upstreamError('its answer is compressed in a way that was not asked for');
  try {
    return await unpack(body, { maxOutputLength: MAX_ANSWER_BYTES });
  } catch (error) {
    throw errorCode(error) === 'ERR_BUFFER_TOO_LARGE' ? tooLarge() : upstreamError('its answer is damaged', error);
  }
}

function tooLarge(): AppError {
  return upstreamError(`its answer is larger than ${MAX_ANSWER_BYTES / 1024 / 1024} MiB`);
}

function parseIfJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
