import type { Clock } from '../platform/clock/clock.ts';
import { preflightHeaders } from '../platform/http/cross-origin.ts';
import { type RequestState, stateOf } from '../platform/http/request-state.ts';
import type { Call, Reply, RequestHead } from '../platform/http/surface.ts';
import { answerHttp, type HttpAnswer, streamHttp } from '../platform/json-rpc/answer-http.ts';
import { encodeParts, hybridEnvelope, type RawJson } from '../platform/json-rpc/envelope.ts';
import type { Dispatch, MethodCall } from '../platform/json-rpc/method-table.ts';
import { type EventStreamOptions, openEventStream } from '../platform/sse/sse-writer.ts';
import type { BridgeAccess, BridgeCaller } from './access.ts';
import { type BridgeClient, QUESTIONS_HEADER, type ResumeRequest } from './bridge-client.ts';
import { bridgeErrors } from './errors.ts';

export interface RpcOverHttp {
  /** `POST /acp/rpc`. */
  answer(call: Call<BridgeCaller, Buffer>): Promise<unknown>;
  /** `OPTIONS /acp/rpc`: 204 for every origin. */
  preflight(call: Call<unknown>): unknown;
}

export interface RpcOverHttpOptions {
  readonly access: Pick<BridgeAccess, 'crossOrigin'>;
  readonly dispatch: Dispatch<BridgeClient>;
  /** Names of the served methods. */
  readonly methodNames: ReadonlySet<string>;
  readonly clock: Clock;
  /** Refusals that keep their HTTP status once a call was dispatched; `CODES_WITH_STATUS` unless given. */
  readonly codesWithStatus?: ReadonlySet<string>;
  /** After how long a client that reads nothing is disconnected. */
  readonly stalledAfterMs: number;
  onUnexpectedError(error: unknown, requestId: string): void;
}

/** What pages of other origins may send. */
const PREFLIGHT_HEADERS = preflightHeaders(
  ['GET', 'POST', 'OPTIONS'],
  'Authorization, Content-Type, Accept, Last-Event-ID, Idempotency-Key',
);
/** Refusals that keep their HTTP status also once a call was dispatched. */
const CODES_WITH_STATUS: ReadonlySet<string> = new Set([
  'PARSE_ERROR',
  'REQUEST_TOO_COMPLEX',
  'OVERLOADED',
  'FORBIDDEN',
  'NOT_IN_TEAM',
  'TEAM_WITHOUT_BRIDGE',
  'FORWARD_PERSON_REFUSED',
  'ISSUER_UNAVAILABLE',
  'SHUTTING_DOWN',
  'OWNER_UNREACHABLE',
  'TASK_FORWARD_HOP_LIMIT_EXCEEDED',
  'TASK_FORWARD_PEER_UNKNOWN',
  'TASK_FORWARD_ENDPOINT_REFUSED',
  'TASK_FORWARD_UNREACHABLE',
  'TASK_FORWARD_FAILED',
]);

const MAX_LOGGED = 256;

/** So much may wait in the stream of an answer before its updates are taken from the log instead. */
const BEHIND_BYTES = 1024 * 1024;

export function createRpcOverHttp(options: RpcOverHttpOptions): RpcOverHttp {
  const { access, dispatch, methodNames, clock, stalledAfterMs, onUnexpectedError } = options;
  const { codesWithStatus = CODES_WITH_STATUS } = options;

  return {
    preflight({ head, reply }) {
      const allowed = Boolean(head.headers.origin) && access.crossOrigin.allows(head);
      return reply
        .code(204)
        .headers(allowed ? PREFLIGHT_HEADERS : {})
        .send();
    },
    async answer({ head, caller, body, reply }) {
      const takesQuestions = head.headers[QUESTIONS_HEADER] === 'true';
      const sink = wantsEvents(head) ? createSink(reply, { clock, stalledAfterMs }, takesQuestions) : undefined;
      const request = stateOf(reply.raw.req);
      const client: BridgeClient = {
        caller,
        sink,
        stays: false,
        resume: readResume(head),
        isStrict: head.headers['x-strict-params'] === 'true',
      };
      const exchange = {
        body,
        caller: client,
        dispatch(call: MethodCall<BridgeClient>) {
          noteCall(request, call.method, call.params, methodNames.has(call.method));
          sink?.serves(call);
          return dispatch(call);
        },
        envelope: hybridEnvelope,
        errors: bridgeErrors,
        requestId: head.requestId,
        codesWithStatus,
        onUnexpectedError,
      };
      if (sink === undefined) return sendAnswer(reply, await answerHttp(exchange));
      const answer = await streamHttp({ ...exchange, sink });
      return answer === undefined ? reply : sendAnswer(reply, answer);
    },
  };
}

