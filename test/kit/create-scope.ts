import type { Scope } from './running-program.ts';

/** Collects what is to be closed, for what lasts as long as a measurement or a fault run; the newest is closed first. */
export function createScope(): Scope & { end(): Promise<void> } {
  const closing: (() => unknown)[] = [];
  return {
    after: (run) => void closing.push(run),
    async end() {
      for (const close of closing.reverse()) await close();
    },
  };
}
