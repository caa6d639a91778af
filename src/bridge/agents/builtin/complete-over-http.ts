import { type Clock, deadline } from '../../../platform/clock/clock.ts';
import type { Randomness } from '../../../platform/clock/randomness.ts';
import { AppError, errorCode } from '../../../platform/errors/app-error.ts';
import type { Payer } from '../../../platform/identity/owner.ts';
import { parseJson } from '../../../platform/json/parse-json.ts';
import { hideCredentials } from '../../../platform/log/hidden-secrets.ts';
import { retry } from '../../../platform/retry/retry.ts';
import { traceparentOf } from '../../../platform/telemetry/spans.ts';
import { asObject } from '../agent-text.ts';
import { type EventResponse, networkReason, postForEvents, type ReceivedEvent } from '../post-for-events.ts';
import type {
  CompleteChat,
  CompletionChunk,
  CompletionDelta,
  CompletionRequest,
  CompletionUsage,
  ModelCaller,
  ToolCallDelta,
} from './complete-chat.ts';

interface CompleteOverHttpOptions {
  /** Up to and with the version: `https://api.example/v1`. */
  readonly baseUrl: string;
  /** Empty: none is sent. */
  readonly apiKey: string;
  /** The token of a payer whom that API charges, in the place of `apiKey`. Undefined: the payer is not charged there. */
  readonly tokenFor?: ((payer: Payer) => Promise<string | undefined>) | undefined;
  readonly clock: Pick<Clock, 'after'>;
  readonly randomness: Pick<Randomness, 'below'>;
  readonly limits?: Partial<typeof LIMITS>;
}

const LIMITS = {
  firstByteMs: 120_000,
  idleMs: 120_000,
  totalMs: 15 * 60_000,
  attempts: 3,
  pauseMs: 500,
  longestPauseMs: 10_000,
};
const MAX_EVENT_CHARACTERS = 4 * 1024 * 1024;
const MAX_REASON = 300;
/** An answer that may come out better a moment later. */
const PASSING: ReadonlySet<number> = new Set([408, 429, 502, 503, 504]);
/** What a Trestle says when the budget of the caller is used up. */
const SPENT: ReadonlySet<string> = new Set(['insufficient_quota', 'budget_exceeded']);
const KNOWN: ReadonlySet<string> = new Set(['MODEL_FAILED', 'BUDGET_EXCEEDED', 'PERSON_NOT_CHARGED']);

/** Asks any API that speaks OpenAI's chat completions. What fails before the answer begins is tried again, a few times. */
export function createCompleteOverHttp(options: CompleteOverHttpOptions): CompleteChat {
  const { apiKey, clock } = options;
  const limits = { ...LIMITS, ...options.limits };
  const url = `${options.baseUrl.replace(/\/$/, '')}/chat/completions`;

  async function headersFor(payer: ModelCaller): Promise<Record<string, string>> {
    const token = await options.tokenFor?.(payer);
    const key = token ?? apiKey;
    return {
      ...(key !== '' && { authorization: `Bearer ${key}` }),
      ...(payer.trace?.context !== undefined && { traceparent: traceparentOf(payer.trace.context) }),
      ...(token !== undefined && payer.member !== undefined && { 'x-team': payer.owner.slice('team:'.length) }),
    };
  }

  const shown = (reason: string): string => {
    const known = apiKey === '' ? reason : reason.replaceAll(apiKey, '[hidden]');
    return hideCredentials(known).slice(0, MAX_REASON);
  };
  const failed = (reason: string, passing = false, retryAfterMs = 0, cause?: unknown): AppError =>
    new AppError('MODEL_FAILED', { reason: shown(reason), passing, retryAfterMs }, { cause });

  async function begin(
    request: CompletionRequest,
    signal: AbortSignal,
    headers: Record<string, string>,
  ): Promise<AsyncIterable<ReceivedEvent>> {
    const response = await postForEvents({
      url,
      headers,
      body: JSON.stringify(request),
      signal,
      headersTimeoutMs: limits.firstByteMs,
      idleTimeoutMs: limits.idleMs,
      maxEventCharacters: MAX_EVENT_CHARACTERS,
    }).catch((error: unknown) => {
      throw failed(networkReason(error), true, 0, error);
    });
    if (response.kind === 'events') return response.events;
    // Elsewhere it is the operator who has nothing left, and no budget of ours.
    if (options.tokenFor !== undefined && SPENT.has(String(errorIn(response.text).code))) {
      throw new AppError('BUDGET_EXCEEDED', { reason: shown(refusal(response)) });
    }
    throw failed(refusal(response), PASSING.has(response.status), (response.retryAfter ?? 0) * 1000);
  }

  return async function* complete(request, signal, payer) {
    const limit = deadline(clock, limits.totalMs, [signal]);
    try {
      // Each try has a token of its own: the one before may have ended.
      const events = await retry(async () => begin(request, limit.signal, await headersFor(payer)), {
        attempts: limits.attempts,
        baseMs: limits.pauseMs,
        maxMs: limits.longestPauseMs,
        clock,
        randomness: options.randomness,
        signal: limit.signal,
        shouldRetry: (error) => error instanceof AppError && error.details.passing === true,
        retryAfterMs: (error) => (error instanceof AppError ? Number(error.details.retryAfterMs) : undefined),
      });
      yield* readChunks(events, failed);
    } catch (error) {
      if (limit.hasPassed()) throw failed(`the answer took longer than ${limits.totalMs} ms`);
      if (KNOWN.has(errorCode(error))) throw error;
      throw failed(networkReason(error), false, 0, error);
    } finally {
      limit.release();
    }
  };
}

