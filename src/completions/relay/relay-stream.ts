import type { OutgoingHttpHeaders } from 'node:http';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Reply } from '../../platform/http/surface.ts';
import { encodeComment } from '../../platform/sse/sse-writer.ts';
import { describeFailure, statusOf } from '../errors.ts';
import type { CallRecord, FinishCall } from '../routing/call-record.ts';
import type { Alarm, Alarms } from '../upstream/upstream-exchange.ts';
import type { OpenedStream } from './open-stream.ts';

/** How a stream is framed: its content type, and what is written to break a silence. */
export interface StreamFraming {
  readonly contentType: string;
  readonly keepAlive: string;
}

export interface RelayOptions<Piece> {
  readonly reply: Reply;
  readonly stream: OpenedStream<Piece>;
  readonly record: CallRecord;
  readonly finish: FinishCall;
  /** Returns the bytes that the caller gets for a piece. */
  encode(piece: Piece): string | Buffer;
  /** Returns the last bytes of a complete response; `last` is its last piece. */
  encodeEnd(last: Piece | undefined): string | Buffer;
  /** Returns the last event of a stream that failed, in the pieces in which it is written. Absent: the event of chat completions. */
  readonly encodeFailure?: ((error: unknown) => readonly string[]) | undefined;
  /** Absent: server-sent events, with a comment against silence. */
  readonly framing?: StreamFraming | undefined;
  /** Called with all bytes of a stream that has ended completely, unless there are too many. */
  readonly onWhole?: ((bytes: Buffer) => void) | undefined;
  /** Returns the request, for calls whose content is stored. */
  readonly requestText: () => string;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly alarms: Alarms;
  /** Whether the headers and a comment were sent already, because the upstream was silent. */
  readonly headersSent: boolean;
}

const KEEP_ALIVE_MS = 15_000;
const MAX_KEPT_CONTENT = 1024 * 1024;
const STREAM_HEADERS = { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };

export const eventFraming: StreamFraming = {
  contentType: 'text/event-stream; charset=utf-8',
  keepAlive: encodeComment('keep-alive'),
};

/** Returns the headers of a stream. From here on, this file writes the response. */
function takeOver(reply: Reply, record: CallRecord, { contentType }: StreamFraming): OutgoingHttpHeaders {
  return { ...reply.takeOver(), ...record.headers(), ...STREAM_HEADERS, 'content-type': contentType };
}

export type SilenceOptions = Pick<
  RelayOptions<never>,
  'reply' | 'record' | 'clock' | 'alarms' | 'encodeFailure' | 'framing'
>;

/**
 * Waits for a stream to begin. After 15 s of silence it sends the headers and a comment, then a comment every 15 s, because
 * proxies close connections that are silent. Retries and fallbacks continue. Returns undefined if the call failed after the
 * headers were sent; an event then contains the error.
 */
export async function openInSilence<Opened>(
  { reply, record, clock, alarms, encodeFailure = failureEvent, framing = eventFraming }: SilenceOptions,
  open: () => Promise<Opened>,
): Promise<{ readonly opened: Opened; readonly headersSent: boolean } | undefined> {
  const response = reply.raw;
  let headersSent = false;
  const alarm: Alarm = {
    dueAt: clock.monotonic() + KEEP_ALIVE_MS,
    ring() {
      if (response.destroyed) return;
      if (!headersSent) response.writeHead(200, takeOver(reply, record, framing));
      headersSent = true;
      response.write(framing.keepAlive);
      alarm.dueAt = clock.monotonic() + KEEP_ALIVE_MS;
      alarms.set(alarm);
    },
  };
  alarms.set(alarm);
  try {
    const opened = await open();
    return { opened, headersSent };
  } catch (error) {
    if (!headersSent) throw error;
    endWith(response, encodeFailure(error));
    return undefined;
  } finally {
    alarms.clear(alarm);
  }
}

function failureEvent(error: unknown): readonly string[] {
  return [`data: ${JSON.stringify(describeFailure(error).body)}\n\n`];
}

