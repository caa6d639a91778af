import { type Clock, pause, repeat } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import type { PeerAnswer } from '../forwarding/call-node.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { NotificationSink, UpdateHub } from '../sessions/update-hub.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { UpdateStore } from '../storage/update-store.ts';
import type { RelayTarget, SessionOwners } from './relay-call.ts';
import type { FollowerFeeds } from './session-owners.ts';

/** Lets connections to this instance follow sessions of other instances, with one stream for each session. */
export interface SessionFeeds extends Pick<SessionOrchestrator, 'follow' | 'forget'>, FollowerFeeds {
  /** Called when another instance has begun or ended a turn or closed a session; undefined: of any session. */
  woken(key: string | undefined): void;
  /** Makes the instance that sends updates here store them, so that they can be read. */
  flush(key: string): Promise<void>;
  stop(): Promise<void>;
}

interface SessionFeedsOptions {
  /** Serves sessions that are here, and connections that wait for a session to start here. */
  readonly sessions: Pick<SessionOrchestrator, 'follow' | 'forget'>;
  readonly owners: Pick<SessionOwners, 'find' | 'ofRow' | 'byKey' | 'isTaken'>;
  readonly hub: Pick<
    UpdateHub,
    | 'gets'
    | 'reached'
    | 'publish'
    | 'subscribeAfter'
    | 'sentUpTo'
    | 'catchUp'
    | 'keepWhole'
    | 'isFollowed'
    | 'followed'
    | 'close'
    | 'onEnd'
  >;
  readonly updates: Pick<UpdateStore, 'lastSeq'>;
  readonly clock: Clock;
  readonly log: { warn(facts: object, text: string): void };
  /** Asks another instance for the updates of a session from now on; resolves when it sends no more. */
  openStream(
    target: RelayTarget,
    session: SessionRow,
    on: { accepted(): void; update(seq: number, text: string): void },
    signal: AbortSignal,
  ): Promise<PeerAnswer>;
  /** Makes another instance store what it has published of its sessions. */
  flush(target: RelayTarget, session: SessionRow, signal: AbortSignal): Promise<PeerAnswer>;
}

interface Feed {
  readonly key: string;
  readonly stopped: AbortController;
  /** Resolves when the first stream is open, or cannot be opened: from then on no update is missed. */
  readonly ready: Promise<void>;
  /** The instance that sends updates now. */
  source: { readonly target: RelayTarget; readonly session: SessionRow } | undefined;
  /** Its session was followed here while it was served here, and is elsewhere now. */
  readonly isAdopted: boolean;
  wake: () => void;
}

interface Waiting {
  readonly principal: Principal;
  readonly sessionId: string;
  /** A connection that waits for a session gets all of its updates, from the first one on. */
  readonly afterSeq: number | undefined;
  /** Whether its call to follow the session is still running; that call knows the first update to send. */
  isOpening: boolean;
}

/** The pause between two searches for the owner of a session whose updates nobody sends; a message ends it earlier. */
const LOOK_MS = 2_000;
/** The pause after a stream has ended, before the owner is asked again; it doubles each time the owner does not answer. */
const AGAIN_MS = 250;
/** Messages tell of a start earlier, unless they are lost. */
const LOOK_FOR_STARTS_MS = 5_000;
/** By then, others have noticed that an owner which does not answer has left or died. */
const FLUSH_MS = 12_000;

