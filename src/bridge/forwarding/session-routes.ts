import { type Clock, repeat } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { ownersSought, ownFirst, type Principal, sees } from '../../platform/identity/principal.ts';
import type { SessionRouteRow } from '../storage/bridge-schema.ts';
import type { SessionRouteStore } from '../storage/instance-and-route-stores.ts';
import type { SessionStore } from '../storage/session-store.ts';

/** What a call is about: a session, a job, a job named by its idempotency key, or the jobs of a node. */
export interface CallName {
  readonly kind: 'session' | 'job' | 'job-key' | 'jobs';
  readonly name: string;
}

export interface CallNames {
  /** The first one that has a place decides where the call goes. */
  readonly names: readonly CallName[];
  /** Empty when the call names no thread. */
  readonly threadId: string;
  /**
   * When the place of the session or job is stored: before the call is sent (the call creates something that must not be created
   * twice), after it has succeeded, or never.
   */
  readonly binds: 'before' | 'after' | 'never';
  /** Whether the call may create something, which then belongs to its caller. */
  readonly makes: boolean;
}

const NONE: CallNames = { names: [], threadId: '', binds: 'never', makes: true };
const MAX_NAME = 256;

/** Reads what a call is about. The params have not been checked yet. */
export function readCallNames(method: string, params: unknown): CallNames {
  const given = Object(params) as Readonly<Record<string, unknown>>;
  const threadId = nameOf(given, 'threadId');
  const session = named('session', nameOf(given, 'sessionId'));
  switch (method) {
    case 'session.start':
    case 'session.message': {
      if (session.length === 0) throw invalid('sessionId must have 1 to 256 characters');
      const isStart = method === 'session.start';
      return { names: session, threadId, binds: isStart ? 'before' : 'after', makes: isStart };
    }
    case 'session.cancel':
    case 'session.close':
      return { names: session, threadId, binds: 'never', makes: false };
    case 'app.jobs.submit': {
      const key = named('job-key', nameOf(given, 'idempotencyKey'));
      const names = [...named('job', nameOf(given, 'retryOf')), ...session, ...key];
      return { names, threadId, binds: 'before', makes: true };
    }
    case 'app.jobs.get':
      return { names: named('job', nameOf(given, 'jobId')), threadId, binds: 'never', makes: false };
    default:
      return NONE;
  }
}

/** The names that a job got from the node that took it, and the node itself, so that lists of jobs ask it. */
export function readJobNames(result: unknown, nodeId: string): readonly CallName[] {
  const given = Object(result) as Readonly<Record<string, unknown>>;
  const names = [...named('job', nameOf(given, 'jobId')), ...named('session', nameOf(given, 'sessionId'))];
  return [...names, { kind: 'jobs', name: nodeId }];
}

function named(kind: CallName['kind'], name: string): readonly CallName[] {
  return name === '' ? [] : [{ kind, name }];
}

/** Empty when it is not given. Throws for a name that cannot be stored as it is. */
function nameOf(given: Readonly<Record<string, unknown>>, member: string): string {
  const value = given[member];
  if (value === undefined || value === '') return '';
  const isName = typeof value === 'string' && value.length <= MAX_NAME && value.isWellFormed() && !value.includes('\0');
  if (!isName) throw invalid(`${member} must be a text of at most ${MAX_NAME} characters`);
  return value;
}

function invalid(reason: string): AppError {
  return new AppError('INVALID_PARAMS', { reason });
}

/** Where something lives, and whose it is. */
export interface Place {
  readonly nodeId: string;
  readonly owner: string;
}

export interface Binding extends Place {
  readonly names: readonly CallName[];
  readonly threadId: string;
}

/** A place that was stored before the call was sent. */
export interface Bound {
  readonly nodeId: string;
  /** Set if this call was the first to store it: until another call uses the place, only this one knows it. */
  readonly usedAt: number | undefined;
}

/** Stores which node has which session or job, for 24 hours after the last use. */
export interface SessionRoutes {
  /** Calls the listener with the names of sessions and jobs that another node has received. */
  onBound(listener: (names: readonly CallName[]) => void): void;
  find(principal: Principal, call: Pick<CallNames, 'names' | 'makes'>): Promise<Place | undefined>;
  /** The places of the sessions of a thread that the principal means, each once. */
  findThread(principal: Principal, threadId: string): Promise<readonly Place[]>;
  /** The nodes that have jobs which this bridge forwarded for the principal, or for owners that it sees. */
  findJobs(principal: Principal, nodeIds: Iterable<string>): Promise<readonly Place[]>;
  /**
   * Stores the node of something new before it is created. Returns the stored node: another one when another call was
   * faster. `insteadOf` is an earlier `bind` to a node that has not created it.
   */
  bind(binding: Binding, insteadOf: Bound | undefined): Promise<Bound>;
  /**
   * Forgets a place that this call has stored, after its node has certainly created nothing. If another call has been sent
   * there since then, the place stays. Never rejects.
   */
  release(binding: Binding, bound: Bound): Promise<void>;
  remember(binding: Binding): Promise<void>;
  stop(): Promise<void>;
}

