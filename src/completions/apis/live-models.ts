import { type Clock, deadline, withinTime } from '../../platform/clock/clock.ts';
import type { ListUpstreamModels } from './list-upstream-models.ts';
import type { UsableApi } from './model-api.ts';

/** The models that APIs say they have. */
export interface LiveModels {
  /** The names, at most a minute old; older ones while the API does not answer. Never waits for long, never rejects. */
  of(api: UsableApi): Promise<readonly string[]>;
  stop(): void;
}

export interface LiveModelsOptions {
  readonly list: ListUpstreamModels;
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
}

interface Listing {
  /** What was asked; an API whose address or key changed is another one. */
  readonly api: UsableApi;
  names: readonly string[];
  askedAt: number;
  asking: Promise<void> | undefined;
}

const FRESH_MS = 60_000;
/** How long a caller waits for a first answer, and how long an API may take to give it for the next caller. */
const WAIT_MS = 1500;
const ASK_MS = 10_000;

export function createLiveModels({ list, clock }: LiveModelsOptions): LiveModels {
  const listings = new Map<string, Listing>();
  const stopping = new AbortController();

  async function ask(listing: Listing): Promise<void> {
    const { signal, release } = deadline(clock, ASK_MS, [stopping.signal]);
    listing.askedAt = clock.monotonic();
    try {
      listing.names = await list(listing.api, signal);
    } catch {
      // It is down, or keeps its list to itself: what it said last still stands.
    } finally {
      release();
      listing.asking = undefined;
    }
  }

  return {
    async of(api) {
      let listing = listings.get(api.id);
      if (listing === undefined || listing.api !== api) {
        listing = { api, names: [], askedAt: Number.NEGATIVE_INFINITY, asking: undefined };
        listings.set(api.id, listing);
      }
      if (clock.monotonic() - listing.askedAt >= FRESH_MS) listing.asking ??= ask(listing);
      if (listing.asking !== undefined) await withinTime(clock, WAIT_MS, listing.asking, () => undefined);
      return listing.names;
    },
    stop: () => stopping.abort(),
  };
}
