import { lstat, opendir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, pause, type Repeated, repeat } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SessionStore } from '../storage/session-store.ts';
import type { DeadTurn, DeadTurnEnds, TurnStore } from '../storage/turn-store.ts';
import type { RetentionStore, UpdateChunk, UpdateStore } from '../storage/update-store.ts';
import type { Worktrees } from '../worktrees/create-worktrees.ts';
import type { SessionOrchestrator } from './session-orchestrator.ts';
import { interruptedResult, outcomeText, type ResultBase } from './turn-outcome.ts';
import { stageUpdate } from './update-text.ts';

interface SettleOptions {
  readonly turns: Pick<TurnStore, 'settleDead'>;
  readonly updates: Pick<UpdateStore, 'insert'>;
  /** This bridge: its own turns live. */
  readonly instance: string;
  /** Instances without a heartbeat for this long have ended; undefined: all others have. */
  readonly deadAfterMs: number | undefined;
  /** By the clock of the database: later, this bridge cannot tell which of them have ended. */
  readonly judgedBy: number;
  readonly now: number;
  /** Turns of the session were ended: those who follow it, here and elsewhere, have no other way to learn of it. */
  ended(sessionKey: string): void;
}

/** Turns per transaction: a bridge may have had thousands, and others wait for the rows that a transaction has changed. */
const PAGE = 128;
const REASON = 'The bridge was stopped while the turn was open.';

/** Ends the turns whose bridge has ended as `failed`, TURN_INTERRUPTED; answers how many. */
export async function settleInterrupted(options: SettleOptions): Promise<number> {
  const { turns, instance: own, deadAfterMs, judgedBy } = options;
  const failures: unknown[] = [];
  for (let total = 0; ; ) {
    const search = { own, deadAfterMs, judgedBy, limit: PAGE };
    const settled = await turns
      .settleDead(search, (dead) => endsOf(options, dead, failures))
      .catch((error: unknown) => {
        // Other bridges do the same just now: what they leave is found by the next look.
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
        return [];
      });
    for (const key of new Set(settled.map(({ session }) => session.key))) options.ended(key);
    total += settled.length;
    if (settled.length === PAGE) continue;
    if (failures.length > 0) throw failures[0];
    return total;
  }
}

/** How turns end that died with their bridge. One that cannot be read does not keep the others. */
function endsOf({ updates, now }: SettleOptions, dead: readonly DeadTurn[], failures: unknown[]): DeadTurnEnds {
  const lastSeqs = new Map<string, number>();
  const ends: DeadTurnEnds['ends'][number][] = [];
  const chunks: UpdateChunk[] = [];
  for (const { turn, session } of dead) {
    const { key } = session;
    // What clients have seen may not have reached the store: the next number is beyond all that were reserved.
    const lastSeq = (lastSeqs.get(key) ?? session.reserved_seq) + 1;
    try {
      const base = JSON.parse(turn.base) as ResultBase;
      const outcome = outcomeText(interruptedResult(base, '', REASON));
      const text = stageUpdate(base, 'failed', REASON)(lastSeq);
      chunks.push({ session_key: key, first_seq: lastSeq, last_seq: lastSeq, at: now, updates: text });
      ends.push({ turn, session, id: turn.id, outcome, lastSeq });
      lastSeqs.set(key, lastSeq);
    } catch (error) {
      failures.push(error);
    }
  }
  return { ends, updates: updates.insert(chunks), now };
}

/** How long things are kept, in milliseconds; 0 is for ever. */
export interface Retention {
  /** Updates and turns, and sessions that nobody uses, with everything that belongs to them. */
  readonly events: number;
  readonly audit: number;
}

export interface SweepOptions {
  readonly store: RetentionStore;
  readonly retention: Retention;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly signal: AbortSignal;
  readonly expire: SessionOrchestrator['expire'];
}

export const SWEEP_PAUSE_MS = 10 * 60_000;
const STEP = 500;
/** Each of them may have an agent to be told and a folder to be removed. */
const SESSIONS_PER_STEP = 20;
/** Others write between two steps. */
const PAUSE_MS = 20;

/** Deletes what is older than it is kept, in small steps. Turns go with the updates that they had. */
export async function sweepOldRecords(options: SweepOptions): Promise<void> {
  const { store, retention, clock, signal } = options;
  await expireSessions(options);
  const kinds = [
    [retention.events, store.deleteUpdates],
    [retention.events, store.deleteTurns],
    [retention.audit, store.deleteAuditRecords],
  ] as const;
  for (const [keptMs, deleteSome] of kinds) {
    if (keptMs === 0) continue;
    const before = clock.now() - keptMs;
    while (!signal.aborted && (await deleteSome(before, STEP)) === STEP) await pause(clock, PAUSE_MS, signal);
  }
}

/** One rule for everything that belongs to a session: it is deleted when the session was not used for this long. */
async function expireSessions({ store, retention, clock, signal, expire }: SweepOptions): Promise<void> {
  if (retention.events === 0) return;
  const since = clock.now() - retention.events;
  while (!signal.aborted) {
    const unused = await store.unusedSessions(since, SESSIONS_PER_STEP);
    let expired = 0;
    for (const { owner, session_id: sessionId } of unused) {
      if (!signal.aborted && (await expire(owner, sessionId, since).catch(unlessBusy))) expired += 1;
    }
    if (unused.length < SESSIONS_PER_STEP || expired === 0) return;
    await pause(clock, PAUSE_MS, signal);
  }
}

