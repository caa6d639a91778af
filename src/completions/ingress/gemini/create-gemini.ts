import { AppError } from '../../../platform/errors/app-error.ts';
import type { Call } from '../../../platform/http/surface.ts';
import type { Runtime } from '../../../platform/runtime/runtime.ts';
import { createModelViews, type Models } from '../../apis/models.ts';
import { dearerFields } from '../../apis/prices.ts';
import {
  BatchEmbedRequest,
  EmbedContentRequest,
  GeminiCountRequest,
  type GeminiModel,
  type GeminiModelList,
  type GeminiModelsQuery,
  GenerateContentRequest,
} from '../../contract/gemini.ts';
import type { ModelEntry } from '../../contract/keys.ts';
import { createRequestReader } from '../../contract/read-request.ts';
import { nothingStored } from '../../dialects/conversation.ts';
import { asList, asObject, parseEvent } from '../../dialects/json-value.ts';
import type { KeyHolder } from '../../keys/admission.ts';
import { geminiCountLane, generateLane } from '../../lanes/request-lanes.ts';
import type { ChatPipeline } from '../../operations/chat-pipeline.ts';
import type { Embed } from '../../operations/embeddings-handler.ts';
import { sendJson } from '../../relay/relay-stream.ts';
import { estimatePromptTokens, estimateTokensIn, expectedAnswerTokens } from '../../relay/token-usage.ts';
import { watchCaller } from '../../routing/call-record.ts';
import { upstreamError } from '../../routing/upstream-failure.ts';
import { readWhole } from '../answer-blocks.ts';
import { invalidField } from '../decoded-request.ts';
import { createIngressCall, type IngressCallOptions, laneForm, type StreamFormat } from '../ingress-call.ts';
import { createGeminiArray, createGeminiStream, geminiEvents, geminiResponse } from './gemini-answer.ts';
import { plainNames, storedInGemini, withOwnSignatures } from './gemini-content.ts';
import { decodeGeminiRequest } from './gemini-request.ts';

export interface GeminiParts extends IngressCallOptions, Pick<Runtime, 'makeId'> {
  readonly pipeline: Pick<ChatPipeline, 'admit' | 'openForeign' | 'countTokens' | 'refuseStorage'>;
  readonly embed: Embed;
  readonly models: Models;
}

type RawCall = Call<KeyHolder, Buffer>;

const readRequest = createRequestReader(GenerateContentRequest, undefined, plainNames);
const readCountRequest = createRequestReader(GeminiCountRequest, undefined, plainNames);
const readEmbedRequest = createRequestReader(EmbedContentRequest, undefined, plainNames);
const readBatchRequest = createRequestReader(BatchEmbedRequest, undefined, plainNames);

/** What every model here can be asked for. */
const METHODS = ['generateContent', 'streamGenerateContent', 'countTokens'];
const PAGE_SIZE = 50;

