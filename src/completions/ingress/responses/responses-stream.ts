import type { StreamEvent } from '../../../platform/sse/sse-writer.ts';
import type { ResponseObject } from '../../contract/responses.ts';
import { type AnswerBlock, type BlockStep, createAnswerReader } from '../answer-blocks.ts';
import { namedEvent, type StreamEncoder } from '../stream-encoder.ts';
import { type CustomToolInput, createCustomToolInput } from './custom-tool-input.ts';
import {
  contentPart,
  finishedResponse,
  itemId,
  outputItem,
  type ResponseHead,
  responseObject,
} from './response-object.ts';

/** The events of the Responses API for one streamed answer, each with its number. */
export function createResponsesStream(head: ResponseHead): StreamEncoder {
  const answer = createAnswerReader(`call_${head.id}_`);
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
    const item = outputItem(head, { ...block, text: '', signature: '' }, 'in_progress');
    const parts = block.kind === 'text' || block.kind === 'refusal' ? { content: [] } : {};
    emit('response.output_item.added', { output_index: block.index, item: { ...item, ...parts } });
    customInput = item.type === 'custom_tool_call' ? createCustomToolInput() : undefined;
    if (block.kind === 'text' || block.kind === 'refusal') {
      emit('response.content_part.added', { ...place(block), content_index: 0, part: contentPart(block.kind, '') });
    }
  }

  function grow(block: AnswerBlock, text: string): void {
    switch (block.kind) {
      case 'text':
        emit('response.output_text.delta', { ...place(block), content_index: 0, delta: text, logprobs: [] });
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

  function close(block: AnswerBlock, status: 'completed' | 'incomplete'): void {
    const item = outputItem(head, block, status);
    switch (block.kind) {
      case 'text':
        emit('response.output_text.done', { ...place(block), content_index: 0, text: block.text, logprobs: [] });
        emit('response.content_part.done', {
          ...place(block),
          content_index: 0,
          part: contentPart('text', block.text),
        });
        break;
      case 'refusal':
        emit('response.refusal.done', { ...place(block), content_index: 0, refusal: block.text });
        emit('response.content_part.done', {
          ...place(block),
          content_index: 0,
          part: contentPart('refusal', block.text),
        });
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
      else if (each.step === 'grow') grow(each.block, each.text);
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
