import { type Clock, type Repeated, type RepeatOptions, repeat, withinTime } from '../../platform/clock/clock.ts';
import type { InstanceStore, ListedInstance } from '../storage/instance-and-route-stores.ts';

/** What this instance may do with its own sessions and those of others, judged by its heartbeats. */
export interface Lease {
  /** An instance without a heartbeat for this long counts as dead; undefined: no other instance shares the store. */
  readonly deadAfterMs: number | undefined;
  /** False when others may already count this instance as dead: updates for clients wait for the next heartbeat. */
  isHeld(): boolean;
  /**
   * The time of the database until which instances without a heartbeat count as dead. Undefined if the database was unavailable
   * from here during the last lease: then no instance could send a heartbeat. Searches for the work of dead instances contain this
   * time, because they may wait for the database and run when it is back.
   */
  judgesUntil(): number | undefined;
  /** Whether, within the last seconds, the list of instances has changed or contained a dead one. */
  hasChanged(): boolean;
  /** Calls the listener after every stored heartbeat; `wasLost`: before it, others may have counted this instance as dead. */
  onBeat(listener: (wasLost: boolean) => void): void;
  /** Calls the listener once in each outage, when the database has been unavailable for longer than `cluster.outage`. */
  onOutage(listener: () => void): void;
}

export interface RegisteredInstance {
  readonly id: string;
  readonly lease: Lease;
  /** The time of the database, as of the last heartbeat; the clock of this machine where nobody shares the database. */
  databaseNow(): number;
  /** Stores where this bridge can be reached, without waiting for the next heartbeat. */
  announce(): Promise<void>;
  /** Tells the others that this instance is about to stop. */
  leave(): void;
  isLeaving(): boolean;
  /** The running bridges that share the database. */
  list(): Promise<readonly (InstanceFacts & { readonly isThis: boolean })[]>;
  /** Removes this instance from the list: the last step of a clean stop. */
  remove(): Promise<void>;
}

/** What operators see of an instance. */
export interface InstanceFacts {
  readonly id: string;
  readonly version: string;
  readonly address: string;
  readonly startedAt: string;
  readonly heartbeatAt: string;
  /** `silent`: its lease has ended, and the others end its turns. */
  readonly state: 'serving' | 'leaving' | 'silent';
  /** Until its lease ends, unless it sends a heartbeat before. */
  readonly leaseMs: number;
  /** How far its clock is ahead of that of the database. */
  readonly clockDifferenceMs: number;
  /** Sessions with a turn that runs or waits there. */
  readonly sessions: number;
  readonly sockets: number;
  /** Of the settings that all instances must agree on; empty where it is not known. */
  readonly settingsDigest: string;
}

/** What an instance reports with each heartbeat. */
export interface InstanceLoad {
  readonly sockets: number;
  readonly settingsDigest: string;
}

interface Report extends Partial<InstanceLoad> {
  /** By the clock of the instance, when the heartbeat was sent. */
  readonly at?: number;
  readonly isLeaving?: boolean;
}

export interface RegisterInstanceOptions {
  readonly store: InstanceStore;
  readonly clock: Clock;
  readonly id: string;
  readonly version: string;
  /** The address at which other instances reach this one. It may change when the instance begins to listen. */
  address(): string;
  /** Undefined in tests. */
  load?: (() => InstanceLoad) | undefined;
  /** The data directory, where others share the database. */
  readonly home?: string;
  /** False where no other instance can share the store: there the lock on the file already tells which process runs. */
  readonly isShared: boolean;
  onMissedBeat(error: unknown): void;
  /** Called with each heartbeat: how far the clock of this machine is ahead of that of the database, at the least. */
  onClock?: ((differenceMs: number) => void) | undefined;
  /** Called when the clock of this machine begins to differ from that of the database, positive when it is ahead. */
  onClockDifference(differenceMs: number): void;
  /** How long the database may be away before `onOutage` of the lease. Undefined in tests: for ever. */
  outageMs?: (() => number) | undefined;
}

