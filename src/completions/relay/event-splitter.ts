import { createParser } from 'eventsource-parser';
import { AppError } from '../../platform/errors/app-error.ts';
import type { StreamEvent } from '../dialects/dialect.ts';
import { parseEvent } from '../dialects/json-value.ts';
import { upstreamError } from '../routing/upstream-failure.ts';

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const EMPTY = Buffer.alloc(0);
/** Large, because one event may contain an image. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024;

/** Splits the bytes of an event stream at the ends of events, wherever the chunks are cut. */
export interface EventSplitter {
  /** Returns the complete events so far, as bytes; empty while the first one is incomplete. */
  feed(chunk: Buffer): Buffer;
  /** Returns the bytes after the last complete event. */
  rest(): Buffer;
}

/**
 * Holds back only incomplete events, and copies them once: a chunk that ends with an event passes unchanged. The caller receives
 * only complete events, so an error event can follow at any point of a stream that breaks.
 */
export function createEventSplitter(maxEventBytes = MAX_EVENT_BYTES): EventSplitter {
  let held: Buffer[] = [];
  let heldBytes = 0;
  /** The last two bytes of the previous chunk, for line ends that are split. */
  let before = 0;
  let beforeThat = 0;

  return {
    feed(chunk) {
      const { length } = chunk;
      if (length === 0) return EMPTY;
      const end = endOfLastEvent(chunk, before, beforeThat);
      // The CR with which the last chunk ended was a whole line end after all, so what is held ends with its event.
      const isHeldWhole = before === CARRIAGE_RETURN && beforeThat === LINE_FEED && chunk[0] !== LINE_FEED;
      beforeThat = length > 1 ? (chunk[length - 2] ?? 0) : before;
      before = chunk[length - 1] ?? before;
      if (end === length && heldBytes === 0) return chunk;
      if (end === 0 && !isHeldWhole) {
        hold(chunk);
        return EMPTY;
      }
      const whole = heldBytes === 0 ? chunk.subarray(0, end) : Buffer.concat([...held, chunk.subarray(0, end)]);
      held = [];
      heldBytes = 0;
      if (end < length) hold(chunk.subarray(end));
      return whole;
    },
    rest: () => Buffer.concat(held),
  };

  function hold(part: Buffer): void {
    held.push(part);
    heldBytes += part.length;
    if (heldBytes > maxEventBytes) {
      throw tooLarge(maxEventBytes);
    }
  }
}

function tooLarge(maxEventBytes: number): AppError {
  return upstreamError(`one event of its stream is larger than ${maxEventBytes} bytes (completions.max_event_bytes)`);
}

/** Returns the start of the event that contains a position, in a piece from the splitter. */
export function startOfEvent(piece: Buffer, place: number): number {
  return endOfLastEvent(piece.subarray(0, place), 0, 0);
}

/** Returns the position after the last blank line, or 0 if there is none. Lines may end with LF, CR LF or CR. */
function endOfLastEvent(chunk: Buffer, before: number, beforeThat: number): number {
  for (let at = chunk.length - 1; at >= 0; at -= 1) {
    const byte = chunk[at];
    if (byte !== LINE_FEED && byte !== CARRIAGE_RETURN) continue;
    const previous = at > 0 ? chunk[at - 1] : before;
    // A CR after a LF at the end of the chunk may be half of a CR LF; the next chunk decides.
    if (previous === LINE_FEED && (byte === LINE_FEED || at < chunk.length - 1)) return at + 1;
    if (previous !== CARRIAGE_RETURN) continue;
    if (byte === CARRIAGE_RETURN) return at + 1;
    const third = at > 1 ? chunk[at - 2] : at === 1 ? before : beforeThat;
    if (third === LINE_FEED || third === CARRIAGE_RETURN) return at + 1;
  }
  return 0;
}

/** Yields the events of a piece from the splitter, each with its blank line. */
export function* wholeEvents(piece: Buffer): Generator<Buffer> {
  let start = 0;
  let lineStart = 0;
  for (let at = 0; at < piece.length; at += 1) {
    const byte = piece[at];
    if (byte !== LINE_FEED && byte !== CARRIAGE_RETURN) continue;
    const isBlank = at === lineStart;
    if (byte === CARRIAGE_RETURN && piece[at + 1] === LINE_FEED) at += 1;
    lineStart = at + 1;
    if (!isBlank) continue;
    yield piece.subarray(start, lineStart);
    start = lineStart;
  }
  if (start < piece.length) yield piece.subarray(start);
}

/** Reads server-sent events. The last one may lack its blank line. */
export function createSseFraming(maxEventBytes?: number): EventFraming {
  const splitter = createEventSplitter(maxEventBytes);
  const readEvents = createEventReader();
  return {
    feed(chunk) {
      const piece = splitter.feed(chunk);
      return piece.length === 0 ? [] : readEvents(piece.toString('utf8'));
    },
    end() {
      const last = lastEvent(splitter);
      return last === undefined ? [] : readEvents(last.toString('utf8'));
    },
  };
}