/** Writes each piece as a separate chunk, because some clients search for an error in a chunk that contains nothing else. */
function endWith(response: Reply['raw'], pieces: readonly string[]): void {
  for (const piece of pieces.slice(0, -1)) response.write(piece);
  response.end(pieces.at(-1));
}

/**
 * Relays a stream to the caller. A slow caller pauses the upstream, and a caller who disconnects ends it. The last event of a
 * stream that fails contains the error, without `[DONE]`.
 */
export function relayStream<Piece>(options: RelayOptions<Piece>): void {
  const { reply, stream, record, finish, encode, encodeEnd, clock, alarms, headersSent } = options;
  const { encodeFailure = failureEvent, framing = eventFraming, onWhole } = options;
  const response = reply.raw;
  const keeps = record.keepsContent || onWhole !== undefined;
  const kept: (string | Buffer)[] = [];
  let keptLength = 0;
  let over = false;
  let lastWrite = clock.monotonic();
  const alarm: Alarm = { dueAt: lastWrite + KEEP_ALIVE_MS, ring: keepAlive, place: -1 };

  const headers = headersSent ? {} : takeOver(reply, record, framing);
  if (response.destroyed) {
    stream.abort();
    conclude({ outcome: 'aborted', status: 499 });
    return;
  }

  function keepAlive(): void {
    const now = clock.monotonic();
    const isSilent = now - lastWrite >= KEEP_ALIVE_MS;
    if (isSilent && !response.writableNeedDrain) write(framing.keepAlive);
    alarm.dueAt = (isSilent ? now : lastWrite) + KEEP_ALIVE_MS;
    alarms.set(alarm);
  }

  function write(bytes: string | Buffer): boolean {
    lastWrite = clock.monotonic();
    return response.write(bytes);
  }

  function keep(bytes: string | Buffer): void {
    if (!keeps || keptLength > MAX_KEPT_CONTENT) return;
    kept.push(bytes);
    keptLength += bytes.length;
  }

  function conclude(end: { outcome: 'ok' | 'partial' | 'aborted'; status: number; error?: unknown }): void {
    if (over) return;
    over = true;
    alarms.clear(alarm);
    const content = record.keepsContent && {
      content: { request: options.requestText(), answer: kept.map(String).join('') },
    };
    finish({ ...end, measured: stream.usage(), ...content });
  }

  response.on('drain', () => stream.resume());
  response.on('close', () => {
    if (over) return;
    stream.abort();
    conclude({ outcome: 'aborted', status: 499 });
  });
  if (!headersSent) response.writeHead(200, headers);
  alarms.set(alarm);
  stream.attach({
    write(piece) {
      if (over) return true;
      try {
        const bytes = encode(piece);
        if (bytes.length === 0) return true;
        keep(bytes);
        return write(bytes);
      } catch (error) {
        stream.abort();
        fail(error);
        return true;
      }
    },
    end(last) {
      if (over) return;
      try {
        const bytes = encodeEnd(last);
        keep(bytes);
        conclude({ outcome: 'ok', status: 200 });
        if (onWhole !== undefined && keptLength <= MAX_KEPT_CONTENT) {
          onWhole(Buffer.concat(kept.map((piece) => (typeof piece === 'string' ? Buffer.from(piece) : piece))));
        }
        response.end(bytes);
      } catch (error) {
        fail(error);
      }
    },
    fail,
  });

  function fail(error: unknown): void {
    if (over) return;
    const pieces = encodeFailure(error);
    for (const piece of pieces) keep(piece);
    conclude({ outcome: 'partial', status: statusOf(error), error });
    endWith(response, pieces);
  }
}

/** Sends a stream from the cache. */
export function sendStream(
  reply: Reply,
  record: CallRecord,
  bytes: Buffer,
  framing: StreamFraming = eventFraming,
): void {
  reply.raw.writeHead(200, takeOver(reply, record, framing)).end(bytes);
}

/** Sends a JSON response whose bytes are ready. */
export function sendJson(
  reply: Reply,
  headers: Readonly<Record<string, string>>,
  body: Buffer | string,
  status = 200,
): void {
  reply.code(status).headers(headers).type('application/json; charset=utf-8').send(body);
}
