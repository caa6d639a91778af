import type { Statement, StatementResult } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { AgentEvent } from '../agents/agent-provider.ts';
import { TENANT } from '../principal.ts';
import type { TurnRow } from '../storage/bridge-schema.ts';
import type { AuditStore, SessionPlace, SessionStore } from '../storage/session-store.ts';
import type { TurnStore } from '../storage/turn-store.ts';
import type { UpdateStore } from '../storage/update-store.ts';
import type { Beginning, LiveSession, LiveTurn, TurnRequest } from './live-session.ts';
import { placeOf, type SessionStates, waitsForLog } from './session-state.ts';
import type { SessionSummaries } from './session-summaries.ts';
import { lastWords, outcomeText, type ResultBase, resultOf, stageOf, type TurnOutcome } from './turn-outcome.ts';
import type { UpdateHub } from './update-hub.ts';
import type { UpdateLog } from './update-log.ts';
import { NUMBERS_AHEAD } from './update-stream.ts';
import { shownFile, stageUpdate } from './update-text.ts';

/** What is written down about sessions and turns, and when. */
export interface SessionRecords {
  readonly isShared: boolean;
  /** A turn that waits for others. */
  queued(session: LiveSession, turn: LiveTurn, base: ResultBase): void;
  /** Ends a turn that waits behind another one as cancelled; resolves when that is stored and its caller has the result. */
  withdraw(session: LiveSession, turn: LiveTurn, base: ResultBase): Promise<void>;
  /**
   * Stores session and turn, and with them the numbers of the first updates. The beginning of a message waits for some
   * milliseconds, so that a short turn is stored with one commit (decision 99).
   */
  begin(session: LiveSession, turn: LiveTurn, base: ResultBase, place: SessionPlace): Beginning;
  /** The agent has a name for the conversation. No update is shown before it is stored: what was seen can be continued. */
  opened(session: LiveSession, reference: string): void;
  /** The session starts again: what people have chosen for it is over. */
  unchosen(session: LiveSession): void;
  /** Notes for the summary of the session what an agent reports. */
  noted(session: LiveSession, event: AgentEvent): void;
  audit(session: LiveSession, turn: LiveTurn, providerId: string, decision: string, subject: unknown): void;
  /** Records what an agent keeps of a conversation that is over. */
  leftBehind(session: LiveSession, providerId: string, what: string): void;
  /**
   * Stores how a turn ended, then tells it; resolves when both are done. Where another bridge has ended the turn, what that
   * one stored is reported.
   */
  conclude(session: LiveSession, turn: LiveTurn, outcome: TurnOutcome): Promise<void>;
  /** Tells how a turn of a session ended that another bridge has; as it is stored there, or as given if it is still open. */
  concludeTaken(session: LiveSession, turn: LiveTurn, outcome: TurnOutcome): Promise<void>;
  /** Tries again to end those turns for which the store could not be asked. */
  concludeLeft(): Promise<void>;
  /** Whether the newest turn of the session, as stored, is that call. */
  isLastTurn(session: LiveSession, method: TurnRequest['method'], requestId: string): Promise<boolean>;
  /** Whether nobody has used the session since, as stored, and nothing runs in it. */
  isUnused(session: LiveSession, since: number): Promise<boolean>;
  /** Removes a closed session, its last number included. */
  forget(session: LiveSession): Promise<void>;
  /** Removes all but the last number once what agent and disk have of it is out of the way. False: another bridge has taken it. */
  close(session: LiveSession, discarded: Promise<void>): Promise<boolean>;
}

export interface SessionRecordsOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly sessions: Pick<SessionStore, 'isShared' | 'find'>;
  readonly change: SessionStates['change'];
  readonly turns: TurnStore;
  readonly audits: AuditStore;
  readonly summaries: SessionSummaries;
  readonly log: UpdateLog;
  readonly hub: UpdateHub;
  readonly instance: string;
  write(statements: readonly Statement[]): Promise<readonly StatementResult[]>;
  readonly insertUpdates: UpdateStore['insert'];
  /** It is known whether a session has begun, which was not known before. */
  doubtOver(session: LiveSession): void;
  readUpdate(sessionKey: string, seq: number): Promise<string | undefined>;
}

/** With fewer numbers left, updates would have to wait for the beginning of their turn. */
const MIN_NUMBERS_LEFT = 64;
/** To end a turn whose session another bridge may be taking. */
const MAX_TRIES = 3;