interface SessionRoutesOptions {
  readonly store: SessionRouteStore;
  readonly clock: Clock;
  onError(error: unknown): void;
}

const KEPT_MS = 24 * 60 * 60 * 1000;
/** A use is stored when the last stored one is older than this, so that not every message costs a commit. */
const NOTED_MS = 5 * 60 * 1000;
const SWEEP_PAUSE_MS = 10 * 60 * 1000;
const SWEEP_STEP = 500;

export function createSessionRoutes({ store, clock, onError }: SessionRoutesOptions): SessionRoutes {
  const usedAfter = (): number => clock.now() - KEPT_MS;

  /** A principal that sees everything still creates its own. */
  async function findOne(principal: Principal, { kind, name }: CallName, makes: boolean) {
    const own = await store.find({ owner: principal.id, kind, name }, usedAfter());
    const owners = ownersSought(principal);
    if (own !== undefined || makes || owners?.length === 1) return own;
    return store.findSeen({ kind, name }, owners, usedAfter());
  }

  function noteUse(row: SessionRouteRow): void {
    const now = clock.now();
    if (row.used_at < now - NOTED_MS) store.touch(row, now).catch(onError);
  }

  let bound: (names: readonly CallName[]) => void = () => undefined;

  function rowsOf({ names, owner, threadId, nodeId }: Binding): readonly SessionRouteRow[] {
    return names.map(({ kind, name }) => ({
      owner,
      kind,
      name,
      thread_id: kind === 'session' ? threadId || name : '',
      node_id: nodeId,
      used_at: clock.now(),
    }));
  }

  const sweeping = repeat({
    clock,
    pauseMs: SWEEP_PAUSE_MS,
    onError,
    async work(signal) {
      while (!signal.aborted && (await store.deleteOld(usedAfter(), SWEEP_STEP)) === SWEEP_STEP);
    },
  });

  return {
    async find(principal, { names, makes }) {
      for (const name of names) {
        const row = await findOne(principal, name, makes);
        if (row === undefined) continue;
        noteUse(row);
        return { nodeId: row.node_id, owner: row.owner };
      }
      return undefined;
    },
    async findThread(principal, threadId) {
      const places = new Map<string, Place>();
      const found = await store.findByThread(threadId, ownersSought(principal), usedAfter());
      for (const row of ownFirst(principal, found)) {
        places.set(`${row.node_id} ${row.owner}`, { nodeId: row.node_id, owner: row.owner });
      }
      return [...places.values()];
    },
    async findJobs(principal, nodeIds) {
      const found = await Promise.all(
        [...nodeIds].map(async (name) => {
          const rows = await store.findOwners({ kind: 'jobs', name }, usedAfter());
          return rows.filter(({ owner }) => sees(principal, owner));
        }),
      );
      return found.flat().map((row) => {
        noteUse(row);
        return { nodeId: row.node_id, owner: row.owner };
      });
    },
    onBound(listener) {
      bound = listener;
    },
    async bind(binding, insteadOf) {
      const rows = rowsOf(binding);
      const [first] = rows;
      if (first === undefined) return { nodeId: binding.nodeId, usedAt: undefined };
      let usedAt = insteadOf?.usedAt;
      if (insteadOf === undefined) usedAt = await store.claim(rows, usedAfter());
      else if (usedAt !== undefined) await store.move(rows, { nodeId: insteadOf.nodeId, usedAt }, binding.nodeId);
      const nodeId = (await store.find(first, usedAfter()))?.node_id ?? binding.nodeId;
      bound(binding.names);
      return { nodeId, usedAt: nodeId === binding.nodeId ? usedAt : undefined };
    },
    async release(binding, { nodeId, usedAt }) {
      if (usedAt !== undefined) await store.release(rowsOf(binding), { nodeId, usedAt }).catch(onError);
    },
    async remember(binding) {
      const rows = rowsOf(binding);
      if (rows.length > 0) await store.put(rows);
      bound(binding.names);
    },
    stop: () => sweeping.stop(),
  };
}

/** Finds the place of something that a principal sees: another node, this one, or undefined if no place is known. */
type FindPlace = (principal: Principal, about: Pick<CallNames, 'names' | 'makes'>) => Promise<Place | undefined>;

interface FindPlaceOptions {
  readonly localId: string;
  readonly routes: Pick<SessionRoutes, 'find'>;
  readonly sessions: Pick<SessionStore, 'find' | 'findSeen'>;
}

/** Sessions that run here stay here, even if the rules have changed since. */
export function createFindPlace({ localId, routes, sessions }: FindPlaceOptions): FindPlace {
  return async (principal, about) => {
    const place = await routes.find(principal, about);
    if (place !== undefined) return place;
    const [first] = about.names;
    if (first?.kind !== 'session') return undefined;
    const own = await sessions.find(first.name, principal.id);
    const owners = ownersSought(principal);
    const looksFurther = owners?.length !== 1 && !about.makes;
    const found = own?.closed_at === null || !looksFurther ? own : await sessions.findSeen(first.name, owners);
    return found?.closed_at === null ? { nodeId: localId, owner: found.owner } : undefined;
  };
}
