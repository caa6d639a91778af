import { type Clock, pause, withinTime } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Principal } from '../../platform/identity/principal.ts';
import { rawJson } from '../../platform/json-rpc/envelope.ts';
import type { Dispatch, MethodCall } from '../../platform/json-rpc/method-table.ts';
import type { RelayedClient } from '../access.ts';
import { wordOf } from '../agents/post-for-events.ts';
import type { BridgeClient, ResumeRequest } from '../bridge-client.ts';
import type { PeerAnswer } from '../forwarding/call-node.ts';
import { createCallOrder } from '../forwarding/forwarding-dispatch.ts';
import { seqOf } from '../forwarding/update-relay.ts';
import { onlyFor, requireMay } from '../principal.ts';
import type { NotificationSink, UpdateHub } from '../sessions/update-hub.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import { asClient } from '../team-work.ts';
import { ownError, type RelayClient, type RelayTarget, type SessionOwners } from './relay-call.ts';

const TURNS: ReadonlySet<string> = new Set(['session.start', 'session.message']);
export const CANCEL = 'session.cancel';
const CLOSE = 'session.close';
const ENDINGS: ReadonlySet<string> = new Set([CANCEL, CLOSE]);

/** Whether a method is about one session, and is served where the session is. */
function isAboutSession(method: string): boolean {
  return TURNS.has(method) || ENDINGS.has(method);
}

export function startsSession(method: string): boolean {
  return method === 'session.start';
}

/** Connections to this instance that follow sessions of other instances. */
export interface FollowerFeeds extends Pick<UpdateHub, 'gets' | 'reached'> {
  /** Whether this instance sends the updates of the session to the connection, or will once the session is found. */
  follows(receiver: NotificationSink, session: { readonly key: string; readonly sessionId: string }): boolean;
  /** Returns the key of the session of that name that the connection follows through this instance. */
  keyOf(receiver: NotificationSink, sessionId: string): string | undefined;
}

export interface OwnerDispatchOptions {
  readonly owners: SessionOwners;
  readonly relay: Pick<RelayClient, 'ask'>;
  readonly clock: Pick<Clock, 'after' | 'monotonic'>;
  /** Aborts when the bridge stops. */
  readonly stopped: AbortSignal;
  /** Whether a turn of the session runs or waits here. Then no other instance has the session. */
  isBusyHere(owner: string, sessionId: string): boolean;
  /** Resolves when it is known whether another instance has the session. Undefined unless this one was frozen or cut off. */
  doubt(owner: string, sessionId: string): Promise<unknown> | undefined;
  /** Tells which connections get the updates of a session in another way: a relayed call must not send them again. */
  feeds(): FollowerFeeds | undefined;
  /**
   * Cancels turns of the session that other instances have accepted and not begun, because they wait for a place: the store
   * does not know of them yet. Throws OWNER_UNREACHABLE for an instance that does not answer. Undefined in tests.
   */
  cancelWaiting?: ((call: MethodCall<BridgeClient>) => Promise<void>) | undefined;
  /** Ends, through the database, the jobs that a call to cancel or close a session names. */
  endJobs(principal: Principal, method: string, name: { readonly sessionId: string }): Promise<unknown>;
  onFailure(failure: { readonly instance: string; readonly reason: string; readonly outcome: string }): void;
}

/** The pause between two attempts to continue a turn whose instance was lost. */
const AGAIN_MS = 500;
/** Others notice a dead instance and end its turns within twelve seconds; this leaves a margin. */
const MAX_LOST_MS = 30_000;
/** An instance is listed for a moment before it listens, and after it has stopped listening. */
const MAX_REFUSED_MS = 5_000;
/** How long a result waits for updates that arrive in another way. */
const MAX_LATE_MS = 2_000;

/** What `viaOwner` needs to know about a call: how to relay it, and how to serve it here. */
export interface OwnedWork {
  find(): Promise<SessionRow | undefined>;
  ask(target: RelayTarget): Promise<PeerAnswer>;
  /** Turns the result of another instance into the result for the caller. */
  answered(result: unknown): unknown;
  here(): unknown;
  /** Called before a call whose connection broke is repeated. Undefined: such a call is not repeated. */
  repeat: (() => void) | undefined;
}

export type ViaOwner = (work: OwnedWork) => Promise<unknown>;

/**
 * Serves a call where its session is: here, or on another instance, in one hop. Where the other instance says that it does not
 * have the session, or cannot be reached, the owner is looked up once more.
 */