export function createSessionFeeds(options: SessionFeedsOptions): SessionFeeds {
  const { sessions, owners, hub, updates, clock, log } = options;
  const feeds = new Map<string, Feed>();
  /** By connection, the sessions that it follows: their keys, with what it waited for. */
  const keysOf = new Map<NotificationSink, Map<string, Waiting>>();
  /** Connections that wait for a session to start, here or elsewhere. */
  const waiting = new Map<NotificationSink, Waiting>();
  const stopped = new AbortController();
  /** Sessions that another instance may have taken: the store could not be asked. */
  const unsure = new Set<string>();
  const adopting = new Set<string>();
  let isLooking = false;

  function open(session: SessionRow, isAdopted = false): Feed {
    const { key } = session;
    const known = feeds.get(key);
    if (known !== undefined) return known;
    const { promise: ready, resolve } = Promise.withResolvers<void>();
    const feed: Feed = {
      key,
      stopped: new AbortController(),
      ready,
      source: undefined,
      isAdopted,
      wake: () => undefined,
    };
    feeds.set(key, feed);
    hub.keepWhole(key, true);
    run(feed, resolve)
      .catch((error: unknown) => log.warn({ err: error, key }, 'a session of another instance could not be followed'))
      .finally(() => {
        resolve();
        close(feed);
      });
    return feed;
  }

  function close(feed: Feed): void {
    feed.stopped.abort();
    if (feeds.get(feed.key) !== feed) return;
    feeds.delete(feed.key);
    hub.keepWhole(feed.key, false);
  }

  /** Feeds the hub of this instance until nobody here follows the session any more, or it is closed. */
  async function run(feed: Feed, ready: () => void): Promise<void> {
    const signal = AbortSignal.any([feed.stopped.signal, stopped.signal]);
    for (let againMs = AGAIN_MS; !signal.aborted; againMs = Math.min(2 * againMs, LOOK_MS)) {
      const found = await owners.byKey(feed.key).catch(() => 'unknown' as const);
      // The beginning of the session was undone. Clients connect again, and wait for the next session of that name.
      if (found === undefined) return loseFollowers(feed.key);
      const session = found === 'unknown' ? undefined : found;
      const target = await owners.ofRow(session).catch(() => undefined);
      const isFound = session !== undefined && target !== undefined;
      if (isFound && (await stream(feed, session, target, ready, signal))) againMs = AGAIN_MS;
      ready();
      if (signal.aborted) return;
      // Sends what the instance stored before it ended, and the end that others have stored for it.
      const [{ status }] = await Promise.allSettled([catchUp(feed)]);
      // Only the hub knows the followers of a session that was served here before.
      if (feed.isAdopted && ((target === undefined && status === 'fulfilled') || !hub.isFollowed(feed.key))) return;
      if (session?.closed_at !== null && session !== undefined) {
        hub.close(feed.key);
        return;
      }
      await next(feed, target === undefined ? LOOK_MS : againMs, signal);
    }
  }

  function loseFollowers(key: string): void {
    for (const [receiver, keys] of [...keysOf]) if (keys.has(key)) receiver.lost();
  }

  async function stream(
    feed: Feed,
    session: SessionRow,
    target: RelayTarget,
    ready: () => void,
    signal: AbortSignal,
  ): Promise<boolean> {
    await options.openStream(
      target,
      session,
      {
        accepted() {
          feed.source = { target, session };
          ready();
          void catchUpWhile(feed, signal);
        },
        update: (seq, text) => hub.publish(feed.key, seq, text),
      },
      signal,
    );
    const hasAnswered = feed.source !== undefined;
    feed.source = undefined;
    return hasAnswered;
  }

  /** Repeats `catchUp` until it succeeds, while the stream is open. */
  async function catchUpWhile(feed: Feed, signal: AbortSignal): Promise<void> {
    const { source } = feed;
    while (feed.source === source && !signal.aborted) {
      try {
        return await catchUp(feed);
      } catch {
        await pause(clock, AGAIN_MS, signal);
      }
    }
  }

  /** Sends ends of turns that a third instance has stored, because the stream of the owner does not contain them. */
  async function readEnds(feed: Feed): Promise<void> {
    try {
      await sendStored(feed);
    } catch {
      await catchUpWhile(feed, feed.stopped.signal);
    }
  }

  /** Sends what is stored and was not sent yet. */
  async function catchUp(feed: Feed): Promise<void> {
    await flush(feed.key);
    await sendStored(feed);
  }

  async function sendStored(feed: Feed): Promise<void> {
    // Followers may have received different amounts, so the hub checks each of them.
    hub.catchUp(feed.key, await updates.lastSeq(feed.key));
  }

  async function next(feed: Feed, ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    feed.wake = resolve;
    await Promise.race([promise, pause(clock, ms, signal)]);
  }

  async function flush(key: string): Promise<void> {
    const until = clock.monotonic() + FLUSH_MS;
    for (;;) {
      const feed = feeds.get(key);
      // An owner that has left or died has no updates that are not stored.
      if (feed?.source === undefined) return;
      const { target, session } = feed.source;
      const { signal } = feed.stopped;
      const answer = await options.flush(target, session, signal);
      if (answer.kind === 'result') return;
      // Without these updates, the next updates of the stream would leave a gap.
      if (signal.aborted || clock.monotonic() >= until) throw new AppError('STORAGE_UNAVAILABLE');
      await pause(clock, AGAIN_MS, signal);
    }
  }

  /** `from`: the number after which updates are sent; undefined: from now on. */
  async function followElsewhere(
    waits: Waiting,
    from: number | undefined,
    receiver: NotificationSink,
  ): Promise<'here' | 'gets it here' | 'nowhere' | 'elsewhere'> {
    const session = await owners.find(waits.principal, waits.sessionId, false);
    if (session === undefined || session.closed_at !== null) return 'nowhere';
    const { key } = session;
    const isHere = (await owners.ofRow(session)) === undefined && !owners.isTaken(session);
    const place = isHere ? (hub.sentUpTo(key, receiver) === undefined ? 'here' : 'gets it here') : 'elsewhere';
    // The connection may be closed, or may follow the session already.
    if (waiting.get(receiver) !== waits) return place;
    const keys = keysOf.get(receiver) ?? new Map<string, Waiting>();
    keysOf.set(receiver, keys.set(key, waits));
    if (isHere) return place;
    waiting.delete(receiver);
    await open(session).ready;
    // A connection that the hub knows already has the updates up to that number.
    const after = hub.sentUpTo(key, receiver) ?? from ?? (await lastSeqOf(key));
    // The connection may have been closed while the stream was opened.
    if (keysOf.get(receiver) === keys) await hub.subscribeAfter(key, receiver, after);
    else closeUnused(keys.keys());
    return 'elsewhere';
  }

  async function followHere(waits: Waiting, afterSeq: number | undefined, receiver: NotificationSink): Promise<void> {
    const { principal, sessionId } = waits;
    waiting.delete(receiver);
    await sessions.follow(principal, sessionId, afterSeq, receiver);
    const key = keyOf(receiver, sessionId);
    // The session may have a beginning that is undone: then the connection waits for the next session of that name.
    const isUnbegun = key !== undefined && hub.sentUpTo(key, receiver) === undefined;
    if (isUnbegun && !waiting.has(receiver)) waiting.set(receiver, { ...waits, isOpening: false });
  }

  function keyOf(receiver: NotificationSink, sessionId: string): string | undefined {
    return [...(keysOf.get(receiver) ?? [])].findLast(([, waits]) => waits.sessionId === sessionId)?.[0];
  }

  async function lastSeqOf(key: string): Promise<number> {
    await flush(key);
    return updates.lastSeq(key);
  }

  function closeUnused(keys: Iterable<string>): void {
    for (const key of keys) {
      const feed = feeds.get(key);
      if (feed !== undefined && !hub.isFollowed(key) && !isAwaited(key)) close(feed);
    }
  }

  /** Whether connections wait for the stream of the session to open: the hub does not know them yet. */
  function isAwaited(key: string): boolean {
    return [...keysOf.values()].some((keys) => keys.has(key));
  }

  /** Opens a feed for a session that is followed here and was served here, if another instance has taken it. */
  async function adopt(key: string): Promise<void> {
    unsure.delete(key);
    if (feeds.has(key) || adopting.has(key) || !hub.isFollowed(key)) return;
    adopting.add(key);
    try {
      const session = await owners.byKey(key);
      if (session === undefined || !hub.isFollowed(key)) return;
      // Another instance may have had it until now.
      if ((await owners.ofRow(session)) === undefined) hub.catchUp(key);
      else open(session, true);
    } catch (error) {
      unsure.add(key);
      throw error;
    } finally {
      adopting.delete(key);
    }
  }

  /** Checks whether awaited sessions have started, and whether other instances have taken sessions that are followed here. */
  async function look(): Promise<void> {
    if (isLooking || (waiting.size === 0 && unsure.size === 0)) return;
    isLooking = true;
    try {
      for (const key of [...unsure]) await adopt(key);
      for (const [receiver, waits] of [...waiting]) if (!waits.isOpening) await lookFor(receiver, waits);
    } finally {
      isLooking = false;
    }
  }

  async function lookFor(receiver: NotificationSink, waits: Waiting): Promise<void> {
    const { afterSeq = 0 } = waits;
    try {
      const place = await followElsewhere(waits, afterSeq, receiver);
      if (waiting.get(receiver) !== waits || place === 'nowhere') return;
      // Another instance has started the session, and has left since then.
      if (place === 'here') await followHere(waits, afterSeq, receiver);
      else waiting.delete(receiver);
    } catch (error) {
      if (waiting.get(receiver) === waits) throw error;
      // The connection may have received some updates: its client resumes after the last one.
      receiver.lost();
    }
  }

  // The beginning of a session here was undone: the next session of that name may begin on another instance.
  hub.onEnd((key, receivers) => {
    for (const [receiver, got] of receivers) {
      const waits = waiting.has(receiver) ? undefined : keysOf.get(receiver)?.get(key);
      if (waits) waiting.set(receiver, { ...waits, afterSeq: got || waits.afterSeq, isOpening: false });
    }
  });

  const onLookError = (error: unknown) =>
    log.warn({ err: error }, 'sessions of other instances could not be looked for');
  const looking = repeat({ clock, pauseMs: LOOK_FOR_STARTS_MS, work: look, onError: onLookError });

  return {
    async follow(principal, sessionId, afterSeq, receiver) {
      const waits: Waiting = { principal, sessionId, afterSeq, isOpening: true };
      waiting.set(receiver, waits);
      const place = await followElsewhere(waits, afterSeq, receiver);
      waits.isOpening = false;
      if (place === 'elsewhere' || waiting.get(receiver) !== waits) return;
      if (place === 'nowhere') await sessions.follow(principal, sessionId, afterSeq, receiver);
      else await followHere(waits, afterSeq, receiver);
    },
    forget(receiver) {
      waiting.delete(receiver);
      const keys = keysOf.get(receiver)?.keys() ?? [];
      keysOf.delete(receiver);
      sessions.forget(receiver);
      closeUnused(keys);
      closeUnused([...feeds.values()].filter(({ isAdopted }) => isAdopted).map(({ key }) => key));
    },
    woken(key) {
      for (const feed of key === undefined ? feeds.values() : [feeds.get(key)]) {
        feed?.wake();
        if (feed?.source !== undefined) void readEnds(feed);
      }
      for (const one of key === undefined ? hub.followed() : [key]) void adopt(one).catch(onLookError);
      void look().catch(onLookError);
    },
    flush,
    gets: hub.gets,
    reached: hub.reached,
    keyOf,
    follows(receiver, { key, sessionId }) {
      const isWaiting = waiting.get(receiver)?.sessionId === sessionId;
      if (isWaiting) {
        // The connection gets all updates as soon as the session is found.
        void look().catch(onLookError);
        return true;
      }
      // The session was served here before: the updates of this call alone would omit earlier updates of another call.
      const wasHere = hub.sentUpTo(key, receiver) !== undefined;
      if (wasHere && !feeds.has(key)) void adopt(key).catch(onLookError);
      return wasHere || (feeds.has(key) && keysOf.get(receiver)?.has(key) === true);
    },
    async stop() {
      stopped.abort();
      waiting.clear();
      await looking.stop();
    },
  };
}
