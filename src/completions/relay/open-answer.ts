import { promisify } from 'node:util';
import { brotliDecompress, constants, gunzip, inflate } from 'node:zlib';
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
/** `cut`: how a body is unpacked whose end is missing. */
const DECOMPRESSIONS = {
  gzip: { unpack: promisify(gunzip), cut: { finishFlush: constants.Z_SYNC_FLUSH } },
  deflate: { unpack: promisify(inflate), cut: { finishFlush: constants.Z_SYNC_FLUSH } },
  br: { unpack: promisify(brotliDecompress), cut: { finishFlush: constants.BROTLI_OPERATION_FLUSH } },
};

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
  #refused: RefusalBody | undefined = undefined;
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
    if (!isSuccess(status)) this.#refused = createRefusalBody();
  }

  onData(chunk: Buffer): void {
    const refused = this.#refused;
    if (refused !== undefined) {
      if (refused.add(chunk)) return;
      this.#exchange?.abort();
      this.#refuse(refused);
      return;
    }
    this.#length += chunk.length;
    if (this.#length <= MAX_ANSWER_BYTES) {
      this.#chunks.push(chunk);
      return;
    }
    this.#exchange?.abort();
    this.#reject(tooLarge());
  }

  onEnd(): void {
    this.#options.presence.watch(ignore);
    if (this.#refused !== undefined) {
      this.#refuse(this.#refused);
      return;
    }
    const { 'content-encoding': encoding } = this.#headers;
    const [first] = this.#chunks;
    const body = this.#chunks.length === 1 && first !== undefined ? first : Buffer.concat(this.#chunks);
    if (encoding === undefined || encoding === 'identity') afterReads(() => this.#finish(body));
    else decompress(body, String(encoding)).then((unpacked) => this.#finish(unpacked), this.#reject);
  }

  onFailed(error: AppError): void {
    if (this.#refused !== undefined) this.#refuse(this.#refused);
    else this.#reject(error);
  }

  #finish(body: Buffer): void {
    this.#options.onHeaders?.(this.#headers);
    this.#resolve(body);
  }

  #refuse(refused: RefusalBody): void {
    void refused.read(this.#headers).then((text) => {
      this.#reject(refusal(this.#status, this.#headers, text, this.#options));
    });
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

export type RefusalBody = ReturnType<typeof createRefusalBody>;

/** The start of a refusal's body says enough, and its status says most: it may have no end, be cut, or be damaged. */
export function createRefusalBody() {
  const chunks: Buffer[] = [];
  let length = 0;
  return {
    /** Returns false when there is enough of it. */
    add(chunk: Buffer): boolean {
      chunks.push(chunk);
      length += chunk.length;
      return length < MAX_REFUSAL_BYTES;
    },
    async read({ 'content-encoding': encoding = 'identity' }: UpstreamHeaders): Promise<string> {
      const body = Buffer.concat(chunks).subarray(0, MAX_REFUSAL_BYTES);
      if (encoding === 'identity') return body.toString('utf8');
      const { unpack, cut } = decompressionOf(String(encoding)) ?? {};
      const unpacked = await unpack?.(body, { ...cut, maxOutputLength: MAX_ANSWER_BYTES }).catch(() => undefined);
      return unpacked?.toString('utf8', 0, MAX_REFUSAL_BYTES) ?? '';
    },
  };
}

function decompressionOf(encoding: string) {
  return Object.hasOwn(DECOMPRESSIONS, encoding) ? DECOMPRESSIONS[encoding as keyof typeof DECOMPRESSIONS] : undefined;
}

async function decompress(body: Buffer, encoding: string): Promise<Buffer> {
  const unpack = decompressionOf(encoding)?.unpack;
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