export function createViaOwner(
  options: Pick<OwnerDispatchOptions, 'owners' | 'clock' | 'stopped' | 'onFailure'>,
): ViaOwner {
  const { owners, clock, stopped, onFailure } = options;
  return async ({ find, ask, answered, here, repeat }) => {
    let lookups = 0;
    let lostAt: number | undefined;
    let leavingAt: number | undefined;
    let refusedAt: number | undefined;
    const isWithin = (since: number | undefined, ms: number) => since !== undefined && clock.monotonic() - since < ms;
    for (;;) {
      const row = await find();
      const isNew = row === undefined || row.closed_at !== null;
      const target = (await owners.ofRow(row)) ?? (isNew ? await owners.successor() : undefined);
      // The turn belongs to an instance that is not listed. Others will end it, so a call about it must not be accepted here.
      if (target === undefined && !owners.isTaken(row)) return here();
      const answer = target === undefined ? undefined : await ask(target);
      if (answer?.kind === 'result') return answered(answer.result);
      const word = answer?.kind === 'error' ? wordOf(answer.error) : '';
      if (answer?.kind === 'error' && word !== 'NOT_OWNER' && word !== 'SHUTTING_DOWN') throw ownError(answer.error);
      if (word === 'SHUTTING_DOWN') leavingAt ??= clock.monotonic();
      const { reason, outcome } =
        answer?.kind === 'failed'
          ? answer
          : {
              reason: target === undefined ? 'it is not running' : 'it does not have the session any more',
              outcome: 'not_started',
            };
      if (target !== undefined) onFailure({ instance: target.id, reason, outcome });
      if (answer?.kind === 'failed') {
        if (answer.outcome === 'unknown') {
          lostAt ??= clock.monotonic();
          repeat?.();
        } else refusedAt ??= clock.monotonic();
      }
      // An instance that is stopping has started nothing: its successor in that data directory, or any other one, takes the session.
      const waitsSince = (repeat === undefined ? undefined : lostAt) ?? leavingAt;
      const waits = isWithin(waitsSince, MAX_LOST_MS) || (lostAt === undefined && isWithin(refusedAt, MAX_REFUSED_MS));
      if (waits && !stopped.aborted) {
        await pause(clock, AGAIN_MS, stopped);
        continue;
      }
      lookups += 1;
      if (lookups > 1 || lostAt !== undefined) {
        throw new AppError('OWNER_UNREACHABLE', { reason, outcome: lostAt === undefined ? 'not_started' : 'unknown' });
      }
    }
  };
}