/** Notes for the log which method was called, and about which session. Of a batch, the first call counts. */
function noteCall(request: RequestState, method: string, params: unknown, isOwnName: boolean): void {
  if (request.about !== undefined || request.ownAbout !== '') return;
  const { sessionId, threadId } = Object(params) as Readonly<Record<string, unknown>>;
  if (isOwnName && sessionId === undefined && threadId === undefined) {
    request.ownAbout = `"rpcMethod":"${method}",`;
    return;
  }
  request.about = {
    rpcMethod: method.slice(0, MAX_LOGGED),
    ...(typeof sessionId === 'string' && { sessionId: sessionId.slice(0, MAX_LOGGED) }),
    ...(typeof threadId === 'string' && { threadId: threadId.slice(0, MAX_LOGGED) }),
  };
}

function wantsEvents(head: RequestHead): boolean {
  return head.headers.accept?.includes('text/event-stream') === true;
}

/** What a repeated call says about the first one. NaN when `Last-Event-ID` is not a number. */
function readResume({ headers }: RequestHead): ResumeRequest {
  const lastEventId = headers['last-event-id'];
  const idempotencyKey = headers['idempotency-key'];
  return {
    afterSeq: typeof lastEventId === 'string' && lastEventId !== '' ? toSeq(lastEventId) : undefined,
    idempotencyKey: typeof idempotencyKey === 'string' ? idempotencyKey : '',
  };
}

function toSeq(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
}

/** Opens the event stream with the first thing to send: until then the call can still be refused with a status. */
function createSink(reply: Reply, options: EventStreamOptions, takesQuestions: boolean) {
  let stream: ReturnType<typeof openEventStream> | undefined;
  const opened = () => {
    stream ??= openEventStream(reply, options);
    return stream;
  };
  const event = (data: string, id: string | number | undefined, parts?: readonly string[]) =>
    id === undefined ? { data, parts } : { data, parts, id: String(id) };
  // Updates go through the call, which knows whether its answer was sent already.
  let served: MethodCall | undefined;
  return {
    takesQuestions,
    serves(call: MethodCall): void {
      served = call;
    },
    update: (params: RawJson, seq: number) => served?.notify('session.update', params, seq),
    // The call itself fails then.
    lost: () => undefined,
    isBehind: () => (stream?.waitingBytes() ?? 0) > BEHIND_BYTES,
    async drained(): Promise<boolean> {
      await stream?.whenWritable();
      return stream?.closed !== true;
    },
    open: () => void opened(),
    notification: (text: string, eventId?: string | number) => void opened().send(event(text, eventId)),
    final(text: string, eventId?: string | number, parts?: readonly string[]) {
      opened().send(event(text, eventId, parts));
      opened().send({ data: '[DONE]' });
      opened().end();
    },
  };
}

function sendAnswer(reply: Reply, { status, body, parts, retryAfter }: HttpAnswer): Reply {
  reply.code(status);
  if (retryAfter !== undefined) reply.header('retry-after', String(retryAfter));
  if (body === undefined) return reply.send();
  // Node allocates three times the length of a string that it sends.
  const sent = parts === undefined ? body : Buffer.concat(encodeParts(parts));
  return reply.type('application/json; charset=utf-8').send(sent);
}
