import { AppError } from '../../platform/errors/app-error.ts';
import { rawJson } from '../../platform/json-rpc/envelope.ts';
import type { TurnRow } from '../storage/bridge-schema.ts';
import type { UpdateChunk, UpdateStore } from '../storage/update-store.ts';
import type { Replay, UpdateReceiver } from './update-hub.ts';
import type { UpdateLog } from './update-log.ts';
import { wireText } from './update-text.ts';

export function createReplay(log: Pick<UpdateLog, 'flush'>, store: Pick<UpdateStore, 'readAfter'>): Replay {
  return async (sessionKey, receiver, afterSeq, upToSeq = Number.POSITIVE_INFINITY) => {
    await log.flush();
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
function sendSome(chunks: readonly UpdateChunk[], receiver: UpdateReceiver, afterSeq: number, upToSeq: number): number {
  let last = afterSeq;
  for (const { first_seq: first, updates } of chunks) {
    for (const [index, text] of updates.split('\n').entries()) {
      const seq = first + index;
      if (seq > upToSeq) return upToSeq;
      if (seq <= last) continue;
      receiver.update(rawJson(wireText(text)), seq);
      last = seq;
      if (receiver.isBehind()) return last;
    }
  }
  return last;
}

/** What a repeated call says about the one it repeats (contract/bridge 1, Resume). */
export interface ResumeRequest {
  /** From `Last-Event-ID`: the last update that the client has seen. Undefined when it was not sent, NaN when it is no number. */
  readonly afterSeq: number | undefined;
  /** Empty when the header was not sent. */
  readonly idempotencyKey: string;
}

export interface RepeatedCall {
  readonly requestId: string;
  readonly requestFingerprint: string;
}

export type RepeatableTurn = Pick<
  TurnRow,
  'id' | 'request_id' | 'request_fingerprint' | 'idempotency_key' | 'first_seq' | 'last_seq' | 'ended_at'
>;

const KEPT_MS = 24 * 60 * 60 * 1000;

/**
 * The turn that a repeated call belongs to; undefined when it is a new call. `turns` are those of the session that may
 * be meant, oldest first. Throws RESUME_NOT_FOUND when the call cannot be new and belongs to none of them.
 */
export function findRepeated<Turn extends RepeatableTurn>(
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
