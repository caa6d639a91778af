import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RawJson } from '../../platform/json-rpc/envelope.ts';
import type { ResumeRequest, TurnClient } from '../bridge-client.ts';
import type { TurnRow } from '../storage/bridge-schema.ts';
import type { TurnStore } from '../storage/turn-store.ts';
import type { UpdateChunk, UpdateStore } from '../storage/update-store.ts';
import type { LiveSession, LiveTurn, TurnRequest } from './live-session.ts';
import { answerOf } from './turn-outcome.ts';
import { deliver, type NotificationSink, ofTurn, type Replay, type UpdateHub } from './update-hub.ts';

/** Lets a repeated call take up the turn of the first one. Nothing is run here. */
export interface TurnResumption {
  /** The turn of that session which the call repeats; undefined when it is a new call. Throws RESUME_NOT_FOUND. */
  find(session: LiveSession | undefined, request: TurnRequest, resume: ResumeRequest): Promise<EarlierTurn | undefined>;
  /** Sends what the client has not seen, then gives the result. */
  attach(earlier: EarlierTurn, request: TurnRequest, client: TurnClient): Promise<RawJson>;
}

interface EarlierTurn extends RepeatableTurn {
  readonly session: LiveSession;
  /** Set while it runs or waits here. */
  readonly live: LiveTurn | undefined;
  readonly outcome: string;
}

interface TurnResumptionOptions {
  readonly turns: Pick<TurnStore, 'findSame' | 'findByKey'>;
  readonly hub: UpdateHub;
  readonly replay: Replay;
  readonly clock: Pick<Clock, 'now'>;
  /** Whether the session is stored, although it has not begun here: another bridge has begun one of that name. */
  hasBegunElsewhere(session: LiveSession): Promise<boolean>;
}

export function createTurnResumption(options: TurnResumptionOptions): TurnResumption {
  const { turns, hub, replay, clock } = options;
  function stored(session: LiveSession, request: TurnRequest, key: string): Promise<readonly TurnRow[]> {
    if (session.stored === 'absent') return Promise.resolve([]);
    return key === '' ? turns.findSame(session.key, request.requestFingerprint) : turns.findByKey(session.key, key);
  }

  return {
    async find(session, request, resume) {
      const found = new Map<string, EarlierTurn>();
      if (session !== undefined) {
        const rows = await stored(session, request, resume.idempotencyKey);
        for (const row of rows) found.set(row.id, { ...row, session, live: undefined });
        const next = session.stream.lastSeq() + 1;
        for (const live of session.turns) found.set(live.id, { ...describe(live, next), session, live });
      }
      try {
        return findRepeated([...found.values()], request, resume, clock.now());
      } catch (error) {
        // It may be stored, and would be found again after a crash: the caller asks again when it has been taken back.
        if (session?.isDoubted) throw new AppError('SESSION_BUSY');
        // The turn may be one of that bridge; the caller asks again when the beginning here has failed.
        if (session?.stored === 'absent' && (await options.hasBegunElsewhere(session)))
          throw new AppError('SESSION_BUSY');
        throw error;
      }
    },
    async attach(earlier, request, client) {
      const { session, live, ended_at: endedAt } = earlier;
      const sink = client.sink === undefined ? undefined : ofTurn(client.sink, earlier.id);
      const after = Math.max(client.resume.afterSeq ?? 0, earlier.first_seq - 1);
      // Another bridge runs it, and only that bridge has its progress.
      if (live === undefined && endedAt === null) throw new AppError('SESSION_BUSY');
      request.accepted();
      if (live === undefined) {
        if (sink !== undefined) await replay(session.key, sink, after, earlier.last_seq);
        return answerOf(earlier.outcome);
      }
      // Someone else may have asked for the turn: it goes on when this caller is paused or leaves the team.
      const revoked = Promise.withResolvers<never>();
      revoked.promise.catch(() => undefined);
      const { member, credential, id } = request.principal;
      const asked = live.request.principal.member ?? live.request.principal;
      const isOwn = asked.id === (member?.id ?? id);
      const forget = isOwn ? undefined : credential?.onEnd(() => revoked.reject(new AppError('UNAUTHORIZED')));
      try {
        if (sink !== undefined) await hub.subscribeAfter(session.key, sink, after);
        const outcome = await Promise.race([live.outcome, revoked.promise]);
        if (sink !== undefined) await hub.reached(session.key, sink, live.lastSeq);
        return answerOf(outcome);
      } finally {
        forget?.();
        if (sink !== undefined && !client.stays) hub.unsubscribe(session.key, sink);
      }
    },
  };
}

