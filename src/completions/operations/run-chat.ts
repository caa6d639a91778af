import type { AppError } from '../../platform/errors/app-error.ts';
import type { ChatChunk, ChatCompletion, ChatRequest } from '../contract/chat.ts';
import { statusOf } from '../errors.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { OpenedStream } from '../relay/open-stream.ts';
import type { FinishCall } from '../routing/call-record.ts';
import { CallerPresence } from '../routing/call-record.ts';
import type { ChatPipeline } from './chat-pipeline.ts';
import { usesLegacyFunctions, withFunctionCallDeltas, withFunctionCalls } from './legacy-functions.ts';

/** The pipeline for callers inside this program: requests and answers as values. */
export function createRunChat(pipeline: ChatPipeline): RunChat {
  return async ({ request, holder, requestId, strict, timeoutMs, signal, onFailed }) => {
    const presence = new CallerPresence();
    const leave = () => presence.leave();
    if (signal.aborted) leave();
    else signal.addEventListener('abort', leave, { once: true });
    const forget = () => signal.removeEventListener('abort', leave);
    try {
      const call = pipeline.admitChat({ holder, requestId, presence, operation: 'chat', timeoutMs }, request);
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

/** Above this the upstream waits for the reader. */
const MAX_QUEUED = 64;

/** A stream as an iteration. It is attached with the first step; who never takes it must abort the signal. */
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

/** One call of the chat pipeline, from wherever it comes: an ingress dialect, the built-in agent, the tool bridge. */
export interface ChatCall {
  readonly request: ChatRequest;
  readonly holder: KeyHolder;
  readonly requestId: string;
  /** Refuse what the upstream cannot take, instead of dropping it. */
  readonly strict: boolean;
  /** The longest time for the whole call, if the caller sets one. */
  readonly timeoutMs?: number | undefined;
  /** Aborts the upstream when the caller is gone. */
  readonly signal: AbortSignal;
  /** Gets the headers of a call that was admitted and failed, for a response over HTTP. */
  onFailed?(headers: ChatAnswer['headers']): void;
}

/** `headers`: what tells the caller how its call went (contract/completions 5): x-model-api, x-attempts, ... */
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