/** The handlers for clients of Google's Gemini API (`/v1beta`). */
export function createGemini(parts: GeminiParts) {
  const { pipeline, makeId, embed, models } = parts;
  const run = createIngressCall(parts);
  const views = createModelViews(models);

  function generate(call: RawCall, model: string, stream: boolean): Promise<unknown> {
    const request = readRequest(call.body);
    pipeline.refuseStorage(request);
    refuseStored(request);
    const { contents, systemInstruction, tools, generationConfig: config } = request;
    const { thinkingConfig: thinking, maxOutputTokens: most, candidateCount: n } = config ?? {};
    const head = { id: makeId('gen_'), model, includeThoughts: thinking?.includeThoughts === true };
    return run(call, {
      lane: generateLane,
      request: { model, stream },
      rewritten: withOwnSignatures(request),
      passedQuery: [],
      references: [],
      estimate: {
        prompt: estimateTokensIn(contents, systemInstruction, tools),
        answer: expectedAnswerTokens({
          ...(most !== undefined && { max_tokens: most }),
          ...(n !== undefined && { n }),
        }),
        dearer: dearerFields(request),
      },
      translate: () => decodeGeminiRequest(request, { model, stream }),
      whole: (completion) => geminiResponse(head, readWhole(completion, `call_${head.id}_`, true)),
      stream: () => createGeminiStream(head),
      ...(stream && { format: streamFormat(call) }),
    });
  }

  async function countTokens(call: RawCall, model: string): Promise<unknown> {
    const { head, caller: holder, reply } = call;
    const request = readCountRequest(call.body);
    pipeline.refuseStorage(request);
    const { contents, generateContentRequest: whole } = request;
    const prompt = whole ?? (contents === undefined ? undefined : { contents });
    if (prompt === undefined) throw invalidField('/contents', 'is missing');
    refuseStored(prompt);
    const { requestId } = head;
    const incoming = { holder, requestId, presence: watchCaller(reply.raw), operation: 'count_tokens' } as const;
    const rewritten = (name: string) => ({ generateContentRequest: { ...prompt, model: `models/${name}` } });
    const form = laneForm(call, {
      lane: geminiCountLane,
      request: { model },
      rewritten: whole === undefined ? undefined : rewritten,
      passedQuery: [],
    });
    const counted = await pipeline.countTokens(incoming, form);
    if (counted === undefined) {
      const { chat } = decodeGeminiRequest(prompt, { model, stream: false });
      return { totalTokens: estimatePromptTokens(chat), estimated: true };
    }
    sendJson(reply, {}, counted);
    return reply;
  }

  /** All texts of one call are for the same purpose: upstreams other than Google's know one for each call. */
  async function embeddings(call: RawCall, model: string, asked: readonly EmbedContentRequest[]): Promise<number[][]> {
    const [first] = asked;
    const { taskType, outputDimensionality } = first ?? {};
    const odd = asked.findIndex(
      (each) => each.taskType !== taskType || each.outputDimensionality !== outputDimensionality,
    );
    if (odd !== -1)
      throw invalidField(`/requests/${odd}`, 'differs from the first in taskType or outputDimensionality');
    const input = asked.map(({ content }, index) => textOf(content.parts ?? [], `/requests/${index}/content`));
    const plain = {
      model,
      input,
      encoding_format: 'float' as const,
      ...(outputDimensionality !== undefined && { dimensions: outputDimensionality }),
    };
    const { body, headers } = await embed(call, {
      request: { ...plain, ...(taskType !== undefined && { task_type: taskType }) },
      bytes: Buffer.from(JSON.stringify(plain)),
      onlyElsewhere: taskType === undefined ? [] : ['taskType'],
    });
    call.reply.headers(headers);
    const lists = asList(parseEvent(body.toString())?.data).map((item) => asObject(item)?.embedding);
    if (lists.length !== input.length || !lists.every(Array.isArray))
      throw upstreamError('its answer lacks embeddings');
    return lists as number[][];
  }

  const operations: Readonly<Record<string, (call: RawCall, model: string) => Promise<unknown>>> = {
    generateContent: (call, model) => generate(call, model, false),
    streamGenerateContent: (call, model) => generate(call, model, true),
    countTokens,
    async embedContent(call, model) {
      const [values] = await embeddings(call, model, [readEmbedRequest(call.body)]);
      return { embedding: { values } };
    },
    async batchEmbedContents(call, model) {
      const lists = await embeddings(call, model, readBatchRequest(call.body).requests);
      return { embeddings: lists.map((values) => ({ values })) };
    },
  };

  return {
    /** `{model}:{operation}`. Names of models may have colons, too. */
    async call(call: Call<KeyHolder, Buffer, unknown, { readonly '*': string }>): Promise<unknown> {
      const name = call.params['*'];
      const colon = name.lastIndexOf(':');
      const operation = Object.hasOwn(operations, name.slice(colon + 1))
        ? operations[name.slice(colon + 1)]
        : undefined;
      if (colon < 1 || operation === undefined) throw new AppError('NOT_FOUND');
      return operation(call as RawCall, name.slice(0, colon));
    },
    async list({ caller, query }: { caller: KeyHolder; query: GeminiModelsQuery }): Promise<GeminiModelList> {
      const entries = await models.list(caller);
      const { pageSize = PAGE_SIZE, pageToken: before } = query;
      const last = before === undefined ? -1 : entries.findIndex(({ id }) => id === before);
      if (before !== undefined && last === -1) throw invalidField('/pageToken', 'is not of a page before');
      const page = entries.slice(last + 1, last + 1 + pageSize);
      const next = last + 1 + page.length < entries.length ? page.at(-1)?.id : undefined;
      return { models: page.map(geminiModel), ...(next !== undefined && { nextPageToken: next }) };
    },
    show: ({ caller, params }: { caller: KeyHolder; params: { readonly '*': string } }): GeminiModel =>
      geminiModel(views.show('/v1', params['*'], caller)),
  };
}

/** No caller can have stored anything through this service, so whatever is named is somebody else's. */
function refuseStored(request: GenerateContentRequest): void {
  const [stored] = storedInGemini(request);
  if (stored !== undefined) throw nothingStored(stored);
}

/** `alt=sse`: events; otherwise one JSON array. */
function streamFormat({ head }: RawCall): StreamFormat {
  const alt = head.query.get('alt') ?? 'json';
  if (alt === 'sse') return geminiEvents;
  if (alt !== 'json') throw invalidField('/alt', 'must be "sse" or "json"');
  return createGeminiArray();
}

function textOf(parts: readonly { readonly text?: string }[], path: string): string {
  const texts = parts.map(({ text }) => text);
  if (texts.length === 0 || texts.includes(undefined)) throw invalidField(path, 'must have parts of text alone');
  return texts.join('\n');
}

function geminiModel({ id, context_window: input, max_output_tokens: output }: ModelEntry): GeminiModel {
  return {
    name: `models/${id}`,
    displayName: id,
    ...(input !== undefined && { inputTokenLimit: input }),
    ...(output !== undefined && { outputTokenLimit: output }),
    supportedGenerationMethods: METHODS,
  };
}
