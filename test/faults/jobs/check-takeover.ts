import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';
import {
  type CheckedStore,
  checkOperations as checkJobs,
  type Operation as JobOperation,
  submitFigures,
} from './check-operations.ts';

/** What was done to several bridges on one store. */
export type Operation =
  | JobOperation
  /** A bridge died; the time is the wall clock's, as in the store. */
  | { readonly kind: 'kill'; readonly instance: string; readonly at: number };

/** A turn as it is stored at the end. */
export interface StoredTurn {
  readonly session: string;
  readonly instance: string;
  readonly createdAt: number;
  readonly endedAt: number | null;
}

export interface SharedStore extends CheckedStore {
  readonly turns: readonly StoredTurn[];
}

/** What a dead bridge was doing is settled by then. */
const TAKEOVER_MS = 15_000;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkTakeover(operations: readonly Operation[], store: SharedStore): string[] {
  return [
    ...checkJobs(operations.filter(isJobOperation), store),
    ...overlaps(store.turns).map((session) => `the job of session ${session} ran twice at the same time`),
    ...store.turns.flatMap(({ session, endedAt }) =>
      endedAt === null ? [`a turn of ${session} was never ended`] : [],
    ),
  ];
}

export function takeoverFigures(operations: readonly Operation[], store: SharedStore): FaultFigure[] {
  const kills = new Map(operations.flatMap((one) => (one.kind === 'kill' ? [[one.instance, one.at] as const] : [])));
  // Turns that were open when their bridge died: somebody else has ended them.
  const taken = store.turns.flatMap(({ instance, createdAt, endedAt }) => {
    const at = kills.get(instance);
    return at === undefined || endedAt === null || endedAt <= at || createdAt > at ? [] : [endedAt - at];
  });
  const sessions = Map.groupBy(store.turns, ({ session }) => session);
  return [
    workFigure('bridges killed, of three', kills.size),
    ...submitFigures(operations.filter(isJobOperation), store.jobs),
    countFigure('turns that died with their bridge', taken.length),
    longestFigure('settled by another bridge after at most', taken, TAKEOVER_MS),
    countFigure('jobs that were run again', [...sessions.values()].filter((turns) => turns.length > 1).length),
    neverFigure('jobs that ran twice at the same time', overlaps(store.turns).length),
  ];
}

/** Sessions with a turn that began before the one before it had ended. */
export function overlaps(turns: readonly StoredTurn[]): string[] {
  return [...Map.groupBy(turns, ({ session }) => session)].flatMap(([session, all]) => {
    const sorted = all.toSorted((one, other) => one.createdAt - other.createdAt);
    const isTwice = sorted.some(({ endedAt }, index) => {
      const next = sorted[index + 1];
      return next !== undefined && next.createdAt < (endedAt ?? Number.POSITIVE_INFINITY);
    });
    return isTwice ? [session] : [];
  });
}

function isJobOperation(operation: Operation): operation is JobOperation {
  return operation.kind !== 'kill';
}
