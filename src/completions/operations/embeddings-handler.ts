import { AppError } from '../../platform/errors/app-error.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call } from '../../platform/http/surface.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { UsableApi } from '../apis/model-api.ts';
import { EmbeddingsRequest } from '../contract/operations.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { failureInBody } from '../dialects/failure.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { sendJson } from '../relay/relay-stream.ts';
import { estimatedUsage, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import type { MeasuredUsage } from '../routing/call-record.ts';
import { CallerPresence, watchCaller } from '../routing/call-record.ts';
import { upstreamError } from '../routing/upstream-failure.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';
import { type AdmittedCall, type Attempted, type ChatPipeline, readCallOptions } from './chat-pipeline.ts';
import { CARRIED_FIELDS, type EmbeddingCodec, embeddingCodec, embeddingList } from './embedding-codecs.ts';
import { speaksOpenai } from './encode-chat.ts';
import type { OpenOperation } from './open-operation.ts';

export interface EmbeddingsHandlerOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly pipeline: ChatPipeline;
  readonly findApi: (id: string) => UsableApi | undefined;
  readonly openOperation: OpenOperation;
  readonly send: SendUpstream;
  readonly strictParams: () => boolean;
}

interface OpenedEmbeddings {
  readonly body: Buffer | string;
  readonly measured: MeasuredUsage;
}

/** OpenAI takes 300,000 tokens in one call, and each may be an element of `input`. */
const MAX_VALUES = 310_000;
const readRequest = createRequestReader(EmbeddingsRequest, { values: MAX_VALUES });

/** How many calls of one request are under way at the same time, where an upstream takes fewer texts than were given. */
const MAX_PARALLEL = 4;

/** `POST /v1/embeddings`: passed on to upstreams of OpenAI's dialect, translated and split for the others. */
export function createEmbeddingsHandler(options: EmbeddingsHandlerOptions) {
  const { pipeline, findApi, openOperation, send, strictParams, clock, makeId } = options;

  function open(
    call: AdmittedCall,
    request: EmbeddingsRequest,
    bytes: Buffer,
    strict: boolean,
  ): Promise<Attempted<OpenedEmbeddings>> {
    const { presence, promptTokens, record } = call;
    const idempotencyId = makeId('idem-');

    async function translated(api: UsableApi, attempt: Attempt, codec: EmbeddingCodec): Promise<OpenedEmbeddings> {
      const { model } = attempt.target;
      const dropped = Object.keys(request).filter((name) => !CARRIED_FIELDS.has(name));
      if (strict && dropped[0] !== undefined) throw new AppError('UNSUPPORTED_PARAMETER', { param: dropped[0] });
      record.dropped = dropped;
      const texts = textsOf(request);
      const batches = Array.from({ length: Math.ceil(texts.length / codec.maxTexts) }, (_, number) =>
        texts.slice(number * codec.maxTexts, (number + 1) * codec.maxTexts),
      );
      const parts = await inParallel(batches, presence, async (batch, number, ownPresence) => {
        const { path, body } = codec.encode(batch, request, model);
        const encoded = { path, headers: {}, body: JSON.stringify(body) };
        const ownId = number === 0 ? idempotencyId : `${idempotencyId}-${number}`;
        const start = await send({ api, attempt, encoded, stream: false, idempotencyId: ownId });
        const secret = api.credentials.key;
        const exchange = { start, decodeFailure: failureInBody, secret, presence: ownPresence, now: clock.now };
        const decoded = codec.decode(parse(await openAnswer(exchange)));
        if (decoded?.embeddings.length !== batch.length) throw upstreamError('its answer lacks embeddings');
        return decoded;
      });
      const estimated = parts.some((part) => part.promptTokens === undefined);
      const counted = parts.reduce((sum, part) => sum + (part.promptTokens ?? 0), 0);
      const tokens = estimated ? promptTokens : counted;
      const usage = { prompt_tokens: tokens, total_tokens: tokens, ...(estimated && { estimated }) };
      const embeddings = parts.flatMap((part) => part.embeddings);
      const list = embeddingList(embeddings, model, request.encoding_format === 'base64', usage);
      return { body: JSON.stringify(list), measured: { usage: estimatedUsage(tokens, 0), estimated } };
    }

    return pipeline.attempt(call, async (attempt): Promise<OpenedEmbeddings> => {
      const api = findApi(attempt.target.apiId);
      const codec = api === undefined ? undefined : embeddingCodec(api.dialect, attempt.target.model);
      if (api !== undefined && codec !== undefined) return translated(api, attempt, codec);
      if (api === undefined || !speaksOpenai({ name: api.dialect })) throw noEmbeddings();
      const work = { path: '/embeddings', stream: false, choices: 1, usageAsked: false } as const;
      const opened = await openOperation(
        api,
        attempt,
        { ...work, request, bytes, promptTokens, idempotencyId },
        presence,
      );
      if (opened.kind !== 'bytes') throw upstreamError('it answered with a stream');
      return opened;
    });
  }

  return async ({ head, caller: holder, body, reply }: Call<KeyHolder>): Promise<unknown> => {
    const bytes = body as Buffer;
    const request = readRequest(bytes);
    if (bytes.length > MIN_LARGE_BODY) await afterOthers();
    const presence = watchCaller(reply.raw);
    const { strict, timeoutMs } = readCallOptions(head, strictParams());
    const incoming = { holder, requestId: head.requestId, presence, operation: 'embeddings', timeoutMs } as const;
    const call = pipeline.admit(incoming, request.model, { prompt: tokensOfCharacters(bytes.length), answer: 0 });
    const { result, finish } = await open(call, request, bytes, strict);
    finish({ outcome: 'ok', status: 200, measured: result.measured });
    sendJson(reply, call.record.headers(), result.body);
    return reply;
  };
}

/** Runs a task for each item, a few at a time, and keeps the order. The first failure stops the others. */
async function inParallel<Item, Result>(
  items: readonly Item[],
  presence: CallerPresence,
  run: (item: Item, number: number, presence: CallerPresence) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const left = [...items.entries()].reverse();
  const running = new Set<CallerPresence>();
  const stop = (): void => {
    left.length = 0;
    for (const own of running) own.leave(presence.reason);
  };
  presence.watch(stop);
  const work = async (): Promise<void> => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      const own = new CallerPresence();
      running.add(own);
      results[next[0]] = await run(next[1], next[0], own);
      running.delete(own);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(MAX_PARALLEL, items.length) }, work));
  } catch (error) {
    stop();
    throw error;
  }
  if (presence.gone) throw presence.failure();
  return results;
}

function textsOf({ input }: EmbeddingsRequest): readonly string[] {
  const list = typeof input === 'string' ? [input] : input;
  if (list.every((item) => typeof item === 'string')) return list;
  throw new AppError('OPERATION_NOT_SUPPORTED', { operation: 'embeddings of token numbers' });
}

function noEmbeddings(): AppError {
  return new AppError('OPERATION_NOT_SUPPORTED', { operation: 'embeddings' });
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw upstreamError('its answer is not JSON', error);
  }
}
