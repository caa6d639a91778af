import { type Clock, withinTime } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';

/** Stores the levels of buckets that several instances share. Only the clock of the store is used. */
export interface BucketStore {
  /** Fills the bucket up to now, and takes `want`, or what is there if that is at least `need`, or nothing. */
  take(ask: BucketAsk): Promise<{ readonly granted: number; readonly level: number }>;
  /** Puts amounts back; a negative one is taken whether it is there or not. */
  give(changes: readonly BucketChange[]): Promise<void>;
}

export interface BucketAsk {
  readonly id: string;
  /** How much flows in within a minute, which is also the most that the bucket holds. */
  readonly perMinute: number;
  readonly need: number;
  readonly want: number;
}

export interface BucketChange extends Pick<BucketAsk, 'id' | 'perMinute'> {
  readonly amount: number;
}

/** One bucket, as this instance knows it. Amounts are whole numbers. */
export interface SharedBucket {
  /**
   * Takes the amount: 0, or the time in ms until it may be there. Waits only if this instance holds too little of the bucket.
   * More than the bucket can ever hold counts as all of it. Throws STORAGE_UNAVAILABLE while the store is away, unless calls pass then.
   */
  take(amount: number): number | Promise<number>;
  /** Puts back what was taken and not used. */
  giveBack(amount: number): void;
  /** Takes it whether it is there or not: what is owed is paid first. */
  owe(amount: number): void;
  /** What may be taken now, as far as this instance knows. */
  remaining(): number;
  /** How long until it is full again, as far as this instance knows. */
  fullAfterMs(): number;
}

export interface SharedBuckets {
  of(id: string, perMinute: number): SharedBucket;
  /** Gives back what this instance holds. */
  stop(): Promise<void>;
}

/** What services need to count limits together with other instances. */
export interface SharedLimits {
  readonly buckets: SharedBuckets;
  readonly watch: StoreWatch;
  /** Calls with limits pass while the store is away. */
  readonly passWhenAway: boolean;
}

export interface SharedBucketsOptions {
  readonly store: BucketStore;
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
  /** Lets calls pass while the store is away. */
  readonly passWhenAway: boolean;
  readonly watch: StoreWatch;
}

/** Up to this limit an instance holds no reserve: each call takes its own share, so several instances are as exact as one. */
export const MAX_EXACT = 120;
/** How much of a bucket one instance holds at most, beyond what its calls need now. */
const MAX_SHARE = 0.1;
/** An unused reserve is put back after this time. */
const HELD_MS = 1000;
/** A debt is paid within this time, because until then other instances see too high a level. */
const OWED_MS = 20;
/** A bucket that was empty is not asked again for this long, so that refused calls cost the store little. */
const REFUSED_MS = 100;
const MAX_WAITING = 10_000;
const MAX_IDLE = 10_000;
const MINUTE_MS = 60_000;

interface Waiting {
  readonly need: number;
  readonly resolve: (waitMs: number) => void;
  readonly reject: (error: unknown) => void;
}

interface Held {
  readonly id: string;
  readonly perMinute: number;
  /** What this instance may give out without asking; negative: what it owes. */
  amount: number;
  /** As the store said last. */
  level: number;
  readonly levelAt: () => number;
  noteLevel(level: number): void;
  waiting: Waiting[];
  isAsking: boolean;
  /** What was given out in this second and in the one before. */
  used: { second: number; now: number; before: number };
  refused: { until: number; need: number; freeAt: number };
  cancelReturn: (() => void) | undefined;
}

