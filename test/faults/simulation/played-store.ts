import { type Clock, pause } from '../../../src/platform/clock/clock.ts';
import type { Database, Transaction } from '../../../src/platform/database/database.ts';
import { createQueryBuilder, isSelect } from '../../../src/platform/database/kysely-dialect.ts';
import type { DatabaseDefinition } from '../../../src/platform/database/migrations.ts';
import { withRefusals } from '../../../src/platform/database/open-database.ts';
import { compileStatement, type Runnable, type StatementResult } from '../../../src/platform/database/statement.ts';
import { AppError, type ErrorCode } from '../../../src/platform/errors/app-error.ts';
import type { Chance } from './chance.ts';
import { emptyMemoryFile } from './memory-file.ts';
import type { PlayedProcess } from './played-process.ts';

/** How the store behaves: the chances of one call. */
export interface StoreManners {
  readonly fails: number;
  readonly isSlow: number;
  /** Nothing is done, for anybody. */
  readonly isAway?: boolean;
}

/** A database that outlives the processes which use it. */
export interface PlayedStore<Schema> {
  openFor(process: PlayedProcess): Database<Schema>;
  behave(manners: StoreManners): void;
  /** What is stored, at once and without a failure. */
  look<Row>(sql: string): Row[];
}

/** What becomes of one call. */
interface Fate {
  readonly beforeMs: number;
  readonly afterMs: number;
  /** Nothing was done; or all was, and the answer is lost. */
  readonly failure: 'before' | 'after' | undefined;
  readonly code: ErrorCode;
  /** The statements have left the process: they are done though it is frozen, and it gets the answer later. */
  readonly isSent: boolean;
}

const GOOD: StoreManners = { fails: 0, isSlow: 0 };
const SLOWEST_MS = 3000;
const USUAL_MS = 12;
/** Of a write that was not done. After one that was, only its answer can be lost. */
const REFUSALS = ['STORAGE_UNAVAILABLE', 'STORAGE_FULL', 'OVERLOADED'] as const;

/** Whether an error may come from the store, so that every call that needs the store may fail with it. */
export function isOfStore(code: string | null | undefined): boolean {
  return REFUSALS.some((refusal) => refusal === code);
}

/** A new one each time: one for all would keep everything that ever waited for it. */
const never = () => new Promise<never>(() => undefined);

/** `shared`: the clock of a database that several processes share, as only PostgreSQL can be. */
export function createPlayedStore<Schema>(
  definition: DatabaseDefinition,
  chance: Chance,
  shared?: Clock,
): PlayedStore<Schema> {
  const file = emptyMemoryFile(definition);
  if (shared !== undefined) file.tellTime(shared.now);
  let manners = GOOD;

  function chooseFate(isWrite: boolean): Fate {
    const takes = (): number => {
      if (chance.happens(manners.isSlow)) return chance.between(0, SLOWEST_MS);
      return chance.happens(0.5) ? 0 : chance.between(1, USUAL_MS);
    };
    if (manners.isAway === true)
      return { beforeMs: 0, afterMs: 0, failure: 'before', code: 'STORAGE_UNAVAILABLE', isSent: false };
    const beforeMs = takes();
    const afterMs = isWrite && chance.happens(0.3) ? takes() : 0;
    const isSent = shared !== undefined && chance.happens(0.5);
    const times = { beforeMs, afterMs, isSent };
    if (!chance.happens(manners.fails)) return { ...times, failure: undefined, code: 'INTERNAL_ERROR' };
    const isDone = isWrite && chance.happens(0.5);
    const code = isDone || !isWrite ? 'STORAGE_UNAVAILABLE' : chance.pick(REFUSALS);
    return { ...times, failure: isDone ? 'after' : 'before', code };
  }

  /** Does the work when its time has come, unless its process has died by then. */
  /** Set while a transaction is open: everyone else waits for its end, as for the one writer of a file. */
  let open: Promise<void> | undefined;

  async function transact<Result>(work: (transaction: Transaction<Schema>) => Promise<Result>): Promise<Result> {
    while (open !== undefined) await open;
    const { promise, resolve } = Promise.withResolvers<void>();
    open = promise;
    const run = async <Row>(statement: Runnable<Row>) => file.execute(statement) as StatementResult<Row>;
    try {
      await run({ sql: 'BEGIN', parameters: [] });
      const result = await work({ query: createQueryBuilder<Schema>('sqlite', run), run });
      await run({ sql: 'COMMIT', parameters: [] });
      return result;
    } catch (error) {
      await run({ sql: 'ROLLBACK', parameters: [] });
      throw error;
    } finally {
      open = undefined;
      resolve();
    }
  }

  async function play<Result>(process: PlayedProcess, fate: Fate, work: () => Result): Promise<Result> {
    const { clock, isAlive } = process;
    if (fate.beforeMs > 0) await pause(fate.isSent ? (shared ?? clock) : clock, fate.beforeMs);
    if (!isAlive()) return never();
    if (!fate.isSent && process.isFrozen()) await process.awake();
    if (fate.failure === 'before') {
      if (process.isFrozen()) await process.awake();
      throw new AppError(fate.code);
    }
    while (open !== undefined) await open;
    const result = work();
    if (fate.afterMs > 0) await pause(clock, fate.afterMs);
    if (process.isFrozen()) await process.awake();
    if (fate.failure === 'after') throw new AppError(fate.code);
    return result;
  }

  function openFor(process: PlayedProcess): Database<Schema> {
    /** Writes of a process are stored in the order in which they came. */
    let line: Promise<unknown> = Promise.resolve();
    const write = (statements: readonly Runnable[]): Promise<StatementResult[]> => {
      const fate = chooseFate(true);
      const written = line.then(() => play(process, fate, () => file.executeAll(statements)));
      line = written.catch(() => undefined);
      return written;
    };
    const read = <Row>(statement: Runnable<Row>, fate: Fate): Promise<Row[]> =>
      play(process, fate, () => file.execute(statement).rows as Row[]);
    const query = createQueryBuilder<Schema>('sqlite', async (compiled) => {
      if (!isSelect(compiled)) return (await write([compiled]))[0] ?? { rows: [], changes: 0 };
      const rows = await read(compiled, chooseFate(false));
      return { rows, changes: rows.length };
    });
    const notPlayed = () => Promise.reject(new Error('this is not played'));
    return {
      name: definition.name,
      engine: shared === undefined ? 'sqlite' : 'postgres',
      query,
      statement: (build) => compileStatement(query, build),
      // In the program it is a read in its own thread, which takes no time.
      readKeyed: (statement) => read(statement, { ...chooseFate(false), beforeMs: 0 }),
      read: (statement) => read(statement, chooseFate(false)),
      write: withRefusals(write),
      async transaction(work) {
        const fate = chooseFate(true);
        const done = line.then(async () => {
          // The way there and back may fail; the transaction itself is whole or undone.
          await play(
            process,
            { ...fate, afterMs: 0, failure: fate.failure === 'before' ? 'before' : undefined },
            () => undefined,
          );
          const result = await transact(work);
          return play(
            process,
            { ...fate, beforeMs: 0, failure: fate.failure === 'after' ? 'after' : undefined },
            () => result,
          );
        });
        line = done.catch(() => undefined);
        return done;
      },
      snapshot: notPlayed,
      backupTo: notPlayed,
      check: async () => undefined,
      statistics: () => ({ batches: 0, commits: 0, reads: 0, queued: 0 }),
      emptyLog: async () => undefined,
      close: async () => undefined,
    };
  }

  return {
    openFor,
    behave(next) {
      manners = next;
    },
    look: file.look,
  };
}
