import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RawJson } from '../../platform/json-rpc/envelope.ts';
import type { TurnRow } from '../storage/bridge-schema.ts';
import type { TurnStore } from '../storage/turn-store.ts';
import type { LiveSession, LiveTurn, TurnClient, TurnRequest } from './live-session.ts';
import { findRepeated, type RepeatableTurn, type ResumeRequest } from './replay.ts';
import { answerOf } from './turn-outcome.ts';
import { ofTurn, type Replay, type UpdateHub } from './update-hub.ts';

/** Lets a repeated call take up the turn of the first one (contract/bridge 1, Resume). Nothing is run here. */
export interface TurnResumption {
  /** The turn of that session which the call repeats; undefined when it is a new call. Throws RESUME_NOT_FOUND. */
  find(session: LiveSession | undefined, request: TurnRequest, resume: ResumeRequest): Promise<EarlierTurn | undefined>;
  /** Sends what the client has not seen, then gives the result. */
  attach(earlier: EarlierTurn, request: TurnRequest, resume: ResumeRequest, client: TurnClient): Promise<RawJson>;
}

export interface EarlierTurn extends RepeatableTurn {
  readonly session: LiveSession;
  /** Set while it runs or waits here. */
  readonly live: LiveTurn | undefined;
  readonly outcome: string;
}

export interface TurnResumptionOptions {
  readonly turns: Pick<TurnStore, 'findSame' | 'findByKey'>;
  readonly hub: UpdateHub;
  readonly replay: Replay;
  readonly clock: Pick<Clock, 'now'>;
}

export function createTurnResumption({ turns, hub, replay, clock }: TurnResumptionOptions): TurnResumption {
  function stored(session: LiveSession, request: TurnRequest, key: string): Promise<readonly TurnRow[]> {
    if (!session.isStored) return Promise.resolve([]);
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
      return findRepeated([...found.values()], request, resume, clock.now());
    },
    async attach(earlier, request, { afterSeq = 0 }, { receiver: client, stays }) {
      const { session, live, ended_at: endedAt } = earlier;
      const receiver = client === undefined ? undefined : ofTurn(client, earlier.id);
      const after = Math.max(afterSeq, earlier.first_seq - 1);
      // Another bridge runs it, and only that one knows how it goes.
      if (live === undefined && endedAt === null) throw new AppError('SESSION_BUSY');
      request.accepted();
      if (live === undefined) {
        if (receiver !== undefined) await replay(session.key, receiver, after, earlier.last_seq);
        return answerOf(earlier.outcome);
      }
      try {
        if (receiver !== undefined) {
          await hub.subscribeAfter(session.key, receiver, after);
        }
        const outcome = await live.outcome;
        if (receiver !== undefined) await hub.reached(session.key, receiver, live.lastSeq);
        return answerOf(outcome);
      } finally {
        if (receiver !== undefined && !stays) hub.unsubscribe(session.key, receiver);
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
