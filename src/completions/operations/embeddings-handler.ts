import { AppError } from '../../platform/errors/app-error.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call } from '../../platform/http/surface.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { FindApi, UsableApi } from '../apis/model-api.ts';
import { type EmbeddingList, EmbeddingsRequest } from '../contract/operations.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { type DialectName, pathSegment } from '../dialects/dialect.ts';
import { failureInBody } from '../dialects/failure.ts';
import { modelPath } from '../dialects/google/google-request.ts';
import { asCount, asList, asObject, type JsonObject } from '../dialects/json-value.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { sendJson } from '../relay/relay-stream.ts';
import { estimatedUsage, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import { addSpent, CallerPresence, type MeasuredUsage } from '../routing/call-record.ts';
import { hidingSecretsOf, upstreamError } from '../routing/upstream-failure.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';
import type { AdmittedCall } from './admit-call.ts';
import { readIncoming } from './call-options.ts';
import type { Attempted, ChatPipeline } from './chat-pipeline.ts';
import { speaksOpenai } from './encode-chat.ts';
import type { OpenOperation } from './open-operation.ts';

interface EmbeddingsHandlerOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly pipeline: ChatPipeline;
  readonly findApi: FindApi;
  readonly openOperation: OpenOperation;
  readonly send: SendUpstream;
  readonly strictParams: () => boolean;
}

interface OpenedEmbeddings {
  readonly body: Buffer | string;
  readonly measured: MeasuredUsage;
}

/** A request for embeddings, whichever API it came in. */
export interface EmbeddingsWork {
  readonly request: EmbeddingsRequest;
  /** As an upstream of OpenAI's dialect gets it. */
  readonly bytes: Buffer;
  /** Fields that are not in these bytes, because OpenAI does not have them. */
  readonly onlyElsewhere?: readonly string[];
}

/** Runs one request to its end. The body is a list as OpenAI has it. */
export type Embed = (
  call: Pick<Call<KeyHolder>, 'head' | 'caller' | 'reply'>,
  work: EmbeddingsWork,
) => Promise<{ readonly body: Buffer | string; readonly headers: Readonly<Record<string, string>> }>;

/** OpenAI takes 300,000 tokens in one call, and each may be an element of `input`. */
const MAX_VALUES = 310_000;
const readRequest = createRequestReader(EmbeddingsRequest, { values: MAX_VALUES });

/** How many calls of one request are under way at the same time, where an upstream takes fewer texts than were given. */
const MAX_PARALLEL = 4;

