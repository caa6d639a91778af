import { type Clock, pause } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { DEMO_API, demoDrops, type EchoAnswer, echo, playAgent, readBehaviour } from '../apis/demo-models.ts';
import type { FindApi, KnownModel, UsableApi } from '../apis/model-api.ts';
import type { ChatChunk, ChatCompletion, ChunkDelta, Usage } from '../contract/chat.ts';
import { isVertexClaude } from '../dialects/anthropic/vertex-claude.ts';
import { cacheMarkers, markStablePrefix } from '../dialects/conversation.ts';
import type { CodecName, Dialect, DialectContext } from '../dialects/dialect.ts';
import { loadDialect, loadedDialect } from '../dialects/dialect-table.ts';
import { failureInBody } from '../dialects/failure.ts';
import { callerName, INTERNAL_ID } from '../keys/admission.ts';
import { openAnswer } from '../relay/open-answer.ts';
import { type OpenedChat, type OpenedStream, openStream, type StreamSink } from '../relay/open-stream.ts';
import { createByteReader, createChunkReader, createFraming } from '../relay/stream-readers.ts';
import { estimatedUsage, findUsage, isWholeJson, tokensOfCharacters } from '../relay/token-usage.ts';
import type { Attempt } from '../routing/attempt-call.ts';
import { addSpent, type CallerPresence } from '../routing/call-record.ts';
import { failureToError, type HideSecrets, hidingSecretsOf, upstreamError } from '../routing/upstream-failure.ts';
import type { CompletionsSettings } from '../settings.ts';
import { type FetchLinkedFiles, hasLinkedFiles } from '../upstream/linked-files.ts';
import type { SendUpstream } from '../upstream/send-upstream.ts';
import { type ChatWork, dialectContext, encodeChat, speaksOpenai } from './encode-chat.ts';
import type { ThinkingProofs } from './thinking-proofs.ts';

export type OpenChat = (attempt: Attempt, work: ChatWork, presence: CallerPresence) => Promise<OpenedChat>;

interface OpenChatOptions {
  readonly findApi: FindApi;
  readonly send: SendUpstream;
  /** What is known of a model. */
  readonly knownModel: (api: string, model: string) => KnownModel | undefined;
  readonly clock: Clock;
  /** Undefined: thinking that a caller omits is not restored. */
  readonly proofs?: ThinkingProofs | undefined;
  readonly fetchLinkedFiles: FetchLinkedFiles;
  /** For whom the stable part of a prompt is marked for the upstream's cache. */
  readonly promptCache?: CompletionsSettings['prompt_cache'];
  /** The largest event of a stream. */
  readonly maxEventBytes?: number;
}

