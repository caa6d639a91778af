import type { Clock } from '../../../src/platform/clock/clock.ts';

/** A process of the program. When it has died, nothing that it left behind happens any more. */
export interface PlayedProcess {
  /** Its timers die with it. Its monotonic clock begins when it does. */
  readonly clock: Clock;
  isAlive(): boolean;
  /** The same action, which does nothing any more once the process has died. */
  whileAlive<Given extends unknown[]>(action: (...given: Given) => void): (...given: Given) => void;
  /** As kill -9 does. */
  die(): void;
  /** As SIGSTOP does: timers that fall due, and what arrives, wait for `thaw`. Time passes. */
  freeze(): void;
  thaw(): void;
  isFrozen(): boolean;
  /** Resolves when the process can take something that arrives: now, unless it is frozen; never when it has died. */
  awake(): Promise<void>;
  /** Calls when the process has died. */
  onDeath(listener: () => void): void;
}

/** `aheadMs`: how far the wall clock of its machine is ahead. */
export function startPlayedProcess(outside: Clock, aheadMs = 0): PlayedProcess {
  const bornAt = outside.monotonic();
  const timers = new Set<() => void>();
  const mourners: (() => void)[] = [];
  let isAlive = true;
  let frozen: { readonly thawed: Promise<void>; readonly thaw: () => void } | undefined;

  async function awake(): Promise<void> {
    while (frozen !== undefined) await frozen.thawed;
    if (!isAlive) await new Promise<never>(() => undefined);
  }

  return {
    clock: {
      now: () => outside.now() + aheadMs,
      monotonic: () => outside.monotonic() - bornAt,
      after(ms, action) {
        if (!isAlive) return () => undefined;
        const cancel = outside.after(ms, () => {
          if (frozen === undefined) {
            timers.delete(cancel);
            action();
            return;
          }
          // It runs when the process goes on, unless it is cancelled before.
          void awake().then(() => {
            if (timers.delete(cancel)) action();
          });
        });
        timers.add(cancel);
        return () => {
          timers.delete(cancel);
          cancel();
        };
      },
    },
    isAlive: () => isAlive,
    whileAlive:
      (action) =>
      (...given) => {
        if (isAlive) action(...given);
      },
    die() {
      isAlive = false;
      for (const cancel of timers) cancel();
      timers.clear();
      for (const mourner of mourners) mourner();
    },
    freeze() {
      const { promise, resolve } = Promise.withResolvers<void>();
      frozen ??= { thawed: promise, thaw: resolve };
    },
    thaw() {
      const { thaw } = frozen ?? {};
      frozen = undefined;
      thaw?.();
    },
    isFrozen: () => frozen !== undefined,
    awake,
    onDeath: (listener) => void mourners.push(listener),
  };
}
