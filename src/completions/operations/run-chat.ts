import type { Clock } from '../../platform/clock/clock.ts';
import type { AppError } from '../../platform/errors/app-error.ts';
import { costOf, isFree, type PriceOf } from '../apis/prices.ts';
import type { ChatChunk, ChatCompletion, ChatRequest, Usage } from '../contract/chat.ts';
import { statusOf } from '../errors.ts';
import type { Admissions, KeyHolder } from '../keys/admission.ts';
import type { OpenedStream } from '../relay/open-stream.ts';
import {
  estimatedUsage,
  estimatePromptTokens,
  expectedAnswerTokens,
  tokensOfCharacters,
} from '../relay/token-usage.ts';
import {
  type CallEnd,
  CallerPresence,
  createCallRecord,
  type FinishCall,
  type MeasuredUsage,
} from '../routing/call-record.ts';
import { notAllowed } from './admit-call.ts';
import type { ChatPipeline } from './chat-pipeline.ts';
import { usesLegacyFunctions, withFunctionCallDeltas, withFunctionCalls } from './encode-chat.ts';

/** Runs chats for callers inside this program, with requests and responses as values. */
export function createRunChat(pipeline: ChatPipeline): RunChat {
  return async ({ request, holder, requestId, strict, timeoutMs, signal, onFailed }) => {
    const presence = new CallerPresence();
    const leave = () => presence.leave();
    if (signal.aborted) leave();
    else signal.addEventListener('abort', leave, { once: true });
    const forget = () => signal.removeEventListener('abort', leave);
    try {
      const call = await pipeline.admitChat({ holder, requestId, presence, operation: 'chat', timeoutMs }, request);
      const opening = pipeline.openChat(call, { request, answerAsBytes: false, strict, translated: true });
      const { result, finish } = await opening.catch((error: unknown) => {
        onFailed?.(call.record.headers());
        throw error;
      });
      const headers = call.record.headers();
      const legacy = usesLegacyFunctions(request);
      if (result.kind === 'chunk-stream') {
        const onEnd: FinishCall = (end) => {
          forget();
          finish(end);
        };
        const read = legacy ? withFunctionCallDeltas : (chunk: ChatChunk) => chunk;
        return { kind: 'stream', headers, chunks: readChunks(result.stream, onEnd, read, signal) };
      }
      if (result.kind !== 'completion') throw new Error('bytes were opened for a caller that gave none');
      forget();
      finish({ outcome: 'ok', status: 200, measured: result.measured });
      const completion: ChatCompletion = legacy ? withFunctionCalls(result.completion) : result.completion;
      return { kind: 'whole', headers, completion };
    } catch (error) {
      forget();
      throw error;
    }
  };
}

/** How many chunks may wait for the reader before the upstream is paused. */
const MAX_QUEUED = 64;

/** Yields the chunks of a stream. It is attached with the first step; a caller that never iterates must abort the signal. */
async function* readChunks(
  stream: OpenedStream<readonly ChatChunk[]>,
  finish: FinishCall,
  read: (chunk: ChatChunk) => ChatChunk,
  signal: AbortSignal,
): AsyncGenerator<ChatChunk> {
  let queue: ChatChunk[] = [];
  let ended = false;
  let failure: AppError | undefined;
  let wake = Promise.withResolvers<void>();
  const onAbort = () => wake.resolve();
  signal.addEventListener('abort', onAbort, { once: true });
  stream.attach({
    write(chunks) {
      queue.push(...chunks);
      wake.resolve();
      return queue.length < MAX_QUEUED;
    },
    end(last = []) {
      queue.push(...last);
      ended = true;
      wake.resolve();
    },
    fail(error) {
      failure = error;
      ended = true;
      wake.resolve();
    },
  });
  try {
    for (;;) {
      const chunks = queue;
      queue = [];
      if (chunks.length >= MAX_QUEUED) stream.resume();
      for (const chunk of chunks) yield read(chunk);
      if (signal.aborted) return;
      if (queue.length > 0) continue;
      if (ended) break;
      wake = Promise.withResolvers<void>();
      stream.resume();
      await wake.promise;
    }
    if (failure !== undefined) throw failure;
  } finally {
    signal.removeEventListener('abort', onAbort);
    if (!ended) stream.abort();
    const measured = stream.usage();
    if (failure !== undefined) finish({ outcome: 'partial', status: statusOf(failure), measured, error: failure });
    else if (ended) finish({ outcome: 'ok', status: 200, measured });
    else finish({ outcome: 'aborted', status: 499, measured });
  }
}

