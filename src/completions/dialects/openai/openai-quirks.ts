import type { Usage } from '../../contract/chat.ts';
import { asCount, asList, asObject, asText, type JsonObject } from '../json-value.ts';

/** Reasoning under any of the names that servers of this dialect gave it. */
export function readReasoning(message: JsonObject): string | undefined {
  return asText(message.reasoning_content) ?? asText(message.reasoning) ?? asText(asObject(message.reasoning)?.content);
}

/** Content may be a list of pieces, with thinking among them (Mistral). */
export function readContentPieces(content: unknown): { text: string | undefined; thinking: string | undefined } {
  if (!Array.isArray(content)) return { text: asText(content), thinking: undefined };
  let text: string | undefined;
  let thinking: string | undefined;
  for (const value of content) {
    const piece = asObject(value);
    if (piece?.type === 'thinking') thinking = (thinking ?? '') + thinkingText(piece.thinking);
    else if (typeof piece?.text === 'string') text = (text ?? '') + piece.text;
  }
  return { text, thinking };
}

function thinkingText(value: unknown): string {
  if (typeof value === 'string') return value;
  return asList(value)
    .map((piece) => asText(asObject(piece)?.text) ?? '')
    .join('');
}

/** Some (xAI) leave reasoning out of their completion tokens, and have it in the total alone. It is paid for. */
export function completionTokens(counts: { prompt: number; completion: number; total: number }): number {
  return Math.max(counts.completion, counts.total - counts.prompt);
}

/** Figures may be in the body, beside a choice (Moonshot) or in an extension (Groq). */
export function readOpenaiUsage(body: JsonObject): Usage | undefined {
  const usage =
    asObject(body.usage) ??
    asObject(asObject(asList(body.choices)[0])?.usage) ??
    asObject(asObject(body.x_groq)?.usage);
  if (usage === undefined) return undefined;
  const prompt = asCount(usage.prompt_tokens);
  const total = asCount(usage.total_tokens);
  const completion = completionTokens({ prompt, completion: asCount(usage.completion_tokens), total });
  if (prompt === 0 && completion === 0) return undefined;
  const cached = asCount(usage.prompt_cache_hit_tokens);
  const lacksDetails = cached > 0 && asObject(usage.prompt_tokens_details) === undefined;
  return {
    ...usage,
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: Math.max(total, prompt + completion),
    ...(lacksDetails && { prompt_tokens_details: { cached_tokens: cached } }),
  };
}
