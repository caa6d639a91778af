import type { AgentSession, SessionUpdate } from '../../src/client/trestle-client.ts';
import { until } from './narration.ts';

/** Updates as they came to one reader, oldest first. */
export interface Watch {
  readonly seen: readonly SessionUpdate[];
  /** Waits until one came that fits. Throws what the reading ended with. */
  until(what: string, fits: (update: SessionUpdate) => boolean): Promise<void>;
}

const WAIT_LIMIT_MS = 90_000;

export function watch(updates: AsyncIterable<SessionUpdate>): Watch {
  const seen: SessionUpdate[] = [];
  let failure: { readonly error: unknown } | undefined;
  const read = async () => {
    for await (const update of updates) seen.push(update);
  };
  read().catch((error: unknown) => {
    failure = { error };
  });
  return {
    seen,
    async until(what, fits) {
      await until(what, WAIT_LIMIT_MS, () => {
        if (seen.some(fits)) return true;
        if (failure !== undefined) throw failure.error;
        return undefined;
      });
    },
  };
}

/** What the bridge has stored of a session, up to the last of these turns' ends, as a new reader gets it. */
export async function storedUpdates(session: AgentSession, lastTurnId: string): Promise<readonly SessionUpdate[]> {
  const stop = new AbortController();
  const reader = watch(session.follow({ afterSeq: 0, signal: stop.signal }));
  await reader.until('the end of the last turn is replayed', (update) => isEndOf(update, lastTurnId));
  stop.abort();
  return reader.seen;
}

export function isEndOf({ turnId, event }: SessionUpdate, lastTurnId: string): boolean {
  return turnId === lastTurnId && ['completed', 'failed', 'cancelled'].includes(event);
}

export const isText = ({ type }: SessionUpdate) => type === 'delta';

export function textOf(updates: readonly SessionUpdate[]): string {
  return updates.map(({ delta = '' }) => delta).join('');
}

/** Checks that each update came once and in order. */
export function isRising(updates: readonly SessionUpdate[]): boolean {
  return updates.every(({ seq }, index) => index === 0 || seq > (updates[index - 1]?.seq ?? 0));
}

/** Stored updates that a reader did not get, or got otherwise. */
export function missedBy(seen: readonly SessionUpdate[], stored: readonly SessionUpdate[]): readonly SessionUpdate[] {
  const got = new Set(seen.map((update) => JSON.stringify(update)));
  return stored.filter((update) => !got.has(JSON.stringify(update)));
}
