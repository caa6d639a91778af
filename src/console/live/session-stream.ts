import type { Live } from '../../client/trestle-client.ts';
import { listUpdates, UPDATES_OF_PAGE as PAGE, type SessionName } from '../data/bridge.ts';
import { Problem } from '../data/request.ts';
import { type Folded, foldUpdates, NOTHING, type Update } from './fold-updates.ts';

/** One open session: its last page, then every update as it comes, then earlier pages when they are asked for. */
export interface SessionStream {
  snapshot(): StreamState;
  /** The updates that are kept, in order. The snapshot changes with them. */
  updates(): readonly Update[];
  /** Reads begin with the first listener: a page that is drawn and never shown must not leave a stream behind. */
  onChange(listener: () => void): () => void;
  loadEarlier(): Promise<void>;
  close(): void;
}

export interface StreamState {
  readonly folded: Folded;
  readonly hasEarlier: boolean;
  readonly isLoading: boolean;
  readonly problem: Error | undefined;
  /** How many updates came after a connection had been lost; 0 while none was. */
  readonly caughtUp: number;
}

/** More updates are not kept: the oldest are read again when somebody scrolls back to them. */
const MAX_UPDATES = 20_000;
const EVICTED_TOGETHER = 5000;
/** Polling where there is no live socket: a bridge with a token and without accounts. */
const POLL_MS = 1000;
/** How soon a session is looked for again that is not there, or whose server cannot answer now. */
const AGAIN_MS = 5000;
/** How long it is said how much was missed. */
const NOTICE_MS = 15_000;

/** Whether the next attempt may find what this one has not: a session may be about to start, and a server comes back. */
function isPassing(error: unknown): boolean {
  return error instanceof Problem && (error.status === 0 || error.status === 404 || error.status >= 500);
}

/** `live` is undefined where the browser cannot open a socket: then updates are read once a second. */
export function openSessionStream(name: SessionName, live: Live | undefined): SessionStream {
  const listeners = new Set<() => void>();
  let updates: Update[] = [];
  let firstSeq = 0;
  let waiting: Update[] = [];
  let hasBegun = false;
  let isClosed = false;
  let wasLost = false;
  let frame: number | undefined;
  let stopFollowing: () => void = () => undefined;
  let stopStatus: () => void = () => undefined;
  let state: StreamState = { folded: NOTHING, hasEarlier: false, isLoading: true, problem: undefined, caughtUp: 0 };

  function change(next: Partial<StreamState>): void {
    state = { ...state, ...next };
    for (const listener of listeners) listener();
  }

  /** Draws at most once a frame, however many updates come. A hidden page has no frames. */
  function schedule(): void {
    if (document.hidden) {
      flush();
      return;
    }
    frame ??= requestAnimationFrame(flush);
  }

  function flush(): void {
    if (frame !== undefined) cancelAnimationFrame(frame);
    frame = undefined;
    // A page and the socket may both have brought one.
    const last = updates.at(-1)?.seq ?? 0;
    const fresh = waiting.filter(({ seq }) => seq > last);
    waiting = [];
    for (const update of fresh) updates.push(update);
    const caughtUp = wasLost ? state.caughtUp + fresh.length : state.caughtUp;
    if (updates.length <= MAX_UPDATES) change({ folded: foldUpdates(state.folded, fresh), caughtUp });
    else {
      updates = updates.slice(EVICTED_TOGETHER - MAX_UPDATES);
      firstSeq = updates[0]?.seq ?? firstSeq;
      // Plan and usage are the latest, whatever is left of the items.
      const kept = { ...state.folded, items: [], lastSeq: firstSeq - 1 };
      change({ folded: foldUpdates(kept, updates), hasEarlier: true, caughtUp });
    }
  }

  function receive(update: Update): void {
    waiting.push(update);
    schedule();
  }

  async function open(): Promise<void> {
    try {
      const page = await listUpdates(name, { limit: PAGE });
      if (isClosed) return;
      ({ updates, firstSeq } = page);
      change({
        folded: foldUpdates(NOTHING, updates),
        hasEarlier: page.hasEarlier,
        isLoading: false,
        problem: undefined,
      });
      if (live === undefined) poll(page.lastSeq);
      else stopFollowing = live.follow(name.sessionId, receive, { owner: name.owner, afterSeq: page.lastSeq });
    } catch (error) {
      if (isPassing(error) && !isClosed) {
        const timer = window.setTimeout(() => void open(), AGAIN_MS);
        stopFollowing = () => window.clearTimeout(timer);
      }
      change({ isLoading: false, problem: error as Error });
    }
  }

  function poll(afterSeq: number): void {
    const timer = window.setTimeout(async () => {
      let last = afterSeq;
      try {
        const page = await listUpdates(name, { afterSeq, limit: PAGE });
        for (const update of page.updates) receive(update);
        last = Math.max(last, page.lastSeq);
        if (state.problem !== undefined) change({ problem: undefined });
      } catch (error) {
        change({ problem: error as Error });
      }
      if (!isClosed) poll(last);
    }, POLL_MS);
    stopFollowing = () => window.clearTimeout(timer);
  }

  function noteStatus({ status }: Live): void {
    if (!status().isOpen) wasLost = true;
    else if (wasLost) {
      change({ caughtUp: 0 });
      // What was missed comes within moments of the new connection.
      window.setTimeout(() => {
        wasLost = false;
        window.setTimeout(() => {
          if (!wasLost && !isClosed) change({ caughtUp: 0 });
        }, NOTICE_MS);
      }, 2000);
    }
  }

  function begin(): void {
    hasBegun = true;
    if (live !== undefined) stopStatus = live.onStatus(() => noteStatus(live));
    void open();
  }

  return {
    snapshot: () => state,
    updates: () => updates,
    onChange(listener) {
      listeners.add(listener);
      if (!hasBegun) begin();
      return () => listeners.delete(listener);
    },
    async loadEarlier() {
      if (!state.hasEarlier || state.isLoading) return;
      change({ isLoading: true });
      try {
        const before = firstSeq;
        const page = await listUpdates(name, { beforeSeq: before, limit: PAGE });
        // Those that come after this page were evicted until then: it would leave a gap.
        if (firstSeq !== before) return change({ isLoading: false });
        firstSeq = page.firstSeq;
        updates = [...page.updates, ...updates];
        change({ folded: foldUpdates(NOTHING, updates), hasEarlier: page.hasEarlier, isLoading: false });
      } catch (error) {
        change({ isLoading: false, problem: error as Error });
      }
    },
    close() {
      isClosed = true;
      if (frame !== undefined) cancelAnimationFrame(frame);
      stopStatus();
      stopFollowing();
    },
  };
}
