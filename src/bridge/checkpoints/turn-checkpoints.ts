import { createHash } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { formatDuration } from '../../platform/config/setting.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { Confine } from '../agents/builtin/tools/confinement.ts';
import type { PrivatePlaces } from '../sessions/private-places.ts';
import type { BridgeSettings } from '../settings.ts';
import { createFolderState, type FolderChange, type FolderState } from './folder-state.ts';
import type { Git } from './run-git.ts';

/** A turn, and the folder that it works in. */
export interface CheckpointTurn {
  readonly sessionKey: string;
  readonly turnId: string;
  /** A real path. */
  readonly folder: string;
}

/** The record of a turn. The session's folder in the data directory has one file for each record. */
export interface TurnRecord {
  readonly turnId: string;
  readonly folder: string;
  /** Trees of git. `after` is absent while the turn runs, and when it died with its bridge. */
  readonly before: string;
  readonly after?: string;
  readonly files?: readonly FolderChange[];
  readonly isUndone?: boolean;
}

/** The changes of a turn are known. */
export type EndedTurnRecord = TurnRecord & Required<Pick<TurnRecord, 'after' | 'files'>>;

export interface ChangedFiles {
  readonly files: readonly FolderChange[];
  /** Undefined when nothing was saved. */
  readonly record: TurnRecord | undefined;
}

/** Saves the state of working directories before and after turns. */
export interface Checkpoints {
  /** Has one folder for each session, named by its key. */
  readonly folder: string;
  /**
   * Saves the folder before a turn. Returns a notice for people when the turn cannot be undone; empty when it can, and
   * after the session was given up, which its last notice says. Never rejects.
   */
  begin(turn: CheckpointTurn, signal: AbortSignal): Promise<string>;
  /** Saves the folder after a turn. Returns what the session has changed so far; undefined when that is not known. */
  end(turn: CheckpointTurn): Promise<ChangeTotals | undefined>;
  /** Removes the record of a turn that was not stored. */
  drop(turn: CheckpointTurn): Promise<void>;
  /** Records that the changes of a turn were undone. */
  noteUndone(sessionKey: string, turnId: string): Promise<void>;
  /** Returns the saved turns, oldest first, with their changes. A running turn has its changes so far. */
  records(sessionKey: string): Promise<readonly EndedTurnRecord[]>;
  /** What has changed since a turn began, or since the first one that is known. */
  changes(sessionKey: string, turnId: string | undefined): Promise<ChangedFiles>;
  /** The saved states of a folder. */
  state(sessionKey: string, folder: string): FolderState;
  /** Removes everything of a session. */
  remove(sessionKey: string): Promise<void>;
  /** Resolves when no work is under way. */
  settle(): Promise<void>;
}

export interface ChangeTotals {
  readonly files: number;
  readonly added: number;
  readonly removed: number;
}

