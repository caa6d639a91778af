import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** What was done and seen, one line of the log each, in the order in which it happened. Times are of one monotonic clock. */
export type Operation =
  /** `chain`: the connections of a client, one after the other; the others only repeat a call. */
  | {
      readonly kind: 'connected';
      readonly session: string;
      readonly connection: string;
      readonly chain: boolean;
      readonly afterSeq: number;
    }
  | SeenUpdate
  /** A call: with an answer, refused, or with an answer that never came. */
  | TurnCall
  /** The same call once more, with the number of the last update that its client has. */
  | (Omit<TurnCall, 'kind' | 'method'> & { readonly kind: 'repeat' })
  /** The model was asked. */
  | { readonly kind: 'asked'; readonly prompt: string }
  | { readonly kind: 'kill'; readonly at: number }
  | { readonly kind: 'ready'; readonly ms: number };

export interface TurnCall {
  readonly kind: 'turn';
  readonly method: string;
  readonly session: string;
  readonly prompt: string;
  readonly outcome: 'ok' | 'fail' | 'unknown';
  /** Of an answer. */
  readonly turnId?: string;
  readonly status?: string;
  /** Of a refusal. */
  readonly code?: string;
}

interface SeenUpdate extends Update {
  readonly kind: 'update';
  readonly connection: string;
  readonly at: number;
}

/** One update of a session; `text` is all of it. */
export interface Update {
  readonly session: string;
  readonly seq: number;
  readonly turnId: string;
  readonly event: string;
  readonly text: string;
}

export interface StoredTurn {
  readonly id: string;
  readonly session: string;
  readonly prompt: string;
  readonly status: string;
}

export interface StoredSessions {
  readonly updates: readonly Update[];
  readonly turns: readonly StoredTurn[];
}

const ENDS = ['completed', 'failed', 'cancelled'];
/** What was seen so long before a kill must be stored. The contract's 20 ms, and a machine that is busy. */
const MAX_UNSTORED_MS = 1000;
const LOGGED_WITHIN_MS = 20;
const READY_MS = 2000;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(operations: readonly Operation[], store: StoredSessions): string[] {
  return [
    ...checkOrder(operations),
    ...checkContents(operations, store),
    ...checkComplete(operations, store),
    ...lostUpdates(operations, store).flatMap(({ update, ageMs }) => {
      const what = `${update.event} ${nameOf(update)} was seen and is not stored`;
      if (ENDS.includes(update.event)) return [`the end ${what}`];
      return ageMs > MAX_UNSTORED_MS ? [`${what}, ${Math.round(ageMs)} ms before a kill`] : [];
    }),
    ...checkEnds(store),
    ...checkRuns(operations, store),
    ...checkAnswers(operations, store),
    ...checkContinuations(operations),
  ];
}

/** What the run came to, by its log and by what is stored at its end. */
export function figuresOf(operations: readonly Operation[], store: StoredSessions): FaultFigure[] {
  const calls = operations.filter((one) => one.kind === 'turn');
  const count = (outcome: TurnCall['outcome']) => calls.filter((call) => call.outcome === outcome).length;
  const ready = operations.flatMap((one) => (one.kind === 'ready' ? [one.ms] : []));
  const resumes = operations.filter((one) => one.kind === 'connected' && one.afterSeq > 0);
  const lost = lostUpdates(operations, store);
  return [
    workFigure('kills in the middle of turns', operations.filter(({ kind }) => kind === 'kill').length),
    workFigure('turns answered', count('ok')),
    countFigure('turns refused', count('fail')),
    countFigure('turns without an answer', count('unknown')),
    countFigure('turns stored', store.turns.length),
    countFigure('turns ended by a kill', store.turns.filter(({ status }) => status === 'failed').length),
    workFigure('updates stored', store.updates.length),
    workFigure('resumes', resumes.length),
    neverFigure('updates out of order or seen twice', checkOrder(operations).length),
    neverFigure('numbers used twice', checkContents(operations, store).length),
    neverFigure('stored updates not seen', checkComplete(operations, store).length),
    neverFigure('turns without exactly one end', checkEnds(store).length),
    neverFigure('turns run twice, or though refused', checkRuns(operations, store).length),
    neverFigure('sessions that could not be continued', checkContinuations(operations).length),
    countFigure('updates seen and lost by a kill', lost.length),
    longestFigure(
      'the oldest of them, before the kill',
      lost.map(({ ageMs }) => ageMs),
      LOGGED_WITHIN_MS,
    ),
    longestFigure('ready after a kill, at most', ready.slice(1), READY_MS),
  ];
}

/** Across all connections of a client the numbers rise; those of a repeated call rise from what the client named. */
export function checkOrder(operations: readonly Operation[]): string[] {
  const last = new Map<string, number>();
  const keys = new Map<string, string>();
  return operations.flatMap((one) => {
    if (one.kind === 'connected') {
      const key = one.chain ? `client of ${one.session}` : one.connection;
      keys.set(one.connection, key);
      if (!one.chain) last.set(key, one.afterSeq);
    }
    if (one.kind !== 'update') return [];
    const key = keys.get(one.connection) ?? one.connection;
    const before = last.get(key) ?? 0;
    last.set(key, Math.max(one.seq, before));
    return one.seq > before ? [] : [`${nameOf(one)} came after ${before} to the ${key}`];
  });
}