export function createSharedBuckets({ store, clock, passWhenAway, watch }: SharedBucketsOptions): SharedBuckets {
  const known = new Map<string, { readonly held: Held; readonly bucket: SharedBucket }>();

  function note({ used }: Held, amount: number): void {
    const second = Math.floor(clock.monotonic() / HELD_MS);
    if (second !== used.second) {
      used.before = second === used.second + 1 ? used.now : 0;
      used.now = 0;
      used.second = second;
    }
    used.now += amount;
  }

  /** What the next second may need beyond the calls that wait. */
  function reserveOf(held: Held): number {
    if (held.perMinute <= MAX_EXACT) return 0;
    note(held, 0);
    return Math.floor(Math.min(Math.max(held.used.now, held.used.before), held.perMinute * MAX_SHARE));
  }

  function give(held: Held): void {
    held.cancelReturn = undefined;
    const { id, perMinute, amount } = held;
    if (amount === 0) return;
    // While the store is away, what is held is used up here.
    if (watch.isAway()) {
      planReturn(held);
      return;
    }
    held.amount = 0;
    watch.ask(store.give([{ id, perMinute, amount }])).catch(() => {
      // A debt is kept. An amount that may have been put back is not given out again.
      if (amount > 0) return;
      held.amount += amount;
      planReturn(held);
    });
  }

  function planReturn(held: Held): void {
    if (held.amount === 0) return;
    if (held.amount < 0 || held.perMinute <= MAX_EXACT) held.cancelReturn?.();
    else if (held.cancelReturn !== undefined) return;
    const soon = held.amount < 0 || held.perMinute <= MAX_EXACT ? OWED_MS : HELD_MS;
    held.cancelReturn = clock.after(watch.isAway() ? HELD_MS : soon, () => give(held));
  }

  function serve(held: Held): void {
    for (let [first] = held.waiting; first !== undefined && held.amount >= first.need; [first] = held.waiting) {
      held.waiting.shift();
      held.amount -= first.need;
      note(held, first.need);
      first.resolve(0);
    }
  }

  /** Refuses the first call that waits, and those that need as much. */
  function refuse(held: Held, lacking: number): void {
    const [first] = held.waiting;
    if (first === undefined) return;
    const now = clock.monotonic();
    const waitMs = Math.max(1, ((lacking - held.levelAt()) * MINUTE_MS) / held.perMinute);
    held.refused = { until: now + Math.min(waitMs, REFUSED_MS), need: first.need, freeAt: now + waitMs };
    const isRefused = ({ need }: Waiting) => need >= first.need;
    for (const each of held.waiting.filter(isRefused)) each.resolve(waitMs);
    held.waiting = held.waiting.filter((each) => !isRefused(each));
  }

  async function fill(held: Held): Promise<void> {
    if (held.isAsking) return;
    held.isAsking = true;
    try {
      for (let [first] = held.waiting; first !== undefined; [first] = held.waiting) {
        const { id, perMinute } = held;
        const before = held.amount;
        const all = held.waiting.reduce((sum, { need }) => sum + need, 0);
        const need = Math.max(1, first.need - before);
        const want = Math.max(need, Math.min(all - before, perMinute) + reserveOf(held));
        const { granted, level } = await watch.ask(store.take({ id, perMinute, need, want }));
        held.noteLevel(level);
        held.amount += granted;
        serve(held);
        if (held.waiting[0] === first) refuse(held, need);
      }
    } catch (error) {
      const { waiting } = held;
      held.waiting = [];
      for (const { resolve, reject } of waiting) passWhenAway ? resolve(0) : reject(error);
    } finally {
      held.isAsking = false;
      planReturn(held);
    }
  }

  function create(id: string, perMinute: number): { readonly held: Held; readonly bucket: SharedBucket } {
    let levelSince = clock.monotonic();
    const held: Held = {
      id,
      perMinute,
      amount: 0,
      level: perMinute,
      levelAt: () => Math.min(perMinute, held.level + ((clock.monotonic() - levelSince) * perMinute) / MINUTE_MS),
      noteLevel(level) {
        held.level = level;
        levelSince = clock.monotonic();
      },
      waiting: [],
      isAsking: false,
      used: { second: 0, now: 0, before: 0 },
      refused: { until: Number.NEGATIVE_INFINITY, need: 0, freeAt: 0 },
      cancelReturn: undefined,
    };
    return {
      held,
      bucket: {
        take(amount) {
          const need = Math.min(Math.ceil(amount), perMinute);
          if (held.waiting.length === 0 && held.amount >= need) {
            held.amount -= need;
            note(held, need);
            return 0;
          }
          const now = clock.monotonic();
          const { refused } = held;
          if (now < refused.until && need >= refused.need) return Math.max(1, refused.freeAt - now);
          if (watch.isAway() || held.waiting.length >= MAX_WAITING) {
            if (passWhenAway) return 0;
            throw watch.refusal();
          }
          const { promise, resolve, reject } = Promise.withResolvers<number>();
          held.waiting.push({ need, resolve, reject });
          void fill(held);
          return promise;
        },
        giveBack(amount) {
          held.amount += Math.floor(amount);
          if (!held.isAsking) planReturn(held);
        },
        owe(amount) {
          held.amount -= Math.ceil(amount);
          if (!held.isAsking) planReturn(held);
        },
        remaining: () => Math.max(0, Math.floor(held.levelAt() + Math.max(0, held.amount))),
        fullAfterMs: () => ((perMinute - held.levelAt()) * MINUTE_MS) / perMinute,
      },
    };
  }

  /** Removes buckets without a reserve, a waiting call or a refill in progress. */
  function makeRoom(): void {
    if (known.size < MAX_IDLE) return;
    for (const [name, { held, bucket }] of known) {
      const isIdle = held.amount === 0 && held.waiting.length === 0 && !held.isAsking && bucket.fullAfterMs() === 0;
      if (isIdle) known.delete(name);
    }
  }

  return {
    of(id, perMinute) {
      let found = known.get(id);
      if (found?.held.perMinute !== perMinute) {
        makeRoom();
        found = create(id, perMinute);
        known.set(id, found);
      }
      return found.bucket;
    },
    async stop() {
      const changes = [...known.values()].flatMap(({ held }) => {
        held.cancelReturn?.();
        const { id, perMinute, amount } = held;
        held.amount = 0;
        return amount === 0 ? [] : [{ id, perMinute, amount }];
      });
      known.clear();
      // What cannot be put back now stays taken, and fills up again by itself.
      if (changes.length > 0) await watch.ask(store.give(changes)).catch(() => undefined);
    },
  };
}

