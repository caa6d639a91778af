import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { type AppError, errorCode } from '../../platform/errors/app-error.ts';
import { afterReads } from '../../platform/queue/after-reads.ts';
import type { Dialect } from '../dialects/dialect.ts';
import type { CallerPresence } from '../routing/call-record.ts';
import {
  failureToError,
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
  /** The API's key: no caller gets to see it. */
  readonly secret: string;
  readonly presence: CallerPresence;
  readonly now: () => number;
  /** Hears of the headers of a success. */
  onHeaders?(headers: UpstreamHeaders): void;
}

/** No answer is longer, compressed or not (a small body can unpack to anything). */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const MAX_REFUSAL_BYTES = 64 * 1024;
const DECOMPRESSIONS = { gzip: promisify(gunzip), deflate: promisify(inflate), br: promisify(brotliDecompress) };

/** The bytes of a whole answer with status 2xx; anything else is thrown. */
export function openAnswer(options: OpenOptions): Promise<Buffer> {
  const { start, presence } = options;
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    let status = 0;
    let headers: UpstreamHeaders = {};
    const exchange = start({
      onHead(givenStatus, givenHeaders) {
        status = givenStatus;
        headers = givenHeaders;
      },
      onData(chunk) {
        length += chunk.length;
        const limit = isSuccess(status) ? MAX_ANSWER_BYTES : MAX_REFUSAL_BYTES;
        if (length <= limit) chunks.push(chunk);
        else if (isSuccess(status)) {
          exchange.abort();
          reject(tooLarge());
        }
      },
      onEnd() {
        presence.watch(ignore);
        const body = chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks);
        const { 'content-encoding': encoding } = headers;
        if (encoding === undefined || encoding === 'identity') afterReads(() => finish(body));
        else decompress(body, String(encoding)).then(finish, reject);
      },
      onFailed: reject,
    });
    presence.watch(() => {
      exchange.abort();
      reject(presence.failure());
    });

    function finish(body: Buffer): void {
      if (isSuccess(status)) {
        options.onHeaders?.(headers);
        resolve(body);
      } else reject(refusal(status, headers, body.toString('utf8'), options));
    }
  });
}

function ignore(): void {}

export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** An answer that is no success, as the error that our caller gets. */
export function refusal(
  status: number,
  headers: UpstreamHeaders,
  text: string,
  { decodeFailure, secret, now }: Pick<OpenOptions, 'decodeFailure' | 'secret' | 'now'>,
): AppError {
  if (status < 400) return upstreamError(`it answered with status ${status}, and redirects are not followed`);
  const body = parseIfJson(text);
  const retryAfterMs = readRetryAfter(headers, now()) ?? readRetryInfo(body);
  return failureToError(decodeFailure(status, body), secret, { retryAfterMs });
}

/** The start of a refusal's text is enough, however long it is. */
export function createRefusalText() {
  const chunks: Buffer[] = [];
  let length = 0;
  return {
    add(chunk: Buffer): void {
      if (length < MAX_REFUSAL_BYTES) chunks.push(chunk);
      length += chunk.length;
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
