import type { AppError } from '../../platform/errors/app-error.ts';
import type { FindApi, UsableApi } from '../apis/model-api.ts';
import { loadDialect, loadedDialect } from '../dialects/dialect-table.ts';
import { generatePath, modelPath } from '../dialects/google/google-request.ts';
import { parseEvent } from '../dialects/json-value.ts';
import { createLaneReader } from '../lanes/lane-reader.ts';
import type { Lane } from '../lanes/request-lanes.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { type OpenedChat, openStream } from '../relay/open-stream.ts';
import { spliceModel } from '../relay/splice-body.ts';
import { estimatedUsage, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import type { CallerPresence } from '../routing/call-record.ts';
import { placeOf } from '../routing/model-plan.ts';
import { failureToError, upstreamError } from '../routing/upstream-failure.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';

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
}

export interface OpenLanes {
  /** Whether an API speaks the API of the lane itself. */
  serves(apiId: string, lane: Lane): boolean;
  /** Undefined: the target does not, so the request must be translated. */
  open(
    attempt: Attempt,
    work: LaneWork,
    presence: CallerPresence,
  ): Promise<OpenedChat & { kind: 'bytes' | 'byte-stream' }> | undefined;
}

export interface OpenLaneOptions {
  readonly findApi: FindApi;
  readonly send: SendUpstream;
  readonly clock: { now(): number };
  readonly maxEventBytes?: number;
}

export function createOpenLanes({ findApi, send, clock, maxEventBytes }: OpenLaneOptions): OpenLanes {
  return {
    serves(apiId, lane) {
      const api = findApi(apiId);
      return api !== undefined && lanePath(api, lane, '', false) !== undefined;
    },
    open(attempt, work, presence) {
      const { apiId, key, model } = attempt.target;
      const api = findApi(apiId, key);
      const { lane, request } = work.form;
      const path = api === undefined ? undefined : lanePath(api, lane, model, request.stream === true);
      return api === undefined || path === undefined ? undefined : openOn(api, path, attempt, work, presence);
    },
  };

  async function openOn(api: UsableApi, path: string, attempt: Attempt, work: LaneWork, presence: CallerPresence) {
    const { form, promptTokens, idempotencyId } = work;
    const { target } = attempt;
    const refusal = form.refusal?.(placeOf(target));
    if (refusal !== undefined) throw refusal;
    const stream = form.request.stream === true;
    const dialect = loadedDialect(api.dialect) ?? (await loadDialect(api.dialect));
    const encoded = {
      path: `${path}${form.query}`,
      headers: besideOwn(form.headers, api.headers ?? {}),
      body: encodeBody(form, target.model),
    };
    const start = await send({ api, attempt, encoded, stream, idempotencyId });
    const secret = api.credentials.key;
    const exchange = { start, decodeFailure: dialect.decodeFailure, secret, presence, now: clock.now };
    const onKept = (ids: readonly string[]) => form.onKept?.(ids, placeOf(target));
    if (stream) {
      const reader = createLaneReader({ lane: form.lane, promptTokens, maxEventBytes, onKept });
      return { dropped: [], kind: 'byte-stream', stream: await openStream({ ...exchange, reader }) } as const;
    }
    const body = await openAnswer(exchange);
    const answer = parseEvent(body.toString('utf8'));
    if (answer === undefined) throw upstreamError('its answer is not a JSON object');
    const { usage, failure, kept = [] } = form.lane.readWhole(answer);
    if (failure !== undefined) throw failureToError(failure, secret);
    if (kept.length > 0) onKept(kept);
    const measured =
      usage === undefined
        ? { usage: estimatedUsage(promptTokens, tokensOfCharacters(body.length)), estimated: true }
        : { usage, estimated: false };
    return { dropped: [], kind: 'bytes', body, measured } as const;
  }
}

/** Where an API takes the requests of a lane; undefined when it does not. */
function lanePath(api: UsableApi, { name }: Lane, model: string, stream: boolean): string | undefined {
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

/** The caller's bytes with the upstream's name of the model. */
function encodeBody({ lane, request, bytes, rewritten: given }: LaneForm, model: string): string | readonly Buffer[] {
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
