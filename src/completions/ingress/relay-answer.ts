import type { FastifyReply } from 'fastify';
import { isExpected } from '../../platform/errors/error-table.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { type EventStream, openEventStream, type StreamEvent } from '../../platform/sse/sse-writer.ts';
import type { ChatChunk } from '../contract/chat.ts';
import { completionsErrors, describeFailure } from '../errors.ts';
import type { ChatAnswer } from '../operations/run-chat.ts';

interface StreamRelay extends Pick<Runtime, 'clock' | 'logger'> {
  readonly reply: FastifyReply;
  /** The headers of the response, with those of the call. */
  headers(own: ChatAnswer['headers']): Readonly<Record<string, string>>;
  readonly encoder: StreamEncoder;
  readonly requestId: string;
}

const SILENCE_MS = 15_000;

/**
 * Sends a streamed answer on as events of another dialect. Every end, good or bad, reaches the caller as an event. While the upstream is
 * silent the caller gets the headers and comments, and a failure comes as an event; before that it is thrown.
 */
export async function relayStream(running: Promise<ChatAnswer>, relay: StreamRelay): Promise<void> {
  const { reply, clock, headers, encoder } = relay;
  let stream: EventStream | undefined;
  const stopWaiting = clock.after(SILENCE_MS, () => {
    if (reply.raw.destroyed) return;
    stream = openEventStream(reply, { clock, headers: headers({}) });
    stream.comment('keep-alive');
  });
  let answer: ChatAnswer;
  try {
    answer = await running;
  } catch (error) {
    if (stream === undefined) throw error;
    await send(stream, encoder.fail(told(error, relay)));
    stream.end();
    return;
  } finally {
    stopWaiting();
  }
  if (answer.kind !== 'stream') throw new Error('a stream was asked for, and came as a whole answer');
  stream ??= openEventStream(reply, { clock, headers: headers(answer.headers) });
  await relayChunks(answer, stream, relay);
}

async function relayChunks(
  answer: ChatAnswer & { kind: 'stream' },
  stream: EventStream,
  relay: StreamRelay,
): Promise<void> {
  const { encoder } = relay;
  try {
    await send(stream, encoder.begin());
    for await (const chunk of answer.chunks) {
      if (stream.closed) return;
      await send(stream, encoder.read(chunk));
    }
    await send(stream, encoder.finish());
  } catch (error) {
    await send(stream, encoder.fail(told(error, relay)));
  } finally {
    stream.end();
  }
}

/** Logs an unexpected error, because the caller is not shown it. */
function told(error: unknown, { requestId, logger }: StreamRelay): StreamFailure {
  if (!isExpected(completionsErrors, error)) logger.error({ err: error, requestId }, 'a stream failed unexpectedly');
  const { status, body } = describeFailure(error);
  return { status, code: body.error.code ?? 'internal_error', message: body.error.message };
}

/** A slow reader holds up the upstream, not our memory. */
async function send(stream: EventStream, events: ReturnType<StreamEncoder['read']>): Promise<void> {
  let behind = false;
  for (const event of events) behind = !stream.send(event) || behind;
  if (behind) await stream.whenWritable();
}

/** Aborts when the caller goes away before its answer is complete. */
export function abortWhenGone(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  const response = reply.raw;
  const gone = () => {
    if (!response.writableFinished) controller.abort();
  };
  if (response.destroyed) gone();
  else response.once('close', gone);
  return controller.signal;
}

/** A failure after an answer had begun, as callers see it. */
interface StreamFailure {
  readonly status: number;
  /** In lower case: `upstream_error`. */
  readonly code: string;
  readonly message: string;
}

/** Turns the chunks of one streamed answer into the events of another dialect. */
export interface StreamEncoder {
  begin(): readonly StreamEvent[];
  read(chunk: ChatChunk): readonly StreamEvent[];
  /** After the last chunk. */
  finish(): readonly StreamEvent[];
  /** Instead of `finish`: the dialect's own way to say that the answer is not whole. */
  fail(failure: StreamFailure): readonly StreamEvent[];
}

/** An event whose name is in its data as well, as both dialects have it. */
export function namedEvent(type: string, data: object): StreamEvent {
  return { event: type, data: JSON.stringify({ type, ...data }) };
}
