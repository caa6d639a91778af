import type { GenerateContentRequest } from '../../../src/completions/contract/gemini.ts';
import type { MessagesRequest } from '../../../src/completions/contract/messages.ts';
import type { ResponsesRequest } from '../../../src/completions/contract/responses.ts';
import type { CodecName, DialectContext } from '../../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { decodeGeminiRequest } from '../../../src/completions/ingress/gemini/gemini-request.ts';
import { decodeMessagesRequest } from '../../../src/completions/ingress/messages/messages-request.ts';
import { decodeResponsesRequest } from '../../../src/completions/ingress/responses/responses-request.ts';
import { contextFor } from './read-stream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client writes them and an upstream reads them
export type Json = any;

const MODELS = {
  openai: 'small',
  responses: 'gpt-5-pro',
  anthropic: 'claude-sonnet-4-5',
  google: 'gemini-2.5-flash',
  bedrock: 'anthropic.claude-sonnet-4-5',
  cohere: 'command-a-reasoning',
} as const satisfies Partial<Record<CodecName, string>>;
export type Upstream = keyof typeof MODELS;
export const UPSTREAMS = Object.keys(MODELS) as readonly Upstream[];

export const INGRESSES = {
  messages: (body: Json) => decodeMessagesRequest(body as MessagesRequest),
  responses: (body: Json) => decodeResponsesRequest(body as ResponsesRequest),
  gemini: (body: Json) => decodeGeminiRequest(body as GenerateContentRequest, { model: 'x/y', stream: false }),
};
export type Ingress = keyof typeof INGRESSES;

/** A request of an API as an upstream gets it, with the names of what was lost on the way. */
export async function through(ingress: Ingress, upstream: Upstream, body: Json, more: Partial<DialectContext> = {}) {
  const { chat, dropped } = INGRESSES[ingress](structuredClone(body));
  const dialect = await loadDialect(upstream);
  const encoded = dialect.encodeRequest(chat, contextFor(MODELS[upstream], { translated: true, ...more }));
  return { body: encoded.body as Json, dropped: [...dropped, ...encoded.dropped] };
}
