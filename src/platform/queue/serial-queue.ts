import { AppError } from '../errors/app-error.ts';

/** Runs tasks one at a time, in the order they came. */
export interface SerialQueue {
  /** Throws OVERLOADED when too many wait, SHUTTING_DOWN once closed; otherwise the task's own outcome. */
  run<Result>(task: () => Promise<Result>): Promise<Result>;
  /** How many wait for their turn; the running one is not among them. */
  waiting(): number;
  /** Refuses those that wait and all that come later; resolves when the running one has ended. */
  close(): Promise<void>;
}

interface Waiting {
  start(): void;
  refuse(error: AppError): void;
}

export function createSerialQueue({ capacity }: { readonly capacity: number }): SerialQueue {
  const line: Waiting[] = [];
  let current: Promise<void> | undefined;
  let closed = false;

  const begin = <Result>(task: () => Promise<Result>): Promise<Result> => {
    const outcome = (async () => task())();
    current = outcome.then(next, next);
    return outcome;
  };

  function next(): void {
    current = undefined;
    line.shift()?.start();
  }

  return {
    async run(task) {
      if (closed) throw new AppError('SHUTTING_DOWN');
      if (current === undefined) return begin(task);
      if (line.length >= capacity) throw new AppError('OVERLOADED');
      return new Promise((resolve, reject) => {
        line.push({ start: () => resolve(begin(task)), refuse: reject });
      });
    },
    waiting: () => line.length,
    async close() {
      closed = true;
      for (const waiting of line.splice(0)) waiting.refuse(new AppError('SHUTTING_DOWN'));
      await current;
    },
  };
}
