import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { isExpected } from '../../platform/errors/error-table.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call } from '../../platform/http/surface.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import { encodeEvent, type StreamEvent } from '../../platform/sse/sse-writer.ts';
import type { ChatChunk, ChatCompletion } from '../contract/chat.ts';
import type { Reference } from '../dialects/dialect.ts';
import { completionsErrors, describeFailure, statusOf } from '../errors.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { type Lane, passedHeaders } from '../lanes/request-lanes.ts';
import type { UpstreamObjects } from '../lanes/upstream-objects.ts';
import type { CallEstimate } from '../operations/admit-call.ts';
import { readCallOptions } from '../operations/call-options.ts';
import { type ChatPipeline, type DecodedRequest, withHeaders } from '../operations/chat-pipeline.ts';
import type { LaneForm } from '../operations/open-operation.ts';
import { type ResponseCache, useCache } from '../operations/response-cache.ts';
import {
  eventFraming,
  openInSilence,
  relayStream,
  type StreamFraming,
  sendJson,
  sendStream,
} from '../relay/relay-stream.ts';
import { watchCaller } from '../routing/call-record.ts';
import { createAlarms } from '../upstream/upstream-exchange.ts';

export interface IngressCallOptions {
  readonly pipeline: Pick<ChatPipeline, 'admit' | 'openForeign'>;
  /** The setting; a caller may choose otherwise by header. */
  readonly strictParams: () => boolean;
  readonly objects: Pick<UpstreamObjects, 'keep' | 'refusalOf'>;
  readonly cache: ResponseCache;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** A request of another API, as its route describes it. */
export interface IngressForm extends Pick<LaneForm, 'request' | 'rewritten'> {
  readonly lane: Lane;
  /** Query parameters that are passed to the upstream. */
  readonly passedQuery: readonly string[];
  /** Objects stored at an API that the request names. */
  readonly references: readonly Reference[];
  readonly estimate: Pick<CallEstimate, 'prompt' | 'answer' | 'dearer'>;
  translate(): DecodedRequest;
  /** A complete translated response. */
  whole(completion: ChatCompletion): object;
  /** The events of a translated stream; its `fail` ends a stream of bytes as well. */
  stream(): StreamEncoder;
  /** Whether its usage has a member for the cost. */
  readonly showsCost?: boolean;
  /** How the stream is written. Absent: as server-sent events. */
  readonly format?: StreamFormat;
}

/** Writes our own events and complete events of an upstream for one caller. */
export interface StreamFormat extends StreamFraming {
  events(events: readonly StreamEvent[]): string;
  bytes(piece: Buffer): string | Buffer;
  /** Returns what follows the last event of a complete stream. */
  end(): string;
  /** The end of a stream that failed, in the pieces in which it is written. */
  failure(events: readonly StreamEvent[]): readonly string[];
}

const eventFormat: StreamFormat = {
  ...eventFraming,
  events: encodeEvents,
  bytes: (piece) => piece,
  end: () => '',
  failure: (events) => [encodeEvents(events)],
};

/** Converts the chunks of one streamed response into events of another API. */
export interface StreamEncoder {
  begin(): readonly StreamEvent[];
  read(chunk: ChatChunk): readonly StreamEvent[];
  /** After the last chunk. */
  finish(): readonly StreamEvent[];
  /**
   * Returns the API's events for a failure, instead of `finish`. `afterBytes`: the stream began with bytes of the upstream, and not
   * with events of this encoder.
   */
  fail(failure: StreamFailure, afterBytes: boolean): readonly StreamEvent[];
}

/** A failure after the response had begun, in the form for callers. */
interface StreamFailure {
  readonly status: number;
  /** In lower case: `upstream_error`. */
  readonly code: string;
  readonly message: string;
}

/** An event whose name is in its data as well, as both APIs have it. */
export function namedEvent(type: string, data: object): StreamEvent {
  return { event: type, data: JSON.stringify({ type, ...data }) };
}

/** Runs one request of another API: as bytes if the upstream has that API, otherwise translated. */
export function createIngressCall(options: IngressCallOptions) {
  const { pipeline, strictParams, objects, cache, clock, logger } = options;
  const alarms = createAlarms(clock);

  return async (call: Call<KeyHolder, Buffer>, form: IngressForm): Promise<unknown> => {
    const { head, caller: holder, reply } = call;
    const { requestId } = head;
    const bytes = call.body;
    if (bytes.length > MIN_LARGE_BODY) await afterOthers();
    const { strict, cacheTtlMs, timeoutMs, fallbacks } = readCallOptions(head, strictParams());
    const { request } = form;
    const refusal = form.references.length === 0 ? undefined : await objects.refusalOf(form.references, holder);
    const presence = watchCaller(reply.raw);
    const incoming = { holder, requestId, presence, body: bytes, operation: 'chat', timeoutMs, fallbacks } as const;
    const admitted = await pipeline.admit(incoming, request.model, form.estimate);
    const { record } = admitted;
    const { format = eventFormat } = form;
    const looked = useCache(cache, cacheTtlMs ?? admitted.plan.cacheTtlMs, { holder, head, body: bytes, record });
    const cached = looked instanceof Promise ? await looked : looked;
    if (cached !== undefined) reply.header('x-cache', cached.hit === undefined ? 'miss' : 'hit');
    if (cached?.hit !== undefined) {
      record.settle({ outcome: 'cached', status: 200 });
      if (request.stream === true) sendStream(reply, record, cached.hit, format);
      else sendJson(reply, record.headers(), cached.hit);
      return reply;
    }
    const onKept = (ids: readonly string[], api: string) => objects.keep(ids, holder, api);
    const { translate, showsCost = false } = form;
    const passed = { ...laneForm(call, form), ...(refusal !== undefined && { refusal }), onKept };
    const foreign = { ...passed, strict, translate, showsCost };
    const open = () => pipeline.openForeign(admitted, foreign);
    const requestText = () => String(bytes);

    if (request.stream !== true) {
      const { result, finish } = await open();
      if (result.kind !== 'bytes' && result.kind !== 'completion') throw new Error('a stream came unasked');
      try {
        const answer = result.kind === 'bytes' ? result.body : JSON.stringify(form.whole(result.completion));
        const content = record.keepsContent && { content: { request: requestText(), answer: String(answer) } };
        finish({ outcome: 'ok', status: 200, measured: result.measured, ...content });
        cached?.keep(Buffer.from(answer));
        sendJson(reply, record.headers(), answer);
      } catch (error) {
        finish({ outcome: 'error', status: statusOf(error), measured: result.measured, error });
        throw withHeaders(error, record.headers());
      }
      return reply;
    }

    const encoder = form.stream();
    const failing = (afterBytes: boolean) => (error: unknown) =>
      format.failure(encoder.fail(described(error, requestId), afterBytes));
    const encodeFailure = failing(false);
    const begun = await openInSilence({ reply, record, clock, alarms, encodeFailure, framing: format }, open);
    if (begun === undefined) return reply;
    const { opened, headersSent } = begun;
    const { result, finish } = opened;
    const onWhole = cached?.keep;
    const written = { clock, alarms, headersSent, requestText, encodeFailure, framing: format, onWhole };
    const shared = { reply, record, finish, ...written };
    if (result.kind === 'byte-stream') {
      const { stream } = result;
      const encodeEnd = (last: Buffer | undefined) =>
        joined(last === undefined ? '' : format.bytes(last), format.end());
      relayStream({ ...shared, encode: format.bytes, encodeEnd, stream, encodeFailure: failing(true) });
    } else if (result.kind === 'chunk-stream') {
      const encode = createEncode(encoder, format);
      relayStream({
        ...shared,
        stream: result.stream,
        encode,
        encodeEnd: (last = []) => `${encode(last)}${format.events(encoder.finish())}${format.end()}`,
      });
    } else throw new AppError('UPSTREAM_ERROR', { reason: 'its answer is not a stream' });
    return reply;
  };

  /** Logs an unexpected error, because the caller is not shown it. */
  function described(error: unknown, requestId: string): StreamFailure {
    if (!isExpected(completionsErrors, error)) logger.error({ err: error, requestId }, 'a stream failed unexpectedly');
    const { status, body } = describeFailure(error);
    return { status, code: body.error.code ?? 'internal_error', message: body.error.message };
  }
}

/** Returns a request in the form for an upstream of the same API. */
export function laneForm(
  { head, body }: Pick<Call<KeyHolder, Buffer>, 'head' | 'body'>,
  { lane, request, rewritten, passedQuery }: Pick<IngressForm, 'lane' | 'request' | 'rewritten' | 'passedQuery'>,
): LaneForm {
  const query = new URLSearchParams([...head.query].filter(([name]) => passedQuery.includes(name)));
  return {
    lane,
    request,
    bytes: body,
    rewritten,
    headers: passedHeaders(lane, head.headers),
    query: query.size === 0 ? '' : `?${query}`,
  };
}

function createEncode(encoder: StreamEncoder, { events }: StreamFormat) {
  let begun = false;
  return (chunks: readonly ChatChunk[]): string => {
    let text = begun ? '' : events(encoder.begin());
    begun = true;
    for (const chunk of chunks) text += events(encoder.read(chunk));
    return text;
  };
}

function joined(last: string | Buffer, end: string): string | Buffer {
  return end === '' ? last : `${last.toString()}${end}`;
}

export function encodeEvents(events: readonly StreamEvent[]): string {
  let text = '';
  for (const event of events) text += encodeEvent(event);
  return text;
}
