import { AppError } from '../../platform/errors/app-error.ts';
import { refuseOrigin } from '../../platform/http/cross-origin.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call, RequestHead } from '../../platform/http/surface.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { DEMO_API } from '../apis/demo-models.ts';
import type { FindApi } from '../apis/model-api.ts';
import type { UnitCounts } from '../apis/prices.ts';
import type { Usage } from '../contract/chat.ts';
import { failureInBody } from '../dialects/failure.ts';
import { asCount, asNumber, asObject, parseEvent } from '../dialects/json-value.ts';
import { azurePath } from '../dialects/openai/openai-dialect.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { createLaneReader } from '../lanes/lane-reader.ts';
import { mediaEvents } from '../lanes/request-lanes.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { type OpenedStream, openStream, type StreamReader } from '../relay/open-stream.ts';
import { openInSilence, relayStream } from '../relay/relay-stream.ts';
import { asUsage, estimatedUsage, findUsage, isWholeJson } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import { addSpent, type MeasuredUsage } from '../routing/call-record.ts';
import { failureToError, hidingSecretsOf, upstreamError } from '../routing/upstream-failure.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';
import { createAlarms } from '../upstream/upstream-exchange.ts';
import type { AdmittedCall } from './admit-call.ts';
import { readIncoming } from './call-options.ts';
import type { Attempted, ChatPipeline } from './chat-pipeline.ts';
import { speaksOpenai } from './encode-chat.ts';
import { isForm } from './form-data.ts';
import type { MediaKind, MediaRequest } from './media-requests.ts';
import { beginsObject, failureInAnswer } from './open-operation.ts';

interface MediaHandlerOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly pipeline: ChatPipeline;
  readonly findApi: FindApi;
  readonly send: SendUpstream;
  readonly maxEventBytes: number;
  /** Whether a page of this origin may call. */
  readonly allowsOrigin: (head: RequestHead) => boolean;
}

/** A complete response, or a stream. */
type OpenedMedia =
  | { readonly body: Buffer | string; readonly contentType: string; readonly measured: MeasuredUsage }
  | { readonly stream: OpenedStream<Buffer>; readonly contentType: string };

const EVENTS = 'text/event-stream; charset=utf-8';
/** Content types that pass to the caller. Types that a browser would execute are not among them. */
const PASSED_TYPES =
  /^(?:application\/(?:json|x-subrip)|text\/(?:plain|vtt)|audio\/[\w.+-]{1,64})(?:; ?charset=utf-8)?$/i;

/**
 * Images, speech, moderations and rankings: requests pass as they came, with the upstream's name of the model, to APIs that have the
 * operation, and answers come back as bytes. Limits, budgets, retries, fallbacks and the log of calls are those of chats.
 */
