import type { Usage } from '../../contract/chat.ts';
import type { ResponseObject, ResponsesRequest, ResponsesUsage } from '../../contract/responses.ts';
import type { AnswerBlock, AnswerReader } from '../answer-blocks.ts';
import { createCustomToolInput } from './custom-tool-input.ts';
import type { ToolTranslation } from './responses-tools.ts';

export interface ResponseHead {
  readonly id: string;
  readonly createdAt: number;
  readonly request: ResponsesRequest;
  readonly tools: ToolTranslation;
}

export type OutputItem = ResponseObject['output'][number] & Readonly<Record<string, unknown>>;
export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** Why a model stopped, when it was not because it had finished. */
const CUT_SHORT: ReadonlyMap<string, string> = new Map([
  ['length', 'max_output_tokens'],
  ['content_filter', 'content_filter'],
]);
const FINISHED = new Set(['stop', 'tool_calls', 'function_call']);

/** What every state of a response repeats of its request. */
export function responseObject(
  { id, createdAt, request }: ResponseHead,
  state: Pick<ResponseObject, 'status' | 'model' | 'output'> & Partial<ResponseObject>,
): ResponseObject {
  return {
    id,
    object: 'response',
    created_at: createdAt,
    error: null,
    incomplete_details: null,
    usage: null,
    background: false,
    instructions: request.instructions ?? null,
    max_output_tokens: request.max_output_tokens ?? null,
    metadata: request.metadata ?? {},
    parallel_tool_calls: request.parallel_tool_calls ?? true,
    previous_response_id: null,
    reasoning: { effort: request.reasoning?.effort ?? null, summary: request.reasoning?.summary ?? null },
    store: false,
    temperature: request.temperature ?? 1,
    text: request.text ?? { format: { type: 'text' } },
    tool_choice: request.tool_choice ?? 'auto',
    tools: request.tools ?? [],
    top_p: request.top_p ?? 1,
    truncation: 'disabled',
    ...(typeof request.user === 'string' && { user: request.user }),
    ...state,
  } as ResponseObject;
}

/** The response to an answer that came to its end. */
export function finishedResponse(head: ResponseHead, answer: AnswerReader): ResponseObject {
  const { finishReason = 'unknown', blocks } = answer;
  const whole = FINISHED.has(finishReason);
  const last = blocks.length - 1;
  return responseObject(head, {
    status: whole ? 'completed' : 'incomplete',
    model: answer.model,
    output: blocks.map((block) => outputItem(head, block, whole || block.index < last ? 'completed' : 'incomplete')),
    incomplete_details: whole ? null : { reason: CUT_SHORT.get(finishReason) ?? finishReason },
    usage: answer.usage === undefined ? null : responsesUsage(answer.usage),
  });
}

/** Reasoning is given as a summary: clients show that, and send it back with what proves it. */
export function outputItem(head: ResponseHead, block: AnswerBlock, status: ItemStatus): OutputItem {
  const id = itemId(head, block);
  switch (block.kind) {
    case 'reasoning':
      return {
        id,
        type: 'reasoning',
        summary: block.text === '' ? [] : [{ type: 'summary_text', text: block.text }],
        ...(block.signature !== '' && { encrypted_content: block.signature }),
      };
    case 'tool': {
      const { kind, name, namespace } = head.tools.originOf(block.name);
      const call = { id, call_id: block.id, name, ...(namespace !== undefined && { namespace }), status };
      return kind === 'custom'
        ? { type: 'custom_tool_call', ...call, input: customInput(block.text) }
        : { type: 'function_call', ...call, arguments: block.text };
    }
    default:
      return { id, type: 'message', status, role: 'assistant', content: [contentPart(block.kind, block.text)] };
  }
}

export function contentPart(kind: 'text' | 'refusal', text: string): Readonly<Record<string, unknown>> {
  return kind === 'text'
    ? { type: 'output_text', text, annotations: [], logprobs: [] }
    : { type: 'refusal', refusal: text };
}

const ID_PREFIXES = { reasoning: 'rs', text: 'msg', refusal: 'msg', tool: 'fc' } as const;

/** Made of the response's own id, so that an item has the same one in every event. */
export function itemId({ id }: ResponseHead, { kind, index }: AnswerBlock): string {
  return `${ID_PREFIXES[kind]}_${id.slice(id.indexOf('_') + 1)}_${index}`;
}

function customInput(argumentsText: string): string {
  const input = createCustomToolInput();
  input.read(argumentsText);
  return input.whole();
}

export function responsesUsage(usage: Usage): ResponsesUsage {
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: { cached_tokens: usage.prompt_tokens_details?.cached_tokens ?? 0 },
    output_tokens: usage.completion_tokens,
    output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
    total_tokens: usage.total_tokens,
    ...(usage.estimated === true && { estimated: true }),
  };
}
