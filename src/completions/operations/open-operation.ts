import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { FindApi, KnownModel, UsableApi } from '../apis/model-api.ts';
import type { Usage } from '../contract/chat.ts';
import {
  isVertexClaude,
  VERTEX_CLAUDE_COUNT_PATH,
  vertexClaudeBody,
  vertexClaudeCountBody,
  vertexClaudePath,
} from '../dialects/anthropic/vertex-claude.ts';
import type { UpstreamFailure } from '../dialects/dialect.ts';
import { loadDialect, loadedDialect } from '../dialects/dialect-table.ts';
import { brokenAnswer, failureInBody, failureInObject, isFailureObject } from '../dialects/failure.ts';
import { generatePath, modelPath } from '../dialects/google/google-request.ts';
import { parseEvent } from '../dialects/json-value.ts';
import { azurePath } from '../dialects/openai/openai-dialect.ts';
import { createLaneReader } from '../lanes/lane-reader.ts';
import type { Lane } from '../lanes/request-lanes.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { type OpenedChat, type OpenedStream, openStream } from '../relay/open-stream.ts';
import { spliceModel } from '../relay/splice-body.ts';
import { createByteReader } from '../relay/stream-readers.ts';
import { estimatedUsage, findUsage, isWholeJson, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import { addSpent, type CallerPresence, type MeasuredUsage, type SpendingRecord } from '../routing/call-record.ts';
import { placeOf, type Target } from '../routing/model-plan.ts';
import { failureToError, hidingSecretsOf, upstreamError } from '../routing/upstream-failure.ts';
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
  readonly record: SpendingRecord;
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
  /** The largest event of a stream. */
  readonly maxEventBytes?: number;
}

export function createOpenOperation({ send, clock, maxEventBytes }: OpenOperationOptions): OpenOperation {
  return async (api, attempt, work, presence) => {
    const { target } = attempt;
    const { path, stream, promptTokens } = work;
    const encoded = {
      path: api.dialect === 'azure' ? azurePath(api.baseUrl, target.model, path) : path,
      headers: {},
      body: encodeBody(work, target.model, api.noStreamOptions !== true),
    };
    const start = await send({ api, attempt, encoded, stream, idempotencyId: work.idempotencyId });
    const options = { start, decodeFailure: failureInBody, hide: hidingSecretsOf(api), presence, now: clock.now };
    if (stream) {
      const { choices, usageAsked } = work;
      const reader = createByteReader({
        choices,
        usageAsked,
        promptTokens,
        maxEventBytes,
        chunkObject: 'text_completion',
      });
      return { kind: 'byte-stream', stream: await openStream({ ...options, reader }) };
    }
    const body = await openAnswer(options);
    if (!beginsObject(body)) throw upstreamError('its answer is not JSON');
    const failure = failureInAnswer(body, RESULTS);
    if (failure !== undefined) throw failureToError(failure, options.hide);
    const found = findUsage(body);
    if (!isWholeJson(body, found)) {
      if (found !== undefined) addSpent(work.record, found.usage, false);
      throw upstreamError('its answer is not whole');
    }
    if (found !== undefined) return { kind: 'bytes', body, measured: { usage: found.usage, estimated: false } };
    const tokens = path === '/embeddings' ? 0 : tokensOfCharacters(body.length);
    return { kind: 'bytes', body, measured: { usage: estimatedUsage(promptTokens, tokens), estimated: true } };
  };
}

const OPEN_BRACE = 0x7b;
const SPACES: ReadonlySet<number | undefined> = new Set([0x20, 0x09, 0x0a, 0x0d]);

/** Returns whether a body is a JSON object by its start. Some servers send line ends before it, to keep the connection open. */
export function beginsObject(body: Buffer): boolean {
  let at = 0;
  while (SPACES.has(body[at])) at += 1;
  return body[at] === OPEN_BRACE;
}

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

/** A request of an API that its upstream may speak itself, as it came. */
export interface LaneForm {
  readonly lane: Lane;
  readonly request: { readonly model: string; readonly stream?: boolean | null };
  readonly bytes: Buffer;
  /** The bytes cannot pass as they are: the request in the form that the upstream takes, which may depend on its model. */
  readonly rewritten?: object | ((model: string) => object) | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Of the request's address; with its question mark. */
  readonly query: string;
  /** Why a place (`placeOf`) must not get the request: it names objects that are not the caller's there. */
  refusal?(place: string): AppError | undefined;
  /** Hears of objects that the upstream keeps for this caller. */
  onKept?(ids: readonly string[], place: string): void;
}

export interface LaneWork {
  readonly form: LaneForm;
  readonly promptTokens: number;
  readonly idempotencyId: string;
  /** Where what a failed try used is noted; undefined for calls that cost nothing. */
  readonly spending?: SpendingRecord;
}

export interface OpenLanes {
  /** Whether an API speaks the API of the lane itself. */
  serves(target: Pick<Target, 'apiId' | 'model'>, lane: Lane): boolean;
  /** Undefined: the target does not, so the request must be translated. */
  open(
    attempt: Attempt,
    work: LaneWork,
    presence: CallerPresence,
  ): Promise<OpenedChat & { kind: 'bytes' | 'byte-stream' }> | undefined;
}

export interface OpenLaneOptions {
  readonly findApi: FindApi;
  readonly knownModel: (api: string, model: string) => KnownModel | undefined;
  readonly send: SendUpstream;
  readonly clock: { now(): number };
  readonly maxEventBytes?: number;
}

