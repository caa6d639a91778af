import type { Clock } from '../../platform/clock/clock.ts';

/** Excludes a target for a while that fails for several callers. */
export interface TargetCircuit {
  /** Milliseconds until it may be tried; 0: now. */
  waitMs(): number;
  /** True for the one call that probes a target which has been out. */
  begin(): boolean;
  /** The target has begun to answer a probe: it is back, however long the answer takes. */
  answered(): void;
  /** `ignored`: the call ended in a way that shows nothing about the target. */
  end(result: 'ok' | 'failed' | 'ignored', caller: string, wasProbe: boolean): void;
  state(): CircuitState;
}

export type CircuitState = 'closed' | 'open' | 'probing';

interface TargetCircuitOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Called when the target goes out, and when it comes back. */
  onChange(state: 'open' | 'closed'): void;
}

interface Counts {
  calls: number;
  failed: number;
}

const MIN_CALLS = 10;
const MIN_CALLERS = 2;
const OUT_MS = 30_000;
/** The window of 30 s, in slots: counting a call costs an addition, and no memory for each call. */
const SLOT_MS = 5000;
const SLOTS = 6;
/** Callers beyond this number in one slot are counted as one. */
const MAX_CALLERS = 256;
const OTHERS = '';
/** How soon a retry makes sense while a probe is running. */
const PROBE_WAIT_MS = 1000;

/**
 * Opens when more than half of at least ten calls within 30 s fail, for at least two callers: without the caller that
 * fails most, more than half of the calls must fail as well. So no single caller takes a target from the others.
 */
export function createTargetCircuit({ clock, onChange }: TargetCircuitOptions): TargetCircuit {
  const slots = Array.from({ length: SLOTS }, () => ({ number: -1, callers: new Map<string, Counts>() }));
  let outUntil: number | undefined;
  let probingSince: number | undefined;

  function countsOf(caller: string, now: number): Counts {
    const number = Math.floor(now / SLOT_MS);
    const slot = slots[number % SLOTS];
    if (slot === undefined) throw new RangeError('there is no such slot');
    if (slot.number !== number) {
      slot.number = number;
      slot.callers.clear();
    }
    const name = slot.callers.has(caller) || slot.callers.size < MAX_CALLERS ? caller : OTHERS;
    let counts = slot.callers.get(name);
    if (counts === undefined) {
      counts = { calls: 0, failed: 0 };
      slot.callers.set(name, counts);
    }
    return counts;
  }

  function shouldOpen(now: number): boolean {
    const oldest = Math.floor(now / SLOT_MS) - SLOTS;
    const callers = new Map<string, Counts>();
    for (const slot of slots) {
      if (slot.number <= oldest) continue;
      for (const [caller, { calls, failed }] of slot.callers) {
        const sum = callers.get(caller) ?? { calls: 0, failed: 0 };
        callers.set(caller, { calls: sum.calls + calls, failed: sum.failed + failed });
      }
    }
    const failing = [...callers.values()].filter(({ failed }) => failed > 0);
    if (failing.length < MIN_CALLERS) return false;
    const mostFailed = Math.max(...failing.map(({ failed }) => failed));
    const all = { calls: 0, failed: 0 };
    for (const { calls, failed } of callers.values()) {
      all.calls += calls;
      all.failed += failed;
    }
    const fails = (calls: number, failed: number) => failed * 2 > calls;
    return (
      all.calls >= MIN_CALLS &&
      fails(all.calls, all.failed) &&
      // Several callers may share the most failures: it must hold without any one of them.
      failing.every(({ calls, failed }) => failed < mostFailed || fails(all.calls - calls, all.failed - failed))
    );
  }

  function goOut(now: number): void {
    for (const slot of slots) slot.callers.clear();
    outUntil = now + OUT_MS;
    probingSince = undefined;
    onChange('open');
  }

  function comeBack(): void {
    probingSince = undefined;
    if (outUntil === undefined) return;
    outUntil = undefined;
    onChange('closed');
  }

  return {
    waitMs() {
      if (outUntil === undefined) return 0;
      const now = clock.monotonic();
      // After this long, a probe without a response no longer holds up the next one.
      const isProbing = probingSince !== undefined && now - probingSince < OUT_MS;
      return Math.max(outUntil - now, isProbing ? PROBE_WAIT_MS : 0, 0);
    },
    begin() {
      if (outUntil === undefined || clock.monotonic() < outUntil) return false;
      probingSince = clock.monotonic();
      return true;
    },
    answered: comeBack,
    end(result, caller, wasProbe) {
      const now = clock.monotonic();
      if (wasProbe && outUntil !== undefined) {
        if (result === 'failed') goOut(now);
        else if (result === 'ok') comeBack();
        else probingSince = undefined;
        return;
      }
      // Calls that began before it went out show nothing new.
      if (result === 'ignored' || outUntil !== undefined) return;
      const counts = countsOf(caller, now);
      counts.calls += 1;
      if (result === 'ok') return;
      counts.failed += 1;
      if (shouldOpen(now)) goOut(now);
    },
    state: () => (outUntil === undefined ? 'closed' : probingSince === undefined ? 'open' : 'probing'),
  };
}
