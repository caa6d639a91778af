import type { Clock } from '../../platform/clock/clock.ts';
import { type Principal, sees } from '../../platform/identity/principal.ts';
import type { Change, LiveJob } from '../contract/jobs.ts';
import type { ProviderEntry } from '../contract/surface.ts';
import type { Permission, Summary } from '../contract/workbench.ts';

/** A connection that watches changes. */
export interface Watcher {
  readonly principal: Principal;
  readonly topics: ReadonlySet<Change['topic']>;
  /** Only work of this owner. */
  readonly owner: string | undefined;
  isBehind(): boolean;
  send(change: Change): void;
}

/** Sends changes to watchers: each session, request, job and agent at most ten times a second. */
export interface SessionChanges {
  /** The summary of a session has changed, and what has changed is stored. */
  changed(key: string): void;
  permissionChanged(permission: Permission): void;
  /** A change of a job is stored. */
  jobChanged(jobId: string): void;
  agentChanged(agent: ProviderEntry): void;
  closed(session: { readonly key: string; readonly id: string; readonly owner: string }): void;
  watch(watcher: Watcher): void;
  unwatch(watcher: Watcher): void;
  stop(): void;
}

interface SessionChangesOptions {
  readonly clock: Pick<Clock, 'after' | 'monotonic'>;
  /** The summaries of these sessions, by key. Sessions that are gone are left out. */
  read(keys: readonly string[]): Promise<ReadonlyMap<string, Summary>>;
  /** Undefined: the job is gone. */
  readJob(jobId: string): Promise<LiveJob | undefined>;
  onError(error: unknown): void;
}

interface Watching {
  /** Changes that were not sent yet, because the connection is behind. */
  readonly missed: Map<string, Change>;
  hasMissedMore: boolean;
}

/** The pause between two changes of one item. */
const PAUSE_MS = 100;
/** How long changes are collected before they are read and sent. */
const GATHER_MS = 25;
/** A watcher that has missed more than this has to read the list again. */
const MAX_MISSED = 1000;

export function createSessionChanges({ clock, read, readJob, onError }: SessionChangesOptions): SessionChanges {
  const watchers = new Map<Watcher, Watching>();
  const dirty = new Set<string>();
  const dirtyJobs = new Set<string>();
  /** When an item was sent last, for those of the last PAUSE_MS. */
  const told = new Map<string, number>();
  let stopTimer: (() => void) | undefined;
  let isTelling = false;

  /** Waits for GATHER_MS, so that several changes are read together. */
  function schedule(): void {
    if (stopTimer !== undefined || isTelling) return;
    stopTimer = clock.after(GATHER_MS, tick);
  }

  function tick(): void {
    stopTimer = undefined;
    isTelling = true;
    void tell()
      .catch(onError)
      .finally(() => {
        isTelling = false;
        if (dirty.size > 0 || dirtyJobs.size > 0 || [...watchers.values()].some(hasMissed)) schedule();
      });
  }

  async function tell(): Promise<void> {
    const held = heldBack();
    const keys = take(dirty, held);
    const jobIds = take(dirtyJobs, held);
    const summaries = keys.length === 0 ? new Map<string, Summary>() : await read(keys);
    const jobs = await Promise.all(jobIds.map(readJob));
    const now = clock.monotonic();
    for (const [watcher, watching] of watchers) {
      for (const [key, item] of summaries) {
        if (concerns(watcher, 'sessions', item.owner)) note(watching, key, { topic: 'sessions', item });
      }
      for (const item of jobs) {
        if (item !== undefined && concerns(watcher, 'jobs', item.owner))
          note(watching, item.jobId, { topic: 'jobs', item });
      }
      for (const key of flush(watcher, watching, held)) told.set(key, now);
    }
  }

  /** Returns the items that were sent within PAUSE_MS: their next change waits, and others are sent without delay. */
  function heldBack(): ReadonlySet<string> {
    const now = clock.monotonic();
    for (const [key, at] of told) if (now - at >= PAUSE_MS) told.delete(key);
    return new Set(told.keys());
  }

  function isWatched(topic: Change['topic']): boolean {
    for (const { topics } of watchers.keys()) if (topics.has(topic)) return true;
    return false;
  }

  return {
    changed(key) {
      if (watchers.size === 0) return;
      dirty.add(key);
      schedule();
    },
    closed({ key, id: sessionId, owner }) {
      if (watchers.size === 0) return;
      dirty.delete(key);
      for (const [watcher, watching] of watchers) {
        if (concerns(watcher, 'sessions', owner))
          note(watching, key, { topic: 'sessions', item: { sessionId, owner, closed: true } });
      }
      schedule();
    },
    permissionChanged(item) {
      for (const [watcher, watching] of watchers) {
        if (!concerns(watcher, 'permissions', item.owner)) continue;
        note(watching, item.permissionId, { topic: 'permissions', item });
        schedule();
      }
    },
    jobChanged(jobId) {
      if (!isWatched('jobs')) return;
      dirtyJobs.add(jobId);
      schedule();
    },
    agentChanged(item) {
      for (const [watcher, watching] of watchers) {
        // Agents belong to nobody.
        if (!watcher.topics.has('agents')) continue;
        note(watching, `agent ${item.providerId}`, { topic: 'agents', item });
        schedule();
      }
    },
    watch: (watcher) => void watchers.set(watcher, { missed: new Map(), hasMissedMore: false }),
    unwatch: (watcher) => void watchers.delete(watcher),
    stop() {
      stopTimer?.();
      watchers.clear();
      dirty.clear();
      dirtyJobs.clear();
      told.clear();
    },
  };
}

/** Removes the items that are not held back, and returns them. */
function take(items: Set<string>, held: ReadonlySet<string>): readonly string[] {
  const taken = [...items].filter((item) => !held.has(item));
  for (const item of taken) items.delete(item);
  return taken;
}

function concerns({ principal, owner, topics }: Watcher, topic: Change['topic'], ofWork: string): boolean {
  return topics.has(topic) && (owner === undefined || owner === ofWork) && sees(principal, ofWork);
}

function hasMissed({ missed, hasMissedMore }: Watching): boolean {
  return missed.size > 0 || hasMissedMore;
}

/** Stores a change to be sent. It replaces an older one of the same item. */
function note(watching: Watching, key: string, change: Change): void {
  watching.missed.set(key, change);
  if (watching.missed.size <= MAX_MISSED) return;
  watching.missed.clear();
  watching.hasMissedMore = true;
}

/** Sends the changes that are not held back, until the connection is behind. Returns the items that were sent. */
function flush(watcher: Watcher, watching: Watching, held: ReadonlySet<string>): readonly string[] {
  const sent: string[] = [];
  if (watching.hasMissedMore && !watcher.isBehind()) {
    for (const topic of watcher.topics) watcher.send({ topic, item: null });
    watching.hasMissedMore = false;
  }
  for (const [key, change] of watching.missed) {
    if (held.has(key)) continue;
    if (watcher.isBehind()) break;
    watching.missed.delete(key);
    watcher.send(change);
    sent.push(key);
  }
  return sent;
}
