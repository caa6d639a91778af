import { type Clock, repeat } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { sees } from '../../platform/identity/principal.ts';
import { plainEnvelope, rawJson } from '../../platform/json-rpc/envelope.ts';
import type { MessageChannel } from '../../platform/json-rpc/message-channel.ts';
import { createDispatch, defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import { createPeer, type Peer } from '../../platform/json-rpc/peer.ts';
import type { BridgeCaller } from '../access.ts';
import { channelSink } from '../bridge-client.ts';
import { FollowParams, FollowResult, UnfollowParams, UnwatchParams, WatchParams } from '../contract/jobs.ts';
import { LiveAccepted } from '../contract/workbench.ts';
import { bridgeErrors } from '../errors.ts';
import type { SessionFollowing } from '../forwarding/update-relay.ts';
import { principalOf } from '../principal.ts';
import type { NotificationSink } from '../sessions/update-hub.ts';
import { plainUpdate } from './plain-update.ts';
import type { SessionChanges, Watcher } from './session-changes.ts';
import type { SessionList } from './session-list.ts';

/** `GET /api/bridge/live`, upgraded: a JSON-RPC peer that watches lists and follows sessions. */
export interface LiveSocket {
  accept(channel: MessageChannel, head: Pick<RequestHead, 'requestId'>, caller: BridgeCaller): void;
}

export interface LiveSocketOptions {
  readonly clock: Clock;
  readonly changes: Pick<SessionChanges, 'watch' | 'unwatch'>;
  readonly following: SessionFollowing;
  readonly sessions: Pick<SessionList, 'show'>;
  readonly callsPerConnection: number;
  makeRequestId(): string;
  onUnexpectedError(error: unknown, requestId: string): void;
}

/** One connection, with what it watches and follows. */
interface LiveClient {
  readonly caller: BridgeCaller;
  readonly channel: MessageChannel;
  readonly followed: Map<string, Followed>;
  peer: Peer | undefined;
  watcher: Watcher | undefined;
  isGone: boolean;
}

interface Followed {
  readonly receiver: NotificationSink;
  stopTimer: () => void;
}

const PING_MS = 10_000;
const MAX_FOLLOWED = 100;

export function createLiveSocket(options: LiveSocketOptions): LiveSocket {
  const { clock, changes, following, sessions, makeRequestId, onUnexpectedError } = options;
  const plainText = createPlainTexts();
  const dispatch = createDispatch({ rows: liveMethods(), isStrict: () => true });

  function unwatch(client: LiveClient): void {
    if (client.watcher !== undefined) changes.unwatch(client.watcher);
    client.watcher = undefined;
  }

  function unfollow(client: LiveClient, name: string): void {
    const followed = client.followed.get(name);
    client.followed.delete(name);
    followed?.stopTimer();
    if (followed !== undefined) following.forget(followed.receiver);
  }

  function createReceiver(client: LiveClient, names: FollowParams): NotificationSink {
    const { channel, peer } = client;
    const { sessionId, owner } = names;
    const head = JSON.stringify({ sessionId, ...(owner !== undefined && { owner }) }).slice(0, -1);
    const send = (update: string) => peer?.notify('update', rawJson(`${head},"update":${update}}`));
    return channelSink(channel, () => client.isGone, {
      takesQuestions: true,
      // Updates of other nodes have the form of the first surface.
      update: ({ text }) => send(JSON.stringify(plainUpdate(text, clock.now()))),
      stored: (text, at) => send(plainText(text, at ?? clock.now())),
    });
  }

  async function follow(client: LiveClient, params: FollowParams, requestId: string): Promise<FollowResult> {
    const { sessionId, owner, afterSeq } = params;
    const { caller, channel, followed } = client;
    if (owner !== undefined && !sees(caller.principal, owner)) throw new AppError('SESSION_NOT_FOUND', { sessionId });
    const name = nameOf(params);
    unfollow(client, name);
    if (followed.size >= MAX_FOLLOWED) throw new AppError('TOO_MANY_FOLLOWED', { limit: MAX_FOLLOWED });
    const receiver = createReceiver(client, params);
    const entry: Followed = { receiver, stopTimer: () => undefined };
    followed.set(name, entry);
    const lastSeq = await sessions.show(caller.principal, sessionId, owner).then(
      ({ session }) => session.lastSeq,
      (error: unknown) => {
        // The session may be on another node, or start later.
        if (errorCode(error) === 'SESSION_NOT_FOUND') return 0;
        throw error;
      },
    );
    const asOwner = owner === undefined ? caller : { ...caller, principal: principalOf(owner) };
    const lost = () => channel.close(1013, 'the node of the session cannot be followed any more');
    // The response leaves before the first update.
    entry.stopTimer = clock.after(0, () => {
      if (client.isGone || followed.get(name) !== entry) return;
      following.follow(asOwner, sessionId, afterSeq, receiver, lost).catch((error: unknown) => {
        onUnexpectedError(error, requestId);
        channel.close(1011, 'the updates could not be read');
      });
    });
    return { lastSeq };
  }

  /** THE TABLE of what can be called on the live socket. */
  function liveMethods(): readonly MethodRow<LiveClient>[] {
    type LiveCall = MethodCall<LiveClient>;
    return [
      defineMethod({
        name: 'watch',
        summary:
          'Sends `changed` for each session, permission request, job and agent that the caller sees and that changes.',
        params: WatchParams,
        result: LiveAccepted,
        handle({ topics, owner }, { caller: client }: LiveCall) {
          unwatch(client);
          const { caller, channel, peer } = client;
          client.watcher = {
            principal: caller.principal,
            topics: new Set(topics),
            owner,
            isBehind: () => channel.isBehind?.() ?? false,
            send: (change) => peer?.notify('changed', change),
          };
          changes.watch(client.watcher);
          return { accepted: true as const };
        },
      }),
      defineMethod({
        name: 'unwatch',
        summary: 'Ends `watch`.',
        params: UnwatchParams,
        result: LiveAccepted,
        handle(_params, { caller: client }: LiveCall) {
          unwatch(client);
          return { accepted: true as const };
        },
      }),
      defineMethod({
        name: 'follow',
        summary: 'Sends `update` for each update of a session, after a number or from now on.',
        params: FollowParams,
        result: FollowResult,
        handle: (params, call: LiveCall) => follow(call.caller, params, call.requestId),
      }),
      defineMethod({
        name: 'unfollow',
        summary: 'Ends `follow`.',
        params: UnfollowParams,
        result: LiveAccepted,
        handle(params, { caller: client }: LiveCall) {
          unfollow(client, nameOf(params));
          return { accepted: true as const };
        },
      }),
    ];
  }

  return {
    accept(channel, _head, caller) {
      const client: LiveClient = {
        caller,
        channel,
        followed: new Map(),
        peer: undefined,
        watcher: undefined,
        isGone: false,
      };
      const peer = createPeer<LiveClient>({
        channel,
        caller: client,
        dispatch,
        clock,
        limits: { callsInFlight: options.callsPerConnection },
        makeRequestId,
        onUnexpectedError,
        envelope: plainEnvelope,
        errors: bridgeErrors,
      });
      client.peer = peer;
      const pings = repeat({
        clock,
        pauseMs: PING_MS,
        work: async () => peer.notify('ping', { now: clock.now() }),
        onError: (error) => onUnexpectedError(error, ''),
      });
      void peer.closed.then(() => {
        client.isGone = true;
        void pings.stop();
        unwatch(client);
        for (const name of [...client.followed.keys()]) unfollow(client, name);
      });
    },
  };
}

function nameOf({ sessionId, owner = '' }: { readonly sessionId: string; readonly owner?: string }): string {
  return `${owner}\n${sessionId}`;
}

/** Keeps the plain form of the last update, which many connections get one after the other. */
function createPlainTexts(): (stored: string, at: number) => string {
  let lastStored = '';
  let lastPlain = '';
  return (stored, at) => {
    if (stored !== lastStored) {
      lastPlain = JSON.stringify(plainUpdate(stored, at));
      lastStored = stored;
    }
    return lastPlain;
  };
}
