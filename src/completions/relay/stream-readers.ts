import type { ChatChunk, Usage } from '../contract/chat.ts';
import type { Dialect, DialectContext, StreamEvent, StreamStep, UpstreamFailure } from '../dialects/dialect.ts';
import { endedEarly, failureInEvent, failureInObject } from '../dialects/failure.ts';
import { asObject, type JsonObject, parseEvent } from '../dialects/json-value.ts';
import { fitChunk, isFailedChoice, isFailure } from '../dialects/openai/openai-answer.ts';
import {
  createEventReader,
  createEventSplitter,
  createSseFraming,
  type EventFraming,
  lastEvent,
  loadFrameReader,
  startOfEvent,
  wholeEvents,
} from './event-splitter.ts';
import type { Reading, StreamReader } from './open-stream.ts';
import { asUsage, estimatedUsage, startOfValue, tokensOfCharacters } from './token-usage.ts';

interface ChunkReaderOptions {
  readonly dialect: Dialect;
  readonly context: DialectContext;
  /** Splits bytes into events, wherever the chunks are cut. */
  readonly framing: EventFraming;
  readonly choices: number;
  readonly promptTokens: number;
}

/**
 * Reads a stream of any dialect as chunks. The last chunk has the usage and no choices, whether the caller asked for it or not; the
 * usage is estimated if the upstream sent none.
 */
export function createChunkReader(options: ChunkReaderOptions): StreamReader<readonly ChatChunk[]> {
  const { dialect, context, framing, choices, promptTokens } = options;
  const begun = new Set<number>();
  const finished = new Set<number>();
  let state = dialect.startStream(context);
  let usage: Usage | undefined;
  let characters = 0;

  function read(events: readonly StreamEvent[]): Reading<readonly ChatChunk[]> {
    const chunks: ChatChunk[] = [];
    for (const event of events) {
      const ended = take(dialect.decodeEvent(state, event), chunks);
      if (ended !== undefined) return ended;
    }
    return { piece: chunks.length === 0 ? undefined : chunks, hasEvent: chunks.length > 0, done: false };
  }

  /** Adds the chunks of one step. A returned value ends the stream. */
  function take(step: StreamStep<unknown>, chunks: ChatChunk[]): Reading<readonly ChatChunk[]> | undefined {
    state = step.state;
    for (const chunk of step.chunks) if (note(chunk)) chunks.push(chunk);
    const { done = false } = step;
    const failure = step.failure ?? (done && !isComplete() ? endedEarly() : undefined);
    if (!done && failure === undefined) return undefined;
    if (failure === undefined) chunks.push(usageChunk());
    return { piece: chunks, hasEvent: true, failure, done: failure === undefined };
  }

  /** Returns whether each choice that has begun has a finish reason, and there is at least one. */
  function isComplete(): boolean {
    for (const index of begun) if (!finished.has(index)) return false;
    return finished.size > 0;
  }

  /** Returns false for a chunk that contains only usage, because the usage is sent at the end. */
  function note(chunk: ChatChunk): boolean {
    if (chunk.usage !== undefined && chunk.usage !== null) usage = chunk.usage;
    for (const { index, delta, finish_reason: reason } of chunk.choices) {
      begun.add(index);
      if (reason !== null && reason !== undefined && reason !== '') finished.add(index);
      characters += (delta.content?.length ?? 0) + (delta.reasoning_content?.length ?? 0);
      for (const call of delta.tool_calls ?? []) characters += call.function?.arguments?.length ?? 0;
    }
    return chunk.choices.length > 0;
  }

  function measure() {
    if (usage !== undefined) return { usage, estimated: usage.estimated === true };
    return { usage: estimatedUsage(promptTokens, tokensOfCharacters(characters)), estimated: true };
  }

  function usageChunk(): ChatChunk {
    const { id, created, model } = context;
    return { id, object: 'chat.completion.chunk', created, model, choices: [], usage: measure().usage };
  }

  return {
    feed: (chunk) => read(framing.feed(chunk)),
    end() {
      const last = read(framing.end());
      if (last.done || last.failure !== undefined) return last;
      const chunks = [...(last.piece ?? [])];
      const ended = dialect.endStream === undefined ? undefined : take(dialect.endStream(state), chunks);
      if (ended !== undefined) return ended;
      if (finished.size < choices || !isComplete()) return { ...last, piece: chunks };
      return { piece: [...chunks, usageChunk()], hasEvent: true, done: true };
    },
    usage: measure,
  };
}

