import { AppError } from '../../platform/errors/app-error.ts';
import type { RawJson } from '../../platform/json-rpc/envelope.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SessionName } from '../contract/session.ts';
import { availableRoute, gatewayRoute, multiAgentRoute, wantsGateway } from '../routing/resolve-route.ts';
import {
  createLiveTurn,
  isBusy,
  type LiveSession,
  type LiveTurn,
  sessionClosed,
  stopTurn,
  type TurnClient,
  type TurnRequest,
} from './live-session.ts';
import type { SessionRecords } from './session-records.ts';
import type { SessionTable } from './session-table.ts';
import { type TurnLimits, takePlace } from './turn-limits.ts';
import { answerOf, continuationLost, resultBase } from './turn-outcome.ts';
import type { ResumeRequest, TurnResumption } from './turn-resumption.ts';
import { originOf, runsSeveralAgents, type TurnRunner } from './turn-runner.ts';
import { createEarlyFollowers, ofTurn, type UpdateHub, type UpdateReceiver } from './update-hub.ts';

/** Sessions as apps see them: spec/bridge 4.3 and 7, contract/bridge 4. */
export interface SessionOrchestrator {
  /** `session.start` and `session.message`: resolves with the result as JSON text when the turn has ended. */
  turn(request: TurnRequest, resume: ResumeRequest, client: TurnClient): Promise<RawJson>;
  /**
   * Runs the turn of a job when its session is idle; undefined: the session is not idle, and nothing was done. An open
   * conversation is continued, otherwise one is started. `signal` cancels this turn and no other of the session.
   */
  jobTurn(request: JobTurnRequest, signal: AbortSignal): Promise<RawJson | undefined>;
  /** Whether a turn of that session runs or waits here, or the session is being closed. */
  isBusy(owner: string, sessionId: string): boolean;
  /** Calls the listener whenever a session has become idle. */
  onIdle(listener: () => void): void;
  cancel(principal: string, name: SessionName): Promise<void>;
  close(principal: string, name: SessionName): Promise<void>;
  /** Whether the principal itself has a session of that name or thread that is open, or about to be. */
  hasOwn(principal: string, name: SessionName): Promise<boolean>;
  /**
   * Ends a session that nobody has used since, as `session.close` does; of a session that is closed since then already,
   * removes the rest. False when the session is in use.
   */
  expire(owner: string, sessionId: string, since: number): Promise<boolean>;
  /** Makes a connection a client of a session, from that number on; without one, from now on. It may have yet to start. */
  follow(principal: string, sessionId: string, afterSeq: number | undefined, receiver: UpdateReceiver): Promise<void>;
  /** The connection is gone. */
  forget(receiver: UpdateReceiver): void;
  /** Takes no new turns; resolves when those under way have ended. */
  settle(): Promise<void>;
  /** Takes no new turns, ends those under way, and waits until they are stored. */
  interrupt(): Promise<void>;
}

export interface JobTurnRequest extends Omit<TurnRequest, 'method'> {
  /** Starts the session again even if it has an open conversation. */
  readonly newSession: boolean;
  /** The job was taken before: it may have started the session itself, and was interrupted. */
  readonly isRetry: boolean;
}

export interface SessionOrchestratorOptions extends Pick<Runtime, 'clock' | 'makeId'> {
  readonly table: SessionTable;
  readonly records: SessionRecords;
  readonly runner: TurnRunner;
  readonly hub: UpdateHub;
  readonly resumption: TurnResumption;
  readonly limits: TurnLimits;
  /** Lets go of a conversation at its agent, and of the session's scratch folder; resolves when that is out of the way. */
  discard(session: LiveSession): Promise<void>;
}

/** Turns that may wait behind the one that runs (contract/bridge 4). */
const MOST_WAITING = 32;
const START = 'session.start';
const MESSAGE = 'session.message';

