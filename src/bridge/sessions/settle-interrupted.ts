import { errorCode } from '../../platform/errors/app-error.ts';
import type { TurnStore } from '../storage/turn-store.ts';
import type { UpdateStore } from '../storage/update-store.ts';
import { interruptedResult, outcomeText, type ResultBase } from './turn-outcome.ts';
import { stageUpdate } from './update-text.ts';

export interface SettleOptions {
  readonly turns: Pick<TurnStore, 'findDead' | 'settleDead'>;
  readonly updates: Pick<UpdateStore, 'insert'>;
  /** This bridge: its own turns live. */
  readonly instance: string;
  /** Instances that gave no sign of life since then are dead. */
  readonly aliveSince: number;
  readonly now: number;
}

const PAGE = 100;
const REASON = 'The bridge was stopped while the turn was open.';

/** Ends the turns that died with their bridge as `failed`, TURN_INTERRUPTED (contract/bridge 1); answers how many. */
export async function settleInterrupted({ turns, updates, ...options }: SettleOptions): Promise<number> {
  const { instance, aliveSince, now } = options;
  for (let total = 0; ; ) {
    const dead = await turns.findDead(instance, aliveSince, PAGE);
    const reserved = new Map(dead.map(({ session }) => [session.key, session.reserved_seq]));
    let settled = 0;
    for (const { turn, session } of dead) {
      const known = reserved.get(session.key) ?? session.reserved_seq;
      // What clients have seen may not have reached the store: the next number is beyond all that were reserved.
      const seq = known + 1;
      const base = JSON.parse(turn.base) as ResultBase;
      const outcome = outcomeText(interruptedResult(base, '', REASON));
      const text = stageUpdate(base, 'failed', REASON)(seq);
      const [update] = updates.insert([
        { session_key: session.key, first_seq: seq, last_seq: seq, at: now, updates: text },
      ]);
      if (update === undefined) continue;
      try {
        const ended = { id: turn.id, status: 'failed', outcome, lastSeq: seq, now };
        await turns.settleDead({ turn, session: { ...session, reserved_seq: known } }, ended, update);
      } catch (error) {
        // Another bridge was faster.
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
        continue;
      }
      reserved.set(session.key, seq);
      settled += 1;
    }
    total += settled;
    if (dead.length < PAGE || settled === 0) return total;
  }
}
