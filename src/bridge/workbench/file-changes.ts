import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Confine } from '../agents/builtin/tools/confinement.ts';
import { changeOfTexts, linesOf } from '../agents/file-changes.ts';
import type { FolderChange } from '../checkpoints/folder-state.ts';
import { restoreFiles } from '../checkpoints/restore-files.ts';
import { type ChangeTotals, type Checkpoints, totalsOf } from '../checkpoints/turn-checkpoints.ts';
import type { ChangesPage, DiffView, UndoResult } from '../contract/files.ts';
import type { FileChange } from '../contract/session-update.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { WorkingDirectories } from '../sessions/working-directory.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { History } from './history.ts';

type SessionRef = Pick<SessionRow, 'key' | 'session_id' | 'owner'>;

/** Lists and undoes what the turns of a session have changed in its folder. `turnId`: only changes since that turn began. */
export interface FileChanges {
  list(session: SessionRef, turnId: string | undefined): Promise<ChangesPage>;
  diff(session: SessionRef, turnId: string | undefined, path: string): Promise<DiffView>;
  undo(session: SessionRef, turnId: string): Promise<UndoResult>;
}

interface FileChangesOptions {
  readonly checkpoints: Checkpoints;
  readonly directories: Pick<WorkingDirectories, 'check'>;
  readonly confine: Confine;
  readonly history: Pick<History, 'firstSeq' | 'toolCalls'>;
  readonly alone: SessionOrchestrator['alone'];
  makeId(prefix: string): string;
  /** Stores what the session has changed in all. */
  noteTotals(sessionKey: string, totals: ChangeTotals): Promise<void>;
}

const MAX_DIFF_LENGTH = 1024 * 1024;
/** The maximum number of tool call updates that are read if no folder was saved. */
const MAX_CALLS = 40_000;
const REQUEST_MS = 20_000;
const UNDO_MS = 10 * 60_000;

export function createFileChanges(options: FileChangesOptions): FileChanges {
  const { checkpoints, directories, confine, history, alone, makeId, noteTotals } = options;

  async function firstSeq({ key, session_id: sessionId }: SessionRef, turnId: string): Promise<number> {
    const seq = await history.firstSeq(key, turnId);
    if (seq === undefined) throw new AppError('TURN_NOT_FOUND', { turnId, sessionId });
    return seq;
  }

  /** Returns the changes that agents have reported, by path: the last report of each tool call counts. */
  async function reported(session: SessionRef, turnId: string | undefined): Promise<ReadonlyMap<string, FileChange[]>> {
    const calls = new Map<string, readonly FileChange[]>();
    const afterSeq = turnId === undefined ? 0 : (await firstSeq(session, turnId)) - 1;
    let seen = 0;
    for await (const update of history.toolCalls(session.key, afterSeq)) {
      seen += 1;
      if (seen > MAX_CALLS) break;
      if (!('toolCallId' in update) || !('changes' in update) || update.changes === undefined) continue;
      calls.set(`${update.turnId} ${update.toolCallId}`, update.changes as readonly FileChange[]);
    }
    return Map.groupBy([...calls.values()].flat(), ({ path }) => path);
  }

  return {
    async list(session, turnId) {
      if (turnId !== undefined) await firstSeq(session, turnId);
      const { files, record } = await checkpoints.changes(session.key, turnId);
      if (record !== undefined) {
        return { files: files.map(shownFile), base: { source: 'checkpoint', turnId: record.turnId } };
      }
      const byPath = await reported(session, turnId);
      const found = [...byPath].map(([path, changes]) => reportedFile(path, changes));
      return {
        files: found.toSorted((one, other) => (one.path < other.path ? -1 : 1)),
        base: { source: 'updates', turnId: turnId ?? '' },
      };
    },
    async diff(session, turnId, path) {
      if (turnId !== undefined) await firstSeq(session, turnId);
      const { files, record } = await checkpoints.changes(session.key, turnId);
      if (record === undefined) {
        const changes = (await reported(session, turnId)).get(path);
        if (changes === undefined)
          throw new AppError('FILE_NOT_CHANGED', { path: path.slice(0, 200), sessionId: session.session_id });
        return view(path, changes.map(unifiedOf).join(''));
      }
      const file = files.find((one) => one.path === path);
      if (file === undefined)
        throw new AppError('FILE_NOT_CHANGED', { path: path.slice(0, 200), sessionId: session.session_id });
      const { before, after } = file;
      const state = checkpoints.state(session.key, record.folder);
      const signal = AbortSignal.timeout(REQUEST_MS);
      const hunks = file.binary ? '' : await state.diff(before?.oid ?? null, after?.oid ?? null, signal);
      return view(path, hunks === '' ? '' : `${headOf(file)}${hunks}`);
    },
    async undo(session, turnId) {
      await firstSeq(session, turnId);
      const restored = await alone(session.owner, session.session_id, async () => {
        const record = (await checkpoints.records(session.key)).find((one) => one.turnId === turnId);
        if (record === undefined) {
          throw new AppError('UNDO_UNAVAILABLE', {
            reason: 'its working directory was not saved, or not on this server',
          });
        }
        if (record.isUndone === true) return [];
        const root = confine(await directories.check(record.folder, session.owner).catch(notUsable));
        const done = await restoreFiles({
          root,
          state: checkpoints.state(session.key, record.folder),
          files: record.files,
          signal: AbortSignal.timeout(UNDO_MS),
          makeTemporaryName: () => makeId('.trestle-'),
        }).catch(notRestored);
        await checkpoints.noteUndone(session.key, turnId);
        const { files } = await checkpoints.changes(session.key, undefined);
        await noteTotals(session.key, totalsOf(files));
        return done;
      });
      return { turnId, restored: restored.map(({ path }) => path), files: restored.map(undoneFile) };
    },
  };
}

