import { getCompileCacheDir } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, extname } from 'node:path';
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { AppError } from '../../errors/app-error.ts';
import type { SqlValue } from '../statement.ts';
import { ANSWERS, ANY_CHANGES, CALLS, type UnitOutcome } from './commit-round.ts';
import { fromFailure, type SqliteMode, type SqliteResult } from './sqlite-connection.ts';
import type { FromWorker, ToWorker, WorkerStart } from './sqlite-worker.ts';

/** A statement whose values have been checked. */
export interface BoundStatement {
  readonly sql: string;
  readonly textId: number | undefined;
  readonly expectedChanges: number | undefined;
  readonly values: readonly SqlValue[];
}

/** The near side of a thread that holds SQLite connections, those of several databases. */
interface SqliteThread {
  open(file: string, mode: SqliteMode): Promise<number>;
  run(connection: number, statement: BoundStatement): Promise<SqliteResult>;
  /** Stores the statements together with whatever else is submitted until then. Those of one tick travel together. */
  submit(connection: number, unit: readonly BoundStatement[]): Promise<readonly SqliteResult[]>;
  ping(): Promise<void>;
  closeConnection(connection: number): Promise<void>;
  /** Commits made for the units of a connection. */
  commits(connection: number): number;
  isAlive(): boolean;
  end(): Promise<void>;
}

/**
 * When commits are faster than this, waking a sleeping event loop would take a good part of their time. Then the result
 * for a lone caller is looked for, a moment in each turn of the event loop. On one core the writer could not run at the same time.
 */
const QUICK_MS = availableParallelism() > 1 ? 0.25 : 0;
const LOOK_MS = 0.02;

interface Waiting {
  resolve(results: readonly SqliteResult[]): void;
  reject(error: Error): void;
}

