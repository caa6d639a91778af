import type { Clock } from '../clock/clock.ts';
import type { Randomness } from '../clock/randomness.ts';
import type { MakeId } from '../ids/sortable-id.ts';
import type { Logger } from '../log/logger.ts';

/** Time, randomness, ids and log: what most parts need, and what tests replace. Options extend it. */
export interface Runtime {
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly makeId: MakeId;
  readonly logger: Logger;
}

/** The variables that the program was started with. */
export type Environment = Readonly<Record<string, string | undefined>>;
