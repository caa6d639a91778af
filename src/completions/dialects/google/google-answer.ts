import type { ToolCall, Usage } from '../../contract/chat.ts';
import { callId, choiceOf, completionOf, headOf, usageOf } from '../answer.ts';
import type { DecodedAnswer, DialectContext, UpstreamFailure } from '../dialect.ts';
import { brokenAnswer, failureInObject, isFailureObject, upstreamFailure } from '../failure.ts';
import { asCount, asList, asObject, asText, asWords, type JsonObject } from '../json-value.ts';
import { packCallSignature, packTextSignature, signedCall } from './google-contents.ts';

const BLOCKED: ReadonlySet<unknown> = new Set([
  ...['SAFETY', 'RECITATION', 'LANGUAGE', 'BLOCKLIST', 'PROHIBITED_CONTENT', 'SPII', 'MODEL_ARMOR'],
  ...['IMAGE_SAFETY', 'IMAGE_PROHIBITED_CONTENT', 'IMAGE_RECITATION'],
]);

/** Finish reasons for a malformed call, which is a failure and not an answer (contract/completions 4). */
const MALFORMED: ReadonlySet<unknown> = new Set([
  ...['MALFORMED_FUNCTION_CALL', 'UNEXPECTED_TOOL_CALL', 'TOO_MANY_TOOL_CALLS', 'MALFORMED_RESPONSE'],
  'MISSING_THOUGHT_SIGNATURE',
]);

export interface Image {
  readonly type: 'image_url';
  readonly image_url: { readonly url: string };
}

/** What the parts of one candidate add up to. Numbers of calls go on from `firstCall`. */
export interface ReadParts {
  text: string;
  reasoning: string;
  signature: string;
  readonly calls: (ToolCall & { extra_content?: unknown })[];
  readonly images: Image[];
}

export function readParts(candidate: JsonObject, answerId: string, firstCall: number): ReadParts {
  const read: ReadParts = { text: '', reasoning: '', signature: '', calls: [], images: [] };
  for (const value of asList(asObject(candidate.content)?.parts)) {
    const part = asObject(value);
    if (part === undefined) continue;
    const signature = asWords(part.thoughtSignature);
    const called = asObject(part.functionCall);
    if (called !== undefined) {
      const number = firstCall + read.calls.length;
      if (signature !== undefined) read.signature += packCallSignature(number, signature);
      read.calls.push({
        id: asWords(called.id) ?? callId(answerId, number),
        type: 'function',
        function: { name: asText(called.name) ?? '', arguments: JSON.stringify(called.args ?? {}) },
        ...(signature !== undefined && signedCall(signature)),
      });
      continue;
    }
    const text = asText(part.text) ?? '';
    if (part.thought === true) read.reasoning += text;
    else read.text += text;
    if (signature !== undefined) read.signature += packTextSignature(signature);
    const data = asObject(part.inlineData);
    if (data !== undefined) {
      const url = `data:${asText(data.mimeType) ?? 'image/png'};base64,${asText(data.data) ?? ''}`;
      read.images.push({ type: 'image_url', image_url: { url } });
    }
  }
  return read;
}

/** A finish reason of ours, or why there is none. `isEmpty`: nothing was said or called up to here. */
export function readFinish(candidate: JsonObject, calls: number, isEmpty: boolean): string | UpstreamFailure {
  const { finishReason: reason } = candidate;
  const said = asWords(candidate.finishMessage);
  if (MALFORMED.has(reason)) {
    const what = `The model made a call that is malformed (${reason})`;
    return upstreamFailure({ status: 502, message: said === undefined ? `${what}.` : `${what}: ${said}` });
  }
  if (reason === 'MAX_TOKENS') return 'length';
  if (BLOCKED.has(reason)) return 'content_filter';
  if (reason !== 'STOP' && isEmpty)
    return upstreamFailure({ status: 502, message: said ?? 'The model gave no answer.' });
  return calls > 0 ? 'tool_calls' : 'stop';
}

/** What is cached is part of Gemini's prompt already; what is thought is not part of its candidates. */
export function googleUsage(metadata: JsonObject): Usage {
  const reasoning = asCount(metadata.thoughtsTokenCount);
  return usageOf({
    prompt: asCount(metadata.promptTokenCount) + asCount(metadata.toolUsePromptTokenCount),
    completion: asCount(metadata.candidatesTokenCount) + reasoning,
    cached: asCount(metadata.cachedContentTokenCount),
    audio: tokensOf('AUDIO', metadata.promptTokensDetails) - tokensOf('AUDIO', metadata.cacheTokensDetails),
    image: tokensOf('IMAGE', metadata.promptTokensDetails) - tokensOf('IMAGE', metadata.cacheTokensDetails),
    reasoning,
  });
}

function tokensOf(modality: string, details: unknown): number {
  return asList(details)
    .map((value) => asObject(value))
    .reduce((sum, detail) => sum + (detail?.modality === modality ? asCount(detail.tokenCount) : 0), 0);
}

/** The refusal of a prompt that was blocked before any candidate was made. */
export function promptRefusal(answer: JsonObject): string | undefined {
  const feedback = asObject(answer.promptFeedback);
  const reason = asWords(feedback?.blockReason);
  if (reason === undefined) return undefined;
  return asWords(feedback?.blockReasonMessage) ?? `The prompt was blocked (${reason}).`;
}

/** Whether an object has anything that an answer of Gemini's has. */
export function isAnswer({ candidates, promptFeedback, usageMetadata }: JsonObject): boolean {
  return candidates !== undefined || promptFeedback !== undefined || usageMetadata !== undefined;
}

export function decodeGoogleAnswer(body: unknown, context: DialectContext): DecodedAnswer {
  const answer = asObject(Array.isArray(body) ? body[0] : body);
  if (answer === undefined)
    return { failure: brokenAnswer('The model API answered with something else than a JSON object.') };
  if (isFailureObject(answer, isAnswer(answer))) return { failure: failureInObject(answer) };
  const own = headOf(context);
  const head = { ...own, id: asWords(answer.responseId) ?? own.id, model: asWords(answer.modelVersion) ?? own.model };
  const metadata = asObject(answer.usageMetadata);
  const usage = metadata === undefined ? undefined : googleUsage(metadata);
  const refusal = promptRefusal(answer);
  if (refusal !== undefined) {
    const parts = { text: '', reasoning: '', signature: '', calls: [], refusal, finishReason: 'content_filter' };
    return completionOf(head, [choiceOf(parts)], usage);
  }
  const choices = [];
  for (const value of asList(answer.candidates)) {
    const candidate = asObject(value);
    if (candidate === undefined) continue;
    const read = readParts(candidate, head.id, 0);
    const isEmpty = read.text === '' && read.calls.length === 0 && read.images.length === 0;
    const finishReason = readFinish(candidate, read.calls.length, isEmpty);
    if (typeof finishReason !== 'string') return { failure: finishReason };
    const choice = choiceOf({ ...read, finishReason }, choices.length);
    if (read.images.length > 0) Object.assign(choice.message, { images: read.images });
    choices.push(choice);
  }
  if (choices.length === 0) return { failure: brokenAnswer('The answer of the model API has no candidates.') };
  return completionOf(head, choices, usage);
}
