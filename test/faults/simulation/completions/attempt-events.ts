import type {
  SpendingRow,
  UsageQuarterRow,
  UsageRecordRow,
} from '../../../../src/completions/storage/completions-schema.ts';
import type { CallTimes, Ended, ProgramEvent } from '../played-program.ts';
import type { StoreManners } from '../played-store.ts';
import type { LoggedEvent } from '../played-world.ts';

/** How an upstream behaves towards one request. */
export type UpstreamPart =
  | 'answers'
  | 'is unreachable'
  | 'says nothing'
  /** It begins, and then comes nothing more. */
  | 'stalls'
  /** It begins, and then the connection breaks. */
  | 'breaks off'
  | 'ends too early'
  | 'talks nonsense'
  | UpstreamStatus;

export type UpstreamStatus = 400 | 401 | 404 | 409 | 413 | 429 | 500 | 503 | 504;

/** A request that arrived at an upstream. */
export interface AskedEvent {
  readonly kind: 'asked';
  readonly at: number;
  readonly ask: number;
  readonly call: string;
  readonly target: string;
  readonly part: UpstreamPart;
  /** All tries of one call bear the same. */
  readonly idempotencyKey: string;
}

/** All of an answer has left the upstream. */
export interface ToldEvent {
  readonly kind: 'told';
  readonly at: number;
  readonly ask: number;
  readonly text: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** What the board of targets said, and was told. */
export interface TryEvent {
  readonly kind: 'try';
  readonly at: number;
  readonly target: string;
  /** `out`: the target may not be asked now. */
  readonly mark: 'begins' | 'out' | 'answered' | 'ok' | 'failed' | 'ignored';
  readonly caller: string;
  /** Nothing else could answer the call. */
  readonly isSole: boolean;
  /** Pairs the beginning with the end. */
  readonly lease: number;
}

/** A call as its caller knows it. `part`: a stream that broke after it had begun. */
export interface CallEvent extends CallTimes {
  readonly kind: 'call';
  readonly call: string;
  readonly model: string;
  readonly keyName: string;
  readonly outcome: Ended<unknown>['outcome'] | 'part' | 'left';
  readonly code?: string;
  readonly text?: string;
  readonly target?: string;
  readonly attempts?: number;
  readonly estimatedUsd: number;
}

/** An alias as it is configured. */
export interface PlayedAlias {
  readonly name: string;
  readonly targets: readonly { readonly model: string; readonly weight: number; readonly priority: number }[];
  readonly fallbacks: readonly string[];
  readonly retries: number;
  readonly totalMs: number;
}

export interface AttemptsSetUp extends StoreManners {
  readonly kind: 'set-up';
  readonly aliases: readonly PlayedAlias[];
  /** What the key with a budget may spend. */
  readonly budgetUsd: number;
}

export type AttemptsEvent =
  | ProgramEvent
  | LoggedEvent
  | AskedEvent
  | ToldEvent
  | TryEvent
  | CallEvent
  | AttemptsSetUp
  | { readonly kind: 'mood'; readonly at: number; readonly target: string; readonly mood: string };

/** What is stored at the end. */
export interface StoredUsage {
  readonly records: readonly UsageRecordRow[];
  readonly totals: readonly UsageQuarterRow[];
  readonly spending: readonly SpendingRow[];
  readonly keys: readonly { readonly id: string; readonly name: string }[];
}