export function createMediaHandler(options: MediaHandlerOptions) {
  const { pipeline, findApi, send, maxEventBytes, allowsOrigin, clock, makeId } = options;
  const alarms = createAlarms(clock);

  async function open(
    attempt: Attempt,
    kind: MediaKind,
    request: MediaRequest,
    call: AdmittedCall,
  ): Promise<OpenedMedia> {
    const { target } = attempt;
    const { promptTokens, presence } = call;
    const { units } = request.estimate;
    const estimated = { usage: { ...estimatedUsage(promptTokens, 0), ...units }, estimated: true };
    if (target.apiId === DEMO_API) {
      const demo = target.model === kind.demo ? kind.answerDemo(request, Math.floor(clock.now() / 1000)) : undefined;
      if (demo === undefined) throw notOffered(kind);
      return { ...demo, measured: estimated };
    }
    const api = findApi(target.apiId, target.key);
    if (api === undefined) throw upstreamError('its key is not set any more');
    if (!speaksOpenai({ name: api.dialect }) && kind.alsoSpokenBy !== api.dialect) throw notOffered(kind);
    const encoded = {
      path: api.dialect === 'azure' ? azurePath(api.baseUrl, target.model, kind.path) : kind.path,
      headers: {},
      ...request.encode(target.model),
      accept: request.answer === 'whole' ? '*/*' : request.answer === 'audio' ? 'audio/*, */*' : EVENTS,
    };
    const idempotencyId = makeId('idem-');
    const start = await send({ api, attempt, encoded, stream: request.answer !== 'whole', idempotencyId });
    const hide = hidingSecretsOf(api);
    const exchange = { start, decodeFailure: failureInBody, hide, presence, now: clock.now };
    if (request.answer === 'events') {
      const reader = createLaneReader({ lane: mediaEvents, promptTokens, maxEventBytes, onKept: () => undefined });
      return { stream: await openStream({ ...exchange, reader: withUnits(reader, units) }), contentType: EVENTS };
    }
    if (request.answer === 'audio') {
      const reader = createFileReader(estimated, false);
      return { stream: await openStream({ ...exchange, reader }), contentType: request.contentType };
    }
    let given = '';
    const onHeaders = (headers: { readonly [name: string]: unknown }) => {
      given = String(headers['content-type'] ?? '');
    };
    const body = await openAnswer({ ...exchange, onHeaders });
    const isJson = beginsObject(body);
    if (!isJson && !kind.mayBeText) throw upstreamError('its answer is not JSON');
    const failure = isJson ? failureInAnswer(body, kind.results) : undefined;
    if (failure !== undefined) throw failureToError(failure, hide);
    const found = isJson ? findUsage(body, readUsage) : undefined;
    if (isJson && !isWholeJson(body, found)) {
      if (found !== undefined) addSpent(call.record, { ...units, ...found.usage }, false);
      throw upstreamError('its answer is not whole');
    }
    const usage = found?.usage ?? (isJson ? lengthOf(kind, body, estimated.usage) : undefined);
    const contentType = PASSED_TYPES.test(given) ? given : isJson ? 'application/json' : 'application/octet-stream';
    return {
      body,
      contentType,
      measured: usage === undefined ? estimated : { usage: { ...units, ...usage }, estimated: false },
    };
  }

  /** Without what the guardrails mask. A stream of words could not be checked piece by piece, so it is refused. */
  async function guarded(call: AdmittedCall, kind: MediaKind, request: MediaRequest): Promise<MediaRequest> {
    const fields = await pipeline.guardRequest(call, request.fields);
    if (writesWords(kind) && request.answer === 'events' && pipeline.guards?.changesResponses === true) {
      call.record.settle({ outcome: 'error', status: 400 });
      throw new AppError('UNSUPPORTED_PARAMETER', { param: 'stream' });
    }
    return fields === request.fields ? request : request.withFields(fields);
  }

  async function guardedAnswer(
    call: AdmittedCall,
    kind: MediaKind,
    opened: Attempted<OpenedMedia>,
  ): Promise<OpenedMedia> {
    const { result, finish } = opened;
    if ('stream' in result || !writesWords(kind)) return result;
    const body = String(result.body);
    const isJson = body.trimStart().startsWith('{');
    const words = isJson ? Buffer.from(body) : Buffer.from(JSON.stringify({ text: body }));
    const whole = { dropped: [], kind: 'bytes', body: words, measured: result.measured } as const;
    const checked = await pipeline.guardAnswer(call, { result: whole, finish });
    if (checked.result.kind !== 'bytes' || checked.result.body === words) return result;
    const text = checked.result.body.toString('utf8');
    return { ...result, body: isJson ? text : String(parseEvent(text)?.text ?? '') };
  }

  return (kind: MediaKind) =>
    async (asked: Call<KeyHolder, Buffer>): Promise<unknown> => {
      const { head, body, reply } = asked;
      // Browsers send forms of any page without asking, so JSON alone does not need this.
      if (isForm(head.headers['content-type']) && !allowsOrigin(head)) refuseOrigin(head);
      const given = kind.read(body, head.headers['content-type']);
      pipeline.refuseStorage(given.fields);
      if (body.length > MIN_LARGE_BODY) await afterOthers();
      const { incoming } = readIncoming(asked, kind.operation, given.text);
      const call = await pipeline.admit(incoming, given.model, given.estimate);
      const { record } = call;
      const request = pipeline.guards === undefined ? given : await guarded(call, kind, given);
      const start = () => pipeline.attempt(call, (attempt) => open(attempt, kind, request, call));
      const begun =
        request.answer === 'events'
          ? await openInSilence({ reply, record, clock, alarms }, start)
          : { opened: await start(), headersSent: false };
      if (begun === undefined) return reply;
      const { finish } = begun.opened;
      const result =
        pipeline.guards === undefined ? begun.opened.result : await guardedAnswer(call, kind, begun.opened);
      if ('stream' in result) {
        const { stream, contentType } = result;
        const shared = { reply, finish, clock, alarms, headersSent: begun.headersSent, stream };
        const pass = { encode: (piece: Buffer) => piece, encodeEnd: (last: Buffer | undefined) => last ?? '' };
        if (contentType === EVENTS) {
          relayStream({ ...shared, ...pass, record, requestText: () => request.text });
        } else {
          // A recording has no place for an error, so the response ends without its last chunk, which shows that it is incomplete.
          const encodeFailure = () => {
            reply.raw.destroy();
            return [];
          };
          const quiet = { ...record, keepsContent: false };
          const framing = { contentType, keepAlive: '' };
          relayStream({ ...shared, ...pass, record: quiet, requestText: () => '', encodeFailure, framing });
        }
        return reply;
      }
      const { measured, contentType } = result;
      const content = record.keepsContent && { content: { request: request.text, answer: String(result.body) } };
      finish({ outcome: 'ok', status: 200, measured, ...content });
      reply.code(200).headers(record.headers()).type(contentType).send(result.body);
      return reply;
    };
}

