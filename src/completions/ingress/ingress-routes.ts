import { Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call, Guard, Route } from '../../platform/http/surface.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { CountTokensRequest, MessageObject, MessagesError, MessagesRequest, TokenCount } from '../contract/messages.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { ResponseObject, ResponsesRequest } from '../contract/responses.ts';
import type { KeyHolder } from '../keys/admission.ts';
import { readCallOptions } from '../operations/chat-pipeline.ts';
import type { ChatAnswer, RunChat } from '../operations/run-chat.ts';
import { estimatePromptTokens } from '../relay/token-usage.ts';
import { readWhole } from './answer-blocks.ts';
import type { DecodedRequest } from './decoded-request.ts';
import { createMessagesStream, MESSAGES_PATH, messageObject } from './messages/messages-answer.ts';
import { decodeMessagesRequest, decodePrompt } from './messages/messages-request.ts';
import { abortWhenGone, relayStream, type StreamEncoder } from './relay-answer.ts';
import { createResponsesStream, finishedResponse } from './responses/responses-answer.ts';
import { decodeResponsesRequest } from './responses/responses-request.ts';

export interface IngressParts extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly runChat: RunChat;
  readonly guard: Guard<KeyHolder>;
  /** The setting; a caller may choose otherwise by header (contract/completions 2). */
  readonly strictParams: () => boolean;
  readonly bodyLimit: number;
}

const readResponsesRequest = createRequestReader(ResponsesRequest);
const readMessagesRequest = createRequestReader(MessagesRequest);
const readCountRequest = createRequestReader(CountTokensRequest);
const EventStream = Type.String({ contentMediaType: 'text/event-stream' });

/** The routes for clients of other APIs than chat completions (contract/completions 1). */
export function ingressRoutes(parts: IngressParts): readonly Route<KeyHolder>[] {
  const { guard, clock, makeId, bodyLimit } = parts;
  const run = createRun(parts);
  return [
    {
      method: 'POST',
      path: '/v1/responses',
      guard,
      summary: "Create a response, in the form of OpenAI's Responses API.",
      body: 'bytes',
      bodyLimit,
      schema: { body: ResponsesRequest, response: { 200: Type.Union([ResponseObject, EventStream]) } },
      handle(call) {
        const request = readResponsesRequest(call.body as Buffer);
        const decoded = decodeResponsesRequest(request);
        const createdAt = Math.floor(clock.now() / 1000);
        const head = { id: makeId('resp_'), createdAt, request, tools: decoded.tools };
        return run(call, decoded, {
          whole: ({ completion }) => finishedResponse(head, readWhole(completion, `call_${head.id}_`)),
          stream: () => createResponsesStream(head),
        });
      },
    },
    {
      method: 'POST',
      path: MESSAGES_PATH,
      guard,
      summary: "Create a message, in the form of Anthropic's Messages API.",
      body: 'bytes',
      bodyLimit,
      schema: {
        body: MessagesRequest,
        response: { 200: Type.Union([MessageObject, EventStream]) },
        error: MessagesError,
      },
      handle(call) {
        const request = readMessagesRequest(call.body as Buffer);
        const id = makeId('msg_');
        const { requestId } = call.head;
        call.reply.header('request-id', requestId);
        return run(call, decodeMessagesRequest(request), {
          whole: ({ completion }) => messageObject(id, readWhole(completion, `call_${id}_`)),
          stream: () => createMessagesStream({ id, requestId, model: request.model }),
        });
      },
    },
    {
      method: 'POST',
      path: `${MESSAGES_PATH}/count_tokens`,
      guard,
      summary: 'Estimate how many tokens a message would send.',
      body: 'bytes',
      bodyLimit,
      schema: { body: CountTokensRequest, response: { 200: TokenCount }, error: MessagesError },
      handle(call) {
        call.reply.header('request-id', call.head.requestId);
        const { chat } = decodePrompt(readCountRequest(call.body as Buffer));
        return { input_tokens: estimatePromptTokens(chat), estimated: true };
      },
    },
  ];
}

interface AnswerForms {
  whole(answer: ChatAnswer & { kind: 'whole' }): object;
  stream(): StreamEncoder;
}

function createRun({ runChat, strictParams, logger, clock }: IngressParts) {
  return async (
    { head, caller, reply }: Call<KeyHolder>,
    { chat, dropped }: DecodedRequest,
    forms: AnswerForms,
  ): Promise<unknown> => {
    const { strict, timeoutMs } = readCallOptions(head, strictParams());
    if (strict && dropped.length > 0) throw new AppError('UNSUPPORTED_PARAMETER', { param: dropped[0] });
    const { requestId } = head;
    const running = runChat({
      request: chat,
      holder: caller,
      requestId,
      strict,
      timeoutMs,
      signal: abortWhenGone(reply),
      onFailed: (headers) => void (reply.sent || reply.headers(withDropped(headers, dropped))),
    });
    const relay = { reply, clock, logger, requestId };
    if (chat.stream === true) {
      await relayStream(running, { ...relay, encoder: forms.stream(), headers: (own) => withDropped(own, dropped) });
      return reply;
    }
    const answer = await running;
    if (answer.kind !== 'whole') throw new Error('a whole answer was asked for, and came as a stream');
    reply.headers(withDropped(answer.headers, dropped));
    return forms.whole(answer);
  };
}

const DROPPED = 'x-dropped-params';

/** Adds the names of fields that the translation of the request dropped to those that the upstream could not take. */
function withDropped(
  headers: Readonly<Record<string, string>>,
  dropped: readonly string[],
): Readonly<Record<string, string>> {
  if (dropped.length === 0) return headers;
  const all = [...dropped, ...(headers[DROPPED] === undefined ? [] : [headers[DROPPED]])];
  return { ...headers, [DROPPED]: all.join(', ') };
}