/** One call of the chat pipeline, from the built-in agent, the tool bridge or another part of this program. */
export interface ChatCall {
  readonly request: ChatRequest;
  readonly holder: KeyHolder;
  readonly requestId: string;
  /** Refuses parameters that the upstream does not support, instead of dropping them. */
  readonly strict: boolean;
  /** The longest time for the whole call, if the caller sets one. */
  readonly timeoutMs?: number | undefined;
  /** Aborts the upstream when the caller is gone. */
  readonly signal: AbortSignal;
  /** Gets the headers of a call that was admitted and failed, for a response over HTTP. */
  onFailed?(headers: ChatAnswer['headers']): void;
}

/** `headers`: what tells the caller how its call went: x-model-api, x-attempts, ... */
export type ChatAnswer =
  | { readonly kind: 'whole'; readonly headers: Readonly<Record<string, string>>; readonly completion: ChatCompletion }
  | {
      readonly kind: 'stream';
      readonly headers: Readonly<Record<string, string>>;
      /** Throws an `AppError` where the upstream broke off. Ending the iteration early aborts the upstream. */
      readonly chunks: AsyncIterable<ChatChunk>;
    };

/** Streams when `request.stream` is true. A failure before the first chunk is thrown, after all retries and fallbacks. */
export type RunChat = (call: ChatCall) => Promise<ChatAnswer>;

/** A chat that another part of this program sends to an API itself, for an owner whose limits are kept here. */
export interface OutsideChat {
  readonly holder: KeyHolder;
  readonly requestId: string;
  /** The name of the API: the call is recorded, priced and allowed as `<api>/<model>`. */
  readonly api: string;
  readonly request: ChatRequest;
  readonly signal: AbortSignal;
}

/** What is read of a chunk. */
interface MeteredChunk {
  readonly choices: readonly { readonly delta: object }[];
  readonly usage?: Usage | null;
}

/**
 * Lets such a chat in by the limits and budgets of its holder, passes the answer on, and settles what it has cost, as for
 * calls of our own. Throws what the pipeline throws for a call that is not let in. `answer` is called once it is.
 */
export type MeterChat = <Chunk extends MeteredChunk>(
  chat: OutsideChat,
  answer: (signal: AbortSignal) => AsyncIterable<Chunk>,
) => AsyncIterable<Chunk>;

interface MeterChatOptions {
  readonly admissions: Admissions;
  readonly priceOf: PriceOf;
  readonly clock: Pick<Clock, 'monotonic'>;
}

export function createMeterChat({ admissions, priceOf, clock }: MeterChatOptions): MeterChat {
  return async function* meterChat({ holder, requestId, api, request, signal }, answer) {
    const model = `${api}/${request.model}`;
    if (!holder.mayUse(model)) throw notAllowed(model);
    const price = priceOf(api, request.model);
    const prompt = estimatePromptTokens(request);
    const expected = expectedAnswerTokens(request);
    const presence = new CallerPresence();
    const admission = await admissions.admit(holder, {
      estimatedTokens: prompt + expected,
      estimatedCostNano: costOf(price, { prompt, completion: expected }),
      mayCost: !isFree(price),
      call: presence,
    });
    const record = createCallRecord({ admission, model, requestId, operation: 'chat', clock });
    record.attempts = 1;
    record.target = { apiId: api, model: request.model };
    const ended = new AbortController();
    presence.watch(() => ended.abort());
    let characters = 0;
    let usage: Usage | undefined;
    let end: CallEnd = { outcome: 'aborted', status: 499 };
    try {
      for await (const chunk of answer(AbortSignal.any([signal, ended.signal]))) {
        record.firstToken();
        for (const { delta } of chunk.choices) characters += charactersIn(delta);
        usage = chunk.usage ?? usage;
        yield chunk;
      }
      end = { outcome: 'ok', status: 200 };
    } catch (error) {
      const failure = presence.reason ?? error;
      if (!signal.aborted) end = { outcome: characters > 0 ? 'partial' : 'error', status: statusOf(failure) };
      throw failure;
    } finally {
      record.settle({ ...end, measured: measure(usage, prompt, characters) });
    }
  };
}

/** Estimates the usage of a response that ended early, because its usage never arrived. */
function measure(usage: Usage | undefined, prompt: number, characters: number): MeasuredUsage | undefined {
  if (usage !== undefined) return { usage, estimated: false };
  if (characters === 0) return undefined;
  return { usage: estimatedUsage(prompt, tokensOfCharacters(characters)), estimated: true };
}

/** Counts the characters of all texts in a delta: content, reasoning and arguments of calls. */
function charactersIn(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((sum: number, member) => sum + charactersIn(member), 0);
}
