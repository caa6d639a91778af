import type { Clock } from '../../../platform/clock/clock.ts';
import type { StreamEvent } from '../../../platform/sse/sse-writer.ts';
import type { Usage } from '../../contract/chat.ts';
import type { InputItem, ResponseObject, ResponsesRequest, ResponsesUsage } from '../../contract/responses.ts';
import { type Annotation, flatAnnotation } from '../../dialects/citations.ts';
import { readImage } from '../../dialects/conversation.ts';
import { parseEvent } from '../../dialects/json-value.ts';
import { createResponseCache, findAll, type SharedStore } from '../../operations/response-cache.ts';
import { type AnswerBlock, type AnswerReader, type BlockStep, createAnswerReader } from '../answer-blocks.ts';
import { namedEvent, type StreamEncoder } from '../ingress-call.ts';
import { type CustomToolInput, createCustomToolInput, type ToolTranslation } from './responses-tools.ts';

interface ResponseHead {
  readonly id: string;
  readonly createdAt: number;
  readonly request: ResponsesRequest;
  /** Of the translated request. */
  toolsOf(): ToolTranslation;
  /** Called with the items of a complete response. */
  keep(output: readonly OutputItem[]): void;
}

type OutputItem = ResponseObject['output'][number] & Readonly<Record<string, unknown>>;
type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

const KEPT_MS = 3_600_000;
const MAX_KEPT_BYTES = 16 * 1024 * 1024;
const MAX_ITEM_ID = 256;

/**
 * The items of translated responses, for an hour. Some clients (the AI SDK) send back only the id of an item, unless they set
 * `store: false`: OpenAI itself keeps responses.
 */
export function createKeptItems(clock: Pick<Clock, 'monotonic'>, shared: SharedStore | undefined) {
  const kept = createResponseCache({ clock, shared, maxBytes: MAX_KEPT_BYTES });
  const keyOf = (holderId: string, id: string) => kept.keyOf(holderId, 'item', Buffer.from(id));
  return {
    keep(holderId: string, { store }: ResponsesRequest, output: readonly OutputItem[]): void {
      if (store === false) return;
      for (const item of output) {
        kept.put(holderId, keyOf(holderId, String(item.id)), Buffer.from(JSON.stringify(item)), KEPT_MS);
      }
    },
    /** The request with the items that it names by their ids. An item that is not kept stays as it is, and so does a second reference to one. */
    restore(holderId: string, request: ResponsesRequest): ResponsesRequest | Promise<ResponsesRequest> {
      const { input } = request;
      if (typeof input === 'string' || !input.some(({ type }) => type === 'item_reference')) return request;
      const seen = new Set<string>();
      const keys = input.map((item) => {
        const { type, id } = item as { readonly type?: string; readonly id?: unknown };
        if (type !== 'item_reference' || typeof id !== 'string' || id.length > MAX_ITEM_ID || seen.has(id)) {
          return undefined;
        }
        seen.add(id);
        return keyOf(holderId, id);
      });
      const found = findAll(kept, keys);
      return found instanceof Promise
        ? found.then((bodies) => withItems(request, input, bodies))
        : withItems(request, input, found);
    },
  };
}

function withItems(
  request: ResponsesRequest,
  input: readonly InputItem[],
  bodies: readonly (Buffer | undefined)[],
): ResponsesRequest {
  if (bodies.every((body) => body === undefined)) return request;
  // What a store of others holds may be anything.
  const items = bodies.map((body) => (body === undefined ? undefined : parseEvent(body.toString('utf8'))));
  return { ...request, input: input.map((item, at) => (items[at] as InputItem | undefined) ?? item) };
}

/** Why a model stopped, when it was not because it had finished. */
const CUT_SHORT: ReadonlyMap<string, string> = new Map([
  ['length', 'max_output_tokens'],
  ['content_filter', 'content_filter'],
]);
const FINISHED = new Set(['stop', 'tool_calls', 'function_call']);

