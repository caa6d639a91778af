import type { JobCountRow, JobDeliveryRow, JobRow } from '../../../../src/bridge/storage/bridge-schema.ts';
import type { SeenJob, SubmitOperation } from '../../jobs/check-operations.ts';
import type { WallStep } from '../choices.ts';
import type { CallTimes, Ended, ProgramEvent } from '../played-program.ts';
import type { StoreManners } from '../played-store.ts';
import type { LoggedEvent } from '../played-world.ts';
import type { RunEvent } from './played-agent.ts';
import type { CallbackEvent } from './played-receivers.ts';

/** A job was asked for. Without an idempotency key, its prompt, which no other job has, is its key in the log. */
export interface SubmitEvent extends SubmitOperation {
  readonly prompt: string;
}

/** `session.cancel` or `session.close`, both of which end the jobs of a session. */
export interface CancelEvent extends CallTimes {
  readonly kind: 'cancel';
  readonly sessionId: string;
  readonly outcome: Ended<unknown>['outcome'];
}

export type JobsEvent =
  | ProgramEvent
  | LoggedEvent
  | RunEvent
  | CallbackEvent
  | WallStep
  | SubmitEvent
  | CancelEvent
  | { readonly kind: 'seen'; readonly job: SeenJob }
  | ({ readonly kind: 'set-up'; readonly maxRunning: number } & StoreManners);

/** What is stored at the end. */
export interface StoredJobs {
  readonly jobs: readonly JobRow[];
  readonly deliveries: readonly JobDeliveryRow[];
  readonly counts: readonly JobCountRow[];
  readonly openTurns: readonly { readonly id: string }[];
}
