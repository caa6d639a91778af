import type { Payer } from '../../../platform/identity/owner.ts';
import type { TurnTrace } from '../agent-provider.ts';

/**
 * What the built-in agent asks of a model, in OpenAI's words. The bridge knows models by this function only: the
 * program hands in its own completions service, or `complete-over-http.ts` any compatible API.
 *
 * It throws MODEL_FAILED (or another error of the bridge's table) when the model cannot answer, also in the middle of an
 * answer, and BUDGET_EXCEEDED when one who is charged has nothing left. It has its own timeouts, and stops the model when `signal` aborts or the iteration ends early.
 */
export type CompleteChat = (
  request: CompletionRequest,
  signal: AbortSignal,
  caller: ModelCaller,
) => AsyncIterable<CompletionChunk>;

/** Who is charged for a call, and the trace that the call is part of. */
export interface ModelCaller extends Payer {
  readonly trace?: TurnTrace | undefined;
  /** Gets what the call cost, where that is known: from models whose prices this program knows. */
  readonly costs?: CallCosts;
}

export interface CallCosts {
  begin(): void;
  /** Undefined: the price is not known. */
  end(costNano: number | undefined): void;
}

/** OpenAI's efforts, by which Codex calls them too. Which of them a model takes is up to the model. */
export const THINKING_LEVELS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'].map((id) => ({ id, name: id }));

export interface CompletionRequest {
  model: string;
  messages: ConversationMessage[];
  tools?: ToolDefinition[];
  /** Absent: as the model does. */
  reasoning_effort?: string;
  stream: true;
  stream_options: { include_usage: true };
}

export type ConversationMessage =
  | { role: 'system'; content: string }
  | { role: 'user'; content: string | UserPart[] }
  | AssistantMessage
  | { role: 'tool'; tool_call_id: string; content: string };

/** A part of what the user said. Stored, an image is the path of its file; sent, it is its data. */
export type UserPart = { type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } };

export interface AssistantMessage {
  role: 'assistant';
  content: string | null;
  tool_calls?: RequestedToolCall[];
  /** Kept only with its signature, for models that want their own reasoning back. */
  reasoning_content?: string;
  reasoning_signature?: string;
}

export interface RequestedToolCall {
  id: string;
  type: 'function';
  function: { name: string; arguments: string };
}

export interface ToolDefinition {
  type: 'function';
  function: { name: string; description: string; parameters: object };
}

/** One piece of a streamed answer. */
export interface CompletionChunk {
  readonly choices: readonly { readonly delta: CompletionDelta; readonly finish_reason?: string | null }[];
  readonly usage?: CompletionUsage | null;
}

export interface CompletionDelta {
  readonly content?: string | null;
  readonly reasoning_content?: string | null;
  readonly reasoning_signature?: string;
  readonly refusal?: string | null;
  readonly tool_calls?: readonly ToolCallDelta[];
}

export interface ToolCallDelta {
  readonly index?: number;
  readonly id?: string;
  readonly function?: { readonly name?: string; readonly arguments?: string };
}

export interface CompletionUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
}