/** Returns a response with the members that it repeats of its request. */
function responseObject(
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

/** Returns the response for a complete answer of a model. */
export function finishedResponse(head: ResponseHead, answer: AnswerReader): ResponseObject {
  const { finishReason = 'unknown', blocks } = answer;
  const whole = FINISHED.has(finishReason);
  const last = blocks.length - 1;
  const output = blocks.map((block) =>
    outputItem(head, block, whole || block.index < last ? 'completed' : 'incomplete'),
  );
  head.keep(output);
  return responseObject(head, {
    status: whole ? 'completed' : 'incomplete',
    model: answer.model,
    output,
    incomplete_details: whole ? null : { reason: CUT_SHORT.get(finishReason) ?? finishReason },
    usage: answer.usage === undefined ? null : responsesUsage(answer.usage),
  });
}

/** Returns the item of a block. Reasoning becomes a summary, which clients show and send back with its proof. */
function outputItem(head: ResponseHead, block: AnswerBlock, status: ItemStatus): OutputItem {
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
      const { kind, name, namespace } = head.toolsOf().originOf(block.name);
      const call = { id, call_id: block.id, name, ...(namespace !== undefined && { namespace }), status };
      return kind === 'custom'
        ? { type: 'custom_tool_call', ...call, input: customInput(block.text) }
        : { type: 'function_call', ...call, arguments: block.text };
    }
    case 'image':
      return { id, type: 'image_generation_call', status, result: imageData(block.text) };
    default:
      return { id, type: 'message', status, role: 'assistant', content: [contentPart(block)] };
  }
}

function contentPart({ kind, text, annotations, logprobs }: AnswerBlock): Readonly<Record<string, unknown>> {
  if (kind === 'refusal') return { type: 'refusal', refusal: text };
  const named = annotations.map((each) => flatAnnotation(each, text.length));
  return { type: 'output_text', text, annotations: named, logprobs };
}

/** The item has the data alone: an image that is somewhere else has none. */
function imageData(url: string): string | null {
  const image = readImage(url);
  return image.kind === 'data' ? image.base64 : null;
}

/** A block as it is when it opens. */
function emptyBlock(block: AnswerBlock): AnswerBlock {
  return { ...block, text: '', signature: '', annotations: [], logprobs: [] };
}

const ID_PREFIXES = { reasoning: 'rs', text: 'msg', refusal: 'msg', tool: 'fc', image: 'ig' } as const;

/** Returns the id of an item, derived from the id of the response, so that it is the same in every event. */
function itemId({ id }: ResponseHead, { kind, index }: AnswerBlock): string {
  return `${ID_PREFIXES[kind]}_${id.slice(id.indexOf('_') + 1)}_${index}`;
}

function customInput(argumentsText: string): string {
  const input = createCustomToolInput();
  input.read(argumentsText);
  return input.whole();
}

function responsesUsage(usage: Usage): ResponsesUsage {
  return {
    input_tokens: usage.prompt_tokens,
    input_tokens_details: { cached_tokens: usage.prompt_tokens_details?.cached_tokens ?? 0 },
    output_tokens: usage.completion_tokens,
    output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
    total_tokens: usage.total_tokens,
    ...(usage.estimated === true && { estimated: true }),
    ...(usage.cost !== undefined && { cost: usage.cost }),
  };
}

