/** Time as a parameter: wall time for records, monotonic time for durations and deadlines, and timers. */
export interface Clock {
  /** Milliseconds since 1970, as the wall clock has it. May jump. */
  now(): number;
  /** Milliseconds since some fixed moment. Never jumps, never goes back. */
  monotonic(): number;
  /** Runs `action` once after `ms` milliseconds; the returned function cancels it. Does not keep the process alive. */
  after(ms: number, action: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, action) {
    const timer = setTimeout(action, ms).unref();
    return () => clearTimeout(timer);
  },
};
