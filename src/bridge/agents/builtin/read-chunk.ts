import { asObject } from '../loose-json.ts';
import type { CompletionChunk, CompletionDelta, CompletionUsage, ToolCallDelta } from './complete-chat.ts';

type Loose = Readonly<Record<string, unknown>>;

/** A piece of an answer from outside: what has the wrong type is left out, so that nothing later has to wonder. */
export function toChunk(value: unknown): CompletionChunk {
  const { choices, usage } = asObject(value);
  const chunk = { choices: asList(choices).slice(0, 1).map(toChoice) };
  const counted = toUsage(usage);
  return counted === undefined ? chunk : { ...chunk, usage: counted };
}

function toChoice(value: unknown): CompletionChunk['choices'][number] {
  const { delta, finish_reason: reason } = asObject(value);
  return { delta: toDelta(asObject(delta)), finish_reason: typeof reason === 'string' ? reason : null };
}

function toDelta(delta: Loose): CompletionDelta {
  return {
    ...texts(delta, ['content', 'refusal', 'reasoning_signature']),
    // Two names are in use for what a model thinks.
    ...texts({ reasoning_content: delta.reasoning_content ?? delta.reasoning }, ['reasoning_content']),
    tool_calls: asList(delta.tool_calls).map(toToolCall),
  };
}

function toToolCall(value: unknown): ToolCallDelta {
  const call = asObject(value);
  const named = asObject(call.function);
  // Some servers send the arguments as an object, where the API says text.
  const given =
    typeof named.arguments === 'object' && named.arguments !== null ? JSON.stringify(named.arguments) : named.arguments;
  return {
    ...(typeof call.index === 'number' && { index: call.index }),
    ...texts(call, ['id']),
    function: texts({ name: named.name, arguments: given }, ['name', 'arguments']),
  };
}

function toUsage(value: unknown): CompletionUsage | undefined {
  const { prompt_tokens: prompt, completion_tokens: completion } = asObject(value);
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

/** The members of these names that are text and not empty. */
function texts<Name extends string>(from: Loose, names: readonly Name[]): Partial<Record<Name, string>> {
  const found: Partial<Record<Name, string>> = {};
  for (const name of names) {
    const value = from[name];
    if (typeof value === 'string' && value !== '') found[name] = value;
  }
  return found;
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
