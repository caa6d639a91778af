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

/** Lets connections to this instance follow sessions of others: one stream for each session, however many follow it here. */
export interface SessionFeeds extends Pick<SessionOrchestrator, 'follow' | 'forget'>, FollowerFeeds {
  /** Another instance has begun or ended a turn, or closed a session; undefined: any may have. */
  woken(key: string | undefined): void;
  /** Makes the instance whose updates come here store them, so that they can be read. */
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
  /** Resolves when the first stream is open, or cannot be opened: from then on nothing is missed. */
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
  /** A connection that waits for a session gets it from its first update on. */
  readonly afterSeq: number | undefined;
  /** While its call to follow the session is under way, which knows from where on. */
  isOpening: boolean;
}

/** Between two looks for the owner of a session that nobody sends updates of; messages make it sooner. */
const LOOK_MS = 2_000;
/** After a stream that has ended, before the owner is asked again; each time it does not answer, twice as long. */
const AGAIN_MS = 250;
/** Messages tell of a start sooner, unless they are lost. */
const LOOK_FOR_STARTS_MS = 5_000;
/** An owner that does not answer has left or died by then, and the others have noticed it. */
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
      // Its beginning was taken back. Clients connect again, and wait for the next session of that name.
      if (found === undefined) return loseFollowers(feed.key);
      const session = found === 'unknown' ? undefined : found;
      const target = await owners.ofRow(session).catch(() => undefined);
      const isFound = session !== undefined && target !== undefined;
      if (isFound && (await stream(feed, session, target, ready, signal))) againMs = AGAIN_MS;
      ready();
      if (signal.aborted) return;
      // What the instance has stored until its end, and the end that others have stored for it.
      const [{ status }] = await Promise.allSettled([catchUp(feed)]);
      // Those who follow a session that was here before are known to the hub alone.
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

  /** The same as soon as it can be done, while a stream is open. */
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

  /** A third instance may have ended a turn of the session: the stream of its owner does not bring that. */
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
    // Of two who follow it one may have got less: each is looked at.
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
      // An owner that has left, or has died, has no updates that are not stored.
      if (feed?.source === undefined) return;
      const { target, session } = feed.source;
      const { signal } = feed.stopped;
      const answer = await options.flush(target, session, signal);
      if (answer.kind === 'result') return;
      // Without its last updates, those that come by the stream would leave a gap.
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
    // It may have gone, or may follow it already.
    if (waiting.get(receiver) !== waits) return place;
    const keys = keysOf.get(receiver) ?? new Map<string, Waiting>();
    keysOf.set(receiver, keys.set(key, waits));
    if (isHere) return place;
    waiting.delete(receiver);
    await open(session).ready;
    // One that was found in the store a moment ago has got what was there.
    const after = hub.sentUpTo(key, receiver) ?? from ?? (await lastSeqOf(key));
    // It may have gone while the stream was opened.
    if (keysOf.get(receiver) === keys) await hub.subscribeAfter(key, receiver, after);
    else closeUnused(keys.keys());
    return 'elsewhere';
  }

  async function followHere(waits: Waiting, afterSeq: number | undefined, receiver: NotificationSink): Promise<void> {
    const { principal, sessionId } = waits;
    waiting.delete(receiver);
    await sessions.follow(principal, sessionId, afterSeq, receiver);
    const key = keyOf(receiver, sessionId);
    // What was found may be a beginning that is taken back: then the next session of that name is waited for.
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

  /** Connections that have come for the session while its stream was being opened: the hub does not know them yet. */
  function isAwaited(key: string): boolean {
    return [...keysOf.values()].some((keys) => keys.has(key));
  }

  /** A session that is followed here, and was served here, may have been taken by another instance. */
  async function adopt(key: string): Promise<void> {
    unsure.delete(key);
    if (feeds.has(key) || adopting.has(key) || !hub.isFollowed(key)) return;
    adopting.add(key);
    try {
      const session = await owners.byKey(key);
      if (session === undefined || !hub.isFollowed(key)) return;
      // It may have been elsewhere until now.
      if ((await owners.ofRow(session)) === undefined) hub.catchUp(key);
      else open(session, true);
    } catch (error) {
      unsure.add(key);
      throw error;
    } finally {
      adopting.delete(key);
    }
  }

  /** Looks whether sessions that connections wait for have started, and whether others were taken. */
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
      // Another instance has started it, and has gone since then.
      if (place === 'here') await followHere(waits, afterSeq, receiver);
      else waiting.delete(receiver);
    } catch (error) {
      if (waiting.get(receiver) === waits) throw error;
      // It may have got some updates by now: its client resumes after the last of them.
      receiver.lost();
    }
  }

  // The beginning of a session here was taken back: the next one of its name may begin elsewhere.
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
        // It gets all of the session as soon as the session is found.
        void look().catch(onLookError);
        return true;
      }
      // Its session was served here before: with what the call brings alone, earlier updates of another call would be missed.
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