/** Loads the codec of AWS's framing with its first use. */
export async function createFraming(framing: Dialect['framing'], maxEventBytes?: number): Promise<EventFraming> {
  return framing === 'sse' ? createSseFraming(maxEventBytes) : (await loadFrameReader(maxEventBytes))();
}

interface ByteReaderOptions {
  /** How many choices the caller asked for. Each must have a finish reason. */
  readonly choices: number;
  /** Whether the caller asked for usage. If not, chunks that contain only usage are removed. */
  readonly usageAsked: boolean;
  readonly promptTokens: number;
  readonly maxEventBytes?: number | undefined;
  /** The `object` of a usage chunk that we add. It differs between chat and text completions. */
  readonly chunkObject: string;
}

/** One pass for all markers, over the bytes as Latin-1: separate searches in bytes took 3.5 times as long. */
const MARKERS =
  /"(?:finish_reason"|usage"|error"|reasoning"|content": ?\[|message"|detail")|\[DONE\]|[\r\n]event: ?error/g;
/** The last letter but one distinguishes the markers. */
const FINISH = 'n'.charCodeAt(0);
/** Of `"usage"` and of `"message"`. */
const USAGE = 'e'.charCodeAt(0);
const USAGE_LENGTH = '"usage"'.length;
const ERROR = 'r'.charCodeAt(0);
const REASONING = 'g'.charCodeAt(0);
const ERROR_EVENT = /^event: ?error/;
/** First letters of an `"error"` that is not an error: `null` and `false`. */
const NO_ERROR: ReadonlySet<number | undefined> = new Set([...'nf'].map((letter) => letter.charCodeAt(0)));
const END = Buffer.from('data: [DONE]\n\n');
const QUOTE = 0x22;
const OPEN = 0x7b;

/**
 * Passes a stream of OpenAI's dialect on as bytes. It parses only events near a marker (usage, error, end), and rewrites only those
 * with reasoning or content in another form than OpenAI's. Pieces contain whole events, so a marker is never split; quotes inside
 * JSON strings are escaped, so a match is always a key.
 */
