import type { ToolCall, Usage } from '../../contract/chat.ts';
import { callId, choiceOf, completionOf, headOf, usageOf } from '../answer.ts';
import type { DecodedAnswer, DialectContext } from '../dialect.ts';
import { brokenAnswer, failureInObject, isFailureObject } from '../failure.ts';
import { asCount, asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import { ANSWER_TOOL } from '../structured-answer.ts';
import { packHiddenThinking, packThinking } from './claude-proofs.ts';

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['pause_turn', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['refusal', 'content_filter'],
]);

/** A call of the answer tool is no call to the caller. */
export function finishReason(stopReason: unknown, calls: number): string {
  const reason = FINISH_REASONS.get(stopReason) ?? (calls > 0 ? 'tool_calls' : 'stop');
  return reason === 'tool_calls' && calls === 0 ? 'stop' : reason;
}

/** What was read from or written into the cache is not part of Claude's input tokens, but of OpenAI's prompt. */
export function claudeUsage(usage: JsonObject): Usage {
  const cached = asCount(usage.cache_read_input_tokens);
  const cacheWritten = asCount(usage.cache_creation_input_tokens);
  return usageOf({
    prompt: asCount(usage.input_tokens) + cached + cacheWritten,
    completion: asCount(usage.output_tokens),
    cached,
    cacheWritten,
    cacheWritten1h: asCount(asObject(usage.cache_creation)?.ephemeral_1h_input_tokens),
    reasoning: asCount(asObject(usage.output_tokens_details)?.thinking_tokens),
  });
}

export function decodeAnthropicAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined)
    return { failure: brokenAnswer('The model API answered with something else than a JSON object.') };
  if (isFailureObject(answer, Array.isArray(answer.content))) return { failure: failureInObject(answer) };
  if (!Array.isArray(answer.content)) return { failure: brokenAnswer('The answer of the model API has no content.') };
  const read = readBlocks(answer.content, asWords(answer.id) ?? context.id);
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.id) ?? own.id, model: asWords(answer.model) ?? own.model };
  const refusal = asWords(asObject(answer.stop_details)?.explanation);
  const choice = choiceOf({ ...read, refusal, finishReason: finishReason(answer.stop_reason, read.calls.length) });
  const usage = asObject(answer.usage);
  return completionOf(head, [choice], usage === undefined ? undefined : claudeUsage(usage));
}

function readBlocks(blocks: readonly unknown[], answerId: string) {
  let text = '';
  let reasoning = '';
  let signature = '';
  const calls: ToolCall[] = [];
  for (const value of blocks) {
    const block = asObject(value);
    if (block?.type === 'text') text += asText(block.text) ?? '';
    else if (block?.type === 'thinking') {
      const thinking = asText(block.thinking) ?? '';
      reasoning += thinking;
      signature += packThinking(thinking.length, text.length, asText(block.signature) ?? '');
    } else if (block?.type === 'redacted_thinking') {
      signature += packHiddenThinking(text.length, asText(block.data) ?? '');
    } else if (block?.type === 'tool_use') {
      const name = asText(block.name) ?? '';
      const input = JSON.stringify(block.input ?? {});
      if (name === ANSWER_TOOL) text += input;
      else
        calls.push({
          id: asWords(block.id) ?? callId(answerId, calls.length),
          type: 'function',
          function: { name, arguments: input },
        });
    }
  }
  return { text, reasoning, signature, calls };
}
