import { type Clock, repeat } from '../../platform/clock/clock.ts';
import type { InstanceRow } from '../storage/bridge-schema.ts';
import type { InstanceStore } from '../storage/instance-and-route-stores.ts';

/** What this bridge may do about the sessions of others, and its own, as far as its heartbeats tell. */
export interface Lease {
  /** Without a heartbeat for this long, others take it for ended; undefined: nobody shares the store. */
  readonly deadAfterMs: number | undefined;
  /** False when others may already take this bridge for ended: what it shows to clients waits for the next heartbeat. */
  isHeld(): boolean;
  /**
   * Whether bridges without a heartbeat have ended. Not while the database, as seen from here, was away in that time:
   * then none of them could send one.
   */
  mayJudge(): boolean;
  /** Calls after every heartbeat that was stored. */
  onBeat(listener: () => void): void;
}

export interface RegisteredInstance {
  readonly id: string;
  readonly lease: Lease;
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
  /** False where no other instance can share the store: there the lock on the file already tells who lives. */
  readonly isShared: boolean;
  onMissedBeat(error: unknown): void;
  /** Called when the clock of this machine differs from that of the database, positive when it is ahead. */
  onClockDifference(differenceMs: number): void;
}

const HEARTBEAT_MS = 2_000;
/** With the pause between two looks, what a dead bridge left is settled within 12 seconds. */
const DEAD_AFTER_MS = 8_000;
/** Counted from when the last stored heartbeat was sent; others count from when it was stored. */
const HELD_MS = 7_000;
/** Between two heartbeats that were stored: after a longer one the database may have been away for all. */
const GAP_MS = 5_000;
export const CLOCK_DIFFERS = 'the clock of this machine differs from that of the database: set both by NTP';
const CLOCK_DIFFERENCE_MS = 5_000;

/** Puts this running bridge on the list of instances, and keeps its heartbeat fresh. */
export async function registerInstance(options: RegisterInstanceOptions): Promise<RegisteredInstance> {
  const { store, clock, id, version, address, isShared, onMissedBeat, onClockDifference } = options;
  const now = clock.now();
  const own = { id, version, address, started_at: now, heartbeat_at: now };
  const listeners: (() => void)[] = [];
  let sentAt = clock.monotonic();
  /** Since when every heartbeat was stored in time. */
  let steadySince = sentAt;

  async function beat(): Promise<number> {
    const sending = clock.monotonic();
    const stored = await store.beat({ ...own, heartbeat_at: clock.now() });
    if (sending - sentAt > GAP_MS) steadySince = sending;
    sentAt = sending;
    for (const listener of listeners) listener();
    return stored;
  }
  const difference = now - (await beat());
  if (isShared && Math.abs(difference) > CLOCK_DIFFERENCE_MS) onClockDifference(difference);
  const beats = isShared
    ? repeat({ clock, pauseMs: HEARTBEAT_MS, work: async () => void (await beat()), onError: onMissedBeat })
    : undefined;
  const isHeld = () => !isShared || clock.monotonic() - sentAt < HELD_MS;

  return {
    id,
    lease: {
      deadAfterMs: isShared ? DEAD_AFTER_MS : undefined,
      isHeld,
      mayJudge: () => !isShared || (isHeld() && clock.monotonic() - steadySince >= DEAD_AFTER_MS),
      onBeat: (listener) => void listeners.push(listener),
    },
    list: async () => (await store.list()).map((row) => ({ ...row, isThis: row.id === id })),
    async remove() {
      await beats?.stop();
      await store.remove(id);
    },
  };
}
