import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call } from '../../platform/http/surface.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import { openEventStream } from '../../platform/sse/sse-writer.ts';
import { DEMO_MODEL, type EchoAnswer, echo } from '../apis/demo-echo.ts';
import type { ChatCompletion, ChatRequest } from '../contract/chat.ts';

export interface ChatCompletionOptions {
  readonly clock: Clock;
  readonly makeId: MakeId;
}

/** Handles a chat completion. Without `/v1` the path follows the document, where `created` is text. */
export function createChatCompletion({ clock, makeId }: ChatCompletionOptions) {
  return (createdAsText: boolean) =>
    async ({ body, reply }: Call): Promise<unknown> => {
      const request = body as ChatRequest;
      if (request.model !== DEMO_MODEL) {
        throw new AppError('MODEL_NOT_FOUND', { model: request.model.slice(0, 200), nearest: DEMO_MODEL });
      }
      const answer = echo(request);
      const head = { id: makeId('chatcmpl-'), created: Math.floor(clock.now() / 1000), model: DEMO_MODEL };
      if (request.stream !== true) return completion(head, answer, createdAsText);
      const stream = openEventStream(reply, { clock });
      for (const chunk of chunks(head, answer, request.stream_options?.include_usage === true)) {
        if (stream.closed) return reply;
        await stream.whenWritable();
        stream.send({ data: JSON.stringify(chunk) });
      }
      stream.send({ data: '[DONE]' });
      stream.end();
      return reply;
    };
}

interface AnswerHead {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

function completion(head: AnswerHead, { pieces, usage }: EchoAnswer, createdAsText: boolean): ChatCompletion {
  return {
    id: head.id,
    object: 'chat.completion',
    created: createdAsText ? String(head.created) : head.created,
    model: head.model,
    choices: [{ index: 0, message: { role: 'assistant', content: pieces.join('') }, finish_reason: 'stop' }],
    usage,
  };
}

function* chunks(head: AnswerHead, { pieces, usage }: EchoAnswer, includeUsage: boolean): Generator<object> {
  const chunk = (delta: object, finishReason: string | null) => ({
    ...head,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason: finishReason }],
  });
  yield chunk({ role: 'assistant', content: '' }, null);
  for (const piece of pieces) yield chunk({ content: piece }, null);
  yield chunk({}, 'stop');
  if (includeUsage) yield { ...head, object: 'chat.completion.chunk', choices: [], usage };
}
