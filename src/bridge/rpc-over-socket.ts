import type { Clock } from '../platform/clock/clock.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import { hybridEnvelope } from '../platform/json-rpc/envelope.ts';
import type { MessageChannel } from '../platform/json-rpc/message-channel.ts';
import type { Dispatch } from '../platform/json-rpc/method-call.ts';
import { createPeer } from '../platform/json-rpc/peer.ts';
import type { BridgeCaller } from './access.ts';
import { bridgeErrors } from './errors.ts';

export interface RpcOverSocket {
  accept(channel: MessageChannel, head: RequestHead, caller: BridgeCaller): void;
}

export interface RpcOverSocketOptions {
  readonly dispatch: Dispatch<BridgeCaller>;
  readonly clock: Clock;
  readonly callsPerConnection: number;
  makeRequestId(): string;
  onUnexpectedError(error: unknown, requestId: string): void;
}

/** `GET /acp`, upgraded: one peer for each socket. */
export function createRpcOverSocket(options: RpcOverSocketOptions): RpcOverSocket {
  const { dispatch, clock, makeRequestId, onUnexpectedError } = options;
  const limits = { callsInFlight: options.callsPerConnection };
  return {
    accept(channel, _head, caller) {
      createPeer({
        channel,
        caller,
        dispatch,
        clock,
        limits,
        makeRequestId,
        onUnexpectedError,
        envelope: hybridEnvelope,
        errors: bridgeErrors,
      });
    },
  };
}
