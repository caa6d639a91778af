import { useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { keyOf, listChanges, readDiff, type SessionName } from '../../data/bridge.ts';
import type { Item } from '../../live/fold-updates.ts';
import { DiffView } from '../../parts/diff.tsx';
import { type FileChange, patchOf } from '../../parts/diff-lines.ts';
import { CopyButton } from '../../parts/parts.tsx';

import { addToDraft } from './next-message.ts';

/** The folder is not compared more often while an agent works. */
const COMPARE_MS = 2000;
const CHANGING: ReadonlySet<string> = new Set(['edit', 'delete', 'move', 'execute']);

/** A text that changes when the agent may have changed files, at most every two seconds. */
export function useWorkMark(items: readonly Item[]): string {
  const done = items.filter(({ kind }) => kind === 'end').length;
  const calls = items.filter(
    (item) =>
      item.kind === 'tool' &&
      CHANGING.has(item.call.toolKind) &&
      !['pending', 'in_progress'].includes(item.call.status),
  ).length;
  const now = `${done} ${calls}`;
  const [mark, setMark] = useState(now);
  useEffect(() => {
    const timer = setTimeout(() => setMark(now), mark === now ? 0 : COMPARE_MS);
    return () => clearTimeout(timer);
  }, [now, mark]);
  return mark;
}

/** What has changed in the folder since the session, or a turn, began: as the server has saved it. */
export function useSavedChanges(name: SessionName, turnId: string | undefined, mark: string) {
  return useQuery({
    queryKey: ['changes', name, turnId ?? '', mark],
    queryFn: () => listChanges(name, turnId),
    placeholderData: (before, query) => (query?.queryKey[2] === (turnId ?? '') ? before : undefined),
    enabled: turnId !== '',
    retry: false,
  });
}

interface ChangedFiles {
  readonly files: readonly FileChange[];
  /** The files are as the server has saved them, so that their diffs are read from it. */
  readonly isSaved: boolean;
}

/** Where the folder is saved, its changes count; elsewhere those that the agent has reported. */
export function useChangedFiles(
  name: SessionName,
  items: readonly Item[],
  turnId: string | undefined,
  mark: string,
): ChangedFiles {
  const { data } = useSavedChanges(name, turnId, mark);
  if (data?.base.source === 'checkpoint') {
    return { files: data.files.map((file) => ({ ...file, truncated: false })), isSaved: true };
  }
  const calls = items.flatMap((item) =>
    item.kind === 'tool' && (turnId === undefined || item.turnId === turnId) ? [item.call] : [],
  );
  return { files: latestChanges(calls.flatMap((call) => call.changes ?? [])), isSaved: false };
}

interface ChangesPaneProps extends ChangedFiles {
  readonly name: SessionName;
  readonly folder: string;
  readonly mark: string;
  /** The turn that is shown alone. Undefined: the whole session. */
  readonly turnId: string | undefined;
  readonly onScope: (scope: 'session' | 'turn') => void;
}

const WRAP = 'trestle.wrap';
const SPLIT = 'trestle.split';

/** The changed files with their diffs: of the session or the last turn, to read, to copy, and to comment on. */
export function ChangesPane(props: ChangesPaneProps) {
  const { name, folder, mark, turnId, files, isSaved, onScope } = props;
  const [isWrapped, setWrapped] = useKeptChoice(WRAP, true);
  const [isSplit, setSplit] = useKeptChoice(SPLIT, false);
  const comment = (place: string, text: string) => addToDraft(keyOf(name), `${place}\n> ${text.trim()}\n\n`);
  async function patch(): Promise<string> {
    const parts = isSaved
      ? await Promise.all(files.map(({ path }) => readDiff(name, path, turnId).then(({ unified }) => unified)))
      : files.map(patchOf);
    return parts.map((part) => (part === '' || part.endsWith('\n') ? part : `${part}\n`)).join('');
  }
  return (
    <div className={isWrapped ? 'changes wraps' : 'changes'}>
      <div className="bar">
        <select
          aria-label="Changes of"
          value={turnId === undefined ? 'session' : 'turn'}
          onChange={({ target }) => onScope(target.value === 'turn' ? 'turn' : 'session')}
        >
          <option value="session">Whole session</option>
          <option value="turn">Last turn</option>
        </select>
        <button type="button" aria-pressed={isWrapped} onClick={() => setWrapped(!isWrapped)}>
          Wrap lines
        </button>
        <button type="button" aria-pressed={isSplit} onClick={() => setSplit(!isSplit)}>
          Side by side
        </button>
        {files.length === 0 ? null : <CopyButton key={`${turnId} ${mark}`} text={patch} label="Copy patch" />}
      </div>
      {files.length === 0 ? <p className="quiet">No file was changed.</p> : null}
      {files.map((file) =>
        isSaved ? (
          <SavedDiff
            key={file.path}
            {...{ name, file, folder, mark, turnId, isSplit }}
            isShort={files.length <= 3}
            onComment={comment}
          />
        ) : (
          <DiffView
            key={file.path}
            {...{ folder, isSplit }}
            change={file}
            open={files.length <= 3}
            onComment={comment}
          />
        ),
      )}
    </div>
  );
}

/** A choice that the browser keeps. */
function useKeptChoice(place: string, isUsual: boolean): readonly [boolean, (isChosen: boolean) => void] {
  const [isChosen, setChosen] = useState((localStorage.getItem(place) ?? (isUsual ? 'yes' : 'no')) === 'yes');
  return [
    isChosen,
    (chosen) => {
      localStorage.setItem(place, chosen ? 'yes' : 'no');
      setChosen(chosen);
    },
  ];
}

interface SavedDiffProps extends Pick<ChangesPaneProps, 'name' | 'folder' | 'mark' | 'turnId'> {
  readonly file: FileChange;
  readonly isShort: boolean;
  readonly isSplit: boolean;
  readonly onComment: (place: string, text: string) => void;
}

/** A file whose diff is read when it is opened. */
function SavedDiff({ name, file, folder, mark, turnId, isShort, isSplit, onComment }: SavedDiffProps) {
  const [isOpen, setOpen] = useState(isShort);
  const diff = useQuery({
    queryKey: ['diff', name, file.path, turnId ?? '', mark, file.added, file.removed],
    queryFn: () => readDiff(name, file.path, turnId),
    placeholderData: (before) => before,
    enabled: isOpen,
  });
  const change = { ...file, unified: diff.data?.unified ?? '', truncated: diff.data?.truncated ?? false };
  return <DiffView {...{ change, folder, isSplit, onComment }} open={isOpen} onToggle={setOpen} />;
}

/** One entry for each file: from what it was at first to what it is now. Diffs without texts are kept as they are. */
function latestChanges(changes: readonly FileChange[]): readonly FileChange[] {
  const byPath = new Map<string, FileChange>();
  for (const change of changes) {
    const before = byPath.get(change.path);
    byPath.set(change.path, before === undefined ? change : joined(before, change));
  }
  return [...byPath.values()];
}

function joined(before: FileChange, after: FileChange): FileChange {
  const added = before.added + after.added;
  const removed = before.removed + after.removed;
  if (before.unified !== undefined && after.unified !== undefined) {
    return { ...after, unified: `${before.unified}\n${after.unified}`, added, removed };
  }
  return { ...after, ...(before.oldText !== undefined && { oldText: before.oldText }), added, removed };
}