/** A number stands for one update, whoever sees it and whenever. */
export function checkContents(operations: readonly Operation[], store: StoredSessions): string[] {
  const texts = new Map<string, string>();
  const stored = new Set<string>();
  const violations: string[] = [];
  for (const update of store.updates) {
    if (stored.has(nameOf(update))) violations.push(`${nameOf(update)} is stored twice`);
    stored.add(nameOf(update));
    texts.set(nameOf(update), update.text);
  }
  for (const update of updatesOf(operations)) {
    const known = texts.get(nameOf(update)) ?? update.text;
    texts.set(nameOf(update), known);
    if (known !== update.text) violations.push(`${nameOf(update)} was ${known} and then ${update.text}`);
  }
  return violations;
}

export function checkComplete(operations: readonly Operation[], { updates }: StoredSessions): string[] {
  const chains = new Set(operations.flatMap((one) => (one.kind === 'connected' && one.chain ? [one.connection] : [])));
  const seen = new Set(
    updatesOf(operations)
      .filter(({ connection }) => chains.has(connection))
      .map(nameOf),
  );
  return updates.filter((one) => !seen.has(nameOf(one))).map((one) => `${nameOf(one)} is stored and was never seen`);
}

/** Updates that somebody saw and nobody stored, with the time until the next kill. */
function lostUpdates(
  operations: readonly Operation[],
  { updates }: StoredSessions,
): readonly { readonly update: SeenUpdate; readonly ageMs: number }[] {
  const stored = new Set(updates.map(nameOf));
  let killedAt = Number.POSITIVE_INFINITY;
  return operations
    .toReversed()
    .flatMap((one) => {
      if (one.kind === 'kill') killedAt = one.at;
      // What comes between a kill and the next start was on its way when the kill came.
      if (one.kind === 'ready') killedAt = Number.NEGATIVE_INFINITY;
      if (one.kind !== 'update' || stored.has(nameOf(one))) return [];
      return [{ update: one, ageMs: Math.max(0, killedAt - one.at) }];
    })
    .reverse();
}

export function checkEnds({ turns, updates }: StoredSessions): string[] {
  const ends = Map.groupBy(
    updates.filter(({ event }) => ENDS.includes(event)),
    ({ turnId }) => turnId,
  );
  return turns.flatMap(({ id, status }) => {
    if (!ENDS.includes(status)) return [`turn ${id} is still ${status}`];
    const events = (ends.get(id) ?? []).map(({ event }) => event);
    return events.length === 1 && events[0] === status ? [] : [`turn ${id} is ${status} and told [${events}]`];
  });
}

/** Every prompt is sent as one call: the model is asked at most once, and not at all for what was refused. */
export function checkRuns(operations: readonly Operation[], { turns }: StoredSessions): string[] {
  const asked = Map.groupBy(
    operations.flatMap((one) => (one.kind === 'asked' ? [one.prompt] : [])),
    (prompt) => prompt,
  );
  const stored = Map.groupBy(turns, ({ prompt }) => prompt);
  return operations.flatMap((one) => {
    if (one.kind !== 'turn') return [];
    const { prompt, outcome, status } = one;
    const runs = asked.get(prompt)?.length ?? 0;
    const rows = stored.get(prompt)?.length ?? 0;
    if (runs > 1 || rows > 1) return [`${prompt} was asked ${runs} times, and is stored as ${rows} turns`];
    if (outcome === 'fail' && runs > 0) return [`${prompt} was refused, and the model was asked`];
    return status === 'completed' && runs === 0 ? [`${prompt} was answered, and the model was never asked`] : [];
  });
}

/** What a caller was told is what is stored; and a call whose turn is stored can be repeated. */
export function checkAnswers(operations: readonly Operation[], { turns }: StoredSessions): string[] {
  const stored = new Map(turns.map((turn) => [turn.prompt, turn]));
  return operations.flatMap((one) => {
    if (one.kind !== 'turn' && one.kind !== 'repeat') return [];
    const { kind, prompt, outcome, turnId, status, code } = one;
    const turn = stored.get(prompt);
    if (outcome === 'ok' && (turn?.id !== turnId || turn?.status !== status)) {
      return [`${kind} ${prompt} was told ${turnId} ${status}, and stored is ${turn?.id} ${turn?.status}`];
    }
    const isForgotten = kind === 'repeat' && code === 'RESUME_NOT_FOUND' && turn !== undefined;
    return isForgotten ? [`${prompt} is stored as ${turn.id}, and could not be resumed`] : [];
  });
}

/** Who has seen an agent at work in a session can go on with it. */
function checkContinuations(operations: readonly Operation[]): string[] {
  const worked = new Set<string>();
  return operations.flatMap((one) => {
    if (one.kind === 'update' && one.event !== 'failed' && one.event !== 'queued') worked.add(one.session);
    if (one.kind !== 'turn' || one.code !== 'SESSION_CONTINUATION_UNAVAILABLE') return [];
    return worked.has(one.session) ? [`session ${one.session} could not be continued with ${one.prompt}`] : [];
  });
}

function updatesOf(operations: readonly Operation[]): readonly SeenUpdate[] {
  return operations.filter((one) => one.kind === 'update');
}

function nameOf({ session, seq }: Update): string {
  return `update ${seq} of ${session}`;
}
