import type { Clock } from '../../platform/clock/clock.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call } from '../../platform/http/surface.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import { type ChatChunk, type ChatCompletion, ChatRequest } from '../contract/chat.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { statusOf } from '../errors.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { OpenedChat } from '../relay/open-stream.ts';
import { openInSilence, type RelayOptions, relayStream, sendJson, sendStream } from '../relay/relay-stream.ts';
import { watchCaller } from '../routing/call-record.ts';
import { createAlarms } from '../upstream/upstream-exchange.ts';
import type { AdmittedCall } from './admit-call.ts';
import { readCallOptions } from './call-options.ts';
import { type Attempted, type ChatPipeline, withHeaders } from './chat-pipeline.ts';
import { usesLegacyFunctions, withFunctionCallDeltas, withFunctionCalls } from './encode-chat.ts';
import { type ResponseCache, useCache } from './response-cache.ts';

export interface ChatHandlerOptions {
  readonly pipeline: ChatPipeline;
  readonly cache: ResponseCache;
  readonly strictParams: () => boolean;
  readonly clock: Clock;
}

interface StreamParts extends Pick<RelayOptions<never>, 'headersSent' | 'onWhole'> {
  readonly bytes: Buffer;
  readonly legacy: boolean;
}

/** The form of responses: OpenAI's, or that of paths without `/v1`. */
export type PathFamily = 'openai' | 'document';

const readRequest = createRequestReader(ChatRequest);

/** `POST /chat/completions`. Parses the body once, and passes it on as bytes if nothing must change. */
export function createChatHandler({ pipeline, cache, strictParams, clock }: ChatHandlerOptions) {
  const alarms = createAlarms(clock);
  return (family: PathFamily) =>
    async ({ head, caller: holder, body: bytes, reply }: Call<KeyHolder, Buffer>): Promise<unknown> => {
      const request = readRequest(bytes);
      if (bytes.length > MIN_LARGE_BODY) await afterOthers();
      const { strict, cacheTtlMs, timeoutMs, fallbacks } = readCallOptions(head, strictParams());
      const presence = watchCaller(reply.raw);
      const { requestId } = head;
      const admitting = pipeline.admitChat(
        { holder, requestId, presence, body: bytes, operation: 'chat', timeoutMs, fallbacks },
        request,
      );
      const call = admitting instanceof Promise ? await admitting : admitting;
      const { record } = call;
      const looked = useCache(cache, cacheTtlMs ?? call.plan.cacheTtlMs, { holder, head, body: bytes, record });
      const cached = looked instanceof Promise ? await looked : looked;
      if (cached !== undefined) reply.header('x-cache', cached.hit === undefined ? 'miss' : 'hit');
      if (cached?.hit !== undefined) {
        record.settle({ outcome: 'cached', status: 200 });
        if (request.stream === true) sendStream(reply, record, cached.hit);
        else sendJson(reply, record.headers(), cached.hit);
        return reply;
      }
      const answerAsBytes = family === 'openai' || request.stream === true;
      const form = { request, bytes, answerAsBytes, strict, showsCost: family === 'openai' };
      let headersSent = false;
      let opened: Attempted<OpenedChat>;
      if (request.stream === true) {
        const silence = { reply, record, clock, alarms };
        const begun = await openInSilence(silence, () => pipeline.openChat(call, form));
        if (begun === undefined) return reply;
        ({ opened, headersSent } = begun);
      } else opened = await pipeline.openChat(call, form);
      const legacy = usesLegacyFunctions(request);
      if (isStream(opened.result)) {
        relayChat(reply, call, opened, request, { bytes, legacy, headersSent, onWhole: cached?.keep });
        return reply;
      }
      const { measured } = opened.result;
      let answer: Buffer | string;
      try {
        answer = encodeWhole(opened.result, family, legacy);
      } catch (error) {
        opened.finish({ outcome: 'error', status: statusOf(error), measured, error });
        throw withHeaders(error, record.headers());
      }
      cached?.keep(Buffer.from(answer));
      const content = record.keepsContent && { content: { request: String(bytes), answer: String(answer) } };
      opened.finish({ outcome: 'ok', status: 200, measured, ...content });
      sendJson(reply, record.headers(), answer);
      return reply;
    };

  function relayChat(
    reply: Call['reply'],
    { record }: AdmittedCall,
    { result, finish }: Attempted<OpenedChat>,
    request: ChatRequest,
    { bytes, legacy, headersSent, onWhole }: StreamParts,
  ): void {
    const shared = { reply, record, finish, clock, alarms, headersSent, onWhole, requestText: () => String(bytes) };
    if (result.kind === 'byte-stream') {
      relayStream({ ...shared, stream: result.stream, encode: asItIs, encodeEnd: (last) => last ?? '' });
    } else if (result.kind === 'chunk-stream') {
      const usageAsked = request.stream_options?.include_usage === true;
      const encode = createChunkEncoder(usageAsked, legacy);
      relayStream({
        ...shared,
        stream: result.stream,
        encode,
        encodeEnd: (last) => `${last === undefined ? '' : encode(last)}data: [DONE]\n\n`,
      });
    }
  }
}

