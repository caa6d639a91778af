import type { Clock } from '../../platform/clock/clock.ts';
import type { ChatChunk, ChatMessage, ChatRequest } from '../contract/chat.ts';
import { parseEvent } from '../dialects/json-value.ts';
import type { OpenedChat } from '../relay/open-stream.ts';
import { createResponseCache, findAll, type SharedStore } from './response-cache.ts';

/**
 * Keeps the thinking of models before their tool calls, with its proofs. Plain clients of OpenAI's API send back only the calls;
 * without the thinking, Claude would stop thinking in that turn, and Gemini would refuse the request.
 */
export interface ThinkingProofs {
  /** Returns the request with the thinking that belongs to its calls, where the caller omitted it. */
  restore(holderId: string, request: ChatRequest): ChatRequest | Promise<ChatRequest>;
  /** Keeps the thinking of a response until its caller sends the results. */
  keep(holderId: string, opened: OpenedChat): OpenedChat;
}

type Thinking = Pick<ChatMessage, 'reasoning_content' | 'reasoning_signature'>;

const KEPT_MS = 3_600_000;
const MAX_CALL_ID = 256;
/** Calls of one response. */
const MAX_CALLS = 128;
const MAX_THINKING = 1024 * 1024;

export function createThinkingProofs(clock: Pick<Clock, 'monotonic'>, shared?: SharedStore): ThinkingProofs {
  const kept = createResponseCache({ clock, shared });
  const keyOf = (holderId: string, callId: string) => kept.keyOf(holderId, 'thinking', Buffer.from(callId));

  /** The key of the thinking that a message lacks. */
  function lackedBy(holderId: string, message: ChatMessage): string | undefined {
    const [call] = message.role === 'assistant' ? (message.tool_calls ?? []) : [];
    if (call === undefined || message.reasoning_signature || call.id.length > MAX_CALL_ID) return undefined;
    return keyOf(holderId, call.id);
  }

  function put(holderId: string, { text, proof, calls }: Collected): void {
    if (proof === '' || text.length + proof.length > MAX_THINKING) return;
    const thinking: Thinking = { reasoning_content: text, reasoning_signature: proof };
    const body = Buffer.from(JSON.stringify(thinking));
    // Any of the calls may be the first one that comes back.
    for (const id of calls) if (id.length <= MAX_CALL_ID) kept.put(holderId, keyOf(holderId, id), body, KEPT_MS);
  }

  return {
    restore(holderId, request) {
      const keys = request.messages.map((message) => lackedBy(holderId, message));
      if (keys.every((key) => key === undefined)) return request;
      const found = findAll(kept, keys);
      return found instanceof Promise
        ? found.then((bodies) => withThinking(request, bodies))
        : withThinking(request, found);
    },
    keep(holderId, opened) {
      if (opened.kind === 'completion') {
        for (const { message } of opened.completion.choices) {
          const calls = (message.tool_calls ?? []).slice(0, MAX_CALLS).map(({ id }) => id);
          const { reasoning_content: text, reasoning_signature: proof } = message;
          put(holderId, { text: text ?? '', proof: proof ?? '', calls });
        }
        return opened;
      }
      if (opened.kind !== 'chunk-stream') return opened;
      const { stream } = opened;
      const choices = new Map<number, Collected>();
      const attach: typeof stream.attach = (sink) =>
        stream.attach({
          write(chunks) {
            collect(choices, chunks);
            return sink.write(chunks);
          },
          end(last) {
            if (last !== undefined) collect(choices, last);
            for (const collected of choices.values()) put(holderId, collected);
            sink.end(last);
          },
          fail: (error) => sink.fail(error),
        });
      return { ...opened, stream: { ...stream, attach } };
    },
  };
}

function withThinking(request: ChatRequest, found: readonly (Buffer | undefined)[]): ChatRequest {
  const messages = request.messages.map((message, at) => ({ ...message, ...readThinking(found[at]) }));
  return found.every((body) => body === undefined) ? request : { ...request, messages };
}

/** Reads kept thinking. Returns nothing for an invalid value, because other programs may write to a shared store. */
function readThinking(body: Buffer | undefined): Thinking {
  const value = body === undefined ? undefined : parseEvent(body.toString('utf8'));
  const { reasoning_content: text, reasoning_signature: proof } = value ?? {};
  return typeof text === 'string' && typeof proof === 'string'
    ? { reasoning_content: text, reasoning_signature: proof }
    : {};
}

interface Collected {
  text: string;
  proof: string;
  readonly calls: string[];
}

function collect(choices: Map<number, Collected>, chunks: readonly ChatChunk[]): void {
  for (const { choices: given } of chunks) {
    for (const { index, delta } of given) {
      const { reasoning_content: text, reasoning_signature: proof, tool_calls: calls } = delta;
      if (!text && !proof && calls === undefined) continue;
      const collected = choices.get(index) ?? { text: '', proof: '', calls: [] };
      choices.set(index, collected);
      // A little more than what may be kept shows that it is too much.
      if (collected.text.length <= MAX_THINKING) collected.text += text ?? '';
      if (collected.proof.length <= MAX_THINKING) collected.proof += proof ?? '';
      for (const { id } of calls ?? []) if (id && collected.calls.length < MAX_CALLS) collected.calls.push(id);
    }
  }
}
