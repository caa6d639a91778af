import type { ProgramEvent } from './played-program.ts';
import type { StoreManners } from './played-store.ts';

/** A stop has half a minute for what is under way, and a little to store the rest. */
const MAX_STOP_MS = 32_000;
/** With one of these a stop is over, one way or another. */
const ENDS = ['stopped', 'kill', 'over'];

/** What must hold for every part of the program, whatever it does. */
export function checkProgram(events: readonly { readonly kind: string }[], { fails, isSlow }: StoreManners): string[] {
  const known = events as readonly ProgramEvent[];
  const wasAway = events.some(({ kind }) => kind === 'outage');
  // Nothing is known of how long: a process that is frozen while it stops takes so much longer.
  const wasFrozen = events.some(({ kind }) => kind === 'freeze');
  return known.flatMap((event, index) => {
    switch (event.kind) {
      case 'unexpected':
        return [`a fault of the program: ${event.error}`];
      case 'not-started':
        return fails === 0 && !wasAway ? [`it did not start: ${event.code}`] : [];
      case 'stop': {
        const end = known.slice(index).find(({ kind }) => ENDS.includes(kind));
        const ms = (end?.at ?? Number.POSITIVE_INFINITY) - event.at;
        const isLate = ms > MAX_STOP_MS && fails + isSlow === 0 && !wasAway && !wasFrozen;
        return isLate ? [`it took ${ms} ms to stop`] : [];
      }
      default:
        return [];
    }
  });
}

/** How often it was started, killed, and stopped in good order. */
export function programCounts(events: readonly { readonly kind: string }[]): Record<string, number> {
  const count = (wanted: string) => events.filter(({ kind }) => kind === wanted).length;
  const [freezes, outages] = [count('freeze'), count('outage')];
  return {
    starts: count('ready'),
    kills: count('kill'),
    'stops in good order': count('stopped'),
    ...(freezes > 0 && { freezes }),
    ...(outages > 0 && { outages }),
  };
}