/** Marks of a response that may have failed or has no choice, or that has reasoning or content in another form than OpenAI's. */
const UNUSUAL = /"(?:error"|reasoning"|content": ?\[|choices": ?(?:null|\[ ?(?:\]|null)))/;

export function createOpenChat(options: OpenChatOptions): OpenChat {
  const { findApi, send, knownModel, clock, fetchLinkedFiles, promptCache = 'off', maxEventBytes, proofs } = options;

  /** Returns whether to mark the prompt for the cache: the upstream has one, and the caller set no markers. */
  function marksPrompt(dialect: CodecName, known: KnownModel | undefined, { call, request }: ChatWork): boolean {
    if (promptCache === 'off' || call === undefined) return false;
    if (promptCache === 'agents' && call.holder.id !== INTERNAL_ID) return false;
    const isClaude = dialect === 'anthropic' || dialect === 'vertex-claude';
    const hasCache = isClaude || (dialect === 'bedrock' && known?.prices?.cacheRead !== undefined);
    return hasCache && cacheMarkers(request).length === 0;
  }

  return async (attempt, work, presence) => {
    const { target } = attempt;
    if (target.apiId === DEMO_API) {
      if (!/^(?:echo|agent)\b/.test(target.model))
        throw new AppError('OPERATION_NOT_SUPPORTED', { operation: 'chat completions' });
      const { dropped, open } = openDemoChat({ work, model: target.model, presence, clock });
      refuseDropped(work, dropped);
      return { dropped, ...(await open()) };
    }
    const api = findApi(target.apiId, target.key);
    if (api === undefined) throw upstreamError('its key is not set any more');
    const known = knownModel(target.apiId, target.model);
    const codec = codecOf(api, target.model, known);
    const dialect = loadedDialect(codec) ?? (await loadDialect(codec));
    const stream = work.request.stream === true;
    const context = dialectContext(api, target.model, {
      stream,
      id: work.answerId,
      created: work.created,
      translated: work.translated,
      maxOutputTokens: known?.maxOutputTokens,
      facts: known,
    });
    // Bedrock fetches nothing from the web.
    const fetches = api.dialect === 'bedrock' && hasLinkedFiles(work.request);
    const holderId = speaksOpenai(dialect) ? undefined : work.call && callerName(work.call.holder);
    const restored = holderId === undefined ? undefined : proofs?.restore(holderId, work.request);
    const asked = (restored instanceof Promise ? await restored : restored) ?? work.request;
    const kept = (opened: OpenedChat) => (holderId === undefined ? opened : (proofs?.keep(holderId, opened) ?? opened));
    const given = marksPrompt(codec, known, work) ? markStablePrefix(asked) : asked;
    if (work.call !== undefined) work.call.record.promptMarked = given !== asked;
    const request = fetches ? await fetchLinkedFiles(given, presence) : given;
    const encoded = encodeChat(dialect, request, context, work.bytes);
    const { added } = work;
    const dropped = added === undefined ? encoded.dropped : encoded.dropped.filter((name) => !added.includes(name));
    refuseDropped(work, dropped);
    const sending = send({ api, attempt, encoded, stream, idempotencyId: work.idempotencyId });
    const start = sending instanceof Promise ? await sending : sending;
    const hide = hidingSecretsOf(api);
    const exchange = { start, decodeFailure: dialect.decodeFailure, hide, presence, now: clock.now };
    const choices = dropped.includes('n') ? 1 : (work.request.n ?? 1);
    const asBytes = work.answerAsBytes && speaksOpenai(dialect);
    const options = { asBytes, dialect, context, work, dropped, hide };
    if (!stream) return kept({ dropped, ...readWhole(await openAnswer(exchange), options) });
    const streamed = { ...exchange, noteSpent: (usage: Usage) => noteSpent(options, usage) };
    if (asBytes) {
      const usageAsked = work.request.stream_options?.include_usage === true;
      const reader = createByteReader({
        choices,
        usageAsked,
        promptTokens: work.promptTokens,
        maxEventBytes,
        chunkObject: 'chat.completion.chunk',
      });
      return { dropped, kind: 'byte-stream', stream: await openStream({ ...streamed, reader }) };
    }
    const framing = await createFraming(dialect.framing, maxEventBytes);
    const reader = createChunkReader({ dialect, context, framing, choices, promptTokens: work.promptTokens });
    return kept({ dropped, kind: 'chunk-stream', stream: await openStream({ ...streamed, reader }) });
  };
}

/** Returns the dialect in which an API takes chats with a model. */
function codecOf(api: UsableApi, model: string, known: KnownModel | undefined): CodecName {
  if (known?.operation === 'responses' && api.responses) return 'responses';
  return isVertexClaude(api.dialect, model, known) ? 'vertex-claude' : api.dialect;
}

interface WholeOptions {
  readonly asBytes: boolean;
  readonly dialect: Dialect;
  readonly context: DialectContext;
  readonly work: ChatWork;
  readonly dropped: readonly string[];
  readonly hide: HideSecrets;
}

function noteSpent({ work: { call, spending = call?.record }, dropped }: WholeOptions, usage: Usage): void {
  if (spending !== undefined) addSpent(spending, usage, false, dropped);
}

function readWhole(body: Buffer, options: WholeOptions) {
  const { asBytes, dialect, context, work, hide } = options;
  if (asBytes && isUsual(body)) {
    const found = findUsage(body);
    if (found !== undefined) {
      const { usage } = found;
      if (!isWholeJson(body, found)) {
        noteSpent(options, usage);
        throw upstreamError('its answer is not whole');
      }
      return { kind: 'bytes', body, measured: { usage, estimated: usage.estimated === true } } as const;
    }
  }
  const { completion, failure, usage: spent } = dialect.decodeResponse(parse(body), context);
  if (spent !== undefined) noteSpent(options, spent);
  if (failure !== undefined) throw failureToError(failure, hide);
  if (completion.usage !== undefined) {
    const { usage } = completion;
    return { kind: 'completion', completion, measured: { usage, estimated: usage.estimated === true } } as const;
  }
  const usage = estimatedUsage(work.promptTokens, tokensOfCharacters(answerLength(completion)));
  return { kind: 'completion', completion: { ...completion, usage }, measured: { usage, estimated: true } } as const;
}

/** Returns whether a response passes as bytes. Searches the bytes as text, because each search in bytes calls native code. */
function isUsual(body: Buffer): boolean {
  const text = body.toString('latin1');
  return text.includes('"choices"') && !UNUSUAL.test(text);
}

function answerLength({ choices }: ChatCompletion): number {
  let characters = 0;
  for (const { message } of choices) {
    characters += (message.content?.length ?? 0) + (message.reasoning_content?.length ?? 0);
    for (const call of message.tool_calls ?? []) characters += JSON.stringify(call).length;
  }
  return characters;
}

/** Throws if a parameter would be dropped and the call is strict. */
function refuseDropped({ strict }: ChatWork, [param]: readonly string[]): void {
  if (strict && param !== undefined) throw new AppError('UNSUPPORTED_PARAMETER', { param });
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw upstreamError('its answer is not JSON', error);
  }
}

