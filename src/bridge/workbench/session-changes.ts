import type { Clock } from '../../platform/clock/clock.ts';
import { type Principal, sees } from '../../platform/identity/principal.ts';
import type { Change, LiveJob } from '../contract/live.ts';
import type { ProviderEntry } from '../contract/surface.ts';
import type { Permission, Summary } from '../contract/workbench.ts';

/** A connection that wants to know about changes. */
export interface Watcher {
  readonly principal: Principal;
  readonly topics: ReadonlySet<Change['topic']>;
  /** Only work of this owner. */
  readonly owner: string | undefined;
  isBehind(): boolean;
  send(change: Change): void;
}

/** Tells watchers what has changed: each session, request, job and agent at most ten times a second, however much happens in it. */
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
  readonly clock: Pick<Clock, 'after'>;
  /** The summaries of these sessions, by key. Sessions that are gone are left out. */
  read(keys: readonly string[]): Promise<ReadonlyMap<string, Summary>>;
  /** Undefined: the job is gone. */
  readJob(jobId: string): Promise<LiveJob | undefined>;
  onError(error: unknown): void;
}

interface Watching {
  /** What the watcher has not been told, because its connection is behind. */
  readonly missed: Map<string, Change>;
  hasMissedMore: boolean;
}

/** From one change of a session to the next that is sent. */
const PAUSE_MS = 100;
/** A watcher that has missed more than this has to read the list again. */
const MAX_MISSED = 1000;

export function createSessionChanges({ clock, read, readJob, onError }: SessionChangesOptions): SessionChanges {
  const watchers = new Map<Watcher, Watching>();
  let dirty = new Set<string>();
  let dirtyJobs = new Set<string>();
  let stopTimer: (() => void) | undefined;
  let isTelling = false;

  /** Waits a little, so that all that changes until then is read together. */
  function schedule(): void {
    if (stopTimer !== undefined || isTelling) return;
    stopTimer = clock.after(PAUSE_MS, tick);
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
    const keys = [...dirty];
    dirty = new Set();
    const jobIds = [...dirtyJobs];
    dirtyJobs = new Set();
    const summaries = keys.length === 0 ? new Map<string, Summary>() : await read(keys);
    const jobs = await Promise.all(jobIds.map(readJob));
    for (const [watcher, watching] of watchers) {
      for (const [key, item] of summaries) {
        if (concerns(watcher, 'sessions', item.owner)) note(watching, key, { topic: 'sessions', item });
      }
      for (const item of jobs) {
        if (item !== undefined && concerns(watcher, 'jobs', item.owner))
          note(watching, item.jobId, { topic: 'jobs', item });
      }
      flush(watcher, watching);
    }
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
    },
  };
}

function concerns({ principal, owner, topics }: Watcher, topic: Change['topic'], ofWork: string): boolean {
  return topics.has(topic) && (owner === undefined || owner === ofWork) && sees(principal, ofWork);
}

function hasMissed({ missed, hasMissedMore }: Watching): boolean {
  return missed.size > 0 || hasMissedMore;
}

/** The newest change of a session replaces an older one that was not told. */
function note(watching: Watching, key: string, change: Change): void {
  watching.missed.set(key, change);
  if (watching.missed.size <= MAX_MISSED) return;
  watching.missed.clear();
  watching.hasMissedMore = true;
}

function flush(watcher: Watcher, watching: Watching): void {
  if (watching.hasMissedMore && !watcher.isBehind()) {
    for (const topic of watcher.topics) watcher.send({ topic, item: null });
    watching.hasMissedMore = false;
  }
  for (const [key, change] of watching.missed) {
    if (watcher.isBehind()) return;
    watching.missed.delete(key);
    watcher.send(change);
  }
}
