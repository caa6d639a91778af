import type { BridgeClient } from '../../../../src/bridge/bridge-client.ts';
import type { PeerAnswer } from '../../../../src/bridge/forwarding/call-node.ts';
import { createSessionOwners, type RelayCall, type RelayTarget } from '../../../../src/bridge/instances/relay-call.ts';
import { createSessionFeeds, type SessionFeeds } from '../../../../src/bridge/instances/session-feeds.ts';
import {
  createOwnerDispatch,
  createViaOwner,
  FLUSH,
  FOLLOW,
  serveFollower,
  serveRelayed,
  UPDATE,
} from '../../../../src/bridge/instances/session-owners.ts';
import { principalOf } from '../../../../src/bridge/principal.ts';
import type { SessionRow } from '../../../../src/bridge/storage/bridge-schema.ts';
import { createInstanceStore } from '../../../../src/bridge/storage/instance-and-route-stores.ts';
import { createSessionStore } from '../../../../src/bridge/storage/session-store.ts';
import { createUpdateStore } from '../../../../src/bridge/storage/update-store.ts';
import { type Clock, onAbort, pause } from '../../../../src/platform/clock/clock.ts';
import { AppError, errorCode } from '../../../../src/platform/errors/app-error.ts';
import { toJsonText } from '../../../../src/platform/json-rpc/envelope.ts';
import type { Dispatch, MethodCall } from '../../../../src/platform/json-rpc/method-table.ts';
import type { Chance } from '../chance.ts';
import type { PlayedProcess } from '../played-process.ts';
import { callOf, openParts, type PlayedSessions, type PlayedSessionsOptions } from './played-bridge.ts';

type Call = MethodCall<BridgeClient>;

interface Joined {
  readonly process: PlayedProcess;
  serve(call: Call): Promise<unknown>;
  /** Undefined: the connection that brings wake-ups was lost, and is back. */
  woken(key: string | undefined): void;
}

/** The network between instances: messages of one call keep their order, arrive late, and wait for an instance that is frozen. */
export interface PlayedNetwork {
  join(id: string, instance: Joined): void;
  ask(from: PlayedProcess, target: RelayTarget, call: RelayCall, signal: AbortSignal): Promise<PeerAnswer>;
  /** A wake-up for all others; some are lost with the connection that brings them. */
  wake(from: string, key: string): void;
}

const MAX_LATE_MS = 40;
const RECONNECT_MS = 3000;
const NO_RESUME = { afterSeq: undefined, idempotencyKey: '' };

export function createPlayedNetwork(clock: Clock, chance: Chance): PlayedNetwork {
  const joined = new Map<string, Joined>();
  const late = () => (chance.happens(0.6) ? 0 : chance.between(1, MAX_LATE_MS));

  /** What is sent to a process, one message after the other. */
  function line(to: PlayedProcess): (action: () => void) => void {
    let before: Promise<unknown> = Promise.resolve();
    return (action) => {
      const ms = late();
      before = before.then(async () => {
        if (ms > 0) await pause(clock, ms);
        await to.awake();
        action();
      });
    };
  }

  function failed(outcome: 'not_started' | 'unknown'): PeerAnswer {
    const reason = outcome === 'unknown' ? 'the connection was lost' : 'the connection was refused';
    return { kind: 'failed', code: 'TASK_FORWARD_UNREACHABLE', reason, outcome, isDown: true };
  }

  return {
    join: (id, instance) => void joined.set(id, instance),
    ask(from, target, relayed, signal) {
      const { promise, resolve } = Promise.withResolvers<PeerAnswer>();
      const there = joined.get(target.id);
      const back = line(from);
      if (there?.process.isAlive() !== true) {
        back(() => resolve(failed('not_started')));
        return promise;
      }
      const gone = new AbortController();
      const end = (answer: PeerAnswer) => back(() => resolve(answer));
      there.process.onDeath(() => end(failed('unknown')));
      const release = onAbort(signal, () => {
        gone.abort();
        resolve(failed('unknown'));
      });
      void promise.then(release);
      from.onDeath(() => {
        release();
        gone.abort();
      });
      const { client, caller, method, params, id } = relayed;
      const notify = (name: string, given: unknown, eventId?: string) => {
        const text = toJsonText(given);
        back(() => {
          if (!signal.aborted) void relayed.notified(name, JSON.parse(text), eventId);
        });
      };
      const sink = {
        update: (update: unknown) => notify('session.update', update),
        isBehind: () => false,
        drained: async () => !gone.signal.aborted,
        lost: () => gone.abort(),
      };
      const call = callOf(
        { caller, sink: client.wantsUpdates ? sink : undefined, stays: false, resume: client.resume },
        {
          method,
          params,
          ...(id !== undefined && { id }),
          signal: gone.signal,
          notify,
          accept: () => back(relayed.accepted),
        },
      );
      line(there.process)(() => {
        there.serve(call).then(
          (result) => end({ kind: 'result', result: JSON.parse(toJsonText(result)) }),
          (error: unknown) => {
            const details = error instanceof AppError ? error.details : {};
            const data = { code: errorCode(error), ...details };
            end({ kind: 'error', error: { status: 500, code: -32000, message: String(error), data } });
          },
        );
      });
      return promise;
    },
    wake(from, key) {
      for (const [id, { process, woken }] of joined) {
        if (id === from || !process.isAlive()) continue;
        if (chance.happens(0.05)) process.clock.after(RECONNECT_MS, () => woken(undefined));
        else line(process)(() => woken(key));
      }
    },
  };
}

