import { AppError } from '../../platform/errors/app-error.ts';
import { afterReads } from '../../platform/queue/after-reads.ts';
import type { ChatChunk, ChatCompletion, Usage } from '../contract/chat.ts';
import type { UpstreamFailure } from '../dialects/dialect.ts';
import type { MeasuredUsage } from '../routing/call-record.ts';
import { failureToError, type UpstreamHeaders, upstreamError } from '../routing/upstream-failure.ts';
import { createRefusalBody, isSuccess, type OpenOptions, type RefusalBody, refusal } from './open-answer.ts';

/** Receives the pieces of a stream: any number of writes, then exactly one end or fail. */
export interface StreamSink<Piece> {
  /** Returns false if the stream must wait until it is resumed. */
  write(piece: Piece): boolean;
  end(last: Piece | undefined): void;
  /** The response is not complete. */
  fail(error: AppError): void;
}

/** A stream whose first event has arrived. Pieces wait until a sink is attached. */
export interface OpenedStream<Piece> {
  attach(sink: StreamSink<Piece>): void;
  resume(): void;
  /** Closes the connection; the sink receives nothing after that. */
  abort(): void;
  usage(): MeasuredUsage;
}

export interface OpenStreamOptions<Piece> extends OpenOptions {
  readonly reader: StreamReader<Piece>;
  /** Accepts any content type, for files. */
  readonly anyType?: boolean;
  /** Gets what the upstream says that it used, where the stream fails before its first event was passed on. */
  readonly noteSpent?: ((usage: Usage) => void) | undefined;
}

/** How many pieces may wait for a sink before the upstream is paused. */
const MAX_QUEUED = 4;
/**
 * So many bytes are handled before the end of the poll phase, in which Node may read 2 MB from one socket, so that a stalled
 * client pauses the upstream early. A quarter of this made each stream 20 % more expensive, because most responses then
 * arrived in several pieces.
 */
const MAX_ARRIVED_BYTES = 64 * 1024;

type Outcome<Piece> = { readonly last: Piece | undefined } | { readonly error: AppError };

/**
 * Resolves when the first event has arrived. Until then nothing was sent to the caller, so a rejection can still lead to
 * another attempt, or to a response with an error status.
 */
export function openStream<Piece>(options: OpenStreamOptions<Piece>): Promise<OpenedStream<Piece>> {
  const { start, reader, presence, hide } = options;
  return new Promise((resolve, reject) => {
    let status = 0;
    let headers: UpstreamHeaders = {};
    let opened = false;
    let sink: StreamSink<Piece> | undefined;
    let queued: Piece[] = [];
    let outcome: Outcome<Piece> | undefined;
    let refused: RefusalBody | undefined;
    /** Chunks of one poll phase. Upstreams send many small chunks, and handling them together is much cheaper. */
    let arrived: Buffer[] = [];
    let arrivedBytes = 0;

    const exchange = start({
      onHead(givenStatus, givenHeaders) {
        status = givenStatus;
        headers = givenHeaders;
        if (!isSuccess(status)) refused = createRefusalBody();
        else if (options.anyType !== true && NO_STREAM_TYPE.test(String(headers['content-type'])))
          stop(upstreamError(NO_STREAM));
        else if ((headers['content-encoding'] ?? 'identity') !== 'identity') stop(upstreamError(COMPRESSED));
      },
      onData(chunk) {
        if (outcome !== undefined) return;
        if (refused !== undefined) {
          if (refused.add(chunk)) return;
          exchange.abort();
          readEnd();
          return;
        }
        if (arrived.length === 0) afterReads(readArrived);
        arrived.push(chunk);
        arrivedBytes += chunk.length;
        if (arrivedBytes >= MAX_ARRIVED_BYTES) readArrived();
      },
      onEnd: () => afterReads(readEnd),
      onFailed(error) {
        if (refused !== undefined) {
          readEnd();
          return;
        }
        readArrived();
        if (outcome === undefined) conclude({ error });
      },
    });
    presence.watch(() => {
      if (opened && presence.reason !== undefined) {
        stop(presence.reason);
        return;
      }
      exchange.abort();
      if (!opened) reject(presence.failure());
    });

    function readArrived(): void {
      if (!isFilled(arrived) || outcome !== undefined) return;
      const chunk = joinChunks(arrived);
      arrived = [];
      arrivedBytes = 0;
      take(() => reader.feed(chunk));
    }

    function readEnd(): void {
      if (outcome !== undefined) return;
      if (refused !== undefined) {
        void refused.read(headers).then((text) => reject(refusal(status, headers, text, options)));
        return;
      }
      readArrived();
      if (outcome === undefined) take(() => reader.end());
      if (outcome === undefined) conclude({ error: upstreamError(opened ? BROKEN : EMPTY) });
    }

    function take(read: () => Reading<Piece>): void {
      let reading: Reading<Piece>;
      try {
        reading = read();
      } catch (error) {
        stop(error instanceof AppError ? error : upstreamError('its stream makes no sense', error));
        return;
      }
      const { piece, hasEvent, failure, done } = reading;
      if (failure !== undefined) {
        if (!opened) noteSpent(reader.usage());
        else if (piece !== undefined) deliver(piece);
        stop(failureToError(failure, hide));
        return;
      }
      if (hasEvent) open();
      if (done) conclude({ last: piece });
      else if (piece !== undefined) deliver(piece);
    }

    function noteSpent({ usage, estimated }: MeasuredUsage): void {
      if (!estimated) options.noteSpent?.(usage);
    }

    /** Closes the connection and ends the stream with an error. */
    function stop(error: AppError): void {
      exchange.abort();
      conclude({ error });
    }

    function open(): void {
      if (opened) return;
      opened = true;
      exchange.begun();
      resolve({
        attach(given) {
          let hasRoom = true;
          for (const piece of queued) hasRoom = given.write(piece);
          queued = [];
          sink = given;
          if (outcome !== undefined) tell(given, outcome);
          // Resuming delivers the waiting pieces before it returns.
          else if (hasRoom) exchange.resume();
          else exchange.pause();
        },
        resume: () => exchange.resume(),
        abort: () => exchange.abort(),
        usage: () => reader.usage(),
      });
    }

    function deliver(piece: Piece): void {
      if (sink !== undefined) {
        if (!sink.write(piece)) exchange.pause();
      } else if (opened) {
        queued.push(piece);
        if (queued.length >= MAX_QUEUED) exchange.pause();
      } else if (queued.length < MAX_QUEUED) {
        // Keeps only the first comments, because pausing the upstream before its first event would also stop its timeout.
        queued.push(piece);
      }
    }

    function conclude(result: Outcome<Piece>): void {
      outcome = result;
      // A caller who leaves now must not close the connection, because it is read to its end and can be reused.
      presence.watch(ignore);
      if (sink !== undefined) tell(sink, result);
      else if (!opened && 'error' in result) reject(result.error);
    }
  });
}