export function createOpenLanes(options: OpenLaneOptions): OpenLanes {
  const { findApi, knownModel, send, clock, maxEventBytes } = options;
  const isOnVertex = ({ id, dialect }: UsableApi, model: string) =>
    isVertexClaude(dialect, model, knownModel(id, model));

  function pathOf(api: UsableApi, { name }: Lane, model: string, stream: boolean): string | undefined {
    if (!isOnVertex(api, model)) return lanePath(api, name, model, stream);
    if (name === 'messages') return vertexClaudePath(model, stream);
    return name === 'count_tokens' ? VERTEX_CLAUDE_COUNT_PATH : undefined;
  }

  return {
    serves({ apiId, model }, lane) {
      const api = findApi(apiId);
      return api !== undefined && pathOf(api, lane, model, false) !== undefined;
    },
    open(attempt, work, presence) {
      const { apiId, key, model } = attempt.target;
      const api = findApi(apiId, key);
      const { lane, request } = work.form;
      const path = api === undefined ? undefined : pathOf(api, lane, model, request.stream === true);
      return api === undefined || path === undefined ? undefined : openOn(api, path, attempt, work, presence);
    },
  };

  async function openOn(api: UsableApi, path: string, attempt: Attempt, work: LaneWork, presence: CallerPresence) {
    const { form, promptTokens, idempotencyId } = work;
    const { target } = attempt;
    const refusal = form.refusal?.(placeOf(target));
    if (refusal !== undefined) throw refusal;
    const stream = form.request.stream === true;
    const codec = isOnVertex(api, target.model) ? 'vertex-claude' : api.dialect;
    const dialect = loadedDialect(codec) ?? (await loadDialect(codec));
    const encoded = {
      path: `${path}${form.query}`,
      headers: besideOwn(form.headers, api.headers ?? {}),
      body: codec === 'vertex-claude' ? encodeForVertex(form, target.model) : encodeLaneBody(form, target.model),
    };
    const start = await send({ api, attempt, encoded, stream, idempotencyId });
    const hide = hidingSecretsOf(api);
    const exchange = { start, decodeFailure: dialect.decodeFailure, hide, presence, now: clock.now };
    const noteSpent = (usage: Usage) => {
      if (work.spending !== undefined) addSpent(work.spending, usage, false);
    };
    const onKept = (ids: readonly string[]) => form.onKept?.(ids, placeOf(target));
    if (stream) {
      const reader = createLaneReader({ lane: form.lane, promptTokens, maxEventBytes, onKept });
      return {
        dropped: [],
        kind: 'byte-stream',
        stream: await openStream({ ...exchange, reader, noteSpent }),
      } as const;
    }
    const body = await openAnswer(exchange);
    const answer = parseEvent(body.toString('utf8'));
    if (answer === undefined) throw upstreamError('its answer is not a JSON object');
    const { usage, failure, kept = [] } = form.lane.readWhole(answer);
    if (failure !== undefined) {
      if (usage !== undefined) noteSpent(usage);
      throw failureToError(failure, hide);
    }
    if (kept.length > 0) onKept(kept);
    const measured =
      usage === undefined
        ? { usage: estimatedUsage(promptTokens, tokensOfCharacters(body.length)), estimated: true }
        : { usage, estimated: false };
    return { dropped: [], kind: 'bytes', body, measured } as const;
  }
}

/** Where an API takes the requests of a lane; undefined when it does not. */
function lanePath(api: UsableApi, name: Lane['name'], model: string, stream: boolean): string | undefined {
  switch (name) {
    case 'responses':
      return api.responses ? '/responses' : undefined;
    case 'messages':
      return api.dialect === 'anthropic' ? '/messages' : undefined;
    case 'count_tokens':
      return api.dialect === 'anthropic' ? '/messages/count_tokens' : undefined;
    case 'generate':
      return api.dialect === 'google' ? generatePath(model, stream) : undefined;
    case 'gemini_count':
      return api.dialect === 'google' ? `${modelPath('google', model)}:countTokens` : undefined;
  }
}

function encodeForVertex({ lane, request, rewritten: given }: LaneForm, model: string): string {
  const body = { ...((typeof given === 'function' ? given(model) : given) ?? request) };
  return JSON.stringify(lane.name === 'messages' ? vertexClaudeBody(body) : vertexClaudeCountBody(body, model));
}

/** The caller's bytes with the upstream's name of the model. */
function encodeLaneBody(
  { lane, request, bytes, rewritten: given }: LaneForm,
  model: string,
): string | readonly Buffer[] {
  const rewritten = typeof given === 'function' ? given(model) : given;
  if (lane.modelInAddress === true) return rewritten === undefined ? [bytes] : JSON.stringify(rewritten);
  const spliced = rewritten === undefined ? spliceModel(bytes, request.model, model) : undefined;
  return spliced ?? JSON.stringify({ ...(rewritten ?? request), model });
}

const LISTED = 'anthropic-beta';

/** A header that the operator sets for the API wins over the caller's; lists of betas are joined. */
function besideOwn(
  given: Readonly<Record<string, string>>,
  own: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const headers = { ...given };
  for (const [name, value] of Object.entries(own)) {
    const caller = headers[name];
    headers[name] = name === LISTED && caller !== undefined ? `${value},${caller}` : value;
  }
  return headers;
}