/** What was done to a file to put it back as it was. */
function undoneFile({ path, before, after }: FolderChange): UndoResult['files'][number] {
  if (before === null) return { path, action: 'removed' };
  return { path, action: after === null ? 'created' : 'restored' };
}

function notUsable(error: unknown): never {
  if (!(error instanceof AppError)) throw error;
  throw new AppError('UNDO_UNAVAILABLE', { reason: `its folder cannot be used: ${String(error.details.reason)}` });
}

function notRestored(error: unknown): never {
  if (error instanceof AppError && error.code === 'TOOL_CALL_REFUSED') {
    throw new AppError('UNDO_UNAVAILABLE', { reason: String(error.details.reason) });
  }
  if (['ENOTDIR', 'ELOOP', 'EISDIR', 'ENOTEMPTY'].includes(errorCode(error))) {
    throw new AppError('UNDO_UNAVAILABLE', { reason: 'a link or another file stands where a folder was; remove it' });
  }
  if (['EACCES', 'EPERM', 'EROFS', 'ENOSPC'].includes(errorCode(error))) {
    throw new AppError('UNDO_UNAVAILABLE', { reason: `a file could not be written (${errorCode(error)}); try again` });
  }
  throw error;
}

function shownFile({ path, before, after, added, removed, binary }: FolderChange): ChangesPage['files'][number] {
  const status = before === null ? 'added' : after === null ? 'deleted' : 'modified';
  return { path, status, added, removed, binary };
}

function reportedFile(path: string, changes: readonly FileChange[]): ChangesPage['files'][number] {
  const isNew = changes[0]?.newText !== undefined && changes[0].oldText === undefined;
  let [added, removed] = [0, 0];
  for (const change of changes) {
    added += change.added;
    removed += change.removed;
  }
  return { path, status: isNew ? 'added' : 'modified', added, removed, binary: false };
}

function view(path: string, unified: string): DiffView {
  if (unified.length <= MAX_DIFF_LENGTH) return { path, unified, truncated: false };
  const cut = unified.slice(0, MAX_DIFF_LENGTH);
  return { path, unified: cut.slice(0, cut.lastIndexOf('\n') + 1), truncated: true };
}

function headOf({ path, before, after }: Pick<FolderChange, 'path' | 'before' | 'after'>): string {
  const name = (side: 'a' | 'b', file: unknown) => (file === null ? '/dev/null' : `${side}/${path}`);
  return `--- ${name('a', before)}\n+++ ${name('b', after)}\n`;
}

/** A change that an agent has reported, as a diff: the lines between the equal beginning and the equal end. */
function unifiedOf(change: FileChange): string {
  if (change.unified !== undefined) return change.unified.endsWith('\n') ? change.unified : `${change.unified}\n`;
  const { path, oldText, newText } = change;
  if (newText === undefined) return '';
  const { added, removed } = changeOfTexts(path, oldText, newText);
  const [before, after] = [linesOf(oldText ?? ''), linesOf(newText)];
  const start = before.findIndex((line, index) => line !== after[index]);
  const first = start === -1 ? Math.min(before.length, after.length) : start;
  const lines = [
    ...before.slice(first, first + removed).map((line) => `-${line}`),
    ...after.slice(first, first + added).map((line) => `+${line}`),
  ];
  const head = headOf({
    path,
    before: oldText === undefined ? null : { mode: '100644', oid: '' },
    after: { mode: '100644', oid: '' },
  });
  return `${head}@@ -${first + 1},${removed} +${first + 1},${added} @@\n${lines.map((line) => `${line}\n`).join('')}`;
}
