import { AppError } from '../../../platform/errors/app-error.ts';
import type { StreamEvent } from '../dialect.ts';

/** Turns the bytes of AWS's binary event stream, however they are chunked, into events. Throws UPSTREAM_ERROR. */
export interface FrameReader {
  feed(chunk: Uint8Array): readonly StreamEvent[];
  /** Ends the stream: an incomplete frame is not an event. */
  end(): readonly StreamEvent[];
}

type FrameHeaders = Readonly<Record<string, { readonly value: unknown }>>;

/** Lengths of frame and headers and their checksum, and the checksum at the end. */
const MIN_FRAME = 16;
const MAX_FRAME = 8 * 1024 * 1024;

/** The codec is loaded with its first user: hardly anybody has Bedrock. */
export async function loadFrameReader(): Promise<() => FrameReader> {
  const { EventStreamCodec } = await import('@smithy/eventstream-codec');
  const codec = new EventStreamCodec(toText, fromText);
  return () => createFrameReader((frame) => codec.decode(frame));
}

function createFrameReader(decode: (frame: Uint8Array) => { headers: FrameHeaders; body: Uint8Array }): FrameReader {
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  /** Of the frame that has begun; 0 while its length has not come yet. */
  let needed = 0;

  /** Copied once a frame is whole, not with every chunk. */
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
        if (needed < MIN_FRAME || needed > MAX_FRAME) throw broken('it has a frame of impossible length');
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