/** Passes embeddings on to upstreams of OpenAI's dialect, and translates and splits them for the others. */
export function createEmbed(options: EmbeddingsHandlerOptions): Embed {
  const { pipeline, findApi, openOperation, send, strictParams, clock, makeId } = options;

  function open(
    call: AdmittedCall,
    { request, bytes, onlyElsewhere = [] }: EmbeddingsWork,
    strict: boolean,
  ): Promise<Attempted<OpenedEmbeddings>> {
    const { presence, promptTokens, record } = call;
    const idempotencyId = makeId('idem-');

    function drop(names: readonly string[]): void {
      if (strict && names[0] !== undefined) throw new AppError('UNSUPPORTED_PARAMETER', { param: names[0] });
      record.dropped = names;
    }

    async function translated(api: UsableApi, attempt: Attempt, codec: EmbeddingCodec): Promise<OpenedEmbeddings> {
      const { model } = attempt.target;
      drop(Object.keys(request).filter((name) => !CARRIED_FIELDS.has(name)));
      const texts = textsOf(request);
      const batches = Array.from({ length: Math.ceil(texts.length / codec.maxTexts) }, (_, number) =>
        texts.slice(number * codec.maxTexts, (number + 1) * codec.maxTexts),
      );
      /** Tokens of the parts that the API has got and not refused: it charges for them, even if another part fails. */
      const sent = new Map<number, number>();
      const embedPart = async (batch: readonly string[], number: number, ownPresence: CallerPresence) => {
        const { path, body } = codec.encode(batch, request, model);
        const encoded = { path, headers: {}, body: JSON.stringify(body) };
        const ownId = number === 0 ? idempotencyId : `${idempotencyId}-${number}`;
        const start = await send({ api, attempt, encoded, stream: false, idempotencyId: ownId });
        const hide = hidingSecretsOf(api);
        const exchange = { start, decodeFailure: failureInBody, hide, presence: ownPresence, now: clock.now };
        sent.set(number, tokensOfCharacters(batch.reduce((sum, text) => sum + text.length, 0)));
        try {
          const decoded = codec.decode(parse(await openAnswer(exchange)));
          if (decoded?.embeddings.length !== batch.length) throw upstreamError('its answer lacks embeddings');
          return decoded;
        } catch (error) {
          if (!ownPresence.gone) sent.delete(number);
          throw error;
        }
      };
      const parts = await inParallel(batches, presence, embedPart).catch((error: unknown) => {
        for (const tokens of sent.values()) addSpent(record, estimatedUsage(tokens, 0), true);
        throw error;
      });
      const estimated = parts.some((part) => part.promptTokens === undefined);
      const counted = parts.reduce((sum, part) => sum + (part.promptTokens ?? 0), 0);
      const tokens = estimated ? promptTokens : counted;
      const counts = estimatedUsage(tokens, 0);
      const cost = pipeline.costOf(call, counts);
      const usage = { prompt_tokens: tokens, total_tokens: tokens, ...(estimated && { estimated }), ...cost };
      const embeddings = parts.flatMap((part) => part.embeddings);
      const list = embeddingList(embeddings, model, request.encoding_format === 'base64', usage);
      return { body: JSON.stringify(list), measured: { usage: counts, estimated } };
    }

    return pipeline.attempt(call, async (attempt): Promise<OpenedEmbeddings> => {
      const api = findApi(attempt.target.apiId, attempt.target.key);
      const codec = api === undefined ? undefined : embeddingCodec(api.dialect, attempt.target.model);
      if (api !== undefined && codec !== undefined) return translated(api, attempt, codec);
      if (api === undefined || !speaksOpenai({ name: api.dialect })) throw noEmbeddings();
      drop(onlyElsewhere);
      const work = { path: '/embeddings', stream: false, choices: 1, usageAsked: false } as const;
      const opened = await openOperation(
        api,
        attempt,
        { ...work, request, bytes, promptTokens, idempotencyId, record },
        presence,
      );
      if (opened.kind !== 'bytes') throw upstreamError('it answered with a stream');
      return opened;
    });
  }

  /** Without what the guardrails mask. */
  async function guarded(call: AdmittedCall, work: EmbeddingsWork): Promise<EmbeddingsWork> {
    const request = await pipeline.guardRequest(call, work.request);
    if (request === work.request) return work;
    const { input } = request;
    const plain = { ...(JSON.parse(work.bytes.toString('utf8')) as object), input };
    return { ...work, request, bytes: Buffer.from(JSON.stringify(plain)) };
  }

  return async (asked, given) => {
    const { bytes, request } = given;
    pipeline.refuseStorage(request);
    if (bytes.length > MIN_LARGE_BODY) await afterOthers();
    const { strict, incoming } = readIncoming(asked, 'embeddings', bytes, strictParams());
    const call = await pipeline.admit(incoming, request.model, { prompt: tokensOfCharacters(bytes.length), answer: 0 });
    const work = pipeline.guards === undefined ? given : await guarded(call, given);
    const { result, finish } = await open(call, work, strict);
    const { measured } = result;
    const content = call.record.keepsContent && { content: storedContent(bytes, request.model, measured) };
    finish({ outcome: 'ok', status: 200, measured, ...content });
    return { body: result.body, headers: call.record.headers() };
  };
}

/** The texts, and what became of them without the vectors: these are a hundred times as long, and tell nobody anything. */
function storedContent(bytes: Buffer, model: string, { usage }: MeasuredUsage) {
  const answer = { object: 'list', data: [], model, usage, left_out: 'embeddings' };
  return { request: String(bytes), answer: JSON.stringify(answer) };
}