export interface CheckpointsOptions {
  /** Has one folder for each session, named by its key. */
  readonly folder: string;
  readonly settings: BridgeSettings['checkpoints'];
  readonly git: Git;
  readonly confine: Confine;
  /** Files that are hidden from callers, in lists of changes and in diffs. */
  readonly places: PrivatePlaces;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** After this many saves that took too long, the session is no longer saved, so that its turns need not wait. */
const MAX_LATE_SAVES = 3;
/** A session may keep this many times `max_bytes`. Beyond that, its saved states are removed. */
const SAVES_KEPT = 4;
/** Sessions of which the last tree is remembered, so that an unchanged folder costs one run of git. */
const MAX_REMEMBERED = 1000;
/** The time limit for copying objects and for reading on request. */
const REQUEST_MS = 20_000;
/** The maximum number of changed files in the record of a turn. */
const MAX_CHANGED = 10_000;

export function createCheckpoints(options: CheckpointsOptions): Checkpoints {
  const { folder: top, settings, git, confine, places, clock, logger } = options;
  const trees = new Map<string, string>();
  const givenUp = new Set<string>();
  /** By session, the saves that took too long. */
  const late = new Map<string, number>();
  /** The work in progress by session. It runs one after the other, because it shares an index. */
  const queues = new Map<string, Promise<unknown>>();
  const never = new AbortController().signal;

  const placeOf = (sessionKey: string, ...names: string[]) => join(top, sessionKey, ...names);
  const fileOf = ({ sessionKey, turnId }: Pick<CheckpointTurn, 'sessionKey' | 'turnId'>) =>
    placeOf(sessionKey, 'turns', `${turnId}.json`);
  const nameOf = (folder: string) => createHash('sha256').update(folder).digest('hex').slice(0, 16);

  function stateOf(sessionKey: string, folder: string): FolderState {
    const state = createFolderState({
      git,
      root: confine(folder),
      gitFolder: placeOf(sessionKey, nameOf(folder)),
      maxFiles: settings.max_files,
      maxBytes: settings.max_bytes,
    });
    return {
      ...state,
      async save(known, signal) {
        // Otherwise the data directory, which has the saved states, would be saved into itself.
        if (await places.isAbove(await stat(folder, { bigint: true }))) {
          throw new AppError('CHECKPOINT_FAILED', { reason: 'the folder contains the data directory of the bridge' });
        }
        return state.save(known, signal);
      },
      compare: async (before, after, signal) => withoutPrivate(folder, await state.compare(before, after, signal)),
    };
  }

  /** Leaves out private files, such as the configuration of the server in a project's folder. */
  async function withoutPrivate(folder: string, changes: readonly FolderChange[]): Promise<readonly FolderChange[]> {
    if (changes.length === 0) return changes;
    const identities = await places.look();
    // Private folders of sessions lie in the data directory, and what is inside belongs to them.
    const isScratch = places.covers(folder);
    const known = new Map<string, Promise<boolean>>();
    // A folder may be a mount of a private folder. Then everything in it is private.
    const isPrivate = (path: string): Promise<boolean> => {
      const answer = known.get(path) ?? look(path);
      known.set(path, answer);
      return answer;
    };
    async function look(path: string): Promise<boolean> {
      const above = dirname(path);
      if (above !== '.' && (await isPrivate(above))) return true;
      const found = await lstat(join(folder, path), { bigint: true }).catch(() => undefined);
      return found === undefined ? !isScratch && places.covers(join(folder, path)) : identities.has(found);
    }
    const marks = await Promise.all(changes.map(({ path }) => isPrivate(path)));
    return changes.filter((_, index) => marks[index] !== true);
  }

  function inOrder<Result>(sessionKey: string, work: () => Promise<Result>): Promise<Result> {
    const done = (queues.get(sessionKey) ?? Promise.resolve()).then(work, work);
    const over = done.then(
      () => undefined,
      () => undefined,
    );
    queues.set(sessionKey, over);
    void over.then(() => {
      if (queues.get(sessionKey) === over) queues.delete(sessionKey);
    });
    return done;
  }

  function remember(name: string, tree: string): void {
    trees.delete(name);
    trees.set(name, tree);
    const [oldest] = trees.keys();
    if (trees.size > MAX_REMEMBERED && oldest !== undefined) trees.delete(oldest);
  }

  async function save({ sessionKey, folder }: Omit<CheckpointTurn, 'turnId'>, signal: AbortSignal): Promise<string> {
    const name = `${sessionKey}/${nameOf(folder)}`;
    const { tree, savedBytes } = await stateOf(sessionKey, folder).save(trees.get(name), signal);
    remember(name, tree);
    if (savedBytes > 0) await count(sessionKey, savedBytes);
    return tree;
  }

  async function count(sessionKey: string, bytes: number): Promise<void> {
    await writeFile(placeOf(sessionKey, 'bytes'), String((await countedBytes(sessionKey)) + bytes));
  }

  async function countedBytes(sessionKey: string): Promise<number> {
    return Number(await readFile(placeOf(sessionKey, 'bytes'), 'utf8').catch(() => '0'));
  }

  async function removeAll(sessionKey: string): Promise<void> {
    for (const name of [...trees.keys()]) if (name.startsWith(`${sessionKey}/`)) trees.delete(name);
    await rm(placeOf(sessionKey), { recursive: true, force: true });
  }

  async function makeRoom(sessionKey: string): Promise<void> {
    if ((await countedBytes(sessionKey)) > SAVES_KEPT * settings.max_bytes) await removeAll(sessionKey);
    await mkdir(placeOf(sessionKey, 'turns'), { recursive: true, mode: 0o700 });
    const names = await turnFiles(sessionKey);
    for (const name of names.slice(0, Math.max(0, names.length + 1 - settings.turns))) {
      await rm(placeOf(sessionKey, 'turns', name), { force: true });
    }
  }

  async function turnFiles(sessionKey: string): Promise<readonly string[]> {
    const names = await readdir(placeOf(sessionKey, 'turns')).catch(() => []);
    return names.filter((name) => name.endsWith('.json')).toSorted();
  }

  /** Writes a draft and renames it, so that a crash leaves the old file or the new one. */
  async function write(sessionKey: string, record: TurnRecord): Promise<void> {
    const file = fileOf({ sessionKey, turnId: record.turnId });
    await writeFile(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }

  async function readRecords(sessionKey: string): Promise<readonly TurnRecord[]> {
    const names = await turnFiles(sessionKey);
    const texts = names.map((name) => readFile(placeOf(sessionKey, 'turns', name), 'utf8'));
    return (await Promise.all(texts)).map((text) => JSON.parse(text) as TurnRecord);
  }

  /** Returns all records. For a turn without an end, adds its changes until the beginning of the next turn, or until now. */
  async function completed(sessionKey: string, signal: AbortSignal): Promise<readonly EndedTurnRecord[]> {
    const records = await readRecords(sessionKey);
    const complete: EndedTurnRecord[] = [];
    for (const [index, record] of records.entries()) {
      if (isComplete(record)) {
        complete.push(record);
        continue;
      }
      const { folder, before } = record;
      const next = records.slice(index + 1).find((later) => later.folder === folder);
      const after = next?.before ?? (await save({ sessionKey, folder }, signal));
      const files = await stateOf(sessionKey, folder).compare(before, after, signal);
      complete.push({ ...record, after, files });
    }
    return complete;
  }

  /** Merges turns of one folder into one change: the files that they touched, from their first state to their last. */
  async function merged(sessionKey: string, records: readonly EndedTurnRecord[], signal: AbortSignal) {
    const [first, last] = [records[0], records.at(-1)];
    if (first === undefined || last === undefined) return [];
    if (records.length === 1) return first.files;
    const touched = new Set(records.flatMap(({ files }) => files.map(({ path }) => path)));
    const changes = await stateOf(sessionKey, first.folder).compare(first.before, last.after, signal);
    return changes.filter(({ path }) => touched.has(path));
  }

  async function inTime<Result>(ms: number, outer: AbortSignal, work: (signal: AbortSignal) => Promise<Result>) {
    const { signal, release } = deadline(clock, ms, [outer]);
    try {
      return await work(signal);
    } finally {
      release();
    }
  }

  /** Explains to people why a folder could not be saved. */
  function reasonOf(error: unknown, { sessionKey, folder }: CheckpointTurn): string {
    if (error instanceof AppError && ['GIT_FAILED', 'CHECKPOINT_FAILED'].includes(error.code))
      return String(error.details.reason);
    logger.warn({ err: error, sessionKey, folder }, 'a working directory could not be saved');
    return errorCode(error) || 'an error that the log of the server shows';
  }

  function noticeOf(error: unknown, turn: CheckpointTurn, isLate: boolean): string {
    const { sessionKey } = turn;
    const count = (late.get(sessionKey) ?? 0) + 1;
    if (late.size > MAX_REMEMBERED) late.clear();
    late.set(sessionKey, count);
    const limit = `saving the folder took longer than ${formatDuration(settings.timeout)} (bridge.checkpoints.timeout)`;
    if (isLate && count < MAX_LATE_SAVES) return `The changes of this turn cannot be undone: ${limit}.`;
    if (givenUp.size > MAX_REMEMBERED) givenUp.clear();
    givenUp.add(sessionKey);
    return `The changes of this session cannot be undone: ${isLate ? limit : reasonOf(error, turn)}.`;
  }

  async function since(sessionKey: string, turnId: string | undefined, signal: AbortSignal): Promise<ChangedFiles> {
    const all = await completed(sessionKey, signal);
    const start = turnId === undefined ? 0 : all.findIndex((record) => record.turnId === turnId);
    if (all[start] === undefined) return { files: [], record: undefined };
    // A session that moved to another folder: what it did there is shown from its first turn there on.
    const last = all.at(-1)?.folder;
    const ofFolder = all.slice(start).filter(({ folder }) => folder === last);
    const done = ofFolder.filter(({ isUndone }) => isUndone !== true);
    return { files: await merged(sessionKey, done, signal), record: ofFolder[0] };
  }

  return {
    folder: top,
    async begin(turn, outer) {
      const { sessionKey, turnId, folder } = turn;
      if (!settings.enabled || givenUp.has(sessionKey)) return '';
      const { signal, release } = deadline(clock, settings.timeout, [outer]);
      try {
        await inOrder(sessionKey, async () => {
          await makeRoom(sessionKey);
          await write(sessionKey, { turnId, folder, before: await save(turn, signal) });
        });
        late.delete(sessionKey);
        return '';
      } catch (error) {
        return outer.aborted ? '' : noticeOf(error, turn, signal.aborted);
      } finally {
        release();
      }
    },
    async end(turn) {
      const { sessionKey, turnId, folder } = turn;
      if (!settings.enabled) return undefined;
      try {
        return await inTime(settings.timeout, never, (signal) =>
          inOrder(sessionKey, async () => {
            const text = await readFile(fileOf(turn), 'utf8').catch(() => undefined);
            if (text === undefined) return undefined;
            const record = JSON.parse(text) as TurnRecord;
            const after = await save(turn, signal);
            const state = stateOf(sessionKey, folder);
            const files = (await state.compare(record.before, after, signal)).slice(0, MAX_CHANGED);
            await write(sessionKey, { ...record, after, files });
            if (files.length > 0) void keepObjects(sessionKey, state, files);
            return totalsOf((await since(sessionKey, undefined, signal)).files);
          }),
        );
      } catch (error) {
        logger.warn({ sessionKey, turnId, reason: reasonOf(error, turn) }, 'the changes of a turn were not saved');
        return undefined;
      }
    },
    drop: (turn) => inOrder(turn.sessionKey, () => rm(fileOf(turn), { force: true })),
    noteUndone: (sessionKey, turnId) =>
      inTime(REQUEST_MS, never, (signal) =>
        inOrder(sessionKey, async () => {
          const record = (await completed(sessionKey, signal)).find((one) => one.turnId === turnId);
          if (record !== undefined) await write(sessionKey, { ...record, isUndone: true });
        }),
      ),
    records: (sessionKey) =>
      inTime(REQUEST_MS, never, (signal) => inOrder(sessionKey, () => completed(sessionKey, signal))),
    changes: (sessionKey, turnId) =>
      inTime(REQUEST_MS, never, (signal) => inOrder(sessionKey, () => since(sessionKey, turnId, signal))),
    state: stateOf,
    async remove(sessionKey) {
      givenUp.delete(sessionKey);
      await inOrder(sessionKey, () => removeAll(sessionKey));
    },
    async settle() {
      await Promise.all(queues.values());
    },
  };

  /** The repository may delete its objects at any time; nobody waits for the copy. */
  function keepObjects(sessionKey: string, state: FolderState, files: readonly FolderChange[]): Promise<void> {
    const oids = new Set(files.flatMap(({ before, after }) => [before, after].flatMap((file) => file?.oid ?? [])));
    return inTime(REQUEST_MS, never, (signal) => inOrder(sessionKey, () => state.keep([...oids], signal))).catch(
      (error: unknown) => logger.warn({ err: error, sessionKey }, 'objects of a checkpoint were not copied'),
    );
  }
}

export function totalsOf(files: readonly FolderChange[]): ChangeTotals {
  let [added, removed] = [0, 0];
  for (const file of files) {
    added += file.added;
    removed += file.removed;
  }
  return { files: files.length, added, removed };
}

function isComplete(record: TurnRecord): record is EndedTurnRecord {
  return record.after !== undefined && record.files !== undefined;
}
