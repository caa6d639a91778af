import type { SessionResult, TurnParams } from '../bridge/contract/session.ts';
import type { CallOptions } from './call-limits.ts';
import type { SessionUpdate } from './session-update.ts';

/** One way of talking to a bridge. */
export interface BridgeTransport {
  call(call: PlainCall, signal: AbortSignal): Promise<unknown>;
  /** Runs a turn to its end, over broken connections if need be. Every update comes once, in order. */
  turn(call: TurnCall, signal: AbortSignal): Promise<SessionResult>;
  /** Breaks off what is open. */
  close(): void;
}

export interface PlainCall {
  readonly method: string;
  readonly params: object;
  /** Whether to send it again is to ask for the same: only then it is, when the connection breaks. */
  readonly isRepeatable: boolean;
}

export interface TurnCall {
  readonly method: 'session.start' | 'session.message';
  readonly params: TurnParams;
  onUpdate(update: SessionUpdate): void;
}

/** Makes one call, within the limits of the client. */
export type CallBridge = <Result>(
  call: { readonly method: string; readonly params: object; readonly isRepeatable?: boolean },
  options: CallOptions | undefined,
) => Promise<Result>;
