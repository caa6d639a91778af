import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { UsableApi } from '../apis/model-api.ts';
import type { UpstreamFailure } from '../dialects/dialect.ts';
import { brokenAnswer, failureInBody, failureInObject, isFailureObject } from '../dialects/failure.ts';
import { parseEvent } from '../dialects/json-value.ts';
import { azurePath } from '../dialects/openai/openai-dialect.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { type OpenedStream, openStream } from '../relay/open-stream.ts';
import { spliceModel } from '../relay/splice-body.ts';
import { createByteReader } from '../relay/stream-readers.ts';
import { estimatedUsage, findUsage, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import type { CallerPresence, MeasuredUsage } from '../routing/call-record.ts';
import { failureToError, upstreamError } from '../routing/upstream-failure.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';
import type { UpstreamBody } from '../upstream/upstream-exchange.ts';

/** A request other than a chat that an upstream of OpenAI's dialect takes as it is. */
export interface OperationWork {
  readonly path: '/completions' | '/embeddings';
  readonly request: Readonly<Record<string, unknown>> & { readonly model: string };
  readonly bytes: Buffer;
  readonly stream: boolean;
  readonly choices: number;
  readonly usageAsked: boolean;
  readonly promptTokens: number;
  readonly idempotencyId: string;
}

export type OpenedOperation =
  | { readonly kind: 'bytes'; readonly body: Buffer; readonly measured: MeasuredUsage }
  | { readonly kind: 'byte-stream'; readonly stream: OpenedStream<Buffer> };

export type OpenOperation = (
  api: UsableApi,
  attempt: Attempt,
  work: OperationWork,
  presence: CallerPresence,
) => Promise<OpenedOperation>;

export interface OpenOperationOptions {
  readonly send: SendUpstream;
  readonly clock: Clock;
}

export function createOpenOperation({ send, clock }: OpenOperationOptions): OpenOperation {
  return async (api, attempt, work, presence) => {
    const { target } = attempt;
    const { path, stream, promptTokens } = work;
    const encoded = {
      path: api.dialect === 'azure' ? azurePath(api.baseUrl, target.model, path) : path,
      headers: {},
      body: encodeBody(work, target.model, api.noStreamOptions !== true),
    };
    const start = await send({ api, attempt, encoded, stream, idempotencyId: work.idempotencyId });
    const options = { start, decodeFailure: failureInBody, secret: api.credentials.key, presence, now: clock.now };
    if (stream) {
      const { choices, usageAsked } = work;
      const reader = createByteReader({ choices, usageAsked, promptTokens, chunkObject: 'text_completion' });
      return { kind: 'byte-stream', stream: await openStream({ ...options, reader }) };
    }
    const body = await openAnswer(options);
    if (body[0] !== OPEN_BRACE) throw upstreamError('its answer is not JSON');
    const failure = failureInAnswer(body, RESULTS);
    if (failure !== undefined) throw failureToError(failure, api.credentials.key);
    const usage = findUsage(body);
    if (usage !== undefined) return { kind: 'bytes', body, measured: { usage, estimated: false } };
    const tokens = path === '/embeddings' ? 0 : tokensOfCharacters(body.length);
    return { kind: 'bytes', body, measured: { usage: estimatedUsage(promptTokens, tokens), estimated: true } };
  };
}

const OPEN_BRACE = 0x7b;
const RESULTS = ['choices', 'data'];
const ERROR = Buffer.from('"error"');

/** A failure that the upstream wrapped into a 200. Only an answer that may be one is parsed. `results`: members of an answer. */
export function failureInAnswer(body: Buffer, results: readonly string[]): UpstreamFailure | undefined {
  const hasResult = results.some((name) => body.includes(`"${name}"`));
  if (hasResult && !body.includes(ERROR)) return undefined;
  const answer = parseEvent(body.toString('utf8'));
  if (answer === undefined) return brokenAnswer();
  const isResult = results.some((name) => answer[name] !== undefined && answer[name] !== null);
  if (isFailureObject(answer, isResult)) return failureInObject(answer);
  return isResult ? undefined : brokenAnswer('The answer of the model API has no result.');
}

/** The caller's bytes with the upstream's name of the model; a stream is asked for usage, too. */
function encodeBody({ request, bytes, stream }: OperationWork, model: string, knowsOptions: boolean): UpstreamBody {
  const asks = stream && knowsOptions;
  if (!asks || request.stream_options === undefined) {
    const spliced = spliceModel(bytes, request.model, model, asks ? '"stream_options":{"include_usage":true},' : '');
    if (spliced !== undefined) return spliced;
  }
  const { stream_options: given, ...rest } = request;
  const options = asks ? { stream_options: { ...(given as object | null), include_usage: true } } : {};
  return JSON.stringify({ ...rest, model, ...options });
}

/** The upstream has no such operation, as opposed to having failed at it. */
export function lacksOperation(error: unknown): boolean {
  const status = error instanceof AppError && error.code === 'UPSTREAM_REFUSED' ? error.details.status : undefined;
  return status === 404 || status === 405 || status === 501;
}