function startSqliteThread(): SqliteThread {
  const { port1: port, port2 } = new MessageChannel();
  const signal = new Int32Array(new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT));
  const start: WorkerStart = { port: port2, signal };
  const file = new URL(`./sqlite-worker${extname(import.meta.url)}`, import.meta.url);
  const worker = new Worker(file, {
    workerData: start,
    transferList: [port2],
    env: threadEnvironment(),
    name: 'sqlite',
  });
  const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  /** By the number of their call. Numbers are used again: a map that every call joins and leaves keeps the dead alive (see Bag). */
  const waiting: (Waiting | undefined)[] = [];
  const free: number[] = [];
  const known = new Set<number>();
  const commits = new Map<number, number>();
  let lastConnection = 0;
  let dead: AppError | undefined;
  let postedAt = 0;
  let answersSeen = 0;
  let answerMs = 0;
  let batch: unknown[] = [];
  let newTexts: (number | string)[] = [];

  const die = (cause: unknown): void => {
    dead ??= new AppError('STORAGE_UNAVAILABLE', {}, { cause });
    const error = dead;
    for (const caller of waiting.splice(0)) caller?.reject(error);
    free.length = 0;
    port.close();
  };
  worker.once('error', die);
  worker.once('exit', () => die(new Error('the database thread has ended')));

  const receive = (message: FromWorker): void => {
    const { answers, connection, commits: made = 0 } = message;
    if (connection !== undefined) commits.set(connection, made + (commits.get(connection) ?? 0));
    for (let index = 0; index < answers.length; index += 2) {
      const call = answers[index] as number;
      const outcome = answers[index + 1] as UnitOutcome;
      const caller = waiting[call];
      if (caller === undefined) continue;
      waiting[call] = undefined;
      free.push(call);
      if ('message' in outcome) caller.reject(fromFailure(outcome));
      else caller.resolve(outcome);
    }
    answerMs = performance.now() - postedAt;
  };
  port.on('message', receive);
  const isAlone = (): boolean => waiting.length - free.length === 1;
  /** The event loop turns at the same time; it just does not go to sleep. */
  const lookForAnswer = (): void => {
    const lookUntil = performance.now() + LOOK_MS;
    while (Atomics.load(signal, ANSWERS) === answersSeen && performance.now() < lookUntil);
    const found = Atomics.load(signal, ANSWERS) === answersSeen ? undefined : receiveMessageOnPort(port);
    if (found !== undefined) receive(found.message);
    else if (isAlone() && performance.now() - postedAt < QUICK_MS) setImmediate(lookForAnswer);
  };

  const post = (message: ToWorker): void => {
    answersSeen = Atomics.load(signal, ANSWERS);
    port.postMessage(newTexts.length === 0 ? message : { ...message, texts: newTexts });
    if (newTexts.length > 0) newTexts = [];
    Atomics.add(signal, CALLS, 1);
    Atomics.notify(signal, CALLS);
    postedAt = performance.now();
    if (isAlone() && answerMs < QUICK_MS) setImmediate(lookForAnswer);
  };
  const flush = (): void => {
    if (batch.length === 0) return;
    const data = batch;
    batch = [];
    post({ kind: 'units', data });
  };
  const referenceOf = ({ sql, textId }: BoundStatement): number | string => {
    if (textId === undefined) return sql;
    if (!known.has(textId)) {
      known.add(textId);
      newTexts.push(textId, sql);
    }
    return textId;
  };
  const append = (unit: readonly BoundStatement[]): void => {
    batch.push(unit.length);
    for (const statement of unit) {
      batch.push(referenceOf(statement), statement.expectedChanges ?? ANY_CHANGES, statement.values.length);
      for (const value of statement.values) batch.push(value);
    }
  };
  const begin = (prepare: (call: number) => void): Promise<readonly SqliteResult[]> => {
    if (dead !== undefined) return Promise.reject(dead);
    return new Promise((resolve, reject) => {
      const number = free.pop() ?? waiting.length;
      waiting[number] = { resolve, reject };
      prepare(number);
    });
  };
  /** Keeps the order: what was submitted before goes first. */
  const call = (message: (call: number) => ToWorker): Promise<readonly SqliteResult[]> =>
    begin((number) => {
      flush();
      post(message(number));
    });

  return {
    async open(path, mode) {
      lastConnection += 1;
      const connection = lastConnection;
      await call((number) => ({ kind: 'open', call: number, connection, file: path, mode }));
      return connection;
    },
    async run(connection, statement) {
      const { values } = statement;
      const reference = referenceOf(statement);
      const [result] = await call((number) => ({ kind: 'run', call: number, connection, reference, values }));
      return result ?? 0;
    },
    submit: (connection, unit) =>
      begin((number) => {
        // A lone caller is sent immediately; otherwise all callers of this turn of the event loop are sent together.
        if (batch.length === 0) isAlone() ? queueMicrotask(flush) : setImmediate(flush);
        batch.push(number, connection);
        append(unit);
      }),
    async ping() {
      await call((number) => ({ kind: 'ping', call: number }));
    },
    async closeConnection(connection) {
      await call((number) => ({ kind: 'close', call: number, connection }));
      commits.delete(connection);
    },
    commits: (connection) => commits.get(connection) ?? 0,
    isAlive: () => dead === undefined,
    async end() {
      if (dead === undefined) post({ kind: 'end' });
      await ended;
    },
  };
}

/** Passes only the compile cache folder, because a thread that compiles again starts later and takes more memory. */
function threadEnvironment(): Record<string, string> {
  const ofThisVersion = getCompileCacheDir();
  return ofThisVersion === undefined ? {} : { NODE_COMPILE_CACHE: dirname(ofThisVersion) };
}

/** A claim on a thread that all databases of the process share. */
export interface ThreadClaim {
  readonly thread: SqliteThread;
  release(): Promise<void>;
}

interface Shared {
  readonly thread: SqliteThread;
  claims: number;
}

/**
 * `writer` commits for all files, so that the commits of one moment share a thread and not the event loop; `reader`
 * runs longer queries and starts when the first one comes. Each ends with its last claim.
 */
const threads = new Map<'writer' | 'reader', Shared>();

export function claimThread(role: 'writer' | 'reader'): ThreadClaim {
  const running = threads.get(role);
  // A dead thread fails for its users, but databases that are opened later get a new one.
  const shared = running?.thread.isAlive() ? running : { thread: startSqliteThread(), claims: 0 };
  threads.set(role, shared);
  shared.claims += 1;
  return {
    thread: shared.thread,
    async release() {
      shared.claims -= 1;
      if (shared.claims > 0) return;
      if (threads.get(role) === shared) threads.delete(role);
      await shared.thread.end();
    },
  };
}
