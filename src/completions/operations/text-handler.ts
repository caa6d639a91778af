import { AppError } from '../../platform/errors/app-error.ts';
import { MIN_LARGE_BODY } from '../../platform/http/request-body.ts';
import type { Call } from '../../platform/http/surface.ts';
import { afterOthers } from '../../platform/queue/after-reads.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { FindApi } from '../apis/model-api.ts';
import type { ChatChunk, ChatCompletion, ChatRequest } from '../contract/chat.ts';
import { type TextCompletion, TextRequest } from '../contract/operations.ts';
import { createRequestReader } from '../contract/read-request.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { OpenedChat } from '../relay/open-stream.ts';
import { openInSilence, relayStream, sendJson } from '../relay/relay-stream.ts';
import { textCount, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import { createAlarms } from '../upstream/upstream-exchange.ts';
import type { AdmittedCall } from './admit-call.ts';
import { readIncoming } from './call-options.ts';
import type { PathFamily } from './chat-handler.ts';
import type { Attempted, ChatPipeline } from './chat-pipeline.ts';
import { speaksOpenai } from './encode-chat.ts';
import type { OpenChat } from './open-chat.ts';
import { lacksOperation, type OpenedOperation, type OpenOperation } from './open-operation.ts';

export interface TextHandlerOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly pipeline: ChatPipeline;
  readonly findApi: FindApi;
  readonly openChat: OpenChat;
  readonly openOperation: OpenOperation;
  readonly strictParams: () => boolean;
}

const readRequest = createRequestReader(TextRequest);
const USUAL_ANSWER_TOKENS = 16;

/**
 * `POST /completions`. Upstreams of OpenAI's dialect get it as it is; where they have no such operation, and for all
 * other dialects, the prompt becomes a chat of one message.
 */
export function createTextHandler(options: TextHandlerOptions) {
  const { pipeline, findApi, openChat, openOperation, strictParams, clock, makeId } = options;
  const alarms = createAlarms(clock);

  async function open(
    call: AdmittedCall,
    given: { readonly request: TextRequest; readonly bytes: Buffer },
    strict: boolean,
    family: PathFamily,
  ): Promise<Attempted<OpenedChat | OpenedOperation>> {
    const request = pipeline.guards === undefined ? given.request : await pipeline.guardRequest(call, given.request);
    const bytes = request === given.request ? given.bytes : Buffer.from(JSON.stringify(request));
    const { presence, promptTokens, record } = call;
    const idempotencyId = makeId('idem-');
    const stream = request.stream === true;
    const usageAsked = request.stream_options?.include_usage === true;
    const choices = textCount({ prompt: request.prompt, n: request.n });
    const operation = { path: '/completions', request, bytes, stream, choices, usageAsked, promptTokens } as const;
    const answer = { answerId: makeId('chatcmpl-'), created: Math.floor(clock.now() / 1000) };

    async function asChat(attempt: Attempt): Promise<OpenedChat> {
      const { request: chat, dropped } = textAsChat(request);
      if (strict && dropped[0] !== undefined) throw new AppError('UNSUPPORTED_PARAMETER', { param: dropped[0] });
      const form = { bytes: undefined, answerAsBytes: false, strict, promptTokens, idempotencyId, spending: record };
      const opened = await openChat(attempt, { ...answer, ...form, request: chat }, presence);
      record.dropped = [...dropped, ...opened.dropped];
      return family === 'openai' ? pipeline.showCost(call, opened) : opened;
    }

    // Guardrails can check the pieces of a stream only in the form of a chat.
    const mustBeChat = stream && pipeline.guards?.changesResponses === true;
    const attempted = await pipeline.attempt(call, async (attempt): Promise<OpenedChat | OpenedOperation> => {
      const api = findApi(attempt.target.apiId, attempt.target.key);
      if (mustBeChat || api === undefined || !speaksOpenai({ name: api.dialect })) return asChat(attempt);
      try {
        return await openOperation(api, attempt, { ...operation, idempotencyId, record }, presence);
      } catch (error) {
        if (!lacksOperation(error)) throw error;
        return asChat(attempt);
      }
    });
    if (pipeline.guards === undefined) return attempted;
    return pipeline.guardAnswer(call, { ...attempted, result: { dropped: [], ...attempted.result } });
  }

  return (family: PathFamily) =>
    async (asked: Call<KeyHolder, Buffer>): Promise<unknown> => {
      const { body: bytes, reply } = asked;
      const request = readRequest(bytes);
      pipeline.refuseStorage(request);
      if (bytes.length > MIN_LARGE_BODY) await afterOthers();
      const { strict, incoming } = readIncoming(asked, 'text_completion', bytes, strictParams());
      const call = await pipeline.admit(incoming, request.model, {
        prompt: tokensOfCharacters(bytes.length),
        answer: (request.max_tokens ?? USUAL_ANSWER_TOKENS) * textCount(request),
      });
      const start = () => open(call, { request, bytes }, strict, family);
      const silence = { reply, record: call.record, clock, alarms };
      const begun =
        request.stream === true ? await openInSilence(silence, start) : { opened: await start(), headersSent: false };
      if (begun !== undefined) answer(family, reply, call, begun.opened, request, bytes, begun.headersSent);
      return reply;
    };

  function answer(
    family: PathFamily,
    reply: Call['reply'],
    { record }: AdmittedCall,
    { result, finish }: Attempted<OpenedChat | OpenedOperation>,
    request: TextRequest,
    bytes: Buffer,
    headersSent: boolean,
  ): void {
    const shared = { reply, record, finish, clock, alarms, headersSent, requestText: () => String(bytes) };
    if (result.kind === 'byte-stream') {
      relayStream({ ...shared, stream: result.stream, encode: (piece) => piece, encodeEnd: (last) => last ?? '' });
    } else if (result.kind === 'chunk-stream') {
      const encode = (chunks: readonly ChatChunk[]) =>
        encodeTexts(chunks, request.stream_options?.include_usage === true);
      const encodeEnd = (last: readonly ChatChunk[] = []) => `${encode(last)}data: [DONE]\n\n`;
      relayStream({ ...shared, stream: result.stream, encode, encodeEnd });
    } else {
      const text = encodeWhole(result, family);
      const content = record.keepsContent && { content: { request: String(bytes), answer: String(text) } };
      finish({ outcome: 'ok', status: 200, measured: result.measured, ...content });
      sendJson(reply, record.headers(), text);
    }
  }
}

