import { availableParallelism, loadavg } from 'node:os';

/**
 * How long `until` and `inTime` wait unless it is said, before it is stretched: a program may take half a minute to start on a
 * machine with more to do than it can. Mutation runs set less, because waiting in vain is how many mutants are noticed.
 */
export const PATIENCE_MS = Number(process.env.TEST_PATIENCE_MS ?? 30_000);

/** Counts the processor time of this process in milliseconds: unlike the clock, it does not depend on what else the machine does. */
export function startProcessorTime(): () => number {
  const began = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(began);
    return (user + system) / 1000;
  };
}

/**
 * Stretches a limit on elapsed time by the work that waits for each core, never below the limit itself: on a free machine the
 * limit is exact, and on one that is busy with other things the test still tells a slow program from a slow machine.
 */
export function timeLimit(ms: number): number {
  return ms * Math.max(1, (loadavg()[0] ?? 0) / availableParallelism());
}
