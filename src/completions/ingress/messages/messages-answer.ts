import type { Static } from 'typebox';
import type { StreamEvent } from '../../../platform/sse/sse-writer.ts';
import type { Usage } from '../../contract/chat.ts';
import type { MessageObject, MessagesError, MessagesUsage } from '../../contract/messages.ts';
import { type Annotation, claudeCitation } from '../../dialects/citations.ts';
import {
  type AnswerBlock,
  type AnswerReader,
  type BlockStep,
  callInput,
  createAnswerReader,
} from '../answer-blocks.ts';
import { namedEvent, type StreamEncoder } from '../ingress-call.ts';

const STOP_REASONS: ReadonlyMap<string, string> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

/** Returns the message of a complete response. `stops`: the stop sequences of the request. */
export function messageObject(id: string, answer: AnswerReader, stops: readonly string[]): MessageObject {
  return {
    id,
    type: 'message',
    role: 'assistant',
    model: answer.model,
    content: answer.blocks.map((block) => contentBlock(block, answer.finishReason === 'length')),
    ...stopOf(answer, stops),
    usage: messagesUsage(answer.usage),
  };
}

/** Returns the stop reason. Most model APIs do not report stop sequences; the reason is `end_turn` then. */
function stopOf({ finishReason = '', stopSequence, blocks }: AnswerReader, stops: readonly string[]) {
  if (blocks.some(({ kind }) => kind === 'refusal')) return { stop_reason: 'refusal', stop_sequence: null };
  if (finishReason === 'stop' && stopSequence !== undefined && stops.includes(stopSequence)) {
    return { stop_reason: 'stop_sequence', stop_sequence: stopSequence };
  }
  return { stop_reason: STOP_REASONS.get(finishReason) ?? 'end_turn', stop_sequence: null };
}

/** Converts usage. Input tokens do not include cache reads and writes here. */
function messagesUsage(usage: Usage | undefined): MessagesUsage {
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const written = usage?.prompt_tokens_details?.cache_creation_tokens ?? 0;
  const hour = usage?.prompt_tokens_details?.cache_creation_1h_tokens ?? 0;
  const searches = usage?.server_tool_use?.web_search_requests ?? 0;
  const thinking = usage?.completion_tokens_details?.reasoning_tokens ?? 0;
  return {
    input_tokens: Math.max(0, (usage?.prompt_tokens ?? 0) - cached - written),
    output_tokens: usage?.completion_tokens ?? 0,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    ...(hour > 0 && {
      cache_creation: { ephemeral_5m_input_tokens: Math.max(0, written - hour), ephemeral_1h_input_tokens: hour },
    }),
    ...(thinking > 0 && { output_tokens_details: { thinking_tokens: thinking } }),
    ...(searches > 0 && { server_tool_use: { web_search_requests: searches } }),
    ...(usage?.estimated === true && { estimated: true }),
    ...(usage?.cost !== undefined && { cost: usage.cost }),
  };
}

function contentBlock(block: AnswerBlock, cutShort: boolean): MessageObject['content'][number] {
  switch (block.kind) {
    case 'reasoning':
      return { type: 'thinking', thinking: block.text, signature: block.signature } as { type: string };
    case 'tool':
      return { type: 'tool_use', id: block.id, name: block.name, input: callInput(block, cutShort) } as {
        type: string;
      };
    default: {
      const citations = block.annotations.map(claudeCitation);
      return { type: 'text', text: block.text, ...(citations.length > 0 && { citations }) } as { type: string };
    }
  }
}

interface MessageHead {
  readonly id: string;
  readonly requestId: string;
  /** As the caller named it; the answer's own name of its model comes first. */
  readonly model: string;
  /** The stop sequences of the request. */
  readonly stops: readonly string[];
}

/** The events of the Messages API for one streamed answer. */
export function createMessagesStream({ id, requestId, model, stops }: MessageHead): StreamEncoder {
  const answer = createAnswerReader(`call_${id}_`);
  let begun = false;
  let openIndex = -1;
  /** Sources of a text that is closed already. */
  const late: object[] = [];

  function eventsOf(each: BlockStep): readonly StreamEvent[] {
    if (each.step === 'open') openIndex = each.block.index;
    if (each.step !== 'cite' || each.block.index === openIndex) return blockEvents(each);
    late.push(citationDelta(each.annotation));
    return [];
  }

  /** Returns an empty text block for sources that arrived late. */
  function lateSources(): readonly StreamEvent[] {
    if (late.length === 0) return [];
    const index = answer.blocks.length;
    return [
      namedEvent('content_block_start', { index, content_block: { type: 'text', text: '' } }),
      ...late.map((delta) => namedEvent('content_block_delta', { index, delta })),
      namedEvent('content_block_stop', { index }),
    ];
  }

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
      return [...start(), ...steps.flatMap(eventsOf)];
    },
    finish() {
      if (answer.finishReason === undefined) {
        return [...start(), failure(502, 'The model API ended its answer without saying why.')];
      }
      return [
        ...start(),
        ...answer.finish().flatMap(eventsOf),
        ...lateSources(),
        namedEvent('message_delta', {
          delta: stopOf(answer, stops),
          usage: messagesUsage(answer.usage),
        }),
        namedEvent('message_stop', {}),
      ];
    },
    fail: ({ status, message }, afterBytes) => [...(afterBytes ? [] : start()), failure(status, message)],
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
  if (each.step === 'cite') return [delta(citationDelta(each.annotation))];
  const stop = namedEvent('content_block_stop', { index: block.index });
  if (block.kind !== 'reasoning' || block.signature === '') return [stop];
  return [delta({ type: 'signature_delta', signature: block.signature }), stop];
}

function citationDelta(annotation: Annotation): object {
  return { type: 'citations_delta', citation: claudeCitation(annotation) };
}

function emptyBlock({ kind, id, name }: AnswerBlock): object {
  if (kind === 'reasoning') return { type: 'thinking', thinking: '', signature: '' };
  return kind === 'tool' ? { type: 'tool_use', id, name, input: {} } : { type: 'text', text: '' };
}

function pieceOf({ kind }: AnswerBlock, text: string): object {
  if (kind === 'reasoning') return { type: 'thinking_delta', thinking: text };
  return kind === 'tool' ? { type: 'input_json_delta', partial_json: text } : { type: 'text_delta', text };
}

export const MESSAGES_PATH = '/v1/messages';

/** Below this path errors have Anthropic's shape. */
export function speaksMessages(path: string): boolean {
  return path === MESSAGES_PATH || path.startsWith(`${MESSAGES_PATH}/`);
}

const TYPES: ReadonlyMap<number, string> = new Map([
  [401, 'authentication_error'],
  [402, 'billing_error'],
  [403, 'permission_error'],
  [404, 'not_found_error'],
  [408, 'timeout_error'],
  [413, 'request_too_large'],
  [429, 'rate_limit_error'],
  [503, 'overloaded_error'],
  [504, 'timeout_error'],
]);

interface FailureFacts {
  readonly status: number;
  readonly message: string;
  readonly requestId: string;
}

/** An error as clients of Anthropic's API read it; the status is the same as everywhere. */
export function messagesErrorBody({ status, message, requestId }: FailureFacts): Static<typeof MessagesError> {
  const type = TYPES.get(status) ?? (status >= 500 ? 'api_error' : 'invalid_request_error');
  return { type: 'error', error: { type, message }, request_id: requestId };
}
