import type { Clock } from '../../platform/clock/clock.ts';
import type { InstanceStore } from '../storage/instance-store.ts';

export interface RegisteredInstance {
  readonly id: string;
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
  let removed = false;
  let cancelNext = () => {};
  let beating = Promise.resolve();

  function beatLater(ms: number): void {
    cancelNext = clock.after(ms, () => {
      beating = store
        .beat({ ...own, heartbeat_at: clock.now() })
        .catch(onMissedBeat)
        .then(() => {
          if (!removed) beatLater(ms);
        });
    });
  }
  if (heartbeatMs !== undefined) beatLater(heartbeatMs);

  return {
    id,
    async remove() {
      removed = true;
      cancelNext();
      await beating;
      await store.remove(id);
    },
  };
}