type Failed = (reason: string) => AppError;

async function* readChunks(events: AsyncIterable<ReceivedEvent>, failed: Failed): AsyncGenerator<CompletionChunk> {
  let isWhole = false;
  for await (const { data } of events) {
    if (data === '[DONE]') {
      isWhole = true;
      break;
    }
    const value = readJson(data, failed);
    const error = asObject(value).error;
    if (error !== undefined && error !== null) throw failed(errorText(error));
    const chunk = toChunk(value);
    isWhole ||= chunk.choices.some(({ finish_reason: reason }) => typeof reason === 'string');
    yield chunk;
  }
  if (!isWhole) throw failed('the connection ended before the answer was complete');
}

function readJson(text: string, failed: Failed): unknown {
  try {
    return parseJson(text);
  } catch {
    throw failed('it sent an event that is not JSON');
  }
}

function refusal({ status, contentType, text }: Extract<EventResponse, { kind: 'document' }>): string {
  if (status === 200)
    return `it answered with ${contentType === '' ? 'no content type' : contentType} instead of a stream`;
  const said = errorText(errorIn(text));
  return said === '' ? `it answered with status ${status}` : `it answered with status ${status}: ${said}`;
}

/** The member `error` of a document; a text stands for its message. */
function errorIn(text: string): Loose {
  try {
    const { error } = asObject(parseJson(text));
    return typeof error === 'string' ? { message: error } : asObject(error);
  } catch {
    return {};
  }
}

function errorText(error: unknown): string {
  const message = typeof error === 'string' ? error : asObject(error).message;
  return typeof message === 'string' ? message.replaceAll(/\s+/g, ' ').trim() : '';
}

type Loose = Readonly<Record<string, unknown>>;

/** A piece of an answer from outside: what has the wrong type is left out, so that nothing later has to wonder. */
export function toChunk(value: unknown): CompletionChunk {
  const { choices, usage } = asObject(value);
  const chunk = { choices: asList(choices).slice(0, 1).map(toChoice) };
  const counted = toUsage(usage);
  return counted === undefined ? chunk : { ...chunk, usage: counted };
}

function toChoice(value: unknown): CompletionChunk['choices'][number] {
  const { delta, finish_reason: reason } = asObject(value);
  return { delta: toDelta(asObject(delta)), finish_reason: typeof reason === 'string' ? reason : null };
}

function toDelta(delta: Loose): CompletionDelta {
  return {
    ...texts(delta, ['content', 'refusal', 'reasoning_signature']),
    // Servers use two names for reasoning.
    ...texts({ reasoning_content: delta.reasoning_content ?? delta.reasoning }, ['reasoning_content']),
    tool_calls: asList(delta.tool_calls).map(toToolCall),
  };
}

function toToolCall(value: unknown): ToolCallDelta {
  const call = asObject(value);
  const named = asObject(call.function);
  // Some servers send the arguments as an object, where the API says text.
  const given =
    typeof named.arguments === 'object' && named.arguments !== null ? JSON.stringify(named.arguments) : named.arguments;
  return {
    ...(typeof call.index === 'number' && { index: call.index }),
    ...texts(call, ['id']),
    function: texts({ name: named.name, arguments: given }, ['name', 'arguments']),
  };
}

function toUsage(value: unknown): CompletionUsage | undefined {
  const { prompt_tokens: prompt, completion_tokens: completion } = asObject(value);
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

/** The members of these names that are text and not empty. */
function texts<Name extends string>(from: Loose, names: readonly Name[]): Partial<Record<Name, string>> {
  const found: Partial<Record<Name, string>> = {};
  for (const name of names) {
    const value = from[name];
    if (typeof value === 'string' && value !== '') found[name] = value;
  }
  return found;
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
