import type { SessionUpdate } from '../bridge/contract/session-update.ts';
import { clientError } from './trestle-error.ts';

/** Updates between the connection that brings them and the app that reads them. */
interface UpdateQueue {
  push(update: SessionUpdate): void;
  /** No more will come; with an error, reading ends with it. */
  end(error?: unknown): void;
  /** How many wait. */
  size(): number;
  /** For one reader. To stop reading is to want no more. */
  read(): AsyncIterableIterator<SessionUpdate>;
}

/** Holds at most `limit` updates. Later ones are dropped, and the reader gets an error at that place. */
export function createUpdateQueue(limit: number): UpdateQueue {
  let waiting: SessionUpdate[] = [];
  /** How many at the beginning of `waiting` are read. */
  let taken = 0;
  let ended: { readonly error?: unknown } | undefined;
  let isUnwanted = false;
  let wake: (() => void) | undefined;

  function take(): SessionUpdate | undefined {
    const update = waiting[taken];
    taken += 1;
    if (taken >= waiting.length) {
      waiting = [];
      taken = 0;
    } else if (taken >= 1024) {
      waiting = waiting.slice(taken);
      taken = 0;
    }
    return update;
  }

  function end(error?: unknown): void {
    ended ??= error === undefined ? {} : { error };
    wake?.();
  }

  async function next(): Promise<IteratorResult<SessionUpdate>> {
    for (;;) {
      if (isUnwanted) return { done: true, value: undefined };
      const update = take();
      if (update !== undefined) return { done: false, value: update };
      if (ended !== undefined) {
        isUnwanted = true;
        if ('error' in ended) throw ended.error;
        continue;
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  return {
    push(update) {
      if (isUnwanted || ended !== undefined) return;
      if (waiting.length - taken < limit) {
        waiting.push(update);
        wake?.();
        return;
      }
      const afterSeq = waiting.at(-1)?.seq ?? update.seq - 1;
      const message = `More than ${limit} updates waited to be read; follow the session from ${afterSeq} on.`;
      end(clientError('UPDATES_OVERFLOWED', message, { data: { afterSeq } }));
    },
    end,
    size: () => waiting.length - taken,
    read() {
      const reader: AsyncIterableIterator<SessionUpdate> = {
        next,
        async return() {
          isUnwanted = true;
          waiting = [];
          taken = 0;
          wake?.();
          return { done: true, value: undefined };
        },
        [Symbol.asyncIterator]: () => reader,
      };
      return reader;
    },
  };
}
