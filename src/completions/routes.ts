import { Type } from 'typebox';
import type { Call, Route } from '../platform/http/surface.ts';
import { type Models, modelRoutes } from './apis/models.ts';
import { ChatCompletion, ChatRequest } from './contract/chat.ts';
import { EmbeddingList, EmbeddingsRequest, TextCompletion, TextRequest } from './contract/operations.ts';
import type { KeyHolder } from './keys/admission.ts';
import type { KeyAccess } from './keys/key-access.ts';
import type { PathFamily } from './operations/chat-handler.ts';

type Handler = (call: Call<KeyHolder>) => Promise<unknown>;

export interface RouteParts {
  readonly access: KeyAccess;
  readonly models: Models;
  readonly chat: (family: PathFamily) => Handler;
  readonly text: (family: PathFamily) => Handler;
  readonly embeddings: Handler;
  /** The largest body: attachments travel inline in messages. */
  readonly bodyLimit: number;
  /** `/keys` and `/usage`. */
  readonly keys: readonly Route<KeyHolder>[];
  /** `/v1/responses` and `/v1/messages`. */
  readonly ingress: readonly Route<KeyHolder>[];
}

const EventStream = Type.String({ contentMediaType: 'text/event-stream' });

/** THE TABLE of paths (contract/completions 1): each is served as the document has it, and under `/v1` as OpenAI has it. */
export function completionsRoutes(parts: RouteParts): readonly Route<KeyHolder>[] {
  const { access, models, chat, text, embeddings, bodyLimit } = parts;
  // The handlers parse the body themselves: they pass it on as the bytes that came.
  const completion = { method: 'POST', guard: access.withKey, body: 'bytes', bodyLimit } as const;
  const families = [
    ['', 'document'],
    ['/v1', 'openai'],
  ] as const;
  return [
    ...families.flatMap(([prefix, family]): Route<KeyHolder>[] => [
      {
        ...completion,
        path: `${prefix}/chat/completions`,
        summary: 'Create a chat completion; with "stream": true as a stream of events.',
        schema: { body: ChatRequest, response: { 200: Type.Union([ChatCompletion, EventStream]) } },
        handle: chat(family),
      },
      {
        ...completion,
        path: `${prefix}/completions`,
        summary: 'Complete a text; with "stream": true as a stream of events.',
        schema: { body: TextRequest, response: { 200: Type.Union([TextCompletion, EventStream]) } },
        handle: text(family),
      },
      ...modelRoutes(prefix, { guard: access.withKey, models }),
    ]),
    {
      ...completion,
      path: '/v1/embeddings',
      summary: 'Turn texts into lists of numbers.',
      schema: { body: EmbeddingsRequest, response: { 200: EmbeddingList } },
      handle: embeddings,
    },
    ...parts.ingress,
    ...parts.keys,
  ];
}
