import { once } from 'node:events';
import type { TestContext } from 'node:test';
import type { ChatChunk } from '../../../src/completions/contract/chat.ts';
import { apiErrorBody, completionsErrors } from '../../../src/completions/errors.ts';
import { ingressRoutes } from '../../../src/completions/ingress/ingress-routes.ts';
import { messagesErrorBody, speaksMessages } from '../../../src/completions/ingress/messages/messages-answer.ts';
import type { KeyHolder } from '../../../src/completions/keys/admission.ts';
import type { ChatCall, RunChat } from '../../../src/completions/operations/run-chat.ts';
import { type Clock, systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { Route } from '../../../src/platform/http/surface.ts';
import { createSortableIds } from '../../../src/platform/ids/sortable-id.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { startListener, surfaceOf } from '../../kit/start-listener.ts';
import { chunk, usageChunk } from './chunks.ts';

const HOLDER: KeyHolder = { id: 'open', owner: '', isMaster: true, mayUse: () => true, buckets: [] };

/** The routes on a real listener, with a pipeline that the test plays. */
export async function startIngress(t: TestContext, runChat: RunChat, clock: Clock = systemClock) {
  const logged: object[] = [];
  const routes = ingressRoutes({
    runChat,
    guard: () => HOLDER,
    strictParams: () => false,
    clock,
    makeId: createSortableIds(systemClock, systemRandomness),
    logger: { ...silentLogger, error: (fields: object) => void logged.push(fields) },
    bodyLimit: 1_000_000,
  });
  const surface = surfaceOf({
    prefixes: ['/v1'],
    routes: routes as readonly Route[],
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
