import { TrestleError } from './trestle-error.ts';

/** How long a broken connection is tried again, and how often. */
export interface Patience {
  /** Something came: the time starts anew. */
  progressed(): void;
  /** Waits before the next attempt. Throws the error when it does not pass by itself, or has lasted too long. */
  failed(error: unknown): Promise<void>;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;

export function createPatience(limitMs: number, signal: AbortSignal): Patience {
  let since: number | undefined;
  let attempts = 0;
  return {
    progressed() {
      since = undefined;
      attempts = 0;
    },
    async failed(error) {
      if (!isPassing(error)) throw error;
      const now = performance.now();
      since ??= now;
      const pauseMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempts) * (0.5 + randomFraction() / 2);
      attempts += 1;
      if (now + pauseMs - since > limitMs) throw error;
      await sleep(pauseMs, signal);
    },
  };
}

/** The bridge is away for now, or so busy that it took nothing. */
function isPassing(error: unknown): boolean {
  return error instanceof TrestleError && (error.code === 'CONNECTION_LOST' || error.status === 503);
}

/** Many apps lose the same bridge at the same moment: they must not all come back at the same moment. */
function randomFraction(): number {
  return (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) / 2 ** 32;
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, milliseconds);
    signal.addEventListener('abort', stop, { once: true });
  });
}