const HEARTBEAT_MS = 2_000;
/** With the pause between two checks, the turns of a dead instance are ended within 12 seconds. */
export const DEAD_AFTER_MS = 8_000;
/** Counted from when the last stored heartbeat was sent; others count from when it was stored. */
const HELD_MS = 7_000;
/** The longest gap between two stored heartbeats. After a longer one, the database may have been unavailable for all instances. */
const GAP_MS = 5_000;
export const CLOCK_DIFFERS = 'the clock of this machine differs from that of the database: set both by NTP';
/** A larger difference is reported to operators; signatures between instances allow for 30 s. */
const CLOCK_DIFFERENCE_MS = 5_000;
/** The minimum of `cluster.outage`: until then, updates are only held back, and no other instance may end the turns. */
const MIN_OUTAGE_MS = 9_000;
/** A process that was frozen has missed heartbeats although the database was available: it tries once more before turns are stopped. */
const LAST_TRY_MS = 2_000;
/** The work of a dead instance is searched for until this long after it has left the list. */
const CHANGED_MS = 10_000;
const SELDOM_MS = 30_000;

/** Adds this instance to the list of instances, and sends its heartbeats. */
export async function registerInstance(options: RegisterInstanceOptions): Promise<RegisteredInstance> {
  const { store, clock, id, version, address, home = '', isShared, onMissedBeat, onClockDifference } = options;
  const now = clock.now();
  const own = { id, version, home, started_at: now, heartbeat_at: now };
  const listeners: ((wasLost: boolean) => void)[] = [];
  let sentAt = clock.monotonic();
  /** Since when every heartbeat was stored in time. */
  let steadySince = sentAt;
  /** The time of the last heartbeat, and when its answer came. */
  let known = { time: now, at: sentAt };

  /** The others, as of the last heartbeat. */
  let others = '';
  let changedAt = Number.NEGATIVE_INFINITY;
  const deadAfterMs = isShared ? DEAD_AFTER_MS : undefined;

  let isLeaving = false;
  let beating: Promise<number> | undefined;
  let isClockOff = false;
  const outageListeners: (() => void)[] = [];
  let stopWatch = () => {};

  /** Begins with each heartbeat that was stored. */
  function watchOutage(): void {
    stopWatch();
    if (!isShared || options.outageMs === undefined) return;
    stopWatch = clock.after(Math.max(options.outageMs(), MIN_OUTAGE_MS), async () => {
      const isAway = await withinTime(clock, LAST_TRY_MS, beat().then(isStored, isMissed), isMissed);
      if (isAway) for (const listener of outageListeners) listener();
    });
  }

  /** The database read its clock between the two moments, so only a time outside of them shows that the clocks differ. */
  function checkClock(sent: number, stored: number, answered: number): void {
    const difference = Math.round(stored < sent ? sent - stored : Math.min(0, answered - stored));
    options.onClock?.(difference);
    const isOff = Math.abs(difference) > CLOCK_DIFFERENCE_MS;
    if (isOff && !isClockOff) onClockDifference(difference);
    isClockOff = isOff;
  }

  function beat(): Promise<number> {
    beating = send();
    return beating;
  }

  async function send(): Promise<number> {
    const sending = clock.monotonic();
    const at = clock.now();
    const report: Report = { at, isLeaving, ...options.load?.() };
    const row = { ...own, address: address(), heartbeat_at: at, report: JSON.stringify(report) };
    const stored = await store.beat(row, deadAfterMs);
    const answered = clock.monotonic();
    // This heartbeat was sent in time, and stored only when the database was back.
    if (answered - known.at > GAP_MS) steadySince = answered;
    known = { time: stored.at, at: answered };
    if (isShared) checkClock(at, stored.at, clock.now());
    watchOutage();
    if (stored.hasDead || stored.others !== others) changedAt = known.at;
    others = stored.others;
    const wasLost = isShared && clock.monotonic() - sentAt >= HELD_MS;
    sentAt = sending;
    for (const listener of listeners) listener(wasLost);
    return stored.at;
  }
  await beat();
  const beats = isShared
    ? repeat({ clock, pauseMs: HEARTBEAT_MS, work: async () => void (await beat()), onError: onMissedBeat })
    : undefined;
  const isHeld = () => !isShared || clock.monotonic() - sentAt < HELD_MS;

  async function announce(): Promise<void> {
    if (!isShared) return;
    // A heartbeat that is on its way has the previous address, and could be stored after this one.
    await beating?.catch(() => undefined);
    await beat();
  }

  return {
    id,
    lease: {
      deadAfterMs,
      isHeld,
      judgesUntil() {
        if (!isShared) return Number.POSITIVE_INFINITY;
        return known.at - steadySince >= DEAD_AFTER_MS ? known.time + GAP_MS : undefined;
      },
      hasChanged: () => clock.monotonic() - changedAt < CHANGED_MS,
      onBeat: (listener) => void listeners.push(listener),
      onOutage: (listener) => void outageListeners.push(listener),
    },
    databaseNow: () => (isShared ? Math.round(known.time + clock.monotonic() - known.at) : clock.now()),
    announce,
    leave() {
      isLeaving = true;
      announce().catch(onMissedBeat);
    },
    isLeaving: () => isLeaving,
    list: async () => (await store.list()).map((row) => ({ ...describeInstance(row), isThis: row.id === id })),
    async remove() {
      await beats?.stop();
      stopWatch();
      await store.remove(id);
    },
  };
}

