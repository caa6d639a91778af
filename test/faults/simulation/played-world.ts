import type { Randomness } from '../../../src/platform/clock/randomness.ts';
import { createSortableIds, type MakeId } from '../../../src/platform/ids/sortable-id.ts';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { createFakeClock, type FakeClock } from '../../kit/fake-clock.ts';
import { createFakeRandomness } from '../../kit/fake-randomness.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { type Chance, createChance } from './chance.ts';

/** Everything that is not the program, from one seed: time, chance, and the log of what happened. */
export interface PlayedWorld<Event> {
  readonly clock: FakeClock;
  readonly chance: Chance;
  /** What the program takes for secure. */
  readonly randomness: Randomness;
  readonly makeId: MakeId;
  /** Takes the program's warnings and errors into the log of what happened. */
  readonly logger: Logger;
  note(event: Event): void;
  readonly events: readonly (Event | LoggedEvent)[];
}

/** A line that the program wrote. */
export interface LoggedEvent {
  readonly kind: 'logged';
  readonly at: number;
  readonly line: string;
}

/** `turns` of the event loop follow each timer, so that what it sets off comes to an end before the next. */
export function createPlayedWorld<Event>(seed: number, turns = 1): PlayedWorld<Event> {
  const clock = createFakeClock(undefined, async () => {
    for (let turn = 0; turn < turns; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  });
  const randomness = createFakeRandomness(seed);
  const events: (Event | LoggedEvent)[] = [];
  const take = (_fields: object, line: string) => void events.push({ kind: 'logged', at: clock.monotonic(), line });
  const logger: Logger = { ...silentLogger, warn: take, error: take, child: () => logger };
  return {
    clock,
    chance: createChance(seed),
    randomness,
    makeId: createSortableIds(clock, randomness),
    logger,
    note: (event) => void events.push(event),
    events,
  };
}