/** Relays calls about sessions of other instances, and passes all others to `dispatch`. */
export function createOwnerDispatch(
  options: Omit<OwnerDispatchOptions, 'onFailure'> & { readonly viaOwner: ViaOwner },
  dispatch: Dispatch<BridgeClient>,
): Dispatch<BridgeClient> {
  const { owners, relay, clock, stopped, isBusyHere, doubt, endJobs, viaOwner } = options;
  const { cancelWaiting = async () => undefined } = options;
  const order = createCallOrder();

  /** `done`: the result of a cancel on this instance. It is returned unless another instance has the session. */
  function toOwner(call: MethodCall<BridgeClient>, sessionId: string, done?: unknown): Promise<unknown> {
    const { principal } = call.caller.caller;
    return order.run(`${principal.id}\n${sessionId}`, async (letNext) => {
      try {
        return await relayed(call, sessionId, letNext, done);
      } catch (error) {
        // An instance that cannot be reached still reads from the database which of its jobs it must stop.
        if (errorCode(error) === 'OWNER_UNREACHABLE' && ENDINGS.has(call.method)) {
          await endJobs(principal, call.method, { sessionId });
        }
        throw error;
      }
    });
  }

  function relayed(
    call: MethodCall<BridgeClient>,
    sessionId: string,
    letNext: () => void,
    done: unknown,
  ): Promise<unknown> {
    const { principal } = call.caller.caller;
    const { method } = call;
    let { resume } = call.caller;
    let lastSeq = resume.afterSeq ?? 0;
    const isTurn = TURNS.has(method);
    const { sink, stays } = call.caller;
    let key = '';
    /** Whether an instance has a turn of it: then no other can have one that waits. */
    let isHeld = false;
    const isFollowed = (): boolean => {
      if (!stays || sink === undefined) return false;
      // The key of a session that this call starts is known once the connection follows the session.
      if (key === '') key = options.feeds()?.keyOf(sink, sessionId) ?? '';
      return options.feeds()?.follows(sink, { key, sessionId }) === true;
    };
    return viaOwner({
      async find() {
        const row = await owners.find(principal, sessionId, startsSession(method));
        key = row?.key ?? '';
        isHeld = row?.closed_at === null && row.instance !== '';
        return row;
      },
      async answered(result) {
        const reached = sink !== undefined && isFollowed() ? options.feeds()?.reached(key, sink, lastSeq) : undefined;
        if (reached !== undefined) await withinTime(clock, MAX_LATE_MS, reached, () => undefined);
        return rawJson(JSON.stringify(result));
      },
      here() {
        if (done !== undefined) return isHeld ? done : cancelWaiting(call).then(() => done);
        // Before the close: a turn that begins after it would open the session again.
        if (method === CLOSE && !isHeld) return cancelWaiting(call).then(() => dispatch(call));
        // From here on the sessions themselves keep the order.
        const answer = resume === call.caller.resume ? dispatch(call) : goOn(call, resume, isFollowed());
        letNext();
        // This instance may have been frozen since it looked, and another one may have taken the session.
        return method === CANCEL
          ? Promise.resolve(answer).then((cancelled) => relayed(call, sessionId, letNext, cancelled))
          : answer;
      },
      // The turn is continued, and never started a second time.
      repeat() {
        if (isTurn) resume = { ...resume, afterSeq: lastSeq };
      },
      ask: (target) =>
        relay.ask(
          target,
          {
            caller: call.caller.caller,
            client: clientOf(call.caller, resume),
            id: call.id ?? null,
            method,
            params: call.params,
            accepted() {
              letNext();
              call.accept();
            },
            async notified(name, params, eventId) {
              lastSeq = seqOf(params) ?? lastSeq;
              if (isFollowed() || (stays && sink !== undefined && options.feeds()?.gets(key, sink, lastSeq) === false))
                return;
              call.notify(name, rawJson(JSON.stringify(params ?? {})), eventId);
              await sink?.drained();
            },
          },
          stopped,
        ),
    });
  }

  /** `isFollowed`: the connection gets the updates in another way, and may have updates that the call did not send. */
  async function goOn(call: MethodCall<BridgeClient>, resume: ResumeRequest, isFollowed: boolean): Promise<unknown> {
    const sink = isFollowed ? undefined : call.caller.sink;
    try {
      return await dispatch(asClient(call, { ...call.caller, sink, resume }, call.params));
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'RESUME_NOT_FOUND') throw error;
      const reason = 'it died before the turn was stored';
      throw new AppError('OWNER_UNREACHABLE', { reason, outcome: 'not_started' });
    }
  }

  /** A thread may have sessions on several instances. */
  async function toThread(call: MethodCall<BridgeClient>, threadId: string): Promise<unknown> {
    const { caller } = call.caller;
    const done = call.method === CANCEL ? await dispatch(call) : undefined;
    await cancelWaiting(call);
    const rows = await owners.inThread(caller.principal, threadId);
    const targets = await Promise.all(rows.map(owners.ofRow));
    if (targets.every((target) => target === undefined) && !rows.some(owners.isTaken)) return done ?? dispatch(call);
    for (const { owner } of rows) requireMay(caller.principal, call.method, owner);
    const calls = rows.map(({ owner, session_id: sessionId }) => {
      const principal = onlyFor(caller.principal, owner);
      return toOwner(asClient(call, { ...call.caller, caller: { ...caller, principal } }, { sessionId }), sessionId);
    });
    const outcomes = await Promise.allSettled(calls);
    const failed = outcomes.find(({ status }) => status === 'rejected');
    if (failed?.status === 'rejected') throw failed.reason;
    return { accepted: true };
  }

  /** Serves a call about a session with turns here. If another instance has taken the session, that one gets the call, too. */
  async function fromHere(call: MethodCall<BridgeClient>, sessionId: string): Promise<unknown> {
    const doubted = TURNS.has(call.method) ? doubt(call.caller.caller.principal.id, sessionId) : undefined;
    if (doubted !== undefined) return doubted.then(() => toOwner(call, sessionId));
    try {
      const answer = await dispatch(call);
      return call.method === CANCEL ? await toOwner(call, sessionId, answer) : answer;
    } catch (error) {
      if (!ENDINGS.has(call.method) || errorCode(error) !== 'SESSION_BUSY') throw error;
      return toOwner(call, sessionId);
    }
  }

  return (call) => {
    // JSON has no NaN, so a call with it cannot be relayed and is refused here.
    if (!isAboutSession(call.method) || Number.isNaN(call.caller.resume.afterSeq)) return dispatch(call);
    const { sessionId, threadId } = Object(call.params) as Readonly<Record<string, unknown>>;
    if (typeof sessionId === 'string' && sessionId !== '') {
      return isBusyHere(call.caller.caller.principal.id, sessionId)
        ? fromHere(call, sessionId)
        : toOwner(call, sessionId);
    }
    return typeof threadId === 'string' && threadId !== '' && ENDINGS.has(call.method)
      ? toThread(call, threadId)
      : dispatch(call);
  };
}

