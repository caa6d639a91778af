import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call } from '../../platform/http/surface.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { UsableApi } from '../apis/model-api.ts';
import { EmbeddingsRequest } from '../contract/embeddings.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { failureInBody } from '../dialects/failure.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { sendJson } from './answer-whole.ts';
import type { Attempt } from './attempt-call.ts';
import { watchCaller } from './caller-presence.ts';
import type { AdmittedCall, Attempted, ChatPipeline } from './chat-pipeline.ts';
import { type EmbeddingCodec, embeddingCodecs, embeddingList } from './embedding-codecs.ts';
import { speaksOpenai } from './encode-chat.ts';
import { estimatedUsage, tokensOfCharacters } from './estimate-tokens.ts';
import { openAnswer } from './open-answer.ts';
import type { OpenOperation } from './open-operation.ts';
import { readCallOptions } from './read-call-options.ts';
import type { SendUpstream } from './send-upstream.ts';
import type { MeasuredUsage } from './stream-reader.ts';
import { upstreamError } from './upstream-failure.ts';

export interface EmbeddingsHandlerOptions {
  readonly pipeline: ChatPipeline;
  readonly findApi: (id: string) => UsableApi | undefined;
  readonly openOperation: OpenOperation;
  readonly send: SendUpstream;
  readonly clock: Clock;
  readonly makeId: MakeId;
}

interface OpenedEmbeddings {
  readonly body: Buffer | string;
  readonly measured: MeasuredUsage;
}

/** OpenAI takes 300,000 tokens in one call, and each may be an element of `input`. */
const MAX_VALUES = 310_000;
const readRequest = createRequestReader(EmbeddingsRequest, { values: MAX_VALUES });

/** `POST /v1/embeddings`: as it is for upstreams of OpenAI's dialect, translated for Cohere and Gemini. */
export function createEmbeddingsHandler(options: EmbeddingsHandlerOptions) {
  const { pipeline, findApi, openOperation, send, clock, makeId } = options;

  function open(call: AdmittedCall, request: EmbeddingsRequest, bytes: Buffer): Promise<Attempted<OpenedEmbeddings>> {
    const { presence, promptTokens } = call;
    const idempotencyId = makeId('idem-');

    async function translated(api: UsableApi, attempt: Attempt, codec: EmbeddingCodec): Promise<OpenedEmbeddings> {
      const { model } = attempt.target;
      const { path, body } = codec.encode(textsOf(request), request, model);
      const encoded = { path, headers: {}, body: JSON.stringify(body) };
      const start = await send({ api, attempt, encoded, stream: false, idempotencyId });
      const answer = await openAnswer({
        start,
        decodeFailure: failureInBody,
        secret: api.credentials.key,
        presence,
        now: clock.now,
      });
      const decoded = codec.decode(parse(answer));
      if (decoded === undefined) throw upstreamError('its answer has no embeddings');
      const estimated = decoded.promptTokens === undefined;
      const tokens = decoded.promptTokens ?? promptTokens;
      const usage = { prompt_tokens: tokens, total_tokens: tokens, ...(estimated && { estimated }) };
      const list = embeddingList(decoded.embeddings, model, request.encoding_format === 'base64', usage);
      return { body: JSON.stringify(list), measured: { usage: estimatedUsage(tokens, 0), estimated } };
    }

    return pipeline.attempt(call, async (attempt): Promise<OpenedEmbeddings> => {
      const api = findApi(attempt.target.apiId);
      const codec = api === undefined ? undefined : embeddingCodecs[api.dialect];
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
    const presence = watchCaller(reply.raw);
    const { timeoutMs } = readCallOptions(head, false);
    const incoming = { holder, requestId: head.requestId, presence, operation: 'embeddings', timeoutMs } as const;
    const call = pipeline.admit(incoming, request.model, { prompt: tokensOfCharacters(bytes.length), answer: 0 });
    const { result, finish } = await open(call, request, bytes);
    finish({ outcome: 'ok', status: 200, measured: result.measured });
    sendJson(reply, call.record.headers(), result.body);
    return reply;
  };
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
