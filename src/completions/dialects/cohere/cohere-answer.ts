import type { ToolCall, Usage } from '../../contract/chat.ts';
import { callId, choiceOf, completionOf, headOf, usageOf } from '../answer.ts';
import type { DecodedAnswer, DialectContext, UpstreamFailure } from '../dialect.ts';
import { brokenAnswer, failureInObject, isFailureObject, upstreamFailure } from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject } from '../json-value.ts';

const FINISH_REASONS: ReadonlyMap<unknown, string> = new Map([
  ['COMPLETE', 'stop'],
  ['STOP_SEQUENCE', 'stop'],
  ['MAX_TOKENS', 'length'],
  ['TOOL_CALL', 'tool_calls'],
  ['ERROR_TOXIC', 'content_filter'],
]);

export function cohereFinish(reason: unknown, calls: number, message: string | undefined): string | UpstreamFailure {
  if (reason === 'TIMEOUT') return upstreamFailure({ status: 504, message: message ?? 'The model took too long.' });
  const known = FINISH_REASONS.get(reason);
  if (known === undefined && typeof reason === 'string' && reason.startsWith('ERROR')) {
    return upstreamFailure({ status: 502, message: message ?? 'The model API failed while the model was answering.' });
  }
  return known ?? (calls > 0 ? 'tool_calls' : 'stop');
}

/** `tokens` is what went through the model; what is billed may be less. */
export function cohereUsage(value: unknown): Usage | undefined {
  const usage = asObject(value);
  const tokens = asObject(usage?.tokens) ?? asObject(usage?.billed_units);
  if (usage === undefined || tokens === undefined) return undefined;
  return usageOf({
    prompt: asCount(tokens.input_tokens),
    completion: asCount(tokens.output_tokens),
    cached: asCount(usage.cached_tokens),
  });
}

export function decodeCohereAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(body);
  if (answer === undefined)
    return { failure: brokenAnswer('The model API answered with something else than a JSON object.') };
  const message = asObject(answer.message);
  if (message === undefined) {
    return {
      failure: isFailureObject(answer, false)
        ? failureInObject(answer)
        : brokenAnswer('The answer of the model API has no message.'),
    };
  }
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.id) ?? own.id };
  const calls = asList(message.tool_calls).flatMap((value, index) => readCall(value, index, head.id));
  const finishReason = cohereFinish(answer.finish_reason, calls.length, undefined);
  if (typeof finishReason !== 'string') return { failure: finishReason };
  let text = asText(message.content) ?? '';
  let reasoning = asText(message.tool_plan) ?? '';
  for (const value of asList(message.content)) {
    const piece = asObject(value);
    text += asText(piece?.text) ?? '';
    reasoning += asText(piece?.thinking) ?? '';
  }
  const choice = choiceOf({ text, reasoning, signature: '', calls, finishReason });
  return completionOf(head, [choice], cohereUsage(answer.usage));
}

function readCall(value: unknown, index: number, answerId: string): ToolCall[] {
  const call: JsonObject | undefined = asObject(value);
  const called = asObject(call?.function);
  if (call === undefined || called === undefined) return [];
  const id = asWords(call.id) ?? callId(answerId, index);
  return [
    {
      id,
      type: 'function',
      function: { name: asText(called.name) ?? '', arguments: argumentsText(called.arguments) },
    },
  ];
}

/** For a function without parameters it says nothing, or `null`. */
function argumentsText(value: unknown): string {
  const text = asWords(value);
  return text === undefined || text === 'null' ? '{}' : text;
}
