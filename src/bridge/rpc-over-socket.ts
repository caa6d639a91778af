import type { Clock } from '../platform/clock/clock.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import { hybridEnvelope } from '../platform/json-rpc/envelope.ts';
import type { MessageChannel } from '../platform/json-rpc/message-channel.ts';
import type { Dispatch } from '../platform/json-rpc/method-table.ts';
import { createPeer } from '../platform/json-rpc/peer.ts';
import type { BridgeCaller } from './access.ts';
import { type BridgeClient, channelSink, NO_RESUME } from './bridge-client.ts';
import { bridgeErrors } from './errors.ts';
import type { SessionFollowing } from './forwarding/update-relay.ts';
import type { NotificationSink } from './sessions/update-hub.ts';

export interface RpcOverSocket {
  accept(channel: MessageChannel, head: Pick<RequestHead, 'query' | 'requestId'>, caller: BridgeCaller): void;
}

export interface RpcOverSocketOptions {
  readonly dispatch: Dispatch<BridgeClient>;
  readonly sessions: SessionFollowing;
  readonly clock: Clock;
  readonly callsPerConnection: number;
  makeRequestId(): string;
  onUnexpectedError(error: unknown, requestId: string): void;
}

/** `GET /acp`, upgraded: one peer for each socket. With `?sessionId=` it is a client of that session from the start. */
export function createRpcOverSocket(options: RpcOverSocketOptions): RpcOverSocket {
  const { dispatch, sessions, clock, makeRequestId, onUnexpectedError } = options;
  const limits = { callsInFlight: options.callsPerConnection };

  /** A session that does not exist has no updates until it starts; the socket serves calls anyway. */
  function followSession(
    channel: MessageChannel,
    head: Pick<RequestHead, 'query' | 'requestId'>,
    caller: BridgeCaller,
    sink: NotificationSink,
  ): void {
    const sessionId = head.query.get('sessionId') ?? '';
    if (sessionId === '') return;
    const afterSeq = readSeq(head.query.get('afterSeq'));
    if (Number.isNaN(afterSeq)) {
      channel.close(1008, 'afterSeq must be a whole number');
      return;
    }
    const lost = () => channel.close(1013, 'the node of the session cannot be followed any more');
    sessions.follow(caller, sessionId, afterSeq, sink, lost).catch((error: unknown) => {
      onUnexpectedError(error, head.requestId);
      channel.close(1011, 'the updates could not be read');
    });
  }

  return {
    accept(channel, head, caller) {
      let isGone = false;
      const sink = channelSink(channel, () => isGone, {
        update: (params) => peer.notify('session.update', params),
        // A node that passes them on to its second surface.
        takesQuestions: head.query.get('questions') === 'true',
      });
      const peer = createPeer<BridgeClient>({
        channel,
        caller: { caller, sink, stays: true, resume: NO_RESUME },
        dispatch,
        clock,
        limits,
        makeRequestId,
        onUnexpectedError,
        envelope: hybridEnvelope,
        errors: bridgeErrors,
      });
      void peer.closed.then(() => {
        isGone = true;
        sessions.forget(sink);
      });
      followSession(channel, head, caller, sink);
    },
  };
}

/** Undefined when none was given, NaN when it is not the number of an update. */
function readSeq(text: string | null): number | undefined {
  if (text === null) return undefined;
  return /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
}
