import type { BridgeCaller } from './access.ts';
import type { ResumeRequest } from './sessions/replay.ts';
import type { UpdateReceiver } from './sessions/update-hub.ts';

/** Who makes a call, and over what: a connection that stays, or one request. */
export type BridgeClient = SocketClient | RequestClient;

export interface SocketClient {
  readonly kind: 'socket';
  readonly caller: BridgeCaller;
  readonly receiver: UpdateReceiver;
}

export interface RequestClient {
  readonly kind: 'request';
  readonly caller: BridgeCaller;
  readonly resume: ResumeRequest;
  /** Resolves when the stream of the answer can take more, with false when it is gone. Undefined: it is no stream. */
  readonly drained: (() => Promise<boolean>) | undefined;
}
