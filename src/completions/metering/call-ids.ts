import type { Clock } from '../../platform/clock/clock.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';

/**
 * Ids that sort by the time they were made. Those of one second share their start and are counted: to draw
 * randomness for each took about as much time as to parse the request.
 */
export function createCallIds(prefix: string, makeId: MakeId, clock: Pick<Clock, 'now'>): () => string {
  let second = -1;
  let start = '';
  let count = 0;
  return () => {
    const now = Math.floor(clock.now() / 1000);
    if (now !== second) {
      second = now;
      start = makeId(prefix);
      count = 0;
    }
    count += 1;
    return `${start}-${count.toString(36).padStart(DIGITS, '0')}`;
  };
}

/** More than a million a second. */
const DIGITS = 4;