export function createByteReader(options: ByteReaderOptions): StreamReader<Buffer> {
  const { choices, usageAsked, promptTokens } = options;
  const splitter = createEventSplitter(options.maxEventBytes);
  const finished = new Set<number>();
  let readEvents: ReturnType<typeof createEventReader> | undefined;
  let usage: Usage | undefined;
  let head: JsonObject | undefined;
  let events = 0;
  let bytes = 0;
  /** The length of an event without text. Everything beyond it counts as text of the response. */
  let envelope = 0;

  function read(piece: Buffer): Reading<Buffer> {
    if (piece.length === 0) return NOTHING;
    bytes += piece.length;
    const eventsBefore = events;
    const marker = findMarker(piece);
    if (envelope === 0 && events > 0) envelope = Math.floor(piece.length / events);
    const hasEvent = events > eventsBefore || piece.includes(DATA);
    if (usageAsked && head === undefined && hasEvent) readHead(piece);
    return marker === NOWHERE
      ? { piece, hasEvent, done: false }
      : parsePiece(piece, startOfEvent(piece, marker), hasEvent);
  }

  /** Returns a position in the first event that must be parsed. Also counts events. */
  function findMarker(piece: Buffer): number {
    const text = piece.toString('latin1');
    let found = ERROR_EVENT.test(text) ? 0 : NOWHERE;
    MARKERS.lastIndex = 0;
    while (MARKERS.test(text)) {
      const after = MARKERS.lastIndex;
      const letter = text.charCodeAt(after - 2);
      let mustParse = true;
      if (letter === FINISH) {
        events += 1;
        const value = startOfValue(piece, after);
        // An empty reason does not count. Others are parsed, because a `finish_reason` outside of a choice is not the end.
        mustParse = piece[value] === QUOTE && piece[value + 1] !== QUOTE;
      } else if (letter === USAGE && text.charCodeAt(after - USAGE_LENGTH) === QUOTE) {
        const first = piece[startOfValue(piece, after)];
        mustParse = first === OPEN || first === NEXT_LINE;
      } else if (letter === REASONING) {
        const value = startOfValue(piece, after);
        mustParse = piece[value] === OPEN || (piece[value] === QUOTE && piece[value + 1] !== QUOTE);
      } else if (letter === ERROR) {
        mustParse = !NO_ERROR.has(piece[startOfValue(piece, after)]);
      }
      if (mustParse && found === NOWHERE) found = after;
    }
    return found;
  }

  /** Reads the members that our own chunks must repeat. */
  function readHead(piece: Buffer): void {
    for (const event of wholeEvents(piece)) {
      const [message] = createEventReader()(event.toString('utf8'));
      if (message === undefined) continue;
      head = parseEvent(message.data) ?? {};
      return;
    }
  }

  /** Parses the events from the first one with a marker; earlier events pass unchanged. */
  function parsePiece(piece: Buffer, from: number, hasEvent: boolean): Reading<Buffer> {
    readEvents ??= createEventReader();
    const kept: Buffer[] = from === 0 ? [] : [piece.subarray(0, from)];
    let failure: UpstreamFailure | undefined;
    let done = false;
    let changed = false;
    for (const event of wholeEvents(piece.subarray(from))) {
      const [message] = readEvents(event.toString('utf8'));
      if (message?.data.trim() === '[DONE]') {
        if (finished.size === 0) {
          failure = endedEarly();
          break;
        }
        if (usageAsked && usage === undefined) {
          kept.push(encodeUsage());
          changed = true;
        }
        kept.push(event);
        done = true;
        break;
      }
      const body = message === undefined ? undefined : parseEvent(message.data);
      if (message?.event === 'error') failure = failureInEvent(message.data, body);
      else failure = body === undefined ? undefined : failureIn(body);
      if (failure !== undefined) break;
      if (body !== undefined && !keep(body)) {
        changed = true;
        continue;
      }
      const fitted = body === undefined ? undefined : fitChunk(body);
      kept.push(fitted === undefined ? event : encodeChunk(fitted));
      if (fitted !== undefined) changed = true;
    }
    return { piece: changed ? joined(kept) : startOf(piece, kept), hasEvent, failure, done };
  }

  /** Notes finish reasons and usage. Returns false for a chunk that the caller must not get. */
  function keep(body: JsonObject): boolean {
    const list = Array.isArray(body.choices) ? body.choices : [];
    for (const choice of list) {
      const { index = 0, finish_reason: reason } = asObject(choice) ?? {};
      if (typeof reason === 'string' && reason !== '' && typeof index === 'number') finished.add(index);
    }
    const given = asUsage(body.usage);
    if (given === undefined) return true;
    usage = given;
    return usageAsked || list.length > 0;
  }

  function measure() {
    if (usage !== undefined) return { usage, estimated: usage.estimated === true };
    const tokens = Math.max(events, tokensOfCharacters(Math.max(0, bytes - events * envelope)));
    return { usage: estimatedUsage(promptTokens, tokens), estimated: true };
  }

  function encodeUsage(): Buffer {
    const { id = '', created = 0, model = '' } = head ?? {};
    const chunk = { id, object: options.chunkObject, created, model, choices: [], usage: measure().usage };
    return encodeChunk(chunk as Omit<ChatChunk, 'object'>);
  }

  return {
    feed: (chunk) => read(splitter.feed(chunk)),
    end() {
      const rest = lastEvent(splitter);
      const last = rest === undefined ? NOTHING : read(rest);
      if (last.done || last.failure !== undefined) return last;
      if (finished.size < choices) return { piece: undefined, hasEvent: last.hasEvent, done: false };
      const ending = usageAsked && usage === undefined ? [encodeUsage(), END] : [END];
      return { piece: Buffer.concat([last.piece ?? EMPTY, ...ending]), hasEvent: true, done: true };
    },
    usage: measure,
  };
}

const EMPTY = Buffer.alloc(0);
const NOTHING: Reading<Buffer> = { piece: undefined, hasEvent: false, done: false };

const DATA = Buffer.from('data:');
const NOWHERE = -1;
/** The first letter of `data:`, for a value that begins on the next line. */
const NEXT_LINE = 0x64;

function joined(kept: readonly Buffer[]): Buffer | undefined {
  return kept.length === 0 ? undefined : Buffer.concat(kept);
}

function encodeChunk(chunk: object): Buffer {
  return Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`);
}

/** Returns the failure in a chunk or in one of its choices, if any. */
function failureIn(body: JsonObject): UpstreamFailure | undefined {
  const choices = Array.isArray(body.choices) ? body.choices.map((choice) => asObject(choice) ?? {}) : [];
  const failed = isFailure(body) ? body : choices.find(isFailedChoice);
  return failed === undefined ? undefined : failureInObject(failed);
}

/** Returns the events up to the one that ended the stream, without copying them. */
function startOf(piece: Buffer, kept: readonly Buffer[]): Buffer | undefined {
  const length = kept.reduce((sum, part) => sum + part.length, 0);
  return length === 0 ? undefined : length === piece.length ? piece : piece.subarray(0, length);
}