/** A turn that has no update yet will have its first one at `nextSeq` or later. */
function describe({ id, request, firstSeq }: LiveTurn, nextSeq: number): RepeatableTurn & { readonly outcome: string } {
  return {
    id,
    request_id: request.requestId,
    request_fingerprint: request.requestFingerprint,
    idempotency_key: request.idempotencyKey,
    first_seq: firstSeq || nextSeq,
    last_seq: 0,
    ended_at: null,
    outcome: '',
  };
}

/** `flush` stores what was published of a session, wherever that was. */
export function createReplay(
  flush: (sessionKey: string) => Promise<unknown>,
  store: Pick<UpdateStore, 'readAfter'>,
): Replay {
  return async (sessionKey, receiver, afterSeq, upToSeq = Number.POSITIVE_INFINITY) => {
    await flush(sessionKey);
    for (let last = afterSeq; ; ) {
      const chunks = await store.readAfter(sessionKey, last);
      if (chunks.length === 0) return last;
      last = sendSome(chunks, receiver, last, upToSeq);
      if (last >= upToSeq) return last;
      // Nothing of what was read is kept while a slow client catches up: it is read again.
      if (!(await receiver.drained())) return last;
    }
  };
}

/** Sends updates until the receiver is behind, and answers with the number of the last one. */
function sendSome(
  chunks: readonly UpdateChunk[],
  receiver: NotificationSink,
  afterSeq: number,
  upToSeq: number,
): number {
  let last = afterSeq;
  for (const { first_seq: first, at, updates } of chunks) {
    for (const [index, text] of updates.split('\n').entries()) {
      const seq = first + index;
      if (seq > upToSeq) return upToSeq;
      if (seq <= last) continue;
      deliver(receiver, text, seq, at);
      last = seq;
      if (receiver.isBehind()) return last;
    }
  }
  return last;
}

interface RepeatedCall {
  readonly requestId: string;
  readonly requestFingerprint: string;
}

type RepeatableTurn = Pick<
  TurnRow,
  'id' | 'request_id' | 'request_fingerprint' | 'idempotency_key' | 'first_seq' | 'last_seq' | 'ended_at'
>;

const KEPT_MS = 24 * 60 * 60 * 1000;

/**
 * The turn that a repeated call belongs to; undefined when it is a new call. `turns` are those of the session that may
 * be meant, oldest first. Throws RESUME_NOT_FOUND when the call cannot be new and belongs to none of them.
 */
function findRepeated<Turn extends RepeatableTurn>(
  turns: readonly Turn[],
  call: RepeatedCall,
  { afterSeq, idempotencyKey }: ResumeRequest,
  now: number,
): Turn | undefined {
  if (Number.isNaN(afterSeq)) throw notFound();
  const isKept = ({ ended_at: endedAt }: Turn) => endedAt === null || endedAt > now - KEPT_MS;
  if (idempotencyKey !== '') {
    const turn = turns.findLast((one) => one.idempotency_key === idempotencyKey);
    // The first call with a key brings it along; it is new unless it says that it has seen something.
    if (turn === undefined && afterSeq === undefined) return undefined;
    // A key that comes back with another question must not be answered with the old one's result.
    if (turn === undefined || turn.request_fingerprint !== call.requestFingerprint || !isKept(turn)) throw notFound();
    return turn;
  }
  if (afterSeq === undefined) return undefined;
  const same = turns.filter(
    (turn) =>
      turn.request_id === call.requestId && turn.request_fingerprint === call.requestFingerprint && isKept(turn),
  );
  const covers = (turn: Turn) =>
    turn.first_seq <= afterSeq + 1 && (turn.ended_at === null || afterSeq <= turn.last_seq);
  // The same call may have been made several times: the one whose updates the client saw, else the newest after them.
  const found = same.findLast(covers) ?? same.findLast((turn) => turn.first_seq > afterSeq);
  if (found === undefined) throw notFound();
  return found;
}

function notFound(): AppError {
  return new AppError('RESUME_NOT_FOUND');
}
