import { availableParallelism } from 'node:os';
import { type MessagePort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { SqlValue } from '../statement.ts';
import { ANSWERS, CALLS, commitRound, endOfUnit, type Unit, type UnitOutcome } from './commit-round.ts';
import {
  openSqliteConnection,
  readWith,
  type SqliteConnection,
  type SqliteMode,
  toFailure,
} from './sqlite-connection.ts';

/** This file runs in a thread of its own, so that waiting for the disk never stops the event loop of the program. */
export interface WorkerStart {
  readonly port: MessagePort;
  /** Two counters: see `commit-round.ts`. */
  readonly signal: Int32Array;
}

interface Call {
  readonly call: number;
  readonly connection: number;
}

interface Open extends Call {
  readonly kind: 'open';
  readonly file: string;
  readonly mode: SqliteMode;
}

interface Run extends Call {
  readonly kind: 'run';
  readonly reference: number | string;
  readonly values: readonly SqlValue[];
}

/** `texts`: numbers and SQL texts by turns, those that this message is the first to use. */
export type ToWorker = { readonly texts?: readonly (number | string)[] } & (
  | Open
  | Run
  | ({ readonly kind: 'close' } & Call)
  | { readonly kind: 'ping'; readonly call: number }
  /** Units one after another: call, connection, and what `Unit` says. */
  | { readonly kind: 'units'; readonly data: readonly unknown[] }
  | { readonly kind: 'end' }
);

/** Call numbers and their outcomes by turns; for units also how many commits it took. */
export interface FromWorker {
  readonly answers: readonly (number | UnitOutcome)[];
  readonly connection?: number;
  readonly commits?: number;
}

/** Waking a sleeping thread takes longer than a short commit, so it stays awake for a moment after each message. */
const AWAKE_MS = availableParallelism() > 1 ? 0.1 : 0;
/** A message that came within this time would have been found while awake, or nearly: waking took a part of it. */
const SOON_MS = 2 * AWAKE_MS;
const MAX_ROUND = 1024;

const { port, signal } = workerData as WorkerStart;
const texts: string[] = [];
const connections = new Map<number, SqliteConnection>();
let next: ToWorker | undefined;
/** Whether the last message came soon: where messages come seldom, staying awake only takes the core from others. */
let isBusy = true;

function connectionOf(number: number): SqliteConnection {
  const connection = connections.get(number);
  if (connection === undefined) throw new Error('the connection is closed');
  return connection;
}

function take(): ToWorker | undefined {
  const held = next;
  next = undefined;
  if (held !== undefined) return held;
  const message = receiveMessageOnPort(port)?.message as ToWorker | undefined;
  const learned = message?.texts ?? [];
  for (let index = 0; index < learned.length; index += 2)
    texts[learned[index] as number] = learned[index + 1] as string;
  return message;
}

function waitForMessage(): ToWorker {
  for (;;) {
    const seen = Atomics.load(signal, CALLS);
    const message = take();
    if (message !== undefined) return message;
    const idleAt = performance.now();
    if (isBusy) while (Atomics.load(signal, CALLS) === seen && performance.now() < idleAt + AWAKE_MS);
    Atomics.wait(signal, CALLS, seen);
    isBusy = performance.now() < idleAt + SOON_MS;
  }
}

function post(message: FromWorker): void {
  port.postMessage(message);
  Atomics.add(signal, ANSWERS, 1);
}

interface Round {
  readonly calls: number[];
  readonly units: Unit[];
}

/** Collects everything that arrived during the last commit for the next one, one commit per file. */
function gatherRounds(first: readonly unknown[]): Map<number, Round> {
  const rounds = new Map<number, Round>();
  let count = 0;
  let data: readonly unknown[] | undefined = first;
  while (data !== undefined) {
    for (let start = 0; start < data.length; start = endOfUnit(data, start + 2)) {
      const connection = data[start + 1] as number;
      const round = rounds.get(connection) ?? { calls: [], units: [] };
      rounds.set(connection, round);
      round.calls.push(data[start] as number);
      round.units.push({ data, start: start + 2 });
      count += 1;
    }
    const message = count < MAX_ROUND ? take() : undefined;
    data = message?.kind === 'units' ? message.data : undefined;
    if (data === undefined) next = message;
  }
  return rounds;
}

function commitRounds(data: readonly unknown[]): void {
  for (const [number, { calls, units }] of gatherRounds(data)) {
    const connection = connections.get(number);
    let commits = 0;
    const outcomes: UnitOutcome[] =
      connection === undefined
        ? units.map(() => toFailure(new Error('the connection is closed')))
        : commitRound(connection, units, () => {
            commits += 1;
          });
    const answers: (number | UnitOutcome)[] = [];
    for (const [index, outcome] of outcomes.entries()) answers.push(calls[index] as number, outcome);
    post({ answers, connection: number, commits });
  }
}

function perform(message: Exclude<ToWorker, { kind: 'units' | 'end' }>): UnitOutcome {
  switch (message.kind) {
    case 'open':
      connections.set(
        message.connection,
        openSqliteConnection(message.file, message.mode, (id) => texts[id] ?? ''),
      );
      return [];
    case 'close':
      connectionOf(message.connection).close();
      connections.delete(message.connection);
      return [];
    case 'run':
      // On the writing connection the reference is always a text, which never has to be read again.
      return [readWith(connectionOf(message.connection), message.reference, message.values)];
    case 'ping':
      return [];
  }
}

for (let message = waitForMessage(); message.kind !== 'end'; message = waitForMessage()) {
  if (message.kind === 'units') {
    commitRounds(message.data);
    continue;
  }
  let outcome: UnitOutcome;
  try {
    outcome = perform(message);
  } catch (error) {
    outcome = toFailure(error);
  }
  post({ answers: [message.call, outcome] });
}
for (const connection of connections.values()) connection.close();
port.close();
