import { type Clock, repeat } from '../../platform/clock/clock.ts';
import type { InstanceRow } from '../storage/bridge-schema.ts';
import type { InstanceStore } from '../storage/instance-and-route-stores.ts';

export interface RegisteredInstance {
  readonly id: string;
  /** The running bridges that share the database. */
  list(): Promise<readonly (InstanceRow & { readonly isThis: boolean })[]>;
  /** Takes this instance off the list; it is the last thing a clean stop does. */
  remove(): Promise<void>;
}

export interface RegisterInstanceOptions {
  readonly store: InstanceStore;
  readonly clock: Clock;
  readonly id: string;
  readonly version: string;
  readonly address: string;
  /** Undefined where no other instance can share the store: there the lock on the file already tells who lives. */
  readonly heartbeatMs: number | undefined;
  onMissedBeat(error: unknown): void;
}

/** Puts this running bridge on the list of instances, and keeps its heartbeat fresh. */
export async function registerInstance(options: RegisterInstanceOptions): Promise<RegisteredInstance> {
  const { store, clock, id, version, address, heartbeatMs, onMissedBeat } = options;
  const now = clock.now();
  const own = { id, version, address, started_at: now, heartbeat_at: now };
  await store.add(own);
  const beat = () => store.beat({ ...own, heartbeat_at: clock.now() });
  const beats =
    heartbeatMs === undefined ? undefined : repeat({ clock, pauseMs: heartbeatMs, work: beat, onError: onMissedBeat });

  return {
    id,
    list: async () => (await store.list()).map((row) => ({ ...row, isThis: row.id === id })),
    async remove() {
      await beats?.stop();
      await store.remove(id);
    },
  };
}
