import type { Change } from '../bridge/contract/jobs.ts';
import type { PlainUpdate } from '../bridge/contract/workbench.ts';
import { createRetries, type MakeCallId, type RpcMessage, resultOf } from './bridge-transport.ts';
import type { OnAnswer, OpenLink, SocketLink } from './socket-link.ts';
import { TrestleError } from './trestle-error.ts';

/** A change. `topic` is the type of `item`. An `item` of null means that more has changed than could be sent. */
export type LiveChange = Change;
/** An update of a session, with each member once. */
export type LiveUpdate = PlainUpdate;
export type LiveTopic = Change['topic'];

/** Whether changes and updates arrive. */
export interface LiveStatus {
  readonly isOpen: boolean;
  /** When the last message came, in milliseconds of the clock here; 0 when none has come. */
  readonly heardAt: number;
  /** The time of the server minus the time here, as the last ping has it. */
  readonly clockAheadMs: number;
  /** Why no connection is tried any more, such as UNAUTHORIZED. The next `watch` or `follow` tries again. */
  readonly problem: TrestleError | undefined;
}

/**
 * Changes and updates as they happen (`/api/bridge/live`), over one WebSocket that is opened with the first listener, opened
 * again whenever it breaks, and closed with the last listener.
 */
export interface Live {
  /**
   * Calls the listener with every change of these topics, and with `undefined` after every (re)connection: read the lists again
   * then. Returns a function that ends it.
   *
   * @example
   * ```ts
   * await new Promise<void>((resolve) => {
   *   const stop = trestle.live.watch(['sessions', 'permissions'], (change) => {
   *     console.log(change === undefined ? 'read the lists' : change.topic);
   *     stop();
   *     resolve();
   *   });
   * });
   * ```
   */
  watch(
    topics: readonly LiveTopic[],
    listener: (change: LiveChange | undefined) => void,
    options?: { readonly owner?: string },
  ): () => void;
  /**
   * Calls the listener with every update of a session after the number `afterSeq`, or from now on: each once and in order, over any number of
   * connections. The session may start later. Returns a function that ends it.
   *
   * @example
   * ```ts
   * await trestle.session('heard').start('Hello').result;
   * await new Promise<void>((resolve) => {
   *   const listener = (update: { readonly seq: number; readonly kind: string }) => {
   *     console.log(update.seq, update.kind);
   *     if (update.kind !== 'completed') return;
   *     stop();
   *     resolve();
   *   };
   *   const stop = trestle.live.follow('heard', listener, { afterSeq: 0 });
   * });
   * ```
   */
  follow(sessionId: string, listener: (update: LiveUpdate) => void, options?: LiveFollowOptions): () => void;
  /**
   * Returns whether changes and updates arrive.
   *
   * @example
   * ```ts
   * console.log(trestle.live.status().isOpen);
   * ```
   */
  status(): LiveStatus;
  /**
   * Calls the listener when the connection opens or breaks. Returns a function that ends it.
   *
   * @example
   * ```ts
   * const stop = trestle.live.onStatus(() => console.log(trestle.live.status().isOpen));
   * stop();
   * console.log('not any more');
   * ```
   */
  onStatus(listener: () => void): () => void;
}

export interface LiveFollowOptions {
  /** Of the session, where it is not the caller. */
  readonly owner?: string | undefined;
  /** The last update that was seen; updates from now on unless given. */
  readonly afterSeq?: number;
}

interface Watched {
  readonly topics: readonly LiveTopic[];
  readonly owner: string | undefined;
  readonly listener: (change: LiveChange | undefined) => void;
}

interface Followed {
  readonly name: { readonly sessionId: string; readonly owner?: string };
  readonly listener: (update: LiveUpdate) => void;
  /** Undefined: from now on, and the server has not sent that number yet. */
  afterSeq: number | undefined;
  /** Whether the server has answered. Updates before its response are for other followers, which had seen more. */
  isServed: boolean;
}

interface LiveOptions {
  readonly openLink: OpenLink;
  readonly makeCallId: MakeCallId;
  /** Aborts when the client is closed. */
  readonly closed: AbortSignal;
}