/** `POST /v1/embeddings`. */
export function createEmbeddingsHandler(embed: Embed) {
  return async (call: Call<KeyHolder, Buffer>): Promise<unknown> => {
    const { body, headers } = await embed(call, { request: readRequest(call.body), bytes: call.body });
    sendJson(call.reply, headers, body);
    return call.reply;
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

/** How an upstream of another dialect makes embeddings. Texts only: none of them takes token numbers. */
interface EmbeddingCodec {
  /** The most texts that one call takes. */
  readonly maxTexts: number;
  encode(texts: readonly string[], request: EmbeddingsRequest, model: string): { path: string; body: object };
  /** The numbers for each text; undefined for a body that does not hold them. */
  decode(body: unknown): DecodedEmbeddings | undefined;
}

interface DecodedEmbeddings {
  readonly embeddings: readonly number[][];
  readonly promptTokens?: number;
}

/** Fields that every codec carries. The rest of a request is dropped and named. */
const CARRIED_FIELDS: ReadonlySet<string> = new Set([
  ...['model', 'input', 'encoding_format', 'dimensions', 'input_type', 'task_type'],
]);

/** What the texts are for, in Cohere's words and in Google's. Other makers' words for the same are known, too. */
const PURPOSES: readonly (readonly [cohere: string, google: string, others: readonly string[]])[] = [
  ['search_document', 'RETRIEVAL_DOCUMENT', ['document', 'passage']],
  ['search_query', 'RETRIEVAL_QUERY', ['query', 'QUESTION_ANSWERING', 'FACT_VERIFICATION', 'CODE_RETRIEVAL_QUERY']],
  ['classification', 'CLASSIFICATION', []],
  ['clustering', 'CLUSTERING', ['SEMANTIC_SIMILARITY']],
];

/** The purpose as Cohere names it. Cohere wants one; without any the texts are taken for documents. */
function cohereInputType({ input_type: own, task_type: google }: EmbeddingsRequest): string {
  const row = PURPOSES.find((names) => isPurpose(names, own ?? google ?? ''));
  return row?.[0] ?? own ?? 'search_document';
}

/** The purpose as Google names it. A name that only Google has passes as it is. */
function googleTaskType({ input_type: cohere, task_type: own }: EmbeddingsRequest): string | undefined {
  if (own !== undefined) return own;
  return cohere === undefined ? undefined : (PURPOSES.find((names) => isPurpose(names, cohere))?.[1] ?? cohere);
}

function isPurpose([cohere, google, others]: (typeof PURPOSES)[number], name: string): boolean {
  return name === cohere || name === google || others.includes(name);
}

const cohereBody = (texts: readonly string[], request: EmbeddingsRequest): JsonObject => ({
  texts,
  input_type: cohereInputType(request),
  embedding_types: ['float'],
  ...(request.dimensions !== undefined && { output_dimension: request.dimensions }),
});

function decodeCohere(body: unknown): DecodedEmbeddings | undefined {
  const answer = asObject(body);
  // Older models of Bedrock give the lists themselves.
  const lists = asObject(answer?.embeddings)?.float ?? answer?.embeddings;
  return decoded(asList(lists), asObject(asObject(answer?.meta)?.billed_units)?.input_tokens);
}

const cohere: EmbeddingCodec = {
  maxTexts: 96,
  encode: (texts, request, model) => ({ path: '/embed', body: { model, ...cohereBody(texts, request) } }),
  decode: decodeCohere,
};

const google: EmbeddingCodec = {
  maxTexts: 100,
  encode(texts, request, model) {
    const taskType = googleTaskType(request);
    const own = {
      ...(taskType !== undefined && { taskType }),
      ...(request.dimensions !== undefined && { outputDimensionality: request.dimensions }),
    };
    return {
      path: `${modelPath('google', model)}:batchEmbedContents`,
      body: { requests: texts.map((text) => ({ model: `models/${model}`, content: { parts: [{ text }] }, ...own })) },
    };
  },
  decode: (body) => decoded(asList(asObject(body)?.embeddings).map((item) => asObject(item)?.values)),
};

function vertex(model: string): EmbeddingCodec {
  return {
    // Models of Gemini's family take one text there.
    maxTexts: model.includes('gemini') ? 1 : 100,
    encode(texts, request) {
      const taskType = googleTaskType(request);
      return {
        path: `${modelPath('google-vertex', model)}:predict`,
        body: {
          instances: texts.map((content) => ({ content, ...(taskType !== undefined && { task_type: taskType }) })),
          ...(request.dimensions !== undefined && { parameters: { outputDimensionality: request.dimensions } }),
        },
      };
    },
    decode(body) {
      const items = asList(asObject(body)?.predictions).map((item) => asObject(asObject(item)?.embeddings));
      const tokens = items.map((item) => asCount(asObject(item?.statistics)?.token_count));
      const sum = tokens.reduce((total, count) => total + count, 0);
      return decoded(
        items.map((item) => item?.values),
        tokens.includes(0) ? undefined : sum,
      );
    },
  };
}

const bedrockPath = (model: string): string => `/model/${pathSegment(model)}/invoke`;

const titan: EmbeddingCodec = {
  maxTexts: 1,
  encode: ([inputText], { dimensions }, model) => ({
    path: bedrockPath(model),
    body: { inputText, ...(dimensions !== undefined && { dimensions }) },
  }),
  decode(body) {
    const answer = asObject(body);
    return decoded([answer?.embedding], answer?.inputTextTokenCount);
  },
};

const cohereOnBedrock: EmbeddingCodec = {
  maxTexts: 96,
  encode: (texts, request, model) => ({ path: bedrockPath(model), body: cohereBody(texts, request) }),
  decode: decodeCohere,
};

/** Finds the codec of a model; undefined where its API makes no embeddings, or takes OpenAI's request as it is. */
function embeddingCodec(dialect: DialectName, model: string): EmbeddingCodec | undefined {
  if (dialect === 'cohere') return cohere;
  if (dialect === 'google') return google;
  if (dialect === 'google-vertex') return vertex(model);
  if (dialect !== 'bedrock') return undefined;
  if (model.includes('amazon.titan-embed')) return titan;
  return model.includes('cohere.embed') ? cohereOnBedrock : undefined;
}

function decoded(lists: readonly unknown[], tokens?: unknown): DecodedEmbeddings | undefined {
  const isNumbers = (list: unknown): list is number[] => Array.isArray(list) && typeof list[0] === 'number';
  if (lists.length === 0 || !lists.every(isNumbers)) return undefined;
  return { embeddings: lists, ...(typeof tokens === 'number' && { promptTokens: tokens }) };
}

/** The list as OpenAI has it: numbers, or their 32-bit floats in base64. */
function embeddingList(
  embeddings: readonly number[][],
  model: string,
  asBase64: boolean,
  usage: EmbeddingList['usage'],
): EmbeddingList {
  return {
    object: 'list',
    data: embeddings.map((numbers, index) => ({
      object: 'embedding',
      index,
      embedding: asBase64 ? Buffer.from(Float32Array.from(numbers).buffer).toString('base64') : numbers,
    })),
    model,
    usage,
  };
}
