import type { Route } from '../platform/http/surface.ts';
import type { CompletionsAccess } from './access.ts';
import { DEMO_MODEL } from './apis/demo-echo.ts';
import { ChatCompletion, ChatRequest } from './contract/chat.ts';
import { ModelList } from './contract/model-list.ts';
import type { createChatCompletion } from './pipeline/chat-completion.ts';

export interface RouteParts {
  readonly access: CompletionsAccess;
  readonly chatCompletion: ReturnType<typeof createChatCompletion>;
}

/** Attachments travel inline in messages. */
const CHAT_BODY_BYTES = 10 * 1024 * 1024 - 1;

/** THE TABLE of paths (contract/completions 1): each is served as the document has it, and under `/v1` as OpenAI has it. */
export function completionsRoutes({ access, chatCompletion }: RouteParts): readonly Route<undefined>[] {
  const guard = access.withKey;
  return ['', '/v1'].flatMap((prefix): Route<undefined>[] => [
    {
      method: 'POST',
      path: `${prefix}/chat/completions`,
      guard,
      summary: 'Create a chat completion; with "stream": true as a stream of events.',
      body: 'json',
      bodyLimit: CHAT_BODY_BYTES,
      schema: { body: ChatRequest, response: { 200: ChatCompletion } },
      handle: chatCompletion(prefix === ''),
    },
    {
      method: 'GET',
      path: `${prefix}/models`,
      guard,
      summary: 'List the models that can be used.',
      schema: { response: { 200: ModelList } },
      handle: () => ({
        object: 'list',
        data: [{ id: DEMO_MODEL, object: 'model', created: 0, owned_by: 'demo' }],
      }),
    },
  ]);
}