const isStored = () => false;
const isMissed = () => true;

/**
 * Returns a function that tells whether this instance surely still has the sessions that run here: its lease is held, and `check`
 * has found out what others took while it was not held. `check` never rejects; `look` is called when the result may be true again.
 */
export function watchLosses(
  lease: Pick<Lease, 'isHeld' | 'onBeat'>,
  check: () => Promise<unknown>,
  look: () => void,
): () => boolean {
  let checks = 0;
  lease.onBeat((wasLost) => {
    if (!wasLost) {
      look();
      return;
    }
    checks += 1;
    void check().then(() => {
      checks -= 1;
      look();
    });
  });
  return () => lease.isHeld() && checks === 0;
}

/**
 * Repeats work on what dead instances have left. Each search costs a statement, so it runs while the list of instances changes,
 * and otherwise every half minute.
 */
export function repeatAfterDeaths(
  options: RepeatOptions & { readonly clock: Clock; readonly lease: Pick<Lease, 'hasChanged'> },
): Repeated {
  const { clock, lease, work } = options;
  let doneAt = Number.NEGATIVE_INFINITY;
  return repeat({
    ...options,
    async work(signal) {
      if (!lease.hasChanged() && clock.monotonic() - doneAt < SELDOM_MS) return;
      await work(signal);
      doneAt = clock.monotonic();
    },
  });
}

/** Describes a row to operators. On SQLite, where no other instance can share the database, a lease never ends. */
export function describeInstance(row: ListedInstance): InstanceFacts {
  const { id, version, address, started_at: started, heartbeat_at: beat, read_at: now, sessions } = row;
  const report: Report = row.report === '' ? {} : JSON.parse(row.report);
  const { at = beat, isLeaving = false, sockets = 0, settingsDigest = '' } = report;
  const leaseMs = beat + DEAD_AFTER_MS - now;
  return {
    id,
    version,
    address,
    startedAt: new Date(started).toISOString(),
    heartbeatAt: new Date(beat).toISOString(),
    state: leaseMs <= 0 ? 'silent' : isLeaving ? 'leaving' : 'serving',
    leaseMs: Math.max(0, leaseMs),
    clockDifferenceMs: at - beat,
    sessions,
    sockets,
    settingsDigest,
  };
}
