import type { Clock } from '../../platform/clock/clock.ts';
import { ownersSought, ownFirst, type Principal, sees } from '../../platform/identity/principal.ts';
import type { AgentOffers, AgentTurn, AskPermission, Steer } from '../agents/agent-provider.ts';
import type { PlacedFile } from '../agents/prompt-content.ts';
import type { GivenFile } from '../attachments/given-files.ts';
import type { ChangeTotals } from '../checkpoints/turn-checkpoints.ts';
import type { RoutingInput, TurnRouting } from '../contract/routing.ts';
import type { PlanChange } from '../multi-agent/multi-agent-plan.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { SessionStore } from '../storage/session-store.ts';
import type { EndedTurn } from '../storage/turn-store.ts';
import type { SessionMcpServer } from './mcp-servers.ts';
import { newSession, type SessionFacts, type SessionStates } from './session-state.ts';
import type { ResultBase } from './turn-outcome.ts';
import type { NotificationSink, UpdateHub } from './update-hub.ts';
import type { UpdateStream } from './update-stream.ts';

/** A call of `session.start` or `session.message`, as the sessions see it. */
export interface TurnRequest {
  readonly method: 'session.start' | 'session.message';
  readonly principal: Principal;
  readonly sessionId: string;
  /** Empty: that of the session, or its id. */
  readonly threadId: string;
  readonly prompt: string;
  readonly files: readonly GivenFile[];
  /** The owner of the files that were uploaded before: that of the call, which may differ from that of the session. */
  readonly uploader: string;
  /** Checked before the turn is taken, in the order of the calls. Throws what the caller gets. */
  check?(): Promise<void>;
  /** Empty: that of the session, or its scratch folder. */
  readonly workingDirectory: string;
  readonly routing: RoutingInput & Pick<TurnRouting, 'permissions' | 'worktree'>;
  /** Of a start: the servers that the session has from now on. */
  readonly mcpServers: readonly SessionMcpServer[];
  /** Of a multi-agent run. */
  readonly plan: PlanChange | undefined;
  /** How many bridges the call has passed. */
  readonly hop: number;
  /** For calls that can be repeated: their id and what they asked for. Empty for others. */
  readonly requestId: string;
  readonly requestFingerprint: string;
  readonly idempotencyKey: string;
  /** The job that the turn belongs to. */
  readonly jobId?: string;
  /** As `AgentTurn.taskId`. */
  readonly taskId?: string;
  /** Reports that the response may take long. */
  accepted(): void;
  /** Asks the person at the client for permission. Absent: the settings decide. */
  readonly ask?: AskPermission;
}

/** What an agent has to know of the job that its turn belongs to. */
export function taskOf({ jobId, taskId }: TurnRequest): Pick<AgentTurn, 'isJob' | 'taskId'> {
  return { ...(jobId !== undefined && { isJob: true }), ...(taskId !== undefined && { taskId }) };
}

/** The turn of a job. */
export interface JobTurnRequest extends Omit<TurnRequest, 'method'> {
  /** Starts the session again even if it has an open conversation. */
  readonly newSession: boolean;
  /** The job was taken before: it may have started the session itself, and was interrupted. */
  readonly isRetry: boolean;
}

/** Why a turn is to end before its agent is done. */
type StopReason = 'cancelled' | 'interrupted';

/** The beginning of a turn, on its way to the store. */
export interface Beginning {
  /** Rejects when it could not be stored. Once the end of the turn waits as well, both are stored when the store is back. */
  readonly stored: Promise<void>;
  /** True while it waits for something that it can be stored together with; for some milliseconds at most. */
  isWaiting(): boolean;
  /**
   * While it waits: stores the turn as it ended in its place. Returns up to where the session must then have numbers
   * reserved; undefined when the beginning is on its way, and the end must follow.
   */
  endWith(ended: EndedTurn): number | undefined;
}