export function createSessionOrchestrator(options: SessionOrchestratorOptions): SessionOrchestrator {
  const { table, records, runner, hub, resumption, limits, clock, makeId, discard } = options;
  /** By session, what the next call about it has to wait for. */
  const admissions = new Map<string, Promise<void>>();
  const early = createEarlyFollowers();
  const idleListeners: (() => void)[] = [];
  let isDraining = false;

  async function turn(request: TurnRequest, resume: ResumeRequest, client: TurnClient): Promise<RawJson> {
    const isRepeatable = resume.afterSeq !== undefined || resume.idempotencyKey !== '';
    const admitted = await inOrder(nameOf(request), async () => {
      const earlier = isRepeatable ? await resumption.find(await find(request), request, resume) : undefined;
      return earlier === undefined ? { outcome: await begin(request, client) } : { earlier };
    });
    if ('earlier' in admitted) return resumption.attach(admitted.earlier, request, resume, client);
    return answerOf(await admitted.outcome.promise);
  }

  /**
   * Calls about one session are let in one after the other, as they came: a message that follows a start on the heels
   * finds its session, and of two calls with one idempotency key the second finds the turn of the first.
   */
  function inOrder<Result>(name: string, decide: () => Promise<Result>): Promise<Result> {
    const before = admissions.get(name);
    const decided = before === undefined ? decide() : before.then(decide);
    const over = decided.then(noop, noop).then(() => {
      if (admissions.get(name) === over) admissions.delete(name);
    });
    admissions.set(name, over);
    return decided;
  }

  /** Puts a new turn into the line of its session. */
  async function begin(request: TurnRequest, client: TurnClient): Promise<{ readonly promise: Promise<string> }> {
    for (;;) {
      const found = await find(request);
      // From here until the turn stands in line nothing waits: of two calls at the same time one comes first.
      if (found?.closing === undefined) return { promise: take(found, request, client) };
      await found.closing.catch(noop);
    }
  }

  /** To start is to own: nobody takes over what is somebody else's, even who may see it. */
  function find({ method, principal, sessionId }: TurnRequest): Promise<LiveSession | undefined> {
    return method === START ? table.loadOwn(principal, sessionId) : table.load(principal, sessionId);
  }

  function take(found: LiveSession | undefined, request: TurnRequest, client: TurnClient): Promise<string> {
    if (isDraining) throw new AppError('SHUTTING_DOWN');
    const isStart = request.method === START;
    if (!isStart && !(found?.isOpen || (found?.turns.length ?? 0) > 0)) {
      const { sessionId, threadId, routing } = request;
      throw continuationLost(sessionId, threadId || sessionId, routing.explicitProviderId ?? '');
    }
    const isFull = (found?.turns.length ?? 0) > (isStart ? 0 : MOST_WAITING);
    if (found?.isElsewhere || isFull) throw new AppError('SESSION_BUSY');
    limits.opened(request.principal);
    const session = found ?? table.create(request.principal, request.sessionId);
    const { stays } = client;
    const turnId = makeId('turn-');
    // A connection that stays is a client of the session. An answer has the updates of its own turn only.
    const receiver = stays || client.receiver === undefined ? client.receiver : ofTurn(client.receiver, turnId);
    if (receiver !== undefined) hub.subscribe(session.key, receiver);
    const live = enqueue(session, request, turnId);
    if (receiver === undefined) return live.outcome;
    return outcomeFor(session, live, receiver).finally(() => {
      if (!stays) hub.unsubscribe(session.key, receiver);
    });
  }

  /** The caller learns of the outcome after all updates of the turn, however slowly it reads them. */
  async function outcomeFor({ key }: LiveSession, live: LiveTurn, receiver: UpdateReceiver): Promise<string> {
    const outcome = await live.outcome;
    await hub.reached(key, receiver, live.lastSeq);
    return outcome;
  }

  async function jobTurn(request: JobTurnRequest, signal: AbortSignal): Promise<RawJson | undefined> {
    const { principal, sessionId, newSession, isRetry } = request;
    const taken = await inOrder(nameOf(request), async () => {
      const found = await table.loadOwn(principal, sessionId);
      const repeatsStart =
        isRetry && found !== undefined && (await records.isLastTurn(found, START, request.requestId));
      // From here until the turn stands in line nothing waits.
      if (isDraining) throw new AppError('SHUTTING_DOWN');
      if (found !== undefined && (found.isElsewhere || isBusy(found))) return undefined;
      // A job takes a place now or waits in the table of jobs, so that it does not stand in the way of its session.
      if (!limits.mayOpen(principal) || !limits.running.hasRoom(principal)) return undefined;
      limits.opened(principal);
      limits.running.tryEnter(principal);
      const continues = !newSession && !repeatsStart && found?.isOpen === true && found.reference !== '';
      const session = found ?? table.create(principal, sessionId);
      return enqueue(session, { ...request, method: continues ? MESSAGE : START }, makeId('turn-'), true);
    });
    if (taken === undefined) return undefined;
    const cancel = () => stopTurn(taken, 'cancelled');
    signal.addEventListener('abort', cancel);
    if (signal.aborted) cancel();
    try {
      return answerOf(await taken.outcome);
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  }

  function admitEarly(session: LiveSession): void {
    for (const follower of early.admit(session)) hub.subscribe(session.key, follower);
  }

  /** Puts a turn at the end of the line of its session. */
  function enqueue(session: LiveSession, request: TurnRequest, turnId: string, hasPlace = false): LiveTurn {
    const live = createLiveTurn(turnId, request, clock.now());
    live.hasPlace = hasPlace;
    if (!session.isOpen && session.turns.length === 0) admitEarly(session);
    session.turns.push(live);
    session.running ??= runAll(session);
    if (session.turns.length === 1) return live;
    if (session.isOpen) announce(session, live);
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
      next.hasPlace ||= await takePlace(limits.running, principal, next, () => waits(session, next));
      await runner.run(session, next);
      session.turns.shift();
      if (next.hasPlace) limits.running.leave(principal);
      limits.ended(principal);
    }
    session.running = undefined;
    tellIdle();
    // While it is in doubt, the next call about it must find it.
    if (session.isStored || session.isInDoubt) return;
    table.remove(session);
    hub.end(session.key);
  }

  /** A turn comes first in its session and waits for a place: its caller learns that it was taken. */
  function waits(session: LiveSession, turn: LiveTurn): void {
    turn.request.accepted();
    if (session.isOpen && !turn.isStored) announce(session, turn);
  }

  function tellIdle(): void {
    for (const listener of idleListeners) listener();
  }

  /** Does something to the sessions that are meant, in the order of the calls about each. */
  async function toEach<Result>(
    principal: string,
    { sessionId, threadId }: SessionName,
    act: (session: LiveSession) => Result,
  ): Promise<readonly Result[]> {
    if (sessionId) {
      return inOrder(nameOf({ principal, sessionId }), async () => {
        const session = await table.load(principal, sessionId);
        return session === undefined ? [] : [act(session)];
      });
    }
    if (threadId) return (await table.loadThread(principal, threadId)).map(act);
    throw new AppError('INVALID_PARAMS', { reason: 'give sessionId or threadId' });
  }

  function stopAll(session: LiveSession): void {
    for (const one of session.turns) stopTurn(one, 'cancelled');
  }

  /** In an object, so that who waits for the order of calls does not wait for the end of the session. */
  function beginClose(session: LiveSession): { readonly closed: Promise<void> } {
    session.closing ??= closeOne(session).finally(() => {
      session.closing = undefined;
      tellIdle();
    });
    return { closed: session.closing };
  }

  async function closeOne(session: LiveSession): Promise<void> {
    if (session.isElsewhere) throw new AppError('SESSION_BUSY');
    stopAll(session);
    await session.running;
    if (!session.isStored || !session.isOpen) return;
    const discarded = discard(session);
    sessionClosed(session);
    hub.end(session.key);
    await discarded;
    await records.close(session);
  }

  return {
    turn,
    jobTurn,
    isBusy(owner, sessionId) {
      const session = table.peek(owner, sessionId);
      return session !== undefined && isBusy(session);
    },
    onIdle(listener) {
      idleListeners.push(listener);
    },
    async cancel(principal, name) {
      await toEach(principal, name, stopAll);
    },
    async close(principal, name) {
      const closing = await toEach(principal, name, beginClose);
      await Promise.all(closing.map(({ closed }) => closed));
    },
    async hasOwn(principal, { sessionId, threadId }) {
      if (!sessionId)
        return (await table.loadThread(principal, threadId ?? '')).some(({ owner }) => owner === principal);
      const own = await table.loadOwn(principal, sessionId);
      return own !== undefined && (own.isOpen || isBusy(own));
    },
    async expire(owner, sessionId, since) {
      const expired = await inOrder(nameOf({ principal: owner, sessionId }), async () => {
        const session = await table.loadOwn(owner, sessionId);
        if (session === undefined || !(await records.isUnused(session, since))) return undefined;
        if (isBusy(session) || session.isElsewhere) return undefined;
        if (session.isOpen) return beginClose(session);
        table.remove(session);
        return { closed: records.forget(session) };
      });
      await expired?.closed;
      return expired !== undefined;
    },
    async follow(principal, sessionId, afterSeq, receiver) {
      // It may start while it is looked for, and the connection may go.
      early.add(principal, sessionId, receiver);
      const session = await table.load(principal, sessionId);
      if (session === undefined || !early.isWaiting(receiver)) return;
      if (!session.isOpen) {
        // Of one that is about to begin nothing was told yet; and nobody knows whether it will.
        if (session.turns.length > 0) admitEarly(session);
        return;
      }
      early.remove(receiver);
      const { key } = session;
      if (afterSeq === undefined) hub.subscribe(key, receiver);
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

function nameOf({ principal, sessionId }: { readonly principal: string; readonly sessionId: string }): string {
  return `${principal}\n${sessionId}`;
}

function noop(): void {}
