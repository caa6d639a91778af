import type { Operation, StoredSessions } from '../../sessions/check-operations.ts';
import type { CallTimes, Ended, ProgramEvent } from '../played-program.ts';
import type { StoreManners } from '../played-store.ts';
import type { LoggedEvent } from '../played-world.ts';
import type { RunEvent } from './played-agent.ts';

/** What clients of sessions did and saw, in the words of the suite that kills the real program. */
type ClientEvent =
  | Extract<Operation, { readonly kind: 'connected' | 'update' }>
  | (Extract<Operation, { readonly kind: 'turn' | 'repeat' }> & CallTimes);

/** `session.cancel` and `session.close`. */
export interface StopEvent extends CallTimes {
  readonly kind: 'cancel' | 'close';
  readonly session: string;
  readonly outcome: Ended<unknown>['outcome'];
}

/** Of several instances: the one that it is about. */
interface OnInstance {
  readonly home?: string;
}

export type SessionsEvent =
  | (ProgramEvent & OnInstance)
  | LoggedEvent
  | (RunEvent & OnInstance)
  | ClientEvent
  | StopEvent
  /** The database is away for all instances. */
  | { readonly kind: 'outage'; readonly at: number }
  | ({ readonly kind: 'set-up' } & StoreManners);

/** What there is at the end. */
export interface SessionsAtTheEnd extends StoredSessions {
  /** Calls that were never answered, though the bridge lived. */
  readonly unanswered: number;
}
