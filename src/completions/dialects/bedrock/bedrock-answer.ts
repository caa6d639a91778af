import type { ToolCall, Usage } from '../../contract/chat.ts';
import { callId, choiceOf, completionOf, headOf, usageOf } from '../answer.ts';
import { packHiddenThinking, packThinking } from '../anthropic/claude-proofs.ts';
import type { DecodedAnswer, DialectContext, UpstreamFailure } from '../dialect.ts';
import { brokenAnswer, failureInObject, isFailureObject, upstreamFailure } from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import { ANSWER_TOOL } from '../structured-answer.ts';

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['tool_use', 'tool_calls'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['guardrail_intervened', 'content_filter'],
  ['content_filtered', 'content_filter'],
]);

/** A finish reason of ours, or why there is none: a malformed call is an answer that nobody can use. */
export function converseFinish(stopReason: unknown, calls: number): string | UpstreamFailure {
  if (stopReason === 'malformed_tool_use' || stopReason === 'malformed_model_output') {
    return upstreamFailure({
      status: 502,
      message: `The model made a call or an answer that is malformed (${stopReason}).`,
    });
  }
  const reason = FINISH_REASONS.get(stopReason) ?? (calls > 0 ? 'tool_calls' : 'stop');
  return reason === 'tool_calls' && calls === 0 ? 'stop' : reason;
}

/** What was read from or written into the cache is not part of the input tokens. */
export function converseUsage(usage: JsonObject): Usage {
  const cached = asCount(usage.cacheReadInputTokens);
  const cacheWritten = asCount(usage.cacheWriteInputTokens);
  return usageOf({
    prompt: asCount(usage.inputTokens) + cached + cacheWritten,
    completion: asCount(usage.outputTokens),
    cached,
    cacheWritten,
    cacheWritten1h: asList(usage.cacheDetails)
      .map((value) => asObject(value))
      .reduce((sum, detail) => sum + (detail?.ttl === '1h' ? asCount(detail.inputTokens) : 0), 0),
  });
}

export function decodeBedrockAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined)
    return { failure: brokenAnswer('The model API answered with something else than a JSON object.') };
  const message = asObject(asObject(answer.output)?.message);
  if (message === undefined) {
    return {
      failure: isFailureObject(answer, false)
        ? failureInObject(answer)
        : brokenAnswer('The answer of the model API has no message.'),
    };
  }
  const read = readBlocks(asList(message.content), context.id);
  const finishReason = converseFinish(answer.stopReason, read.calls.length);
  if (typeof finishReason !== 'string') return { failure: finishReason };
  const usage = asObject(answer.usage);
  const choice = choiceOf({ ...read, finishReason });
  return completionOf(headOf(context), [choice], usage === undefined ? undefined : converseUsage(usage));
}

function readBlocks(blocks: readonly unknown[], answerId: string) {
  let text = '';
  let reasoning = '';
  let signature = '';
  const calls: ToolCall[] = [];
  for (const value of blocks) {
    const block = asObject(value) ?? {};
    const thought = asObject(block.reasoningContent);
    const called = asObject(block.toolUse);
    if (typeof block.text === 'string') text += block.text;
    else if (thought !== undefined) {
      const known = asObject(thought.reasoningText);
      const thinking = asText(known?.text) ?? '';
      reasoning += thinking;
      signature += packThinking(thinking.length, text.length, asText(known?.signature) ?? '');
      signature += packHiddenThinking(text.length, asText(thought.redactedContent) ?? '');
    } else if (called !== undefined) {
      const name = asText(called.name) ?? '';
      const input = JSON.stringify(called.input ?? {});
      const id = asWords(called.toolUseId) ?? callId(answerId, calls.length);
      if (name === ANSWER_TOOL) text += input;
      else calls.push({ id, type: 'function', function: { name, arguments: input } });
    } else {
      for (const cited of asList(asObject(block.citationsContent)?.content))
        text += asText(asObject(cited)?.text) ?? '';
    }
  }
  return { text, reasoning, signature, calls };
}
