import type { Stored } from './check-steps.ts';

/** Of things that are stored together or not at all: which of them are there. */
export function storedOf(...parts: readonly boolean[]): Stored {
  if (parts.every((isThere) => isThere)) return 'whole';
  return parts.some((isThere) => isThere) ? 'half' : 'none';
}
