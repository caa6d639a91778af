import { onAbort } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import type { RawJson } from '../../platform/json-rpc/envelope.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { TurnClient } from '../bridge-client.ts';
import type { SessionName } from '../contract/session.ts';
import { hasProgress } from '../multi-agent/run-step.ts';
import { requireMay, workingFor } from '../principal.ts';
import { availableRoute, gatewayRoute, multiAgentRoute, wantsGateway } from '../routing/resolve-route.ts';
import {
  createEarlyFollowers,
  createLiveTurn,
  createSessionOrder,
  forgetUnbegun,
  isBusy,
  type JobTurnRequest,
  type LiveSession,
  type LiveTurn,
  type SessionTable,
  stopTurn,
  type TurnRequest,
} from './live-session.ts';
import type { SessionRecords } from './session-records.ts';
import type { SessionStates } from './session-state.ts';
import { idsOf, type TurnLimits, takePlace } from './turn-limits.ts';
import { answerOf, continuationLost, resultBase } from './turn-outcome.ts';
import type { TurnResumption } from './turn-resumption.ts';
import { originOf, runsSeveralAgents, type TurnRunner } from './turn-runner.ts';
import { type NotificationSink, ofTurn, type UpdateHub } from './update-hub.ts';

/** Sessions as apps see them. */
export interface SessionOrchestrator {
  /** `session.start` and `session.message`: resolves with the result as JSON text when the turn has ended. */
  turn(request: TurnRequest, client: TurnClient): Promise<RawJson>;
  /**
   * Runs the turn of a job when its session is idle; undefined: the session is not idle, and nothing was done. An open
   * conversation is continued, otherwise one is started. `signal` cancels this turn and no other of the session.
   */
  jobTurn(request: JobTurnRequest, signal: AbortSignal): Promise<RawJson | undefined>;
  /** Whether a turn of that session runs or waits here, or the session is being closed. */
  isBusy(owner: string, sessionId: string): boolean;
  /** Runs work on the files of an open session while no turn of it runs. Throws TURN_RUNNING when one runs or waits. */
  alone<Result>(owner: string, sessionId: string, work: (session: LiveSession) => Promise<Result>): Promise<Result>;
  /** Calls the listener whenever a session has become idle. */
  onIdle(listener: () => void): void;
  cancel(principal: Principal, name: SessionName): Promise<void>;
  close(principal: Principal, name: SessionName): Promise<void>;
  /** Whether the principal itself has a session of that name or thread that is open, or about to be. */
  hasOwn(principal: Principal, name: SessionName): Promise<boolean>;
  /**
   * Closes a session that was not used since the given time, as `session.close` does. Removes the rest of a session that is closed
   * already. False when the session is in use.
   */
  expire(owner: string, sessionId: string, since: number): Promise<boolean>;
  /** Makes a connection a client of a session, from the given number on, or from now on without one. The session may start later. */
  follow(
    principal: Principal,
    sessionId: string,
    afterSeq: number | undefined,
    receiver: NotificationSink,
  ): Promise<void>;
  /** Removes a connection that has closed. */
  forget(receiver: NotificationSink): void;
  /** Cancels all turns for which `isMeant` returns true, given the owner of the session and the principal of the turn. */
  cancelWhere(isMeant: (owner: string, principal: Principal) => boolean): void;
  /** Refuses new turns. Resolves when the running ones have ended. */
  settle(): Promise<void>;
  /** Refuses new turns, stops the running ones, and waits until they are stored. */
  interrupt(): Promise<void>;
}

export interface SessionOrchestratorOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly table: SessionTable;
  readonly change: SessionStates['change'];
  readonly records: SessionRecords;
  readonly runner: TurnRunner;
  readonly hub: UpdateHub;
  readonly resumption: TurnResumption;
  readonly limits: TurnLimits;
  /** Closes the conversation at the agent and removes the session's scratch folder. Resolves when the session can be started again. */
  discard(session: LiveSession): Promise<void>;
}

/** The maximum number of turns that wait behind the running one. */
const MAX_WAITING = 32;
const START = 'session.start';
const MESSAGE = 'session.message';