/** For a sweep that ends sessions: passes over one that another bridge has taken since it was looked for. */
export function unlessBusy(error: unknown): false {
  if (errorCode(error) !== 'SESSION_BUSY') throw error;
  return false;
}

/** The private folders of all sessions: how much they hold, and which of them belong to nobody any more. */
interface ScratchSpace {
  /** Throws WORKING_DIRECTORY_REFUSED when the private folders of the owner hold too much, as of the last sweep. */
  check(owner: string): void;
  /** Removes folders whose session is gone, and measures the others. Ends soon after `signal` aborts. */
  sweep(signal: AbortSignal): Promise<void>;
}

export interface ScratchSpaceOptions {
  /** Holds one folder for each session, named by its key, and those of closed ones that are being removed. */
  readonly folder: string;
  /** Holds folders that hold one folder for each session, with links to files of its private folder. */
  readonly shelves?: string;
  /** In all, and of one owner. */
  readonly maxBytes: number;
  readonly maxBytesOfOwner: number;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  /** The owner of an open session; undefined when there is no such session. */
  ownerOf(sessionKey: string): Promise<string | undefined>;
}

/** The session of a new folder is stored soon after the folder is made; the folder of a closed session is removed soon after. */
const MIN_AGE_MS = 3_600_000;
/** Others use the disk between two folders. */
const SCRATCH_PAUSE_MS = 5;
/** Of one folder; more entries than that are not counted. */
const MAX_ENTRIES = 200_000;

export function createScratchSpace(options: ScratchSpaceOptions): ScratchSpace {
  const { folder, maxBytes, maxBytesOfOwner, clock } = options;
  let bytesOf: ReadonlyMap<string, number> = new Map();

  return {
    check(owner) {
      const own = bytesOf.get(owner) ?? 0;
      let total = 0;
      for (const bytes of bytesOf.values()) total += bytes;
      // When all of them together are too large, those who use more than an equal share have to make room.
      const isOver = own >= maxBytesOfOwner || (total >= maxBytes && own >= maxBytes / bytesOf.size);
      if (!isOver) return;
      throw new AppError('WORKING_DIRECTORY_REFUSED', {
        reason: `the private folders of your sessions hold ${own} bytes; close sessions that you no longer need, or name a folder`,
      });
    },
    async sweep(signal) {
      const found = new Map<string, number>();
      const entries = await opendir(folder).catch((error: unknown) => {
        // No session has worked in a private folder yet.
        if (errorCode(error) === 'ENOENT') return [];
        throw error;
      });
      for await (const { name } of entries) {
        if (signal.aborted) return;
        const path = join(folder, name);
        const owner = await options.ownerOf(name);
        if (owner !== undefined) found.set(owner, (found.get(owner) ?? 0) + (await sizeOf(path, signal)));
        else if (await isOld(path)) await rm(path, { recursive: true, force: true });
        await pause(clock, SCRATCH_PAUSE_MS, signal);
      }
      bytesOf = found;
      if (options.shelves !== undefined) await sweepShelves(options.shelves, signal);
    },
  };

  async function sweepShelves(shelves: string, signal: AbortSignal): Promise<void> {
    const namesIn = (path: string): Promise<readonly string[]> => readdir(path).catch(() => []);
    for (const shelf of await namesIn(shelves)) {
      for (const name of await namesIn(join(shelves, shelf))) {
        if (signal.aborted) return;
        const path = join(shelves, shelf, name);
        if ((await options.ownerOf(name)) === undefined && (await isOld(path))) await rm(path, { recursive: true });
      }
    }
  }

  async function isOld(path: string): Promise<boolean> {
    const found = await lstat(path).catch(() => undefined);
    return found !== undefined && found.mtimeMs < clock.now() - MIN_AGE_MS;
  }
}

/** Links are not followed, and what vanishes while it is measured does not count. */
async function sizeOf(top: string, signal: AbortSignal): Promise<number> {
  const folders = [top];
  let bytes = 0;
  for (let entries = 0, next = folders.pop(); next !== undefined; next = folders.pop()) {
    const opened = await opendir(next).catch(() => undefined);
    if (opened === undefined) continue;
    for await (const entry of opened) {
      entries += 1;
      if (signal.aborted || entries > MAX_ENTRIES) return bytes;
      const path = join(next, entry.name);
      if (entry.isDirectory()) folders.push(path);
      else bytes += (await lstat(path).catch(() => undefined))?.size ?? 0;
    }
  }
  return bytes;
}

interface SweepFoldersOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly spaces: readonly (ScratchSpace | undefined)[];
  readonly worktrees: Pick<Worktrees, 'sweep'>;
  readonly sessions: Pick<SessionStore, 'ownerOf'>;
}

/** Looks after the folders of sessions now and then. */
export function sweepFolders({ clock, logger, spaces, worktrees, sessions }: SweepFoldersOptions): readonly Repeated[] {
  const ofSpaces = spaces.flatMap((space) =>
    space === undefined
      ? []
      : repeat({
          clock,
          pauseMs: SWEEP_PAUSE_MS,
          work: space.sweep,
          onError: (error) => logger.warn({ err: error }, 'the private folders of sessions could not be looked after'),
        }),
  );
  const ofWorktrees = repeat({
    clock,
    pauseMs: SWEEP_PAUSE_MS,
    // What the last run of the bridge left behind.
    firstAfterMs: 0,
    work: (signal) => worktrees.sweep(sessions.ownerOf, signal),
    onError: (error) => logger.warn({ err: error }, 'worktrees of sessions that have ended could not be removed'),
  });
  return [...ofSpaces, ofWorktrees];
}