export function createLive({ openLink, makeCallId, closed }: LiveOptions): Live {
  const watched = new Set<Watched>();
  const followed = new Set<Followed>();
  const listeners = new Set<() => void>();
  let status: LiveStatus = { isOpen: false, heardAt: 0, clockAheadMs: 0, problem: undefined };
  let link: SocketLink | undefined;
  let isRunning = false;
  /** The last listener has stopped, so the end of the connection is no failure. */
  let isClosedHere = false;

  function change(next: Partial<LiveStatus>): void {
    status = { ...status, ...next };
    for (const listener of [...listeners]) listener();
  }

  /** Sends a call. Shows a refusal as the status, because the next connection would get it too. */
  async function call(method: string, params: object, onAnswer?: OnAnswer): Promise<void> {
    try {
      if (link !== undefined) resultOf(await link.send({ jsonrpc: '2.0', id: makeCallId(), method, params }, onAnswer));
    } catch (error) {
      if (error instanceof TrestleError && error.code !== 'CONNECTION_LOST') change({ problem: error });
    }
  }

  /** Sends the watched topics. New watchers read their lists after the response, because later changes arrive by themselves. */
  async function sendWatch(fresh: Iterable<Watched>): Promise<void> {
    if (watched.size === 0) {
      await call('unwatch', {});
      return;
    }
    const owners = new Set([...watched].map((one) => one.owner));
    const [owner] = owners.size === 1 ? owners : [];
    const topics = [...new Set([...watched].flatMap((one) => one.topics))];
    const readers = [...fresh];
    await call('watch', { topics, ...(owner !== undefined && { owner }) });
    for (const one of readers) readAgain(one);
  }

  const sharing = ({ name }: Followed) =>
    [...followed].filter(({ name: { sessionId, owner } }) => sessionId === name.sessionId && owner === name.owner);

  /** Follows a session from the oldest update that any follower misses, because a connection gets each update once. */
  async function sendFollow(one: Followed): Promise<void> {
    const shared = sharing(one);
    const seen = shared.flatMap(({ afterSeq }) => afterSeq ?? []);
    const params = { ...one.name, ...(seen.length > 0 && { afterSeq: Math.min(...seen) }) };
    await call('follow', params, ({ result }) => {
      const { lastSeq } = (result ?? {}) as { readonly lastSeq?: number };
      if (lastSeq === undefined) return;
      for (const served of shared) {
        served.isServed = true;
        // Sets the first number, so that no update is missed if the connection breaks before the first one.
        served.afterSeq ??= lastSeq;
      }
    });
  }

  function receive({ method, params }: RpcMessage): void {
    const now = Date.now();
    status = { ...status, heardAt: now };
    if (method === 'ping') status = { ...status, clockAheadMs: (params as { readonly now: number }).now - now };
    else if (method === 'changed') tellChange(params as LiveChange);
    else if (method === 'update') tellUpdate(params as Followed['name'] & { readonly update: LiveUpdate });
  }

  function tellChange(one: LiveChange): void {
    const owner = one.item !== null && 'owner' in one.item ? one.item.owner : undefined;
    for (const { topics, listener, owner: wanted } of [...watched]) {
      if (!topics.includes(one.topic)) continue;
      if (wanted === undefined || owner === undefined || wanted === owner) listener(one);
    }
  }

  function tellUpdate({ sessionId, owner, update }: Followed['name'] & { readonly update: LiveUpdate }): void {
    for (const one of [...followed]) {
      const isMeant = one.isServed && one.name.sessionId === sessionId && one.name.owner === owner;
      if (!isMeant || update.seq <= (one.afterSeq ?? 0)) continue;
      one.afterSeq = update.seq;
      one.listener(update);
    }
  }

  /** Calls the listener in a microtask, so that its errors do not end the connection. */
  function readAgain(one: Watched): void {
    queueMicrotask(() => {
      if (watched.has(one)) one.listener(undefined);
    });
  }

  const isWanted = () => !closed.aborted && (watched.size > 0 || followed.size > 0);

  /** Keeps a connection open while there are listeners. */
  async function run(): Promise<void> {
    const retries = createRetries(Number.POSITIVE_INFINITY, closed);
    while (isWanted()) {
      try {
        link = await openLink('', receive);
      } catch (error) {
        await retries.failed(error);
        continue;
      }
      const openedAt = performance.now();
      isClosedHere = false;
      change({ isOpen: true, heardAt: Date.now(), problem: undefined });
      // Earlier changes are only in the lists.
      if (watched.size > 0) void sendWatch(watched);
      for (const one of followed) if (sharing(one)[0] === one) void sendFollow(one);
      closeUnlessWanted();
      await link.closed;
      link = undefined;
      change({ isOpen: false });
      if (!isClosedHere) await retries.ended(performance.now() - openedAt);
    }
  }

  function start(): void {
    if (isRunning || !isWanted()) return;
    isRunning = true;
    run()
      .catch((error: unknown) => {
        if (!closed.aborted) change({ problem: error instanceof TrestleError ? error : undefined });
      })
      .finally(() => {
        isRunning = false;
        // A listener may have been added since. After a problem, only the next one tries again.
        if (status.problem === undefined) start();
      });
  }

  function closeUnlessWanted(): void {
    if (isWanted()) return;
    isClosedHere = true;
    link?.close();
  }
  closed.addEventListener('abort', closeUnlessWanted);

  return {
    watch(topics, listener, { owner } = {}) {
      const one: Watched = { topics, owner, listener };
      watched.add(one);
      if (link !== undefined) void sendWatch([one]);
      start();
      return () => {
        if (!watched.delete(one)) return;
        if (link !== undefined) void sendWatch([]);
        closeUnlessWanted();
      };
    },
    follow(sessionId, listener, { owner, afterSeq } = {}) {
      const name = { sessionId, ...(owner !== undefined && { owner }) };
      const one: Followed = { name, listener, afterSeq, isServed: false };
      followed.add(one);
      if (link !== undefined) void sendFollow(one);
      start();
      return () => {
        if (!followed.delete(one)) return;
        if (link !== undefined && sharing(one).length === 0) void call('unfollow', one.name);
        closeUnlessWanted();
      };
    },
    status: () => status,
    onStatus(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}
