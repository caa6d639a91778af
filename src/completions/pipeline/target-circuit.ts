import type { Clock } from '../../platform/clock/clock.ts';

/** Keeps a target that fails again and again out of the way for a while (contract/completions 3). */
export interface TargetCircuit {
  /** Milliseconds until it may be tried; 0: now. */
  waitMs(): number;
  /** True for the one call that probes a target which has been out. */
  begin(): boolean;
  /** `ignored`: it ended in a way that says nothing about the target. */
  end(result: 'ok' | 'failed' | 'ignored', wasProbe: boolean): void;
  state(): CircuitState;
}

export type CircuitState = 'closed' | 'open' | 'probing';

export interface TargetCircuitOptions {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Told when the target goes out, and when it comes back. */
  onChange(state: 'open' | 'closed'): void;
}

const FAILURES = 5;
const WINDOW_MS = 30_000;
const OUT_MS = 30_000;
/** How soon it is worth asking again while a probe is under way. */
const PROBE_WAIT_MS = 1000;

export function createTargetCircuit({ clock, onChange }: TargetCircuitOptions): TargetCircuit {
  let failures: number[] = [];
  let outUntil: number | undefined;
  let probing = false;

  function goOut(now: number): void {
    failures = [];
    outUntil = now + OUT_MS;
    onChange('open');
  }

  function endProbe(result: 'ok' | 'failed' | 'ignored'): void {
    probing = false;
    if (result === 'failed') goOut(clock.monotonic());
    if (result !== 'ok') return;
    outUntil = undefined;
    onChange('closed');
  }

  return {
    waitMs() {
      if (outUntil === undefined) return 0;
      return Math.max(outUntil - clock.monotonic(), probing ? PROBE_WAIT_MS : 0, 0);
    },
    begin() {
      if (outUntil === undefined) return false;
      probing = true;
      return true;
    },
    end(result, wasProbe) {
      if (wasProbe) endProbe(result);
      // Calls that began before it went out say nothing new.
      if (wasProbe || result !== 'failed' || outUntil !== undefined) return;
      const now = clock.monotonic();
      failures = [...failures.filter((moment) => now - moment < WINDOW_MS), now];
      if (failures.length >= FAILURES) goOut(now);
    },
    state: () => (outUntil === undefined ? 'closed' : probing ? 'probing' : 'open'),
  };
}