/** A turn that runs or waits. */
export interface LiveTurn {
  readonly id: string;
  readonly request: TurnRequest;
  readonly createdAt: number;
  /** The text of its outcome. Rejects when the outcome could not be stored. */
  readonly outcome: Promise<string>;
  settle(outcomeText: string): void;
  fail(error: unknown): void;
  /** The number of its first update; 0 until it has one. */
  firstSeq: number;
  /** The number of its last update; 0 until that is stored. */
  lastSeq: number;
  /** Whether the store knows of it. */
  isStored: boolean;
  /** Set when its agent is asked. */
  beginning: Beginning | undefined;
  /** Its end is known and being stored. */
  isEnding: boolean;
  /** What its result says, should it end while it waits; set when it is stored as one that waits. */
  waitingBase: ResultBase | undefined;
  /** Called when the session that it waits in is stored; until then nobody knows whether there will be one. */
  onSessionStored: (() => void) | undefined;
  /** Its files, once its agent can read them. */
  placed: readonly PlacedFile[];
  stopReason: StopReason | undefined;
  /** A job has its place when it is put into line; other turns take one when they come first. */
  hasPlace: boolean;
  /** Aborts with `stopReason`: ends its wait for a place, and what its agent does. */
  readonly stopping: AbortController;
  /** Hands its agent a further message; set while the agent takes any. */
  steer: Steer | undefined;
  /** What its agent offers, and its mode; empty and undefined while unknown. */
  offers: AgentOffers | undefined;
  mode: string;
  /** Gives its place at the agent back; set while it has one. */
  leaveAgent: (() => void) | undefined;
  /** What the session has changed in its folder until the end of the turn; undefined while that is not known. */
  changed: ChangeTotals | undefined;
}

/** A session in memory: what is known of it (`session-state.ts`), and what of it runs here. */
export interface LiveSession extends SessionFacts {
  readonly stream: UpdateStream;
  /** The first one runs, the others wait. */
  turns: LiveTurn[];
  /** Runs the turns, as long as there are any. */
  running: Promise<void> | undefined;
  closing: Promise<void> | undefined;
  /** Work on its files, for which turns and the end of the session wait. */
  held: Promise<void> | undefined;
  usedAt: number;
}

export function createLiveTurn(id: string, request: TurnRequest, createdAt: number): LiveTurn {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  // The caller gets the failure; there may be no caller left.
  promise.catch(() => undefined);
  return {
    id,
    request,
    createdAt,
    outcome: promise,
    settle: resolve,
    fail: reject,
    firstSeq: 0,
    lastSeq: 0,
    isStored: false,
    beginning: undefined,
    isEnding: false,
    waitingBase: undefined,
    onSessionStored: undefined,
    placed: [],
    stopReason: undefined,
    hasPlace: false,
    stopping: new AbortController(),
    steer: undefined,
    offers: undefined,
    mode: '',
    leaveAgent: undefined,
    changed: undefined,
  };
}

/**
 * Runs calls about one session one after the other, in their order. A message directly after a start finds its session, and the
 * second of two calls with the same idempotency key finds the turn of the first.
 */
export function createSessionOrder() {
  /** By session, what the next call about it has to wait for. */
  const waitedFor = new Map<string, Promise<void>>();
  return <Result>(name: string, decide: () => Promise<Result>): Promise<Result> => {
    const before = waitedFor.get(name);
    const decided = before === undefined ? decide() : before.then(decide);
    const ignore = () => undefined;
    const over = decided.then(ignore, ignore).then(() => {
      if (waitedFor.get(name) === over) waitedFor.delete(name);
    });
    waitedFor.set(name, over);
    return decided;
  };
}

/** Whether a turn of the session runs or waits here, its files are worked on, or the session is being closed. */
export function isBusy({ turns, closing, held }: LiveSession): boolean {
  return turns.length > 0 || closing !== undefined || held !== undefined;
}

/** Forgets a session that never began. While it is in doubt whether it did, the next call about it must find it. */
export function forgetUnbegun(session: LiveSession, table: Pick<SessionTable, 'remove'>, hub: Pick<UpdateHub, 'end'>) {
  if (session.stored !== 'absent' || session.isDoubted || session.turns.length > 0) return;
  table.remove(session);
  hub.end(session.key);
}

/** Asks a turn to end; its outcome resolves when it has ended. The first reason counts. */
export function stopTurn(turn: LiveTurn, reason: StopReason): void {
  if (turn.stopReason !== undefined) return;
  turn.stopReason = reason;
  turn.stopping.abort();
}