function tell<Piece>(sink: StreamSink<Piece>, outcome: Outcome<Piece>): void {
  if ('error' in outcome) sink.fail(outcome.error);
  else sink.end(outcome.last);
}

function isFilled(chunks: readonly Buffer[]): chunks is readonly [Buffer, ...Buffer[]] {
  return chunks.length > 0;
}

function ignore(): void {}

/** Content types that are certainly not a stream. Many servers send no type for a stream, or a wrong one. */
const NO_STREAM_TYPE = /^(?:application\/json|text\/html)/i;
const NO_STREAM = 'it answered with something else than a stream';
const COMPRESSED = 'its stream is compressed, which was not asked for';
const BROKEN = 'its stream ended before the answer was whole';
const EMPTY = 'its stream ended before it began';

/** What a part of an upstream's stream means for the caller. */
export interface Reading<Piece> {
  /** To be sent on; undefined when there is nothing to send. */
  readonly piece: Piece | undefined;
  /** There was an event among it, and not comments alone. */
  readonly hasEvent: boolean;
  /** The upstream gave up: what stands in `piece` comes before that. */
  readonly failure?: UpstreamFailure | undefined;
  /** The answer is whole: what follows is of no interest. */
  readonly done: boolean;
}

/** Reads one stream as it comes. What it throws means that the stream makes no sense. */
export interface StreamReader<Piece> {
  feed(chunk: Buffer): Reading<Piece>;
  /** The upstream has closed the connection. A reading that is neither done nor failed: the answer is incomplete. */
  end(): Reading<Piece>;
  /** What the answer has used up to here. */
  usage(): MeasuredUsage;
}

/**
 * Joins the chunks of one read of a socket. They are views into one buffer, with only the transfer framing between them, so they
 * are moved together in place. A copy would allocate memory outside the heap for each read, which makes V8 run full garbage
 * collections more often.
 */
export function joinChunks(chunks: readonly [Buffer, ...Buffer[]]): Buffer {
  const [first] = chunks;
  if (chunks.length === 1) return first;
  const { buffer, byteOffset: start } = first;
  let end = start;
  let length = 0;
  for (const chunk of chunks) {
    if (chunk.buffer !== buffer || chunk.byteOffset < end) return Buffer.concat(chunks);
    end = chunk.byteOffset + chunk.length;
    length += chunk.length;
  }
  const joined = Buffer.from(buffer, start, length);
  let at = 0;
  for (const chunk of chunks) {
    joined.set(chunk, at);
    at += chunk.length;
  }
  return joined;
}

/** A response that has begun: the upstream's bytes where they can be passed on, otherwise translated. */
export type OpenedChat = { readonly dropped: readonly string[] } & (
  | { readonly kind: 'bytes'; readonly body: Buffer; readonly measured: MeasuredUsage }
  | { readonly kind: 'completion'; readonly completion: ChatCompletion; readonly measured: MeasuredUsage }
  | { readonly kind: 'byte-stream'; readonly stream: OpenedStream<Buffer> }
  | { readonly kind: 'chunk-stream'; readonly stream: OpenedStream<readonly ChatChunk[]> }
);