/** The events of the Responses API for one streamed answer, each with its number. */
export function createResponsesStream(head: ResponseHead): StreamEncoder {
  const answer = createAnswerReader(`call_${head.id}_`, true);
  let sequence = 0;
  let events: StreamEvent[] = [];
  /** Of the custom tool that is open. */
  let customInput: CustomToolInput | undefined;

  function emit(type: string, data: object): void {
    events.push(namedEvent(type, { sequence_number: sequence, ...data }));
    sequence += 1;
  }

  function taken(): readonly StreamEvent[] {
    const result = events;
    events = [];
    return result;
  }

  function place(block: AnswerBlock): { readonly item_id: string; readonly output_index: number } {
    return { item_id: itemId(head, block), output_index: block.index };
  }

  function open(block: AnswerBlock): void {
    const item = outputItem(head, emptyBlock(block), 'in_progress');
    const parts = block.kind === 'text' || block.kind === 'refusal' ? { content: [] } : {};
    emit('response.output_item.added', { output_index: block.index, item: { ...item, ...parts } });
    customInput = item.type === 'custom_tool_call' ? createCustomToolInput() : undefined;
    if (block.kind === 'text' || block.kind === 'refusal') {
      emit('response.content_part.added', { ...place(block), content_index: 0, part: contentPart(emptyBlock(block)) });
    }
  }

  function grow(block: AnswerBlock, text: string, logprobs: readonly object[]): void {
    switch (block.kind) {
      case 'text':
        emit('response.output_text.delta', { ...place(block), content_index: 0, delta: text, logprobs });
        return;
      case 'image':
        return;
      case 'refusal':
        emit('response.refusal.delta', { ...place(block), content_index: 0, delta: text });
        return;
      case 'reasoning':
        if (block.text === text) emit('response.reasoning_summary_part.added', summaryPart(block, ''));
        emit('response.reasoning_summary_text.delta', { ...place(block), summary_index: 0, delta: text });
        return;
      case 'tool': {
        const delta = customInput === undefined ? text : customInput.read(text);
        const name = customInput === undefined ? 'function_call_arguments' : 'custom_tool_call_input';
        if (delta !== '') emit(`response.${name}.delta`, { ...place(block), delta });
      }
    }
  }

  /** A block has its source already. */
  function cite(block: AnswerBlock, annotation: Annotation): void {
    emit('response.output_text.annotation.added', {
      ...place(block),
      content_index: 0,
      annotation_index: block.annotations.indexOf(annotation),
      annotation: flatAnnotation(annotation, block.text.length),
    });
  }

  function close(block: AnswerBlock, status: 'completed' | 'incomplete'): void {
    const item = outputItem(head, block, status);
    switch (block.kind) {
      case 'text': {
        const { text, logprobs } = block;
        emit('response.output_text.done', { ...place(block), content_index: 0, text, logprobs });
        emit('response.content_part.done', { ...place(block), content_index: 0, part: contentPart(block) });
        break;
      }
      case 'refusal':
        emit('response.refusal.done', { ...place(block), content_index: 0, refusal: block.text });
        emit('response.content_part.done', { ...place(block), content_index: 0, part: contentPart(block) });
        break;
      case 'image':
        emit('response.image_generation_call.completed', place(block));
        break;
      case 'reasoning':
        if (block.text === '') break;
        emit('response.reasoning_summary_text.done', { ...place(block), summary_index: 0, text: block.text });
        emit('response.reasoning_summary_part.done', summaryPart(block, block.text));
        break;
      case 'tool':
        if (customInput !== undefined) {
          emit('response.custom_tool_call_input.done', { ...place(block), input: item.input });
        } else {
          emit('response.function_call_arguments.done', { ...place(block), name: item.name, arguments: block.text });
        }
    }
    emit('response.output_item.done', { output_index: block.index, item });
  }

  function summaryPart(block: AnswerBlock, text: string): object {
    return { ...place(block), summary_index: 0, part: { type: 'summary_text', text } };
  }

  function show(steps: readonly BlockStep[], lastStatus: 'completed' | 'incomplete' = 'completed'): void {
    for (const each of steps) {
      if (each.step === 'open') open(each.block);
      else if (each.step === 'grow') grow(each.block, each.text, each.logprobs);
      else if (each.step === 'cite') cite(each.block, each.annotation);
      else close(each.block, each.block.index === answer.blocks.length - 1 ? lastStatus : 'completed');
    }
  }

  function failed(code: string, message: string): void {
    const response = responseObject(head, {
      status: 'failed',
      model: answer.model === '' ? head.request.model : answer.model,
      output: answer.blocks.map((block) => outputItem(head, block, 'incomplete')),
      error: { code, message },
    });
    emit('response.failed', { response });
    // Clients that only read the text would take the end of the stream for the end of the answer.
    emit('error', { code, message, param: null });
  }

  return {
    begin() {
      const response = responseObject(head, { status: 'in_progress', model: head.request.model, output: [] });
      emit('response.created', { response });
      emit('response.in_progress', { response });
      return taken();
    },
    read(chunk) {
      show(answer.read(chunk));
      return taken();
    },
    finish() {
      if (answer.finishReason === undefined) {
        failed('upstream_error', 'The model API ended its answer without saying why.');
        return taken();
      }
      const steps = answer.finish();
      const response: ResponseObject = finishedResponse(head, answer);
      show(steps, response.status === 'completed' ? 'completed' : 'incomplete');
      emit(`response.${response.status}`, { response });
      return taken();
    },
    fail({ code, message }) {
      failed(code, message);
      return taken();
    },
  };
}