interface DemoChat {
  readonly work: ChatWork;
  /** With its behaviour: `echo?delay=200`. */
  readonly model: string;
  readonly presence: CallerPresence;
  readonly clock: Clock;
}

type Chunks = readonly ChatChunk[];

/** Opens a chat with `demo/echo` or `demo/agent`: without a connection, but with the same delays and failures as an upstream. */
function openDemoChat({ work, model, presence, clock }: DemoChat) {
  const { delayMs, status, breakAfter } = readBehaviour(model);
  const isAgent = model.startsWith('agent');
  const answer = isAgent ? playAgent(work.request) : echo(work.request);
  const measured = { usage: answer.usage, estimated: false };

  async function open() {
    if (status !== 0) {
      throw failureToError(
        failureInBody(status, { error: { message: 'The demo model was told to refuse.' } }),
        (text) => text,
        {
          retryAfterMs: undefined,
        },
      );
    }
    if (work.request.stream === true) {
      await pauseFor(clock, presence, delayMs);
      return {
        kind: 'chunk-stream',
        stream: streamOf(work, answer, { delayMs, breakAfter }, clock, presence),
      } as const;
    }
    await pauseFor(clock, presence, delayMs * answer.pieces.length);
    if (breakAfter !== undefined) throw upstreamError('the demo model was told to break off');
    return { kind: 'completion', completion: completionOf(work, answer), measured } as const;
  }

  const lost = cacheMarkers(work.request).length > 0 ? ['cache_control'] : [];
  return { dropped: [...demoDrops(work.request, isAgent), ...lost], open };
}

function completionOf({ answerId, created }: ChatWork, answer: EchoAnswer): ChatCompletion {
  const { model, pieces, call, finishReason, usage } = answer;
  const called = call && { tool_calls: [{ id: `call-${answerId}`, type: 'function' as const, function: call }] };
  const message = { role: 'assistant' as const, content: pieces.join(''), ...called };
  return {
    id: answerId,
    object: 'chat.completion',
    created,
    model,
    choices: [{ index: 0, message, finish_reason: finishReason }],
    usage,
  };
}

function streamOf(
  { answerId, created }: ChatWork,
  { model, pieces, call, finishReason, usage }: EchoAnswer,
  { delayMs, breakAfter = Number.POSITIVE_INFINITY }: { delayMs: number; breakAfter: number | undefined },
  clock: Clock,
  presence: CallerPresence,
): OpenedStream<Chunks> {
  const head = { id: answerId, object: 'chat.completion.chunk', created, model } as const;
  const chunk = (delta: ChunkDelta, reason: string | null): ChatChunk => ({
    ...head,
    choices: [{ index: 0, delta, finish_reason: reason }],
  });
  let sink: StreamSink<Chunks> | undefined;
  let said = 0;
  let over = false;
  let paused = false;
  let stopTimer: (() => void) | undefined;

  /** Writes word by word, and waits only for a delay or a paused sink. */
  function speak(): void {
    stopTimer = undefined;
    while (!over && !paused && sink !== undefined) {
      if (said >= Math.min(pieces.length, breakAfter)) {
        finish(sink);
        return;
      }
      paused = !sink.write([chunk({ content: pieces[said] ?? '' }, null)]);
      said += 1;
      if (delayMs > 0 && said < pieces.length) {
        stopTimer = clock.after(delayMs, speak);
        return;
      }
    }
  }

  function calling(): Chunks {
    if (call === undefined) return [];
    const one = { index: 0, id: `call-${answerId}`, type: 'function' as const, function: call };
    return [chunk({ tool_calls: [one] }, null)];
  }

  function finish(to: StreamSink<Chunks>): void {
    over = true;
    if (said >= breakAfter) to.fail(upstreamError('the demo model was told to break off'));
    else to.end([...calling(), chunk({}, finishReason), { ...head, choices: [], usage }]);
  }

  return {
    attach(given) {
      presence.watch(() => {
        if (over || presence.reason === undefined) return;
        over = true;
        stopTimer?.();
        given.fail(presence.reason);
      });
      if (over) return;
      sink = given;
      paused = !given.write([chunk({ role: 'assistant', content: '' }, null)]);
      speak();
    },
    resume() {
      paused = false;
      if (stopTimer === undefined) speak();
    },
    abort() {
      over = true;
      stopTimer?.();
    },
    usage() {
      const partial = { ...usage, completion_tokens: said, total_tokens: usage.prompt_tokens + said };
      return { usage: partial, estimated: false };
    },
  };
}

/** Throws when the caller leaves before the time has passed. */
async function pauseFor(clock: Clock, presence: CallerPresence, ms: number): Promise<void> {
  if (ms === 0) return;
  const gone = new AbortController();
  presence.watch(() => gone.abort());
  await pause(clock, ms, gone.signal);
  if (gone.signal.aborted) throw presence.failure();
}