/** The sessions in memory: those with turns, and recently used ones. All others are only in the store. */
export interface SessionTable {
  /** The owner's session of that name, be it closed. */
  loadOwn(owner: string, sessionId: string): Promise<LiveSession | undefined>;
  /** The session of that name which the principal means: its own, else one of another owner that it sees. */
  load(principal: Principal, sessionId: string): Promise<LiveSession | undefined>;
  /** The open sessions of a thread that the principal means: its own, else those of other owners that it sees. */
  loadThread(principal: Principal, threadId: string): Promise<readonly LiveSession[]>;
  /** A session that is not in the store; the one that was made for another call just before, if there is one. */
  create(owner: string, sessionId: string): LiveSession;
  /** The session of that name, if it is in memory. */
  peek(owner: string, sessionId: string): LiveSession | undefined;
  /** The same by its key. */
  byKey(key: string): LiveSession | undefined;
  remove(session: LiveSession): void;
  all(): Iterable<LiveSession>;
}

interface SessionTableOptions {
  readonly store: Pick<SessionStore, 'isShared' | 'find' | 'findSeen' | 'findByThread'>;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly change: SessionStates['change'];
  makeKey(): string;
  createStream(sessionKey: string, lastSeq: number): UpdateStream;
  /** Another bridge may have had the session since it was last here, with numbers up to this one. */
  usedElsewhere(sessionKey: string, upTo: number): void;
}

/** Idle sessions stay in memory while there are fewer sessions than this. */
const MAX_IDLE = 1000;
/** The minimum time that idle sessions stay in memory, because a call may be about to use them. */
const IDLE_MS = 60_000;

export function createSessionTable(options: SessionTableOptions): SessionTable {
  const { store, clock, change, makeKey, createStream } = options;
  const sessions = new Map<string, LiveSession>();
  const keys = new Map<string, LiveSession>();
  const nameOf = (owner: string, sessionId: string) => `${owner}\n${sessionId}`;

  function use(session: LiveSession): LiveSession {
    session.usedAt = clock.monotonic();
    const name = nameOf(session.owner, session.id);
    sessions.delete(name);
    sessions.set(name, session);
    return session;
  }

  function make(key: string, id: string, owner: string, lastSeq: number): LiveSession {
    dropIdle();
    const session: LiveSession = {
      ...newSession(key, id, owner),
      stream: createStream(key, lastSeq),
      turns: [],
      running: undefined,
      closing: undefined,
      held: undefined,
      usedAt: 0,
    };
    keys.set(key, session);
    return use(session);
  }

  function remove(session: LiveSession): void {
    const name = nameOf(session.owner, session.id);
    if (sessions.get(name) === session) sessions.delete(name);
    keys.delete(session.key);
  }

  /** The least recently used come first in the map. */
  function dropIdle(): void {
    const limit = clock.monotonic() - IDLE_MS;
    for (const session of sessions.values()) {
      if (sessions.size < MAX_IDLE || session.usedAt > limit) return;
      if (!isBusy(session)) remove(session);
      else use(session);
    }
  }

  /** What memory knows is newer than the row, unless another bridge could have changed it since. */
  function adopt(row: SessionRow): LiveSession {
    const known = sessions.get(nameOf(row.owner, row.session_id));
    if (known !== undefined && (isBusy(known) || !store.isShared)) return use(known);
    // One that never began here may have been begun elsewhere, and has another key then.
    const isSame = known?.key === row.key;
    if (known !== undefined && !isSame) remove(known);
    const session = isSame ? known : make(row.key, row.session_id, row.owner, row.reserved_seq);
    if (session.epoch !== row.epoch) options.usedElsewhere(row.key, row.reserved_seq);
    session.stream.restart(row.reserved_seq);
    change(session, { kind: 'found', row });
    return use(session);
  }

  async function loadOwn(owner: string, sessionId: string): Promise<LiveSession | undefined> {
    const known = sessions.get(nameOf(owner, sessionId));
    if (known !== undefined && (isBusy(known) || !store.isShared)) return use(known);
    const row = await store.find(sessionId, owner);
    if (row !== undefined) return adopt(row);
    // Another call may have made it since then.
    return sessions.get(nameOf(owner, sessionId));
  }

  return {
    loadOwn,
    async load(principal, sessionId) {
      const own = await loadOwn(principal.id, sessionId);
      const owners = ownersSought(principal);
      if (own?.stored === 'open' || (own !== undefined && isBusy(own)) || owners?.length === 1) return own;
      const row = await store.findSeen(sessionId, owners);
      if (row !== undefined) return adopt(row);
      // One of a team that is only about to begin is not in the store.
      const starting = (owners ?? []).map((owner) => sessions.get(nameOf(owner, sessionId)));
      return own ?? starting.find((one) => one !== undefined && isBusy(one));
    },
    async loadThread(principal, threadId) {
      const rows = await store.findByThread(threadId, ownersSought(principal));
      const found = new Set(rows.map(adopt));
      for (const session of sessions.values()) {
        if (sees(principal, session.owner) && isBusy(session)) found.add(session);
      }
      const ofThread = [...found].filter((session) => threadsOf(session).includes(threadId));
      return ownFirst(principal, ofThread);
    },
    create: (owner, sessionId) => sessions.get(nameOf(owner, sessionId)) ?? make(makeKey(), sessionId, owner, 0),
    peek: (owner, sessionId) => sessions.get(nameOf(owner, sessionId)),
    byKey: (key) => keys.get(key),
    remove,
    all: () => sessions.values(),
  };
}

