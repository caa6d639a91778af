import type { UpstreamFailure } from '../dialects/dialect.ts';
import { failureInEvent, noObject } from '../dialects/failure.ts';
import { parseEvent } from '../dialects/json-value.ts';
import {
  createEventReader,
  createEventSplitter,
  lastEvent,
  startOfEvent,
  wholeEvents,
} from '../relay/event-splitter.ts';
import type { Reading, StreamReader } from '../relay/open-stream.ts';
import { estimatedUsage, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Lane } from './request-lanes.ts';

export interface LaneReaderOptions {
  readonly lane: Pick<Lane, 'startStream' | 'markers' | 'delta'>;
  readonly promptTokens: number;
  readonly maxEventBytes?: number | undefined;
  /** Called with the ids of objects that the upstream stores. */
  onKept(ids: readonly string[]): void;
}

const NOTHING: Reading<Buffer> = { piece: undefined, hasEvent: false, done: false };
const DATA = Buffer.from('data:');

/** Passes the stream of a lane on as bytes. Parses only events with a marker, and rewrites none. */
export function createLaneReader(options: LaneReaderOptions): StreamReader<Buffer> {
  const { lane, promptTokens, onKept } = options;
  const splitter = createEventSplitter(options.maxEventBytes);
  const stream = lane.startStream();
  const { mark, bytes: deltaBytes } = lane.delta;
  let readEvents: ReturnType<typeof createEventReader> | undefined;
  let bytes = 0;
  let deltas = 0;

  function read(piece: Buffer): Reading<Buffer> {
    if (piece.length === 0) return NOTHING;
    bytes += piece.length;
    const text = piece.toString('latin1');
    for (let at = text.indexOf(mark); at !== -1; at = text.indexOf(mark, at + mark.length)) deltas += 1;
    lane.markers.lastIndex = 0;
    const found = lane.markers.exec(text);
    if (found === null) return { piece, hasEvent: piece.includes(DATA), done: false };
    // A line end before the marker belongs to the event before it, unless it is the event's own.
    return parsePiece(piece, startOfEvent(piece, found.index + found[0].length));
  }

  /** Parses the events from the first one with a marker; earlier events pass unchanged. */
  function parsePiece(piece: Buffer, from: number): Reading<Buffer> {
    readEvents ??= createEventReader();
    const kept: Buffer[] = from === 0 ? [] : [piece.subarray(0, from)];
    const hasEvent = piece.includes(DATA);
    let changed = false;
    for (const event of wholeEvents(piece.subarray(from))) {
      const [message] = readEvents(event.toString('utf8'));
      const { failure, done = false, drop = false } = message === undefined ? PASSES : readEvent(message);
      if (failure !== undefined) return { piece: joined(kept), hasEvent, failure, done: false };
      if (drop) changed = true;
      else kept.push(event);
      if (done) return { piece: joined(kept), hasEvent, done };
    }
    return { piece: changed ? joined(kept) : piece, hasEvent, done: false };
  }

  function readEvent({ event, data }: { readonly event: string | undefined; readonly data: string }): Step {
    if (data.trim() === '[DONE]') return { drop: true };
    const body = parseEvent(data);
    if (body === undefined) return { failure: event === 'error' ? failureInEvent(data, body) : noObject() };
    const { kept = [], ...step } = stream.read(event, body);
    if (kept.length > 0) onKept(kept);
    return step;
  }

  return {
    feed: (chunk) => read(splitter.feed(chunk)),
    end() {
      const rest = lastEvent(splitter);
      const last = rest === undefined ? NOTHING : read(rest);
      if (last.done || last.failure !== undefined) return last;
      const ending = stream.ending();
      if (ending === undefined) return last;
      return { piece: joined([last.piece ?? EMPTY, Buffer.from(ending)]), hasEvent: true, done: true };
    },
    usage() {
      const usage = stream.usage();
      if (usage !== undefined && usage.total_tokens > 0 && stream.ending() !== undefined) {
        return { usage, estimated: false };
      }
      const tokens = Math.max(deltas, tokensOfCharacters(Math.max(0, bytes - deltas * deltaBytes)));
      // What the prompt took is known from the first event on; what the answer took, at its end.
      if (usage === undefined || usage.prompt_tokens === 0) {
        return { usage: estimatedUsage(promptTokens, tokens), estimated: true };
      }
      const written = Math.max(usage.completion_tokens, tokens);
      const total = usage.prompt_tokens + written;
      return { usage: { ...usage, completion_tokens: written, total_tokens: total, estimated: true }, estimated: true };
    },
  };
}

interface Step {
  readonly failure?: UpstreamFailure;
  readonly done?: boolean;
  readonly drop?: boolean;
}

const PASSES: Step = {};
const EMPTY = Buffer.alloc(0);

function joined(parts: readonly Buffer[]): Buffer | undefined {
  const filled = parts.filter(({ length }) => length > 0);
  return filled.length <= 1 ? filled[0] : Buffer.concat(filled);
}
