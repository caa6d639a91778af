import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, readlink, rename, rmdir, symlink, unlink } from 'node:fs/promises';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type ConfinedFolder, type ConfinedRoot, openEntry, openFolder } from '../agents/builtin/tools/confinement.ts';
import { blobDigest, type FolderChange, type FolderState, type SavedFile } from './folder-state.ts';

export interface RestoreOptions {
  readonly root: ConfinedRoot;
  readonly state: Pick<FolderState, 'read'>;
  readonly files: readonly FolderChange[];
  readonly signal: AbortSignal;
  makeTemporaryName(): string;
}

/** Files whose bytes are held in memory at the same time. */
const FILES_AT_A_TIME = 64;

/**
 * Puts files back as they were before a turn. Throws FILES_CHANGED, with the list and before anything is written, when a
 * file is neither as the turn left it nor as it was before. Files that are back already are left alone: a restore that was
 * interrupted is completed by another one. Returns the files that were written or removed.
 */
export async function restoreFiles(options: RestoreOptions): Promise<readonly FolderChange[]> {
  const { root, files, signal } = options;
  const changed: string[] = [];
  const left: FolderChange[] = [];
  for (const file of files) {
    signal.throwIfAborted();
    const now = await currentFile(root, file.path);
    if (isSame(now, file.before)) continue;
    if (isSame(now, file.after)) left.push(file);
    else changed.push(file.path);
  }
  if (changed.length > 0) throw new AppError('FILES_CHANGED', { files: changed });
  const written = left.filter(({ before }) => before !== null);
  await requireContents(options, written);
  // A folder may stand where a file was, or a file where a folder was.
  const removed = left.filter(({ before }) => before === null).toReversed();
  for (const { path } of removed) await removeFile(root, path);
  for (let at = 0; at < written.length; at += FILES_AT_A_TIME) {
    signal.throwIfAborted();
    await writeSome(options, written.slice(at, at + FILES_AT_A_TIME));
  }
  return left;
}

/** Throws if the saved content of a file is missing. Called before the first file is changed. */
async function requireContents({ state, signal }: RestoreOptions, files: readonly FolderChange[]): Promise<void> {
  for (let at = 0; at < files.length; at += FILES_AT_A_TIME) {
    const some = files.slice(at, at + FILES_AT_A_TIME);
    const contents = await state.read(oidsOf(some), signal);
    const missing = some.filter(({ before }) => before !== null && !contents.has(before.oid));
    if (missing.length > 0) throw new AppError('UNDO_UNAVAILABLE', { reason: 'the saved files are gone' });
  }
}

async function writeSome(options: RestoreOptions, files: readonly FolderChange[]): Promise<void> {
  const { root, state, signal, makeTemporaryName } = options;
  const contents = await state.read(oidsOf(files), signal);
  for (const { path, before } of files) {
    const content = before === null ? undefined : contents.get(before.oid);
    if (before === null || content === undefined) continue;
    await writeFileBack(root, path, before, content, makeTemporaryName());
  }
}

function oidsOf(files: readonly FolderChange[]): readonly string[] {
  return files.flatMap(({ before }) => before?.oid ?? []);
}

function isSame(one: SavedFile | null, other: SavedFile | null): boolean {
  return one?.oid === other?.oid && one?.mode === other?.mode;
}

/** Returns the current file at a path. Links in the path are not followed, because they may lead out of the folder. */
async function currentFile(root: ConfinedRoot, path: string): Promise<SavedFile | null> {
  const place = await openParent(root, path).catch(absent);
  if (place === null) return null;
  const { folder, name } = place;
  try {
    const stats = await lstat(folder.entry(name));
    if (stats.isSymbolicLink())
      return { mode: '120000', oid: blobDigest(Buffer.from(await readlink(folder.entry(name)))) };
    // Git has no files for folders; pipes and the like are not saved.
    if (!stats.isFile()) return null;
    const { handle, size } = await openEntry(folder, name);
    try {
      const { mode } = await handle.stat();
      return { mode: (mode & 0o100) === 0 ? '100644' : '100755', oid: await digestOf(handle, size) };
    } finally {
      await handle.close();
    }
  } catch (error) {
    return absent(error);
  } finally {
    await folder.close();
  }
}

async function digestOf(handle: FileHandle, size: number): Promise<string> {
  const hash = createHash('sha1').update(`blob ${size}\0`);
  for await (const chunk of handle.createReadStream({ autoClose: false, start: 0 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

async function openParent(root: ConfinedRoot, path: string, create = false) {
  const names = path.split('/');
  const folder = await openFolder(root, names.slice(0, -1), { create });
  return { folder, name: names.at(-1) ?? '' };
}

function absent(error: unknown): null {
  if (['ENOENT', 'ENOTDIR', 'ELOOP'].includes(errorCode(error))) return null;
  throw error;
}

/** Removes a file, and its parent folders that have become empty. */
async function removeFile(root: ConfinedRoot, path: string): Promise<void> {
  const place = await openParent(root, path).catch(absent);
  if (place === null) return;
  await unlink(place.folder.entry(place.name)).catch(absent).finally(place.folder.close);
  for (let above = parentOf(path); above !== ''; above = parentOf(above)) {
    const parent = await openParent(root, above).catch(absent);
    if (parent === null) return;
    const isGone = await rmdir(parent.folder.entry(parent.name)).then(
      () => true,
      () => false,
    );
    await parent.folder.close();
    if (!isGone) return;
  }
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}

/** Writes a draft and renames it, so that a crash leaves no partial file and nothing is written through a link. */
async function writeFileBack(
  root: ConfinedRoot,
  path: string,
  { mode }: SavedFile,
  content: Buffer,
  temporaryName: string,
): Promise<void> {
  const { folder, name } = await openParent(root, path, true);
  try {
    if (mode === '120000') await symlink(content, folder.entry(temporaryName));
    else await writeBeside(folder, temporaryName, content, await modeFor(folder.entry(name), mode));
    await rename(folder.entry(temporaryName), folder.entry(name));
  } catch (error) {
    await unlink(folder.entry(temporaryName)).catch(() => undefined);
    throw error;
  } finally {
    await folder.close();
  }
}

/** Returns the permissions of the replaced file, with or without the execute bit. */
async function modeFor(place: string, mode: SavedFile['mode']): Promise<number | undefined> {
  const found = await lstat(place).catch(() => undefined);
  const isExecutable = mode === '100755';
  if (found?.isFile() !== true) return isExecutable ? 0o755 : undefined;
  const readable = found.mode & 0o777 & ~0o111;
  return isExecutable ? readable | ((readable & 0o444) >> 2) : readable;
}

async function writeBeside(
  folder: ConfinedFolder,
  name: string,
  content: Buffer,
  mode: number | undefined,
): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const handle = await open(folder.entry(name), flags, 0o666);
  try {
    if (mode !== undefined) await handle.chmod(mode);
    await handle.writeFile(content);
  } finally {
    await handle.close();
  }
}