/** Reads server-sent events from text that ends where an event ends. A split line end does no harm. */
export function createEventReader(): (text: string) => readonly StreamEvent[] {
  let events: StreamEvent[] = [];
  const parser = createParser({
    onEvent: ({ event, data }) => events.push({ event, data }),
  });
  return (text) => {
    events = [];
    // Adds the LF that the parser waits for after a CR, because CR LF is the same line end as CR.
    parser.feed(text.endsWith('\r') ? `${text}\n` : text);
    return events;
  };
}

const BLANK_LINE = Buffer.from('\n\n');

/**
 * Returns the last event of a stream with the blank line that some upstreams omit. Undefined if there is no such event, or if it
 * is incomplete.
 */
export function lastEvent(splitter: Pick<EventSplitter, 'rest'>): Buffer | undefined {
  const last = Buffer.concat([splitter.rest(), BLANK_LINE]);
  const [message] = createEventReader()(last.toString('utf8'));
  if (message === undefined) return undefined;
  const { event, data } = message;
  return event === 'error' || data.trim() === '[DONE]' || parseEvent(data) !== undefined ? last : undefined;
}

export interface EventFraming {
  feed(chunk: Buffer): readonly StreamEvent[];
  /** Returns what is left when the upstream has closed the connection. */
  end(): readonly StreamEvent[];
}

/** Reads events from the bytes of AWS's binary event stream, wherever the chunks are cut. Throws UPSTREAM_ERROR. */
export interface FrameReader {
  feed(chunk: Uint8Array): readonly StreamEvent[];
  /** Ends the stream: an incomplete frame is not an event. */
  end(): readonly StreamEvent[];
}

type FrameHeaders = Readonly<Record<string, { readonly value: unknown }>>;

/** Lengths of frame and headers and their checksum, and the checksum at the end. */
const MIN_FRAME = 16;

/** Loads the codec with its first use, because few installations use Bedrock. */
export async function loadFrameReader(maxEventBytes = MAX_EVENT_BYTES): Promise<() => FrameReader> {
  const { EventStreamCodec } = await import('@smithy/eventstream-codec');
  const codec = new EventStreamCodec(toText, fromText);
  return () => createFrameReader((frame) => codec.decode(frame), maxEventBytes);
}

function createFrameReader(
  decode: (frame: Uint8Array) => { headers: FrameHeaders; body: Uint8Array },
  maxEventBytes: number,
): FrameReader {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  /** The length of the current frame; 0 until its first bytes have arrived. */
  let needed = 0;

  /** Joins the chunks. Called when a frame is complete and not for each chunk, to copy less. */
  function join(): Buffer {
    const [first] = held;
    const all = held.length === 1 && first !== undefined ? bufferOf(first) : Buffer.concat(held);
    held = [all];
    return all;
  }

  return {
    feed(chunk) {
      if (chunk.length === 0) return [];
      held.push(chunk);
      heldBytes += chunk.length;
      const events: StreamEvent[] = [];
      while (heldBytes >= Math.max(needed, MIN_FRAME)) {
        const bytes = join();
        needed = bytes.readUInt32BE(0);
        if (needed < MIN_FRAME) throw broken('it has a frame of impossible length');
        if (needed > maxEventBytes) throw tooLarge(maxEventBytes);
        if (heldBytes < needed) break;
        events.push(readFrame(bytes.subarray(0, needed)));
        heldBytes -= needed;
        held = heldBytes === 0 ? [] : [bytes.subarray(needed)];
        needed = 0;
      }
      return events;
    },
    end: () => [],
  };

  function readFrame(frame: Buffer): StreamEvent {
    try {
      return toEvent(decode(frame));
    } catch (error) {
      throw broken('it has a damaged frame', error);
    }
  }
}

/** A failure is an event of its own kind: `exception:throttlingException`, `error:<code>`. */
function toEvent({ headers, body }: { headers: FrameHeaders; body: Uint8Array }): StreamEvent {
  const kind = headerText(headers, ':message-type');
  const data = toText(body);
  if (kind === 'exception') return { event: `exception:${headerText(headers, ':exception-type')}`, data };
  if (kind === 'error') {
    const message = headerText(headers, ':error-message');
    return { event: `error:${headerText(headers, ':error-code')}`, data: JSON.stringify({ message }) };
  }
  return { event: headerText(headers, ':event-type'), data };
}

function headerText(headers: FrameHeaders, name: string): string {
  const value = headers[name]?.value;
  return typeof value === 'string' ? value : '';
}

function broken(reason: string, cause?: unknown): AppError {
  return new AppError('UPSTREAM_ERROR', { reason: `the stream is broken: ${reason}` }, { cause });
}

function toText(bytes: Uint8Array | string): string {
  return typeof bytes === 'string' ? bytes : bufferOf(bytes).toString('utf8');
}

function fromText(text: string): Uint8Array {
  return Buffer.from(text, 'utf8');
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
