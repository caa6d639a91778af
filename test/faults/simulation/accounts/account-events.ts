import type { WallStep } from '../choices.ts';
import type { CallTimes, Ended, ProgramEvent } from '../played-program.ts';
import type { StoreManners } from '../played-store.ts';
import type { LoggedEvent } from '../played-world.ts';

/** A call with what its client knows of it; the wall clock's times besides those of the monotonic one. */
interface AccountCall extends CallTimes {
  readonly wallStartedAt: number;
  readonly wallEndedAt: number;
  readonly outcome: Ended<unknown>['outcome'];
  readonly code?: string;
  readonly email: string;
}

/** Tokens stand in the log by the number in which they were first seen: `t1`, `r1`. */
interface GivenTokens {
  readonly token?: string;
  readonly refresh?: string;
}

export interface LoginEvent extends AccountCall, GivenTokens {
  readonly kind: 'login';
  readonly address: string;
  readonly password: string;
}

export interface RefreshEvent extends AccountCall, GivenTokens {
  readonly kind: 'refresh';
  readonly used: string;
}

/** By someone who is logged in with a session that had `by` as its last refresh token. */
export interface PasswordEvent extends AccountCall, GivenTokens {
  readonly kind: 'password';
  readonly by: string;
  readonly address: string;
  readonly from: string;
  readonly to: string;
}

/** Looks at a session, ends it, or ends all the others of its user; by the session token that came with `by`. */
export interface SessionEvent extends AccountCall {
  readonly kind: 'check' | 'end' | 'end-others';
  readonly by: string;
}

export interface RegisterEvent extends AccountCall {
  readonly kind: 'register';
  readonly password: string;
}

export type AccountEvent = LoginEvent | RefreshEvent | PasswordEvent | SessionEvent | RegisterEvent;

export type AccountsEvent =
  | ProgramEvent
  | LoggedEvent
  | WallStep
  | AccountEvent
  | ({ readonly kind: 'set-up' } & StoreManners);

/** What is stored at the end. */
export interface StoredPeople {
  readonly emails: readonly string[];
  /** Generations of sessions that have more than one refresh token. */
  readonly forks: readonly { readonly session_id: string; readonly generation: number }[];
}