/** A transcription may say how long its recording is, without any tokens. */
function lengthOf({ operation }: MediaKind, body: Buffer, estimated: Usage): Usage | undefined {
  if (operation !== 'transcription') return undefined;
  const seconds = asNumber(parseEvent(body.toString('utf8'))?.duration);
  return seconds === undefined ? undefined : { ...estimated, ...{ seconds } };
}

function withUnits(reader: StreamReader<Buffer>, units: UnitCounts | undefined): StreamReader<Buffer> {
  return {
    ...reader,
    usage() {
      const measured = reader.usage();
      return { ...measured, usage: { ...units, ...measured.usage } };
    },
  };
}

/** Returns whether responses of an operation contain text for guardrails to check. */
function writesWords({ operation }: MediaKind): boolean {
  return operation === 'transcription';
}

function notOffered({ named }: MediaKind): AppError {
  return new AppError('OPERATION_NOT_SUPPORTED', { operation: named });
}

/** Relays a file. It is complete when the connection ends normally, and has at least one byte unless it may be empty. */
export function createFileReader(measured: MeasuredUsage, mayBeEmpty: boolean): StreamReader<Buffer> {
  let isComplete = mayBeEmpty;
  return {
    feed(chunk) {
      isComplete = true;
      return { piece: chunk, hasEvent: true, done: false };
    },
    end: () => ({ piece: undefined, hasEvent: isComplete, done: isComplete }),
    usage: () => measured,
  };
}

/** Reads usage in the form of chats, or of responses with parts for images and audio. */
export function readUsage(value: unknown): Usage | undefined {
  const chat = asUsage(value);
  if (chat !== undefined) return chat;
  const usage = asObject(value);
  const seconds = usage?.type === 'duration' ? asNumber(usage.seconds) : undefined;
  if (seconds !== undefined) return { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0, ...{ seconds } };
  if (usage?.input_tokens === undefined) return undefined;
  const [prompt, completion] = [asCount(usage.input_tokens), asCount(usage.output_tokens)];
  const details = asObject(usage.input_tokens_details) ?? asObject(usage.input_token_details) ?? {};
  const [image, audio] = [asCount(details.image_tokens), asCount(details.audio_tokens)];
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(image + audio > 0 && { prompt_tokens_details: { image_tokens: image, audio_tokens: audio } }),
  };
}
