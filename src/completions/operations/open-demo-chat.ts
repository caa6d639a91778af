import type { Clock } from '../../platform/clock/clock.ts';
import { DEMO_MODEL, type EchoAnswer, echo, echoDrops, readBehaviour } from '../apis/demo-echo.ts';
import type { ChatChunk, ChatCompletion, ChunkDelta } from '../contract/chat.ts';
import { cacheMarkers } from '../dialects/conversation.ts';
import { failureInBody } from '../dialects/failure.ts';
import type { OpenedStream, StreamSink } from '../relay/open-stream.ts';
import type { CallerPresence } from '../routing/call-record.ts';
import { failureToError, upstreamError } from '../routing/upstream-failure.ts';
import type { ChatWork } from './encode-chat.ts';

export interface DemoChat {
  readonly work: ChatWork;
  /** With its behaviour: `echo?delay=200`. */
  readonly model: string;
  readonly presence: CallerPresence;
  readonly clock: Clock;
}

type Chunks = readonly ChatChunk[];

/** `demo/echo` in the place of an upstream: no connection, but the same ways to be slow and to fail. */
export function openDemoChat({ work, model, presence, clock }: DemoChat) {
  const { delayMs, status, breakAfter } = readBehaviour(model);
  const answer = echo(work.request);
  const measured = { usage: answer.usage, estimated: false };

  async function open() {
    if (status !== 0) {
      throw failureToError(failureInBody(status, { error: { message: 'The demo model was told to refuse.' } }), '', {
        retryAfterMs: undefined,
      });
    }
    if (work.request.stream === true) {
      await pause(clock, presence, delayMs);
      return {
        kind: 'chunk-stream',
        stream: streamOf(work, answer, { delayMs, breakAfter }, clock, presence),
      } as const;
    }
    await pause(clock, presence, delayMs * answer.pieces.length);
    if (breakAfter !== undefined) throw upstreamError('the demo model was told to break off');
    return { kind: 'completion', completion: completionOf(work, answer), measured } as const;
  }

  const lost = cacheMarkers(work.request).length > 0 ? ['cache_control'] : [];
  return { dropped: [...echoDrops(work.request), ...lost], open };
}

function completionOf({ answerId, created }: ChatWork, { pieces, finishReason, usage }: EchoAnswer): ChatCompletion {
  return {
    id: answerId,
    object: 'chat.completion',
    created,
    model: DEMO_MODEL,
    choices: [{ index: 0, message: { role: 'assistant', content: pieces.join('') }, finish_reason: finishReason }],
    usage,
  };
}

function streamOf(
  { answerId, created }: ChatWork,
  { pieces, finishReason, usage }: EchoAnswer,
  { delayMs, breakAfter = Number.POSITIVE_INFINITY }: { delayMs: number; breakAfter: number | undefined },
  clock: Clock,
  presence: CallerPresence,
): OpenedStream<Chunks> {
  const head = { id: answerId, object: 'chat.completion.chunk', created, model: DEMO_MODEL } as const;
  const chunk = (delta: ChunkDelta, reason: string | null): ChatChunk => ({
    ...head,
    choices: [{ index: 0, delta, finish_reason: reason }],
  });
  let sink: StreamSink<Chunks> | undefined;
  let said = 0;
  let over = false;
  let paused = false;
  let stopTimer: (() => void) | undefined;

  /** Word by word, without waiting where there is nothing to wait for. */
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

  function finish(to: StreamSink<Chunks>): void {
    over = true;
    if (said >= breakAfter) to.fail(upstreamError('the demo model was told to break off'));
    else to.end([chunk({}, finishReason), { ...head, choices: [], usage }]);
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

function pause(clock: Clock, presence: CallerPresence, ms: number): Promise<void> {
  if (ms === 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const stop = clock.after(ms, resolve);
    presence.watch(() => {
      stop();
      reject(presence.failure());
    });
  });
}