function encodeTexts(chunks: readonly ChatChunk[], usageAsked: boolean): string {
  let text = '';
  for (const chunk of chunks) {
    const mapped = !usageAsked && chunk.choices.length === 0 ? undefined : chunkAsText(chunk);
    if (mapped !== undefined) text += `data: ${JSON.stringify(mapped)}\n\n`;
  }
  return text;
}

type Whole = Extract<OpenedChat | OpenedOperation, { measured: unknown }>;

function encodeWhole(result: Whole, family: PathFamily): Buffer | string {
  if (result.kind === 'completion') return encodeText(completionAsText(result.completion), family);
  if (family === 'openai') return result.body;
  try {
    return encodeText(JSON.parse(result.body.toString('utf8')) as TextCompletion, family);
  } catch {
    // The response is not JSON: it passes unchanged.
    return result.body;
  }
}

/** Without `/v1`, `created` is a text. */
function encodeText(completion: TextCompletion, family: PathFamily): string {
  return JSON.stringify(family === 'openai' ? completion : { ...completion, created: String(completion.created) });
}

/** A plain completion in terms of chat, for upstreams that know nothing else, and back. */
export interface TextAsChat {
  readonly request: ChatRequest;
  /** Members that a chat does not have. */
  readonly dropped: readonly string[];
}

const TEXT_ONLY = ['suffix', 'echo', 'best_of', 'logprobs'] as const;

export function textAsChat(text: TextRequest): TextAsChat {
  const { prompt, suffix, echo, best_of, logprobs, ...rest } = text;
  const content = Array.isArray(prompt) && prompt.length === 1 ? prompt[0] : prompt;
  if (typeof content !== 'string') {
    throw new AppError('OPERATION_NOT_SUPPORTED', { operation: 'completions of several prompts or of token numbers' });
  }
  const dropped = TEXT_ONLY.filter((name) => text[name] !== undefined && text[name] !== null && text[name] !== false);
  return { request: { ...rest, messages: [{ role: 'user', content }] }, dropped };
}

export function completionAsText({ id, created, model, choices, usage }: ChatCompletion): TextCompletion {
  return {
    id: textId(id),
    object: 'text_completion',
    created,
    model,
    choices: choices.map(({ index, message, finish_reason: reason }) => ({
      index,
      text: message.content ?? '',
      logprobs: null,
      finish_reason: reason,
    })),
    ...(usage !== undefined && { usage }),
  };
}

/** Returns undefined for a chunk without text, such as a role or reasoning. */
export function chunkAsText({ id, created, model, choices, usage }: ChatChunk): object | undefined {
  const texts = choices.flatMap(({ index, delta, finish_reason: reason }) =>
    reason === null && (delta.content ?? '') === ''
      ? []
      : [{ index, text: delta.content ?? '', logprobs: null, finish_reason: reason }],
  );
  if (texts.length === 0 && choices.length > 0) return undefined;
  const head = { id: textId(id), object: 'text_completion', created, model };
  return { ...head, choices: texts, ...(usage !== undefined && usage !== null && { usage }) };
}

function textId(id: string): string {
  return id.replace(/^chatcmpl-/, 'cmpl-');
}
