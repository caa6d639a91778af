import { once } from 'node:events';
import type { TestContext } from 'node:test';
import type { ChatChunk, Usage } from '../../../src/completions/contract/chat.ts';
import { completionsOperations as op } from '../../../src/completions/contract/operations.ts';
import { apiErrorBody, completionsErrors } from '../../../src/completions/errors.ts';
import { createIngress, type IngressParts } from '../../../src/completions/ingress/create-ingress.ts';
import { messagesErrorBody, speaksMessages } from '../../../src/completions/ingress/messages/messages-answer.ts';
import type { KeyHolder } from '../../../src/completions/keys/admission.ts';
import { createResponseCache } from '../../../src/completions/operations/response-cache.ts';
import type { ChatCall, RunChat } from '../../../src/completions/operations/run-chat.ts';
import type { StreamSink } from '../../../src/completions/relay/open-stream.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { defineRoute } from '../../../src/platform/http/surface.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { startListener, surfaceOf } from '../../kit/start-listener.ts';
import { chunk, usageChunk } from './chunks.ts';

const HOLDER: KeyHolder = { id: 'open', owner: '', isMaster: true, mayUse: () => true, buckets: [] };

/** The routes on a real listener, with a pipeline that the test plays. */
export async function startIngress(t: TestContext, runChat: RunChat, clock: Clock = systemClock) {
  const logged: object[] = [];
  const guard = () => HOLDER;
  const ingress = createIngress({
    pipeline: pipelineOf(runChat),
    objects: { keep: () => undefined, refusalOf: async () => () => undefined },
    cache: createResponseCache({ clock }),
    strictParams: () => false,
    clock,
    makeId: createSortableIds(systemClock, systemRandomness),
    logger: { ...silentLogger, error: (fields: object) => void logged.push(fields) },
  });
  const surface = surfaceOf({
    prefixes: ['/v1'],
    routes: [
      defineRoute('POST /v1/responses', guard, op.createResponse, ingress.createResponse),
      defineRoute('POST /v1/messages', guard, op.createMessage, ingress.createMessage),
      defineRoute('POST /v1/messages/count_tokens', guard, op.countTokens, ingress.countTokens),
    ],
    errors: completionsErrors,
    errorBody: (error, { path }) => (speaksMessages(path) ? messagesErrorBody(error) : apiErrorBody(error)),
  });
  const { url } = await startListener(t, { surfaces: [surface] });
  const post = (path: string, body: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
      ...(signal !== undefined && { signal }),
    });
  return { url, post, logged };
}

/** A pipeline whose calls are all translated, and answered by the test. */
function pipelineOf(runChat: RunChat): IngressParts['pipeline'] {
  return {
    refuseStorage: () => undefined,
    async admit(call, model) {
      let headers: Readonly<Record<string, string>> = {};
      const settled = { attempts: 1, target: undefined, firstToken: () => undefined, settle: () => undefined };
      const record = {
        ...settled,
        dropped: [],
        keepsContent: false,
        counted: (usage: Usage) => usage,
        headers: () => ({ ...headers }),
        take(given: Readonly<Record<string, string>>) {
          headers = given;
        },
      };
      const plan = { name: model, targets: [], fallbacks: [], contextFallbacks: [], retries: 0, cacheTtlMs: 0 };
      return { ...call, plan, promptTokens: 0, tokens: 0, record };
    },
    async openForeign(call, form) {
      const { chat, dropped } = form.translate();
      if (form.strict && dropped.length > 0) throw new AppError('UNSUPPORTED_PARAMETER', { param: dropped[0] });
      const { holder, requestId, presence } = call;
      const controller = new AbortController();
      presence.watch(() => controller.abort());
      const { signal } = controller;
      const answer = await runChat({ request: chat, holder, requestId, strict: form.strict, signal });
      const names = [...dropped, ...(answer.headers['x-dropped-params'] === undefined ? [] : ['seed'])];
      const headers = { ...answer.headers, ...(names.length > 0 && { 'x-dropped-params': names.join(', ') }) };
      (call.record as typeof call.record & { take(given: object): void }).take(headers);
      const finish = () => presence.watch(() => undefined);
      const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
      const measured = { usage, estimated: true };
      if (answer.kind === 'whole') {
        return { result: { dropped, kind: 'completion', completion: answer.completion, measured }, finish };
      }
      const stream = streamFrom(answer.chunks, signal);
      return { result: { dropped, kind: 'chunk-stream', stream: { ...stream, usage: () => measured } }, finish };
    },
    countTokens: async () => undefined,
  };
}

/** The chunks of an iteration, taken only while the sink has room. */
function streamFrom(chunks: AsyncIterable<ChatChunk>, signal: AbortSignal) {
  let room = Promise.withResolvers<void>();
  return {
    attach(sink: StreamSink<readonly ChatChunk[]>) {
      const read = async () => {
        for await (const each of chunks) {
          if (signal.aborted) return;
          room = Promise.withResolvers<void>();
          if (!sink.write([each])) await room.promise;
        }
        sink.end(undefined);
      };
      read().catch((error) => sink.fail(error));
    },
    resume: () => room.resolve(),
    abort: () => room.resolve(),
  };
}

export const RESPONSES = { path: '/v1/responses', body: { model: 'lab/small', input: 'Hello' } };
export const MESSAGES = {
  path: '/v1/messages',
  body: { model: 'lab/small', max_tokens: 10, messages: [{ role: 'user', content: 'Hello' }] },
};

export const HEADERS = { 'x-model-api': 'lab', 'x-model-id': 'small', 'x-attempts': '1' };

/** Answers every call with these chunks, streamed or whole. */
export function answering(text: string, calls: ChatCall[] = []): RunChat {
  return async (call) => {
    calls.push(call);
    if (call.request.stream === true) {
      return {
        kind: 'stream',
        headers: HEADERS,
        chunks: streamOf([chunk({ content: text }), chunk({}, 'stop'), usageChunk()]),
      };
    }
    return {
      kind: 'whole',
      headers: { ...HEADERS, 'x-dropped-params': 'seed' },
      completion: {
        id: 'chatcmpl-1',
        object: 'chat.completion',
        created: 1,
        model: 'lab-model',
        choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'stop' }],
      },
    };
  };
}

export async function* streamOf(chunks: readonly ChatChunk[], then?: () => Promise<void>): AsyncGenerator<ChatChunk> {
  yield* chunks;
  await then?.();
}

export function aborted(signal: AbortSignal): Promise<unknown> {
  return signal.aborted ? Promise.resolve() : once(signal, 'abort');
}
