import type { ChatChunk, ChatCompletion, ChatMessage, ChatRequest, ChatTool, ToolCall } from '../contract/chat.ts';

/**
 * The older way to call functions (`functions`, `function_call`) in terms of tools, the only one that most upstreams
 * know, and back again for a caller that used it (contract/completions 2).
 */
export function usesLegacyFunctions({ functions, function_call: choice, messages }: ChatRequest): boolean {
  if ((functions !== undefined && functions !== null) || (choice !== undefined && choice !== null)) return true;
  return messages.some(({ role, function_call: call }) => role === 'function' || (call !== undefined && call !== null));
}

export function withTools(request: ChatRequest): ChatRequest {
  const { functions, function_call: asked, messages, ...rest } = request;
  const definitions = functions ?? [];
  const choice = asked ?? definitions.find((definition) => definition.function_call !== undefined)?.function_call;
  return {
    ...rest,
    messages: withToolMessages(messages),
    ...(definitions.length > 0 && {
      tools: [...(rest.tools ?? []), ...definitions.map(toTool)],
      // There is room for one call in the older form.
      parallel_tool_calls: false,
    }),
    ...(choice !== undefined && definitions.length > 0 && { tool_choice: toToolChoice(choice) }),
  };
}

function toTool({ function_call: _, ...definition }: NonNullable<ChatRequest['functions']>[number]): ChatTool {
  return { type: 'function', function: definition };
}

/** In the document the choice is a text inside a definition: `auto`, `none`, or a function's name. */
function toToolChoice(choice: NonNullable<ChatRequest['function_call']>): NonNullable<ChatRequest['tool_choice']> {
  if (choice === 'auto' || choice === 'none') return choice;
  const name = typeof choice === 'string' ? choice : choice.name;
  return { type: 'function', function: { name } };
}

/** Calls get ids, and each result the id of the latest call of its function. */
function withToolMessages(messages: readonly ChatMessage[]): ChatMessage[] {
  const latest = new Map<string, string>();
  return messages.map((message, position): ChatMessage => {
    const { function_call: call, ...rest } = message;
    if (call !== undefined && call !== null) {
      const id = `call_${position}`;
      latest.set(call.name, id);
      return { ...rest, tool_calls: [{ id, type: 'function', function: call }] };
    }
    if (message.role !== 'function') return message;
    const { name = '', ...result } = rest;
    return { ...result, role: 'tool', tool_call_id: latest.get(name) ?? `call_${name}` };
  });
}

export function withFunctionCalls(completion: ChatCompletion): ChatCompletion {
  return {
    ...completion,
    choices: completion.choices.map((choice) => {
      const { tool_calls: calls, ...message } = choice.message;
      const call = calls?.find(({ type }) => type === 'function');
      if (call === undefined) return choice;
      return {
        ...choice,
        message: { ...message, function_call: toFunctionCall(call) },
        finish_reason: toFinishReason(choice.finish_reason),
      };
    }),
  };
}

/** Only the first call has a place there; the request asked for no more than one. */
export function withFunctionCallDeltas(chunk: ChatChunk): ChatChunk {
  return {
    ...chunk,
    choices: chunk.choices.map((choice) => {
      const { tool_calls: calls, ...delta } = choice.delta;
      const call = calls?.find(({ index }) => index === 0)?.function;
      const finishReason = toFinishReason(choice.finish_reason);
      return {
        ...choice,
        delta: call === undefined ? delta : { ...delta, function_call: call },
        finish_reason: finishReason,
      };
    }),
  };
}

function toFunctionCall({ function: { name, arguments: text } }: ToolCall) {
  return { name, arguments: text };
}

function toFinishReason(reason: string | null): string | null {
  return reason === 'tool_calls' ? 'function_call' : reason;
}
