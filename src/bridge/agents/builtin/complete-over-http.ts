import { type Clock, deadline } from '../../../platform/clock/clock.ts';
import type { Randomness } from '../../../platform/clock/randomness.ts';
import { AppError } from '../../../platform/errors/app-error.ts';
import { parseJson } from '../../../platform/json/parse-json.ts';
import { hideCredentials } from '../../../platform/log/hidden-secrets.ts';
import { retry } from '../../../platform/retry/retry.ts';
import { asObject } from '../agent-text.ts';
import { type EventResponse, networkReason, postForEvents, type ReceivedEvent } from '../post-for-events.ts';
import type {
  CompleteChat,
  CompletionChunk,
  CompletionDelta,
  CompletionRequest,
  CompletionUsage,
  ToolCallDelta,
} from './complete-chat.ts';

interface CompleteOverHttpOptions {
  /** Up to and with the version: `https://api.example/v1`. */
  readonly baseUrl: string;
  /** Empty: none is sent. */
  readonly apiKey: string;
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
const LONGEST_REASON = 300;
/** An answer that may come out better a moment later. */
const PASSING: ReadonlySet<number> = new Set([408, 429, 502, 503, 504]);

/** Asks any API that speaks OpenAI's chat completions. What fails before the answer begins is tried again, a few times. */
export function createCompleteOverHttp(options: CompleteOverHttpOptions): CompleteChat {
  const { apiKey, clock } = options;
  const limits = { ...LIMITS, ...options.limits };
  const url = `${options.baseUrl.replace(/\/$/, '')}/chat/completions`;
  const headers: Record<string, string> = apiKey === '' ? {} : { authorization: `Bearer ${apiKey}` };

  const failed = (reason: string, passing = false, retryAfterMs = 0, cause?: unknown): AppError => {
    const known = apiKey === '' ? reason : reason.replaceAll(apiKey, '[hidden]');
    const shown = hideCredentials(known).slice(0, LONGEST_REASON);
    return new AppError('MODEL_FAILED', { reason: shown, passing, retryAfterMs }, { cause });
  };

  async function begin(request: CompletionRequest, signal: AbortSignal): Promise<AsyncIterable<ReceivedEvent>> {
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
    throw failed(refusal(response), PASSING.has(response.status), (response.retryAfter ?? 0) * 1000);
  }

  return async function* complete(request, signal) {
    const limit = deadline(clock, limits.totalMs, [signal]);
    try {
      const events = await retry(() => begin(request, limit.signal), {
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
      throw error instanceof AppError && error.code === 'MODEL_FAILED'
        ? error
        : failed(networkReason(error), false, 0, error);
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
  const said = documentError(text);
  return said === '' ? `it answered with status ${status}` : `it answered with status ${status}: ${said}`;
}

function documentError(text: string): string {
  try {
    return errorText(asObject(parseJson(text)).error);
  } catch {
    return '';
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
