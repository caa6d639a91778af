import { type Clock, pause } from '../../platform/clock/clock.ts';
import type { RetentionStore } from '../storage/retention-store.ts';
import type { SessionOrchestrator } from './session-orchestrator.ts';

/** How long things are kept, in milliseconds; 0 is for ever. */
export interface Retention {
  /** Updates and turns, and sessions that nobody uses, with everything that belongs to them. */
  readonly events: number;
  readonly audit: number;
}

export interface SweepOptions {
  readonly store: RetentionStore;
  readonly retention: Retention;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly signal: AbortSignal;
  readonly expire: SessionOrchestrator['expire'];
}

const STEP = 500;
/** Each of them may have an agent to be told and a folder to be removed. */
const SESSIONS_PER_STEP = 20;
/** Others write between two steps. */
const PAUSE_MS = 20;

/** Deletes what is older than it is kept, in small steps. Turns go with the updates that they had. */
export async function sweepOldRecords(options: SweepOptions): Promise<void> {
  const { store, retention, clock, signal } = options;
  await expireSessions(options);
  const kinds = [
    [retention.events, store.deleteUpdates],
    [retention.events, store.deleteTurns],
    [retention.audit, store.deleteAuditRecords],
  ] as const;
  for (const [keptMs, deleteSome] of kinds) {
    if (keptMs === 0) continue;
    const before = clock.now() - keptMs;
    while (!signal.aborted && (await deleteSome(before, STEP)) === STEP) await pause(clock, PAUSE_MS, signal);
  }
}

/** One rule for everything that belongs to a session: it goes when nobody has used the session for so long. */
async function expireSessions({ store, retention, clock, signal, expire }: SweepOptions): Promise<void> {
  if (retention.events === 0) return;
  const since = clock.now() - retention.events;
  while (!signal.aborted) {
    const unused = await store.unusedSessions(since, SESSIONS_PER_STEP);
    let expired = 0;
    for (const { owner, session_id: sessionId } of unused) {
      if (!signal.aborted && (await expire(owner, sessionId, since))) expired += 1;
    }
    if (unused.length < SESSIONS_PER_STEP || expired === 0) return;
    await pause(clock, PAUSE_MS, signal);
  }
}
