import type { Call } from '../../platform/http/surface.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { dearerFields } from '../apis/prices.ts';
import { CountTokensRequest, MessagesRequest } from '../contract/messages.ts';
import { createRequestReader } from '../contract/read-request.ts';
import { ResponsesRequest } from '../contract/responses.ts';
import { callerName, type KeyHolder } from '../keys/admission.ts';
import { countTokensLane, messagesLane, responsesLane } from '../lanes/request-lanes.ts';
import type { ChatPipeline } from '../operations/chat-pipeline.ts';
import { sendJson } from '../relay/relay-stream.ts';
import { estimatePromptTokens, estimateTokensIn, expectedAnswerTokens } from '../relay/token-usage.ts';
import { watchCaller } from '../routing/call-record.ts';
import { readWhole } from './answer-blocks.ts';
import { isPresent } from './decoded-request.ts';
import { createIngressCall, type IngressCallOptions, laneForm } from './ingress-call.ts';
import { createMessagesStream, messageObject } from './messages/messages-answer.ts';
import { decodeMessagesRequest, decodePrompt, storedInMessages, withOwnProofs } from './messages/messages-request.ts';
import { createKeptItems, createResponsesStream, finishedResponse } from './responses/responses-answer.ts';
import { decodeResponsesRequest, storedInResponses, withOwnReasoning } from './responses/responses-request.ts';

export interface IngressParts extends IngressCallOptions, Pick<Runtime, 'makeId'> {
  readonly pipeline: Pick<ChatPipeline, 'admit' | 'openForeign' | 'countTokens' | 'refuseStorage'>;
}

type RawCall = Call<KeyHolder, Buffer>;

const readResponsesRequest = createRequestReader(ResponsesRequest);
const readMessagesRequest = createRequestReader(MessagesRequest);
const readCountRequest = createRequestReader(CountTokensRequest);
/** Anthropic's library marks its beta operations so. */
const MESSAGES_QUERY = ['beta'];

/** The handlers for clients of other APIs than chat completions. */
export function createIngress(parts: IngressParts) {
  const { pipeline, clock, makeId } = parts;
  const run = createIngressCall(parts);
  const items = createKeptItems(clock, parts.cache.shared);
  return {
    async createResponse(call: RawCall) {
      const given = readResponsesRequest(call.body);
      const holderId = callerName(call.caller);
      const restored = items.restore(holderId, given);
      const request = restored instanceof Promise ? await restored : restored;
      pipeline.refuseStorage(request);
      const { input, instructions, tools, max_output_tokens: most } = request;
      let decoded: ReturnType<typeof decodeResponsesRequest> | undefined;
      const translate = () => {
        decoded ??= decodeResponsesRequest(request);
        return decoded;
      };
      const keep = (output: Parameters<typeof items.keep>[2]) => items.keep(holderId, request, output);
      const createdAt = Math.floor(clock.now() / 1000);
      const head = { id: makeId('resp_'), createdAt, request, toolsOf: () => translate().tools, keep };
      return run(call, {
        lane: responsesLane,
        request,
        rewritten: withOwnReasoning(request) ?? (request === given ? undefined : request),
        passedQuery: [],
        references: storedInResponses(request),
        estimate: {
          prompt: estimateTokensIn(input, instructions, tools),
          answer: expectedAnswerTokens(isPresent(most) ? { max_tokens: most } : {}),
          dearer: dearerFields(request),
        },
        translate,
        showsCost: true,
        whole: (completion) => finishedResponse(head, readWhole(completion, `call_${head.id}_`, true)),
        stream: () => createResponsesStream(head),
      });
    },
    createMessage(call: RawCall) {
      const request = readMessagesRequest(call.body);
      pipeline.refuseStorage(request);
      const { model, messages, system, tools, max_tokens: most } = request;
      const id = makeId('msg_');
      const stops = request.stop_sequences ?? [];
      const { requestId } = call.head;
      call.reply.header('request-id', requestId);
      return run(call, {
        lane: messagesLane,
        request,
        rewritten: withOwnProofs(request),
        passedQuery: MESSAGES_QUERY,
        references: storedInMessages(request),
        estimate: {
          prompt: estimateTokensIn(messages, system, tools),
          answer: expectedAnswerTokens({ max_tokens: most }),
          dearer: dearerFields(request),
        },
        translate: () => decodeMessagesRequest(request),
        showsCost: true,
        whole: (completion) => messageObject(id, readWhole(completion, `call_${id}_`), stops),
        stream: () => createMessagesStream({ id, requestId, model, stops }),
      });
    },
    async countTokens(call: RawCall) {
      const { head, caller: holder, reply } = call;
      const { requestId } = head;
      reply.header('request-id', requestId);
      const request = readCountRequest(call.body);
      pipeline.refuseStorage(request);
      const incoming = { holder, requestId, presence: watchCaller(reply.raw), operation: 'count_tokens' } as const;
      const form = laneForm(call, { lane: countTokensLane, request, passedQuery: MESSAGES_QUERY });
      const counted = await pipeline.countTokens(incoming, form);
      if (counted === undefined) {
        return { input_tokens: estimatePromptTokens(decodePrompt(request).chat), estimated: true };
      }
      sendJson(reply, {}, counted);
      return reply;
    },
  };
}
