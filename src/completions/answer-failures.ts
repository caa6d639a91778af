import { AppError } from '../platform/errors/app-error.ts';
import { describeError } from '../platform/errors/error-table.ts';
import type { Call, ErrorForBody, RequestHead, Route } from '../platform/http/surface.ts';
import { apiErrorBody, completionsErrors, statusOf } from './errors.ts';
import { messagesErrorBody, speaksMessages } from './ingress/messages/messages-answer.ts';

/** The body of an error in the shape that the clients of a path read. */
export function errorBody(error: ErrorForBody, head: Pick<RequestHead, 'path'>): unknown {
  return speaksMessages(head.path) ? messagesErrorBody(error) : apiErrorBody(error);
}

/**
 * How far the call came (`x-attempts`, ...), what a limit says of itself (`x-ratelimit-*`), and the name under which
 * clients of Anthropic look for the request.
 */
export function errorHeaders(
  { details, requestId }: ErrorForBody,
  head: Pick<RequestHead, 'path'>,
): Readonly<Record<string, string>> {
  const headers = (details.headers as Readonly<Record<string, string>> | undefined) ?? {};
  return speaksMessages(head.path) ? { ...headers, 'request-id': requestId } : headers;
}

/**
 * Two errors have no fixed status (contract/completions 5): what an upstream refuses passes with its own, and a budget
 * that is used up is 402 in the document's family and 429 in OpenAI's.
 */
export function withOwnStatuses<Caller>(route: Route<Caller>): Route<Caller> {
  const isOpenai = route.path.startsWith('/v1/');
  return {
    ...route,
    async handle(call: Call<Caller>) {
      try {
        return await route.handle(call);
      } catch (error) {
        if (!(error instanceof AppError) || call.reply.sent) throw error;
        if (error.code === 'BUDGET_EXCEEDED' && isOpenai) throw new AppError('INSUFFICIENT_QUOTA', error.details);
        if (error.code !== 'UPSTREAM_REFUSED') throw error;
        return refuse(call, error);
      }
    },
  };
}

function refuse({ head, reply }: Call, error: AppError): unknown {
  const described = { ...describeError(completionsErrors, error), status: statusOf(error), requestId: head.requestId };
  const { retryAfterSeconds } = error.details;
  reply.headers(errorHeaders(described, head));
  if (typeof retryAfterSeconds === 'number') reply.header('retry-after', String(retryAfterSeconds));
  return reply.code(described.status).send(errorBody(described, head));
}
