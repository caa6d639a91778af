import type { StreamEvent } from '../../../platform/sse/sse-writer.ts';
import { type AnswerBlock, type BlockStep, createAnswerReader } from '../answer-blocks.ts';
import { namedEvent, type StreamEncoder } from '../stream-encoder.ts';
import { messagesUsage, stopReason } from './message-object.ts';
import { messagesErrorBody } from './messages-error.ts';

export interface MessageHead {
  readonly id: string;
  readonly requestId: string;
  /** As the caller named it; the answer's own name of its model comes first. */
  readonly model: string;
}

/** The events of the Messages API for one streamed answer. */
export function createMessagesStream({ id, requestId, model }: MessageHead): StreamEncoder {
  const answer = createAnswerReader(`call_${id}_`);
  let begun = false;

  /** The first event names the model, so it waits for the first chunk. */
  function start(): readonly StreamEvent[] {
    if (begun) return [];
    begun = true;
    const message = {
      id,
      type: 'message',
      role: 'assistant',
      model: answer.model === '' ? model : answer.model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      // What the prompt took is known at the end: `message_delta` tells.
      usage: messagesUsage(undefined),
    };
    return [namedEvent('message_start', { message }), namedEvent('ping', {})];
  }

  return {
    begin: () => [],
    read(chunk) {
      const steps = answer.read(chunk);
      return [...start(), ...steps.flatMap(blockEvents)];
    },
    finish() {
      if (answer.finishReason === undefined) {
        return [...start(), failure(502, 'The model API ended its answer without saying why.')];
      }
      return [
        ...start(),
        ...answer.finish().flatMap(blockEvents),
        namedEvent('message_delta', {
          delta: { stop_reason: stopReason(answer), stop_sequence: null },
          usage: messagesUsage(answer.usage),
        }),
        namedEvent('message_stop', {}),
      ];
    },
    fail: ({ status, message }) => [...start(), failure(status, message)],
  };

  function failure(status: number, message: string): StreamEvent {
    return { event: 'error', data: JSON.stringify(messagesErrorBody({ status, message, requestId })) };
  }
}

function blockEvents(each: BlockStep): readonly StreamEvent[] {
  const { block } = each;
  const delta = (piece: object) => namedEvent('content_block_delta', { index: block.index, delta: piece });
  if (each.step === 'open') {
    return [namedEvent('content_block_start', { index: block.index, content_block: emptyBlock(block) })];
  }
  if (each.step === 'grow') return [delta(pieceOf(block, each.text))];
  const stop = namedEvent('content_block_stop', { index: block.index });
  if (block.kind !== 'reasoning' || block.signature === '') return [stop];
  return [delta({ type: 'signature_delta', signature: block.signature }), stop];
}

function emptyBlock({ kind, id, name }: AnswerBlock): object {
  if (kind === 'reasoning') return { type: 'thinking', thinking: '', signature: '' };
  return kind === 'tool' ? { type: 'tool_use', id, name, input: {} } : { type: 'text', text: '' };
}

function pieceOf({ kind }: AnswerBlock, text: string): object {
  if (kind === 'reasoning') return { type: 'thinking_delta', thinking: text };
  return kind === 'tool' ? { type: 'input_json_delta', partial_json: text } : { type: 'text_delta', text };
}
