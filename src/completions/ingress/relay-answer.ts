import type { FastifyReply } from 'fastify';
import type { Clock } from '../../platform/clock/clock.ts';
import { isExpected } from '../../platform/errors/error-table.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { type EventStream, openEventStream } from '../../platform/sse/sse-writer.ts';
import { completionsErrors, describeFailure } from '../errors.ts';
import type { ChatAnswer } from '../pipeline/chat-run.ts';
import type { StreamEncoder, StreamFailure } from './stream-encoder.ts';

export interface StreamRelay {
  readonly reply: FastifyReply;
  readonly clock: Clock;
  readonly headers: Readonly<Record<string, string>>;
  readonly encoder: StreamEncoder;
  readonly requestId: string;
  readonly logger: Logger;
}

/** Sends a streamed answer on as events of another dialect. However it ends, the caller is told how. */
export async function relayStream(answer: ChatAnswer & { kind: 'stream' }, relay: StreamRelay): Promise<void> {
  const { reply, clock, headers, encoder } = relay;
  const stream = openEventStream(reply, { clock, headers });
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

/** What nobody foresaw is logged, since the caller learns nothing of it. */
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