export function createSessionRecords(options: SessionRecordsOptions): SessionRecords {
  const { sessions, change, turns, audits, summaries, log, hub, instance, clock, makeId, write } = options;
  /** Those whose summary this bridge has stored: a turn that is stored as a whole need not add it. */
  const summarized = new WeakSet<LiveSession>();
  /** Turns of sessions that another bridge has, whose end could not be stored yet, or not be read. */
  const left = new Map<LiveTurn, { readonly session: LiveSession; readonly outcome: TurnOutcome }>();

  function turnRow(session: LiveSession, turn: LiveTurn, status: string, base: ResultBase): TurnRow {
    const { method, requestId, requestFingerprint, idempotencyKey, prompt } = turn.request;
    return {
      id: turn.id,
      session_key: session.key,
      owner: session.owner,
      tenant: TENANT,
      instance,
      method,
      request_id: requestId,
      request_fingerprint: requestFingerprint,
      idempotency_key: idempotencyKey,
      prompt: JSON.stringify(prompt),
      attachments: JSON.stringify(turn.placed.map(shownFile)),
      status,
      base: JSON.stringify(base),
      outcome: '',
      first_seq: turn.firstSeq,
      last_seq: 0,
      created_at: turn.createdAt,
      ended_at: null,
    };
  }

  function audit(
    { owner, id: sessionId }: LiveSession,
    turnId: string,
    providerId: string,
    action: string,
    decision: string,
    subject: unknown,
  ): void {
    const names = { owner, tenant: TENANT, session_id: sessionId, turn_id: turnId, provider_id: providerId };
    const record = { id: makeId('aud_'), at: clock.now(), action, decision, subject: JSON.stringify(subject) };
    void log.store([audits.record({ ...names, ...record })]);
  }

  /** Resolves when it is stored; rejects at the first failure, though it is stored later if that can be done. */
  function storeSoon<Result>(stored: Promise<Result>): Promise<Result> {
    const { promise, resolve, reject } = Promise.withResolvers<Result>();
    void stored.then(resolve);
    log.flush().catch(reject);
    return promise;
  }

  /**
   * Ends a turn that nobody else has ended, with an update, as the bridge that takes a session does. Throws SESSION_BUSY
   * while another bridge has the session: then only that one can number updates.
   */
  async function endOpen(turnId: string, outcome: TurnOutcome): Promise<void> {
    const status = 'failure' in outcome ? 'failed' : outcome.status;
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const open = await turns.findOpen(turnId);
      if (open === undefined) return;
      const lastSeq = open.session.reserved_seq + 1;
      const now = clock.now();
      const updates = stageUpdate(JSON.parse(open.turn.base), stageOf(outcome), lastWords(outcome))(lastSeq);
      const chunk = { session_key: open.session.key, first_seq: lastSeq, last_seq: lastSeq, at: now, updates };
      const [update] = options.insertUpdates([chunk]);
      if (update === undefined) return;
      const ended = { id: turnId, status, outcome: outcomeText(outcome), lastSeq, now };
      try {
        return await turns.settleOpen(open, ended, update);
      } catch (error) {
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      }
    }
    throw new AppError('SESSION_BUSY');
  }

  async function concludeTaken(session: LiveSession, turn: LiveTurn, outcome: TurnOutcome): Promise<void> {
    const { key } = session;
    try {
      await endOpen(turn.id, outcome);
      const stored = await turns.outcomeOf(turn.id);
      if (stored === undefined) {
        const reason = 'another instance has taken the session before the turn was stored';
        throw new AppError('OWNER_UNREACHABLE', { reason, outcome: 'not_started' });
      }
      const text = await options.readUpdate(key, stored.last_seq);
      // Other bridges may have stored more than this end.
      hub.catchUp(key);
      summaries.stored(key);
      if (text !== undefined) hub.publish(key, stored.last_seq, text);
      turn.lastSeq = stored.last_seq;
      turn.settle(stored.outcome);
    } catch (error) {
      turn.fail(error);
      if (errorCode(error) !== 'OWNER_UNREACHABLE') left.set(turn, { session, outcome });
    }
  }

  async function concludeLeft(): Promise<void> {
    for (const [turn, { session, outcome }] of [...left]) {
      left.delete(turn);
      await concludeTaken(session, turn, outcome);
    }
  }

  /** Whether nothing is shown or promised that depends on the beginning being stored within some milliseconds. */
  function mayWait(session: LiveSession, { request, isStored }: LiveTurn, place: SessionPlace): boolean {
    const { method, idempotencyKey, jobId } = request;
    const isPlainMessage = method === 'session.message' && idempotencyKey === '' && jobId === undefined;
    if (!isPlainMessage || isStored || session.stored !== 'open' || session.isDoubted || sessions.isShared)
      return false;
    const hasNumbers = session.stream.reservedSeq() - session.stream.lastSeq() >= MIN_NUMBERS_LEFT;
    const before = placeOf(session);
    return hasNumbers && (Object.keys(before) as (keyof SessionPlace)[]).every((name) => before[name] === place[name]);
  }

  /** Changes the session, and returns what stores that. */
  function prepareBegin(session: LiveSession, turn: LiveTurn, base: ResultBase, place: SessionPlace) {
    const { stream } = session;
    const now = clock.now();
    const expectedSeq = stream.reservedSeq();
    const upTo = Math.max(expectedSeq, stream.lastSeq() + NUMBERS_AHEAD);
    const taken = change(session, { kind: 'begins', place, expectedSeq, upTo, now });
    return {
      upTo,
      taken,
      row: turnRow(session, turn, 'running', base),
      summary: summaries.begun(session, turn, base, now),
    };
  }

  async function beginNow(session: LiveSession, turn: LiveTurn, base: ResultBase, place: SessionPlace): Promise<void> {
    // What undoes a beginning that may be stored decides up to where numbers are reserved.
    if (waitsForLog(session)) await log.flush();
    const { upTo, taken, row, summary } = prepareBegin(session, turn, base, place);
    let { epoch } = session;
    try {
      const [first] = await write([...taken, turns.begin(row), summary]);
      const [claimed] = (first?.rows ?? []) as readonly { readonly epoch: number }[];
      epoch = Number(claimed?.epoch ?? epoch);
    } catch (error) {
      undoBegin(session, turn, upTo, errorCode(error) === 'STORAGE_UNAVAILABLE');
      throw error;
    }
    noteBegun(session, turn, upTo, epoch);
  }

  /** Leaves the beginning to the log, which stores it with whatever comes next: with the end of a short turn. */
  function beginSoon(session: LiveSession, turn: LiveTurn, base: ResultBase, place: SessionPlace): Beginning {
    const { upTo, taken, row, summary } = prepareBegin(session, turn, base, place);
    const { promise: stored, resolve, reject } = Promise.withResolvers<void>();
    let state: 'waiting' | 'taken' | 'undone' = 'waiting';
    let whole: readonly Statement[] | undefined;
    const logged = log.storeFirst({
      // No other bridge can have taken the session, and a part of the log that cannot be stored would hold up all others.
      statements: () => whole ?? [...taken, turns.begin(row), summary].map(({ expectedChanges: _, ...rest }) => rest),
      taken() {
        if (state === 'waiting') state = 'taken';
      },
      failed(error) {
        // With its end in the log as well, the turn is stored as a whole when the store is back.
        if (turn.isEnding || state === 'undone') return;
        state = 'undone';
        undoBegin(session, turn, upTo, true);
        reject(error);
      },
    });
    void logged.then(() => {
      if (state === 'undone') return;
      noteBegun(session, turn, upTo, session.epoch);
      resolve();
    });
    return {
      stored,
      isWaiting: () => state === 'waiting',
      endWith({ status, outcome, lastSeq, now }) {
        if (state !== 'waiting') return undefined;
        // The session needs no claim: it is held by nobody before and after. Its end reserves the numbers.
        const ended = turns.add({ ...row, status, outcome, last_seq: lastSeq, ended_at: now });
        whole = summarized.has(session) ? [ended] : [ended, summary];
        return upTo;
      },
    };
  }

  function noteBegun(session: LiveSession, turn: LiveTurn, upTo: number, epoch: number): void {
    summaries.stored(session.key);
    summarized.add(session);
    // Not before: updates that wait get their numbers once the session that they belong to is stored.
    change(session, { kind: 'begun', epoch });
    turn.isStored = true;
    if (turn.isEnding) session.stream.noteReserved(upTo);
    else session.stream.open(upTo);
    for (const waiting of session.turns) {
      waiting.onSessionStored?.();
      waiting.onSessionStored = undefined;
    }
  }

  /** In doubt, the beginning may be stored, or will be; then the turn would stay open, and the session busy, until a restart. */
  function undoBegin(session: LiveSession, turn: LiveTurn, upTo: number, isDoubted: boolean): void {
    const holdsNumbers = session.stored !== 'absent';
    const undone = change(session, { kind: 'not begun', turnId: turn.id, upTo, isDoubted, now: clock.now() });
    if (!isDoubted) return;
    // A call that is repeated with its idempotency key wants the turn done, and it was not. A turn that has waited is
    // known to its caller: it ends as failed.
    const discarded = turn.isStored ? [] : [turns.discard(turn.id)];
    void log.store([...undone, ...discarded]).then(() => {
      change(session, { kind: 'doubt over' });
      if (holdsNumbers) session.stream.noteReserved(upTo);
      options.doubtOver(session);
    });
  }

  return {
    isShared: sessions.isShared,
    concludeTaken,
    concludeLeft,
    queued(session, turn, base) {
      turn.firstSeq = session.stream.lastSeq() + 1;
      turn.isStored = true;
      turn.waitingBase = base;
      // Another bridge that has taken the session has ended its turns, and would not know of this one.
      const row = turns.add(turnRow(session, turn, 'queued', base));
      void log.storeOwn(session.key, [row]).then((isStored) => isStored && summaries.stored(session.key));
      session.stream.emit(stageUpdate(base, 'queued', 'The turn waits until others have ended.'));
    },
    async withdraw({ key, stream }, turn, base) {
      const outcome = outcomeText(resultOf(base, { kind: 'cancelled', output: '' }));
      stream.emit(stageUpdate(base, 'cancelled', 'The message was removed before its turn began.'));
      const lastSeq = stream.lastSeq();
      const isHeld = stream.isHolding();
      await storeSoon(log.store([turns.end({ id: turn.id, status: 'cancelled', outcome, lastSeq, now: clock.now() })]));
      summaries.stored(key);
      // A number that is held may wait until the turn before it begins; the caller need not.
      turn.lastSeq = isHeld ? 0 : lastSeq;
      turn.settle(outcome);
    },
    begin(session, turn, base, place) {
      if (turn.firstSeq === 0) turn.firstSeq = session.stream.lastSeq() + 1;
      turn.beginning = mayWait(session, turn, place)
        ? beginSoon(session, turn, base, place)
        : { stored: beginNow(session, turn, base, place), isWaiting: () => false, endWith: () => undefined };
      return turn.beginning;
    },
    opened(session, reference) {
      const named = change(session, { kind: 'opened', reference });
      session.stream.holdUntil(log.storeOwn(session.key, named));
      // Should this fail, the log tries again, and the updates wait.
      log.flush().catch(() => undefined);
    },
    unchosen(session) {
      if (session.choices !== '') void log.store(change(session, { kind: 'chosen', choices: '' }));
    },
    noted(session, event) {
      const changed = summaries.noted(session, event);
      if (changed !== undefined) void log.storeOwn(session.key, [changed]);
    },
    audit: (session, turn, providerId, decision, subject) =>
      audit(session, turn.id, providerId, 'permission', decision, subject),
    leftBehind: (session, providerId, what) => audit(session, '', providerId, 'delete', 'incomplete', { what }),
    async conclude(session, turn, outcome) {
      const stored = outcomeText(outcome);
      const begun = turn.beginning?.isWaiting() === true ? turn.beginning.stored : undefined;
      if (!turn.isStored && begun === undefined) {
        turn.settle(stored);
        return;
      }
      const { stream, key } = session;
      turn.isEnding = true;
      if (stream.isAbandoned()) return concludeTaken(session, turn, outcome);
      const threadId = 'failure' in outcome ? session.threadId : outcome.threadId;
      const origin = { sessionId: session.id, threadId, turnId: turn.id };
      // If the store cannot be reached, the caller gets the error now; the turn is stored when the store is back.
      if (stream.isHolding()) log.flush().catch(turn.fail);
      const { seq, text } = await stream.conclude(stageUpdate(origin, stageOf(outcome), lastWords(outcome)));
      if (stream.isAbandoned()) return concludeTaken(session, turn, outcome);
      const isLast = session.turns.length === 1;
      if (isLast) stream.close();
      const now = clock.now();
      const status = 'failure' in outcome ? 'failed' : outcome.status;
      log.update(key, seq, text);
      const end = { id: turn.id, status, outcome: stored, lastSeq: seq, now };
      const upTo = turn.beginning?.endWith(end);
      const isWhole = upTo !== undefined;
      const ended = log.storeOwn(key, [
        ...(isWhole ? [] : [turns.end(end)]),
        ...change(session, { kind: 'turn ended', isLast, lastSeq: Math.max(seq, upTo ?? 0), now }),
        summaries.ended(session, turn, outcome, { seq, isWhole, now }),
      ]);
      log.flush().catch(turn.fail);
      if (!(await ended)) return concludeTaken(session, turn, outcome);
      await begun;
      summaries.stored(key);
      hub.publish(key, seq, text);
      stream.resume(seq);
      turn.lastSeq = seq;
      turn.settle(stored);
    },
    async isLastTurn({ key }, method, requestId) {
      const last = await turns.latest(key);
      return last?.method === method && last.request_id === requestId;
    },
    async isUnused({ id, owner }, since) {
      await log.flush();
      const row = await sessions.find(id, owner);
      return row !== undefined && row.instance === '' && row.updated_at < since;
    },
    forget: (session) => storeSoon(log.store(change(session, { kind: 'forgotten' }))),
    async close(session, discarded) {
      const isOpen = session.stored === 'open';
      const statements = change(session, { kind: 'closed', now: clock.now() });
      await Promise.allSettled([discarded]);
      // It may be closed and its caller have heard that this was not stored yet, or that something was not removed.
      const stored = isOpen ? storeSoon(log.storeOwn(session.key, statements)) : log.flush().then(() => true);
      if (isOpen && (await stored)) summaries.closed(session);
      return Promise.all([stored, discarded]).then(([isClosed]) => isClosed);
    },
  };
}