/** Asks a store that calls must not wait for: while it is away, they are answered without it. */
export interface StoreWatch {
  /** What the store answers. Throws STORAGE_UNAVAILABLE when that takes too long or fails; late work is not stopped. */
  ask<T>(work: Promise<T>): Promise<T>;
  /** Whether it failed a moment ago. */
  isAway(): boolean;
  /** What callers get that need it while it is away. */
  refusal(cause?: unknown): AppError;
}

interface StoreWatchOptions {
  readonly clock: Pick<Clock, 'monotonic' | 'after'>;
  /** Called when it begins to be away. */
  onAway(error: unknown): void;
}

const ANSWER_MS = 2000;
/** While the store is away, it is asked this often. */
const AWAY_MS = 500;

export function createStoreWatch({ clock, onAway }: StoreWatchOptions): StoreWatch {
  let awayUntil = Number.NEGATIVE_INFINITY;
  let wasAway = false;

  function refusal(cause?: unknown): AppError {
    return new AppError('STORAGE_UNAVAILABLE', { retryAfterSeconds: 1 }, { cause });
  }

  return {
    refusal,
    isAway: () => clock.monotonic() < awayUntil,
    async ask(work) {
      // Handled here, because it may fail after the timeout, when no caller waits for it.
      work.catch(() => undefined);
      try {
        const answer = await withinTime(clock, ANSWER_MS, work, () => {
          throw new Error('the store of limits does not answer');
        });
        wasAway = false;
        return answer;
      } catch (error) {
        awayUntil = clock.monotonic() + AWAY_MS;
        if (!wasAway) onAway(error);
        wasAway = true;
        throw refusal(error);
      }
    },
  };
}