/** A session that is only about to begin has no thread yet but the one that was asked for. */
function threadsOf({ threadId, turns, id, stored }: LiveSession): string[] {
  return [stored === 'open' ? threadId : '', ...turns.map(({ request }) => request.threadId || id)];
}

/** A connection that wants a session which, as far as it is known, is not there. */
interface EarlyFollower {
  readonly receiver: NotificationSink;
  readonly principal: Principal;
  readonly sessionId: string;
  /** The last number that it has. */
  readonly afterSeq: number;
  /** The session has started since then: the connection is its client since before its first update. */
  isAdmitted: boolean;
}

/**
 * Connections that follow a session before it starts: an app that submits a job gets its response before the session of the job
 * begins. Each connection has one entry until it closes.
 */
interface EarlyFollowers {
  add(principal: Principal, sessionId: string, afterSeq: number, receiver: NotificationSink): void;
  /** Whether it still waits. False when its session has started, or the connection has gone. */
  isWaiting(receiver: NotificationSink): boolean;
  /** Those who become clients of a session that starts, or, where it has started elsewhere, who still wait for it. */
  admit(
    session: { readonly id: string; readonly owner: string },
    isNew: boolean,
  ): readonly Pick<EarlyFollower, 'receiver' | 'afterSeq'>[];
  remove(receiver: NotificationSink): void;
}

export function createEarlyFollowers(): EarlyFollowers {
  const byReceiver = new Map<NotificationSink, EarlyFollower>();
  const bySession = new Map<string, Set<NotificationSink>>();

  function remove(receiver: NotificationSink): void {
    const { sessionId = '' } = byReceiver.get(receiver) ?? {};
    byReceiver.delete(receiver);
    const receivers = bySession.get(sessionId);
    if (receivers?.delete(receiver) && receivers.size === 0) bySession.delete(sessionId);
  }

  return {
    add(principal, sessionId, afterSeq, receiver) {
      remove(receiver);
      byReceiver.set(receiver, { receiver, principal, sessionId, afterSeq, isAdmitted: false });
      const receivers = bySession.get(sessionId) ?? new Set<NotificationSink>();
      bySession.set(sessionId, receivers.add(receiver));
    },
    isWaiting: (receiver) => byReceiver.get(receiver)?.isAdmitted === false,
    admit({ id, owner }, isNew) {
      const admitted: EarlyFollower[] = [];
      for (const receiver of bySession.get(id) ?? []) {
        const follower = byReceiver.get(receiver);
        if (follower === undefined || !sees(follower.principal, owner)) continue;
        if (follower.isAdmitted && !isNew) continue;
        follower.isAdmitted = true;
        admitted.push(follower);
      }
      return admitted;
    },
    remove,
  };
}