type WholeChat = Extract<OpenedChat, { measured: unknown }>;

function isStream(opened: OpenedChat): opened is Exclude<OpenedChat, WholeChat> {
  return opened.kind === 'byte-stream' || opened.kind === 'chunk-stream';
}

function asItIs(bytes: Buffer): Buffer {
  return bytes;
}

/**
 * Writes the chunks of one stream as events. Most chunks contain only text; for those it writes only the text as JSON, and reuses
 * the rest of the event before, which takes half the time.
 */
export function createChunkEncoder(usageAsked: boolean, legacy: boolean): (chunks: readonly ChatChunk[]) => string {
  let last: ChatChunk | undefined;
  let head = '';
  return (chunks) => {
    let events = '';
    for (const chunk of chunks) {
      const text = textAlone(chunk);
      if (text === undefined) {
        if (!usageAsked && chunk.choices.length === 0) continue;
        events += `data: ${JSON.stringify(legacy ? withFunctionCallDeltas(chunk) : chunk)}\n\n`;
        continue;
      }
      if (last === undefined || last.id !== chunk.id || last.created !== chunk.created || last.model !== chunk.model) {
        last = chunk;
        const { id, object, created, model } = chunk;
        head = `data: ${JSON.stringify({ id, object, created, model }).slice(0, -1)},"choices":[{"index":0,"delta":{"content":`;
      }
      events += `${head}${JSON.stringify(text)}},"finish_reason":null}]}\n\n`;
    }
    return events;
  };
}

/** The text of a chunk that has one choice with a piece of text and no other member than those that every chunk has. */
function textAlone(chunk: ChatChunk): string | undefined {
  const [choice] = chunk.choices;
  if (choice === undefined || choice.index !== 0 || choice.finish_reason !== null) return undefined;
  const { content } = choice.delta;
  if (typeof content !== 'string' || chunk.choices.length > 1) return undefined;
  return countMembers(choice.delta) === 1 && countMembers(choice) === 3 && countMembers(chunk) === 5
    ? content
    : undefined;
}

/** Counts members without the array that `Object.keys` creates. */
function countMembers(value: object): number {
  let count = 0;
  for (const _ in value) count += 1;
  return count;
}

function encodeWhole(opened: WholeChat, family: PathFamily, legacy: boolean): Buffer | string {
  if (opened.kind === 'bytes') return opened.body;
  const { completion } = opened;
  const mapped = legacy ? withFunctionCalls(completion) : completion;
  return JSON.stringify(family === 'openai' ? mapped : asDocument(mapped));
}

/** Without `/v1`, `created` is a text and `content` never null. */
export function asDocument(completion: ChatCompletion): ChatCompletion {
  return {
    ...completion,
    created: String(completion.created),
    choices: completion.choices.map((choice) => ({
      ...choice,
      message: { ...choice.message, content: choice.message.content ?? '' },
    })),
  };
}