export interface PlayedInstanceOptions extends Omit<PlayedSessionsOptions, 'shared' | 'clock'> {
  readonly process: PlayedProcess;
  readonly network: PlayedNetwork;
  readonly home: string;
}

/** Sessions on one of several instances: calls about them go to the instance that has them, as `createRelay` arranges it. */
export async function openPlayedInstance(options: PlayedInstanceOptions): Promise<PlayedSessions> {
  const { process, network, home, database, logger } = options;
  const { clock } = process;
  const stopped = new AbortController();
  let feeds: SessionFeeds | undefined;
  let id = '';
  const parts = await openParts({
    ...options,
    clock,
    shared: {
      home,
      flushElsewhere: async (key) => feeds?.flush(key),
      tellOthers: (key) => network.wake(id, key),
    },
  });
  const { instance, sessions, sessionCalls } = parts;
  id = instance.id;
  const owners = createSessionOwners({
    instance: id,
    home,
    deadAfterMs: instance.lease.deadAfterMs ?? 0,
    instances: createInstanceStore(database),
    sessions: createSessionStore(database),
    isLeaving: instance.isLeaving,
  });
  const common = { owners, clock, stopped: stopped.signal, onFailure: () => undefined };
  const ask = (target: RelayTarget, call: RelayCall, signal: AbortSignal) => network.ask(process, target, call, signal);

  const dispatchHere: Dispatch<BridgeClient> = (call) => {
    const params = call.params as { readonly sessionId: string; readonly taskPrompt: string };
    if (call.method === 'session.cancel') return sessionCalls.cancel(params, call);
    if (call.method === 'session.close') return sessionCalls.close(params, call);
    return sessionCalls.turn(call.method as 'session.start', params, call);
  };
  const dispatch = createOwnerDispatch(
    {
      ...common,
      relay: { ask },
      isBusyHere: sessions.orchestrator.isBusy,
      doubt: sessions.doubt,
      endJobs: async () => undefined,
      feeds: () => feeds,
      viaOwner: createViaOwner(common),
    },
    dispatchHere,
  );

  async function serve(call: Call): Promise<unknown> {
    const { key = '' } = call.params as { readonly key?: string };
    if (call.method === FOLLOW)
      return serveFollower(key, call, { owners, hub: sessions.hub, clock, left: stopped.signal });
    if (call.method === FLUSH) return sessions.flush().then(() => ({}));
    return serveRelayed(owners, call, dispatchHere);
  }

  const askFor = (
    target: RelayTarget,
    session: SessionRow,
    on: Pick<RelayCall, 'method'> & Partial<RelayCall>,
    signal: AbortSignal,
  ) =>
    ask(
      target,
      {
        caller: { principal: principalOf(session.owner) },
        client: { wantsUpdates: true, resume: NO_RESUME, isStrict: false },
        id: 'feed',
        params: { key: session.key },
        accepted: () => undefined,
        notified: () => undefined,
        ...on,
      },
      signal,
    );
  const following = createSessionFeeds({
    sessions: sessions.orchestrator,
    owners,
    hub: sessions.hub,
    updates: createUpdateStore(database),
    clock,
    log: logger,
    flush: (target, session, signal) => askFor(target, session, { method: FLUSH }, signal),
    openStream: (target, session, { accepted, update }, signal) =>
      askFor(
        target,
        session,
        {
          method: FOLLOW,
          accepted,
          notified(method, given) {
            const { seq, text } = given as { readonly seq: number; readonly text: string };
            if (method === UPDATE) update(seq, text);
            return undefined;
          },
        },
        signal,
      ),
  });
  feeds = following;
  network.join(id, { process, serve, woken: following.woken });
  const through = async (call: Call, method: string, params: object) =>
    (await dispatch({ ...call, method, params })) as never;
  return {
    orchestrator: { ...sessions.orchestrator, follow: following.follow, forget: following.forget },
    sessionCalls: {
      ...sessionCalls,
      turn: (method, params, call) => through(call, method, params),
      cancel: (params, call) => through(call, 'session.cancel', params),
      close: (params, call) => through(call, 'session.close', params),
    },
    async stop() {
      instance.leave();
      await sessions.settle();
      await parts.probes.stop();
      await sessions.stop();
      stopped.abort();
      await following.stop();
      await instance.remove();
    },
  };
}
