import type { MessageChannel } from '../platform/json-rpc/message-channel.ts';
import type { BridgeCaller } from './access.ts';
import type { AskPermission } from './agents/agent-provider.ts';
import type { NotificationSink } from './sessions/update-hub.ts';

/** Of another bridge that shows open questions of the agent to its own people: the stream has them, too. */
export const QUESTIONS_HEADER = 'x-app-questions';

/** Who makes a call, and over what: a connection that stays, or one request. */
export interface BridgeClient {
  readonly caller: BridgeCaller;
  /** Undefined for a request whose answer is one document. */
  readonly sink: NotificationSink | undefined;
  /** True for a connection, which stays a client of a session when its call is answered. */
  readonly stays: boolean;
  readonly resume: ResumeRequest;
  /** Parameters that the method does not know are refused. */
  readonly isStrict?: boolean;
  /** Asks the person at the other end for permission: only an editor over standard streams can be asked. */
  readonly ask?: (sessionId: string, ...asked: Parameters<AskPermission>) => ReturnType<AskPermission>;
}

/** What a turn has to know of the client that asked for it. */
export type TurnClient = Pick<BridgeClient, 'sink' | 'stays' | 'resume'>;

/** What a repeated call says about the one it repeats. */
export interface ResumeRequest {
  /** From `Last-Event-ID`: the last update that the client has seen. Undefined when it was not sent, NaN when it is not a number. */
  readonly afterSeq: number | undefined;
  /** Empty when the header was not sent. */
  readonly idempotencyKey: string;
}

export const NO_RESUME: ResumeRequest = { afterSeq: undefined, idempotencyKey: '' };

/** Makes a sink of a channel; `isGone` tells whether the channel has ended. */
export function channelSink(
  channel: MessageChannel,
  isGone: () => boolean,
  sends: Pick<NotificationSink, 'update' | 'stored' | 'takesQuestions'>,
): NotificationSink {
  return {
    ...sends,
    isBehind: () => channel.isBehind?.() ?? false,
    async drained() {
      await channel.drained?.();
      return !isGone();
    },
    lost: () => channel.close(1011, 'the updates could not be read'),
  };
}
