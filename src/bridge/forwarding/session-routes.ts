import { type Clock, repeat } from '../../platform/clock/clock.ts';
import { ownFirst, sees, seesAll } from '../principal.ts';
import type { SessionRouteRow } from '../storage/bridge-schema.ts';
import type { SessionRouteStore } from '../storage/session-route-store.ts';
import type { CallName, CallNames } from './call-names.ts';

/** Where something lives, and whose it is. */
export interface Place {
  readonly nodeId: string;
  readonly owner: string;
}

export interface Binding extends Place {
  readonly names: readonly CallName[];
  readonly threadId: string;
}

/** Remembers which node has what: spec/bridge 4.6, rule 3. It is durable, for 24 hours after the last use. */
export interface SessionRoutes {
  find(principal: string, call: Pick<CallNames, 'names' | 'makes'>): Promise<Place | undefined>;
  /** The places of the sessions of a thread that the principal means, each once. */
  findThread(principal: string, threadId: string): Promise<readonly Place[]>;
  /** The nodes that have jobs which this bridge forwarded for the principal, or for owners that it sees. */
  findJobs(principal: string, nodeIds: Iterable<string>): Promise<readonly Place[]>;
  /**
   * Settles where something new lives, before it is made. Answers with the node that has it: another one when somebody
   * was faster. `insteadOf` is the node that it was bound to before, and that has not made it.
   */
  bind(binding: Binding, insteadOf: string | undefined): Promise<string>;
  remember(binding: Binding): Promise<void>;
  stop(): Promise<void>;
}

export interface SessionRoutesOptions {
  readonly store: SessionRouteStore;
  readonly clock: Clock;
  onError(error: unknown): void;
}

const KEPT_MS = 24 * 60 * 60 * 1000;
/** A use is noted when the last note is older than this: not each message is worth a commit. */
const NOTED_MS = 5 * 60 * 1000;
const SWEEP_PAUSE_MS = 10 * 60 * 1000;
const SWEEP_STEP = 500;

export function createSessionRoutes({ store, clock, onError }: SessionRoutesOptions): SessionRoutes {
  const usedAfter = (): number => clock.now() - KEPT_MS;

  /** Who sees everything still makes what is its own (contract/bridge 11). */
  async function findOne(principal: string, { kind, name }: CallName, makes: boolean) {
    const own = await store.find({ owner: principal, kind, name }, usedAfter());
    if (own !== undefined || makes || !seesAll(principal)) return own;
    return store.findAnyOwner({ kind, name }, usedAfter());
  }

  function noteUse(row: SessionRouteRow): void {
    const now = clock.now();
    if (row.used_at < now - NOTED_MS) store.touch(row, now).catch(onError);
  }

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
      const owner = seesAll(principal) ? undefined : principal;
      const places = new Map<string, Place>();
      for (const row of ownFirst(principal, await store.findByThread(threadId, owner, usedAfter()))) {
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
    async bind(binding, insteadOf) {
      const rows = rowsOf(binding);
      const [first] = rows;
      if (first === undefined) return binding.nodeId;
      if (insteadOf === undefined) await store.claim(rows, usedAfter());
      else await store.move(rows, insteadOf, binding.nodeId);
      return (await store.find(first, usedAfter()))?.node_id ?? binding.nodeId;
    },
    async remember(binding) {
      const rows = rowsOf(binding);
      if (rows.length > 0) await store.put(rows);
    },
    stop: () => sweeping.stop(),
  };
}
