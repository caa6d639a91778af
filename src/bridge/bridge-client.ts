import type { MethodCall } from '../platform/json-rpc/method-table.ts';
import type { BridgeCaller } from './access.ts';
import type { AskPermission } from './agents/agent-provider.ts';
import type { ResumeRequest } from './sessions/turn-resumption.ts';
import type { ReceiverState, UpdateReceiver } from './sessions/update-hub.ts';

/** Who makes a call, and over what: a connection that stays, or one request. */
export type BridgeClient = SocketClient | RequestClient;

export interface SocketClient {
  readonly kind: 'socket';
  readonly caller: BridgeCaller;
  readonly receiver: UpdateReceiver;
  /** Asks the person at the other end for permission: only an editor over standard streams can be asked. */
  readonly ask?: (sessionId: string, ...asked: Parameters<AskPermission>) => ReturnType<AskPermission>;
}

export interface RequestClient {
  readonly kind: 'request';
  readonly caller: BridgeCaller;
  readonly resume: ResumeRequest;
  /** The stream of the answer. Undefined: the answer is one document. */
  readonly stream: ReceiverState | undefined;
  /** Parameters that the method does not know are refused. */
  readonly isStrict?: boolean;
  /** Called before the call is dispatched, for the log. */
  note?(call: MethodCall<BridgeClient>): void;
}
