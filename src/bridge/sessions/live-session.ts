import type { AskPermission } from '../agents/agent-provider.ts';
import type { RoutingInput } from '../contract/routing.ts';
import type { PlanChange } from '../multi-agent/multi-agent-plan.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { UpdateReceiver } from './update-hub.ts';
import type { UpdateStream } from './update-stream.ts';

/** A call of `session.start` or `session.message`, as the sessions see it. */
export interface TurnRequest {
  readonly method: 'session.start' | 'session.message';
  readonly principal: string;
  readonly sessionId: string;
  /** Empty: that of the session, or its id. */
  readonly threadId: string;
  readonly prompt: string;
  /** Empty: that of the session, or its scratch folder. */
  readonly workingDirectory: string;
  readonly routing: RoutingInput;
  /** Of a multi-agent run. */
  readonly plan: PlanChange | undefined;
  /** How many bridges the call has passed. */
  readonly hop: number;
  /** For calls that can be repeated: their id and what they asked for. Empty for others. */
  readonly requestId: string;
  readonly requestFingerprint: string;
  readonly idempotencyKey: string;
  /** Says that the answer may be long in coming. */
  accepted(): void;
  /** Asks the person at the client for permission. Absent: the settings decide. */
  readonly ask?: AskPermission;
}

/** Who made the call. */
export interface TurnClient {
  /** Undefined for a call whose answer has no place for updates. */
  readonly receiver: UpdateReceiver | undefined;
  /** Whether it stays a client when the call is answered. */
  readonly stays: boolean;
}

/** Why a turn is to end before its agent is done. */
export type StopReason = 'cancelled' | 'interrupted';

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
  /** Called when the session that it waits in is stored; until then nobody knows whether there will be one. */
  onSessionStored: (() => void) | undefined;
  stopReason: StopReason | undefined;
  /** A job has its place when it is put into line; other turns take one when they come first. */
  hasPlace: boolean;
  /** Set while an agent works on it, or while it waits for a place. */
  stopAgent: (() => void) | undefined;
  /** Gives its place at the agent back; set while it has one. */
  leaveAgent: (() => void) | undefined;
}

/**
 * A session in memory. Of a closed one, or one that never began, only the names and the last number count. What is
 * readonly here changes by the functions below and nowhere else.
 */
export interface LiveSession {
  readonly key: string;
  readonly id: string;
  readonly owner: string;
  readonly threadId: string;
  readonly providerId: string;
  readonly reference: string;
  readonly workingDirectory: string;
  readonly isOpen: boolean;
  readonly isStored: boolean;
  /** Another bridge runs a turn of it. */
  readonly isElsewhere: boolean;
  /** It is not known whether the beginning of its last turn was stored; what ends that turn is on its way. */
  readonly isInDoubt: boolean;
  readonly stream: UpdateStream;
  /** The first one runs, the others wait. */
  turns: LiveTurn[];
  /** Runs the turns, as long as there are any. */
  running: Promise<void> | undefined;
  closing: Promise<void> | undefined;
  usedAt: number;
}

/** What a turn changes about its session when it begins. */
export type SessionPlace = Pick<LiveSession, 'threadId' | 'providerId' | 'reference' | 'workingDirectory'>;

type Changing = { -readonly [Member in keyof LiveSession]: LiveSession[Member] };

/** A turn begins. Returns what the session was before, and what makes it so again when the beginning is not stored. */
export function beginTurn(session: LiveSession, place: SessionPlace): { before: SessionPlace; undo(): void } {
  const { threadId, providerId, reference, workingDirectory } = session;
  const before = { threadId, providerId, reference, workingDirectory };
  Object.assign(session, place);
  return { before, undo: () => void Object.assign(session, before) };
}

/** The beginning of a turn is stored, and with it the session. */
export function turnStored(session: Changing): void {
  session.isOpen = true;
  session.isStored = true;
}

/** The agent has a name for the conversation. */
export function conversationOpened(session: Changing, reference: string): void {
  session.reference = reference;
}

/** Whether the beginning of the last turn was stored cannot be known at the moment. */
export function setInDoubt(session: Changing, isInDoubt: boolean): void {
  session.isInDoubt = isInDoubt;
}

/** The session is over; what is left are its names and the last number. */
export function sessionClosed(session: Changing): void {
  Object.assign(session, { isOpen: false, reference: '', providerId: '', workingDirectory: '' });
}

/** Takes over what the store says of a session; `instance` is this bridge. */
export function adoptRow(session: Changing, row: SessionRow, instance: string): void {
  session.stream.restart(row.reserved_seq);
  session.isStored = true;
  session.isOpen = row.closed_at === null;
  session.isElsewhere = row.instance !== '' && row.instance !== instance;
  session.threadId = row.thread_id;
  session.providerId = row.provider_id;
  session.reference = row.reference;
  session.workingDirectory = row.working_directory;
}

export function createLiveTurn(id: string, request: TurnRequest, createdAt: number): LiveTurn {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  // Whoever made the call gets the failure; nobody may be left to hear it.
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
    onSessionStored: undefined,
    stopReason: undefined,
    hasPlace: false,
    stopAgent: undefined,
    leaveAgent: undefined,
  };
}

/** Whether a turn of the session runs or waits here, or the session is being closed. */
export function isBusy({ turns, closing }: LiveSession): boolean {
  return turns.length > 0 || closing !== undefined;
}

/** Asks a turn to end; its outcome tells when it has. The first reason counts. */
export function stopTurn(turn: LiveTurn, reason: StopReason): void {
  if (turn.stopReason !== undefined) return;
  turn.stopReason = reason;
  turn.stopAgent?.();
}