/** Longer than most calls take, and shorter than the other side waits for the head of the response. */
const PATIENCE_MS = 10_000;

/** Does work that may take minutes, such as an undo: the head of the response is sent before the other side gives up. */
export async function servePatiently<Result>(
  call: Pick<MethodCall, 'accept'>,
  clock: Pick<Clock, 'after'>,
  work: () => Promise<Result>,
): Promise<Result> {
  const stopTimer = clock.after(PATIENCE_MS, () => call.accept());
  try {
    return await work();
  } finally {
    stopTimer();
  }
}

function clientOf({ sink, isStrict = false }: BridgeClient, resume: ResumeRequest): RelayedClient {
  return { wantsUpdates: sink !== undefined, resume, isStrict };
}

/** Serves a call that another instance has relayed. Throws NOT_OWNER if a third one has the session: the sender looks it up again. */
export async function serveRelayed(
  owners: Pick<SessionOwners, 'find' | 'ofRow' | 'isTaken'>,
  call: MethodCall<BridgeClient>,
  dispatch: Dispatch<BridgeClient>,
): Promise<unknown> {
  const { sessionId } = Object(call.params) as Readonly<Record<string, unknown>>;
  if (!isAboutSession(call.method) || typeof sessionId !== 'string') return dispatch(call);
  const find = () => owners.find(call.caller.caller.principal, sessionId, startsSession(call.method));
  if ((await owners.ofRow(await find())) !== undefined) throw new AppError('NOT_OWNER');
  const answer = await dispatch(call);
  // This instance may have been frozen since it read the row.
  if (call.method === CANCEL && owners.isTaken(await find())) throw new AppError('NOT_OWNER');
  return answer;
}

interface FollowServerOptions {
  readonly owners: Pick<SessionOwners, 'ofRow' | 'byKey'>;
  readonly hub: Pick<UpdateHub, 'subscribe' | 'forget'>;
  readonly clock: Clock;
  /** Aborts when this instance serves no followers any more. */
  readonly left: AbortSignal;
}

export const FOLLOW = 'instance.follow';
export const FLUSH = 'instance.flush';
export const UPDATE = 'instance.update';
/** The pause between two checks that the other side is still connected and the session is still here. */
const CHECK_MS = 5_000;

/** Sends the updates of a session of this instance to another one, until the session is elsewhere or the other side has gone. */
export async function serveFollower(
  key: string,
  call: Pick<MethodCall<BridgeClient>, 'caller' | 'signal' | 'notify' | 'accept'>,
  { owners, hub, clock, left }: FollowServerOptions,
): Promise<Record<string, never>> {
  const isHere = async (): Promise<boolean> => {
    const session = await owners.byKey(key);
    return session?.closed_at === null && (await owners.ofRow(session)) === undefined;
  };
  const { sink } = call.caller;
  if (left.aborted || sink === undefined || !(await isHere())) throw new AppError('NOT_OWNER');
  const over = new AbortController();
  const receiver: NotificationSink = {
    ...sink,
    isInstance: true,
    update: () => undefined,
    stored: (text, _at, seq) => call.notify(UPDATE, { seq, text }),
    lost: () => over.abort(),
  };
  const signal = AbortSignal.any([over.signal, left, call.signal]);
  hub.subscribe(key, receiver);
  call.accept();
  try {
    while (!signal.aborted) {
      await pause(clock, CHECK_MS, signal);
      if (signal.aborted || !(await sink.drained()) || !(await isHere())) break;
    }
  } finally {
    hub.forget(receiver);
  }
  return {};
}