export function createSessionOrchestrator(options: SessionOrchestratorOptions): SessionOrchestrator {
  const { table, change, records, runner, hub, resumption, limits, clock, makeId, discard } = options;
  const inOrder = createSessionOrder();
  const early = createEarlyFollowers();
  const idleListeners: (() => void)[] = [];
  let isDraining = false;

  async function turn(request: TurnRequest, client: TurnClient): Promise<RawJson> {
    const { resume } = client;
    const isRepeatable = resume.afterSeq !== undefined || resume.idempotencyKey !== '';
    const admitted = await inOrder(nameOf(request), async () => {
      const earlier = isRepeatable ? await resumption.find(await find(request), request, resume) : undefined;
      if (earlier !== undefined) return { earlier };
      if (request.check !== undefined) await request.check();
      return { outcome: await begin(request, client) };
    });
    if ('earlier' in admitted) return resumption.attach(admitted.earlier, request, client);
    return answerOf(await admitted.outcome.promise);
  }

  /** Adds a new turn to the queue of its session. */
  async function begin(request: TurnRequest, client: TurnClient): Promise<{ readonly promise: Promise<string> }> {
    for (;;) {
      const found = await find(request);
      // No await between this check and the enqueueing: otherwise two calls could both pass the check.
      const before = found?.closing ?? found?.held ?? (found?.stream.isAbandoned() ? found.running : undefined);
      if (before === undefined) return { promise: take(found, request, client) };
      await before.catch(noop);
    }
  }

  /** A start creates a session of the caller: it never continues a session of another owner, even one that the caller may see. */
  async function find({ method, principal, sessionId }: TurnRequest): Promise<LiveSession | undefined> {
    if (method === START) return table.loadOwn(principal.id, sessionId);
    const found = await table.load(principal, sessionId);
    if (found !== undefined) requireMay(principal, MESSAGE, found.owner);
    return found;
  }

  function take(found: LiveSession | undefined, given: TurnRequest, client: TurnClient): Promise<string> {
    if (isDraining) throw new AppError('SHUTTING_DOWN');
    const { principal } = given;
    const request = found === undefined ? given : { ...given, principal: workingFor(principal, found.owner) };
    // The caller may have been paused since the request arrived, and `cancelWhere` has not seen this turn.
    if (request.principal.credential?.isLive() === false) throw new AppError('UNAUTHORIZED');
    const isStart = request.method === START;
    if (!isStart && !(found?.stored === 'open' || (found?.turns.length ?? 0) > 0)) {
      const { sessionId, threadId, routing } = request;
      throw continuationLost(sessionId, threadId || sessionId, routing.explicitProviderId ?? '');
    }
    const isFull = (found?.turns.length ?? 0) > (isStart ? 0 : MAX_WAITING);
    if (found?.state === 'elsewhere' || isFull) throw new AppError('SESSION_BUSY');
    limits.opened(request.principal);
    const session = found ?? table.create(request.principal.id, request.sessionId);
    const { stays } = client;
    const turnId = makeId('turn-');
    // A connection that stays becomes a client of the session. A response over HTTP only has the updates of its own turn.
    const sink = stays || client.sink === undefined ? client.sink : ofTurn(client.sink, turnId);
    if (sink !== undefined) hub.subscribe(session.key, sink);
    const live = enqueue(session, request, turnId);
    if (sink === undefined) return live.outcome;
    return outcomeFor(session, live, sink).finally(() => {
      if (!stays) hub.unsubscribe(session.key, sink);
    });
  }

  /** Resolves with the outcome after the caller has received all updates of the turn, even if it reads slowly. */
  async function outcomeFor({ key }: LiveSession, live: LiveTurn, sink: NotificationSink): Promise<string> {
    const outcome = await live.outcome;
    await hub.reached(key, sink, live.lastSeq);
    return outcome;
  }

  async function jobTurn(request: JobTurnRequest, signal: AbortSignal): Promise<RawJson | undefined> {
    const { sessionId, newSession, isRetry, principal } = request;
    const { id: owner } = principal;
    const taken = await inOrder(nameOf(request), async () => {
      const found = await table.loadOwn(owner, sessionId);
      const repeatsStart =
        isRetry && found !== undefined && (await records.isLastTurn(found, START, request.requestId));
      // No await between these checks and the enqueueing.
      if (isDraining) throw new AppError('SHUTTING_DOWN');
      if (found !== undefined && (found.state === 'elsewhere' || isBusy(found))) return undefined;
      // A job takes a place now or stays in the table of jobs, so that it does not block other turns of its session.
      if (!limits.mayOpen(principal) || !limits.running.hasRoom(idsOf(principal))) return undefined;
      limits.opened(principal);
      limits.running.tryEnter(idsOf(principal));
      // An interrupted multi-agent run is resumed, even if this job has started the session.
      const startsAgain = (newSession || repeatsStart) && !(isRetry && hasProgress(found?.reference, request.taskId));
      const continues = !startsAgain && found?.stored === 'open' && found.reference !== '';
      const session = found ?? table.create(owner, sessionId);
      return enqueue(session, { ...request, method: continues ? MESSAGE : START }, makeId('turn-'), true);
    });
    if (taken === undefined) return undefined;
    const release = onAbort(signal, () => stopTurn(taken, 'cancelled'));
    try {
      return answerOf(await taken.outcome);
    } finally {
      release();
    }
  }

  function admitEarly(session: LiveSession): void {
    const { key, stream, stored } = session;
    for (const { receiver, afterSeq } of early.admit(session, stored !== 'open')) {
      if (stored !== 'open') hub.subscribe(key, receiver, stream.shownSeq());
      // Another instance has started it in the meantime, and the connection may follow it there already.
      else if (hub.sentUpTo(key, receiver) === undefined)
        hub.subscribeAfter(key, receiver, afterSeq).catch(() => receiver.lost());
    }
  }

  /** Adds a turn to the end of the queue of its session. */
  function enqueue(session: LiveSession, request: TurnRequest, turnId: string, hasPlace = false): LiveTurn {
    const live = createLiveTurn(turnId, request, clock.now());
    live.hasPlace = hasPlace;
    const isOpen = session.stored === 'open';
    if (session.turns.length === 0) admitEarly(session);
    change(session, { kind: 'queued' });
    session.turns.push(live);
    session.running ??= runAll(session);
    if (session.turns.length === 1) return live;
    if (isOpen) announce(session, live);
    else live.onSessionStored = () => announce(session, live);
    return live;
  }

  function announce(session: LiveSession, waiting: LiveTurn): void {
    waiting.request.accepted();
    const { routing, prompt } = waiting.request;
    const route = runsSeveralAgents(session, waiting)
      ? multiAgentRoute({ routing, prompt })
      : wantsGateway(routing)
        ? gatewayRoute({ routing, prompt }, session.providerId)
        : availableRoute({ routing, prompt }, session.providerId);
    records.queued(session, waiting, resultBase(originOf(session, waiting), route, session.workingDirectory));
  }

  async function runAll(session: LiveSession): Promise<void> {
    for (let next = session.turns[0]; next !== undefined; next = session.turns[0]) {
      const { principal } = next.request;
      const ids = idsOf(principal);
      next.hasPlace ||= await takePlace(limits.running, ids, next.stopping.signal, () => waits(session, next));
      await runner.run(session, next);
      session.turns.shift();
      if (next.hasPlace) limits.running.leave(ids);
      limits.ended(principal);
    }
    session.running = undefined;
    change(session, { kind: 'idle' });
    tellIdle();
    forgetUnbegun(session, table, hub);
  }

  /** Tells the caller that its turn was accepted. Called when the first turn of a session waits for a place. */
  function waits(session: LiveSession, turn: LiveTurn): void {
    turn.request.accepted();
    if (session.stored === 'open' && !turn.isStored) announce(session, turn);
  }

  function tellIdle(): void {
    for (const listener of idleListeners) listener();
  }

  /** Calls `act` for each session of that name or thread, in the order of the calls about the session. */
  async function toEach<Result>(
    principal: Principal,
    method: string,
    { sessionId, threadId }: SessionName,
    act: (session: LiveSession) => Result,
  ): Promise<readonly Result[]> {
    if (sessionId) {
      return inOrder(nameOf({ principal, sessionId }), async () => {
        const session = await table.load(principal, sessionId);
        if (session === undefined) return [];
        requireMay(principal, method, session.owner);
        return [act(session)];
      });
    }
    if (threadId) {
      const sessions = await table.loadThread(principal, threadId);
      for (const { owner } of sessions) requireMay(principal, method, owner);
      return sessions.map(act);
    }
    throw new AppError('INVALID_PARAMS', { reason: 'give sessionId or threadId' });
  }

  function stopAll(session: LiveSession): void {
    for (const one of session.turns) stopTurn(one, 'cancelled');
  }

  /** Starts to close a session. The promise is in an object, because an async function would otherwise wait for it. */
  function beginClose(session: LiveSession): { readonly closed: Promise<void> } {
    session.closing ??= closeOne(session).finally(() => {
      session.closing = undefined;
      tellIdle();
    });
    return { closed: session.closing };
  }

  async function closeOne(session: LiveSession): Promise<void> {
    if (session.state === 'elsewhere') throw new AppError('SESSION_BUSY');
    change(session, { kind: 'close' });
    stopAll(session);
    await Promise.all([session.running, session.held]);
    // Another bridge has taken the session, with its stored state and its followers.
    if (session.stream.isAbandoned()) return leaveClosing(session);
    const discarded = discard(session);
    hub.close(session.key);
    if (!(await records.close(session, discarded))) leaveClosing(session);
  }

  function leaveClosing(session: LiveSession): never {
    change(session, { kind: 'taken' });
    table.remove(session);
    throw new AppError('SESSION_BUSY');
  }

  return {
    turn,
    jobTurn,
    isBusy(owner, sessionId) {
      const session = table.peek(owner, sessionId);
      return session !== undefined && isBusy(session);
    },
    alone: (owner, sessionId, work) =>
      inOrder(nameOf({ principal: { id: owner }, sessionId }), async () => {
        const session = await table.loadOwn(owner, sessionId);
        if (session?.stored !== 'open') throw new AppError('SESSION_NOT_FOUND', { sessionId });
        if (isBusy(session) || session.state === 'elsewhere') throw new AppError('TURN_RUNNING');
        const working = work(session);
        session.held = working.then(noop, noop).then(() => {
          session.held = undefined;
          tellIdle();
        });
        return working;
      }),
    onIdle(listener) {
      idleListeners.push(listener);
    },
    async cancel(principal, name) {
      await toEach(principal, 'session.cancel', name, stopAll);
    },
    async close(principal, name) {
      const closing = await toEach(principal, 'session.close', name, beginClose);
      await Promise.all(closing.map(({ closed }) => closed));
    },
    async hasOwn(principal, { sessionId, threadId }) {
      if (!sessionId)
        return (await table.loadThread(principal, threadId ?? '')).some(({ owner }) => owner === principal.id);
      const own = await table.loadOwn(principal.id, sessionId);
      return own !== undefined && (own.stored === 'open' || isBusy(own));
    },
    async expire(owner, sessionId, since) {
      const expired = await inOrder(nameOf({ principal: { id: owner }, sessionId }), async () => {
        const session = await table.loadOwn(owner, sessionId);
        if (session === undefined || !(await records.isUnused(session, since))) return undefined;
        if (isBusy(session) || session.state === 'elsewhere') return undefined;
        if (session.stored === 'open') return beginClose(session);
        table.remove(session);
        return { closed: records.forget(session) };
      });
      await expired?.closed;
      return expired !== undefined;
    },
    async follow(principal, sessionId, afterSeq, receiver) {
      // The session may start, and the connection may close, while the session is looked up.
      early.add(principal, sessionId, afterSeq ?? 0, receiver);
      const session = await table.load(principal, sessionId);
      if (session === undefined || !early.isWaiting(receiver)) return;
      if (session.stored !== 'open') {
        // A session that is about to start has no updates yet, and its start may fail.
        if (session.turns.length > 0) admitEarly(session);
        return;
      }
      early.remove(receiver);
      const { key, stream } = session;
      if (afterSeq === undefined) hub.subscribe(key, receiver, stream.shownSeq());
      else await hub.subscribeAfter(key, receiver, afterSeq);
    },
    forget(receiver) {
      early.remove(receiver);
      hub.forget(receiver);
    },
    async settle() {
      isDraining = true;
      await allEnded(table);
    },
    cancelWhere(isMeant) {
      for (const session of table.all()) {
        for (const one of session.turns) if (isMeant(session.owner, one.request.principal)) stopTurn(one, 'cancelled');
      }
    },
    async interrupt() {
      isDraining = true;
      for (const session of table.all()) for (const one of session.turns) stopTurn(one, 'interrupted');
      await allEnded(table);
    },
  };
}

async function allEnded(table: SessionTable): Promise<void> {
  await Promise.all([...table.all()].map((session) => session.running));
}

function nameOf(call: { readonly principal: Pick<Principal, 'id'>; readonly sessionId: string }): string {
  return `${call.principal.id}\n${call.sessionId}`;
}

function noop(): void {}
