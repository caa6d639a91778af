import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, mkdir, open, readFile, rm, unlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type ConfinedRoot, openEntry, openFolder } from '../agents/builtin/tools/confinement.ts';
import { GIT_SETTINGS, type Git } from './run-git.ts';

/** A file as git names it: its kind, and the digest of its bytes. */
export interface SavedFile {
  readonly mode: '100644' | '100755' | '120000';
  readonly oid: string;
}

/** One file that differs between two states of a folder; null where there is none. */
export interface FolderChange {
  readonly path: string;
  readonly before: SavedFile | null;
  readonly after: SavedFile | null;
  /** Lines; 0 for a binary file. */
  readonly added: number;
  readonly removed: number;
  readonly binary: boolean;
}

/**
 * Saves states of one folder, as trees of git in a folder of our own: history, index and settings of a repository there
 * are neither used nor changed. What git ignores, and repositories inside the folder, are not saved.
 */
export interface FolderState {
  /** `known`: the tree of the last save. Throws GIT_FAILED, or CHECKPOINT_FAILED when there is too much to save. */
  save(known: string | undefined, signal: AbortSignal): Promise<{ readonly tree: string; readonly savedBytes: number }>;
  compare(before: string, after: string, signal: AbortSignal): Promise<readonly FolderChange[]>;
  /** Copies what is needed of the repository's own objects, which the repository may delete. */
  keep(oids: readonly string[], signal: AbortSignal): Promise<void>;
  /** Returns the bytes of each object. Missing objects are left out. */
  read(oids: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, Buffer>>;
  /** Returns the changed parts as a unified diff without its head. Null stands for a file that does not exist. */
  diff(before: string | null, after: string | null, signal: AbortSignal): Promise<string>;
}

interface FolderStateOptions {
  readonly git: Git;
  readonly root: ConfinedRoot;
  /** The private git folder for this working directory. */
  readonly gitFolder: string;
  /** Of one save: files that git has to read, and their bytes. */
  readonly maxFiles: number;
  readonly maxBytes: number;
}

/** Makes git save files byte by byte, without the conversions that attributes of the repository ask for. */
const RAW_ATTRIBUTES = '* -text -eol -ident -filter -working-tree-encoding !diff !merge\n';
/** Excluded even if no `.gitignore` does so. */
const EXCLUDED = 'node_modules/\n';
const MAX_INDEX_BYTES = 256 * 1024 * 1024;
/** The number and the maximum size of the files that are compared with the index of the repository. */
const MAX_SAMPLES = 24;
const MAX_SAMPLE_BYTES = 65_536;
const STATS_AT_A_TIME = 64;
const EMPTY_OID = 'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391';
const MAX_DIFF_BYTES = 8 * 1024 * 1024;
/** Matches paths that could lead out of the folder or into `.git`. */
const ODD_PATH = /^\/|(?:^|\/)(?:\.{0,2}|\.git)(?:\/|$)/i;

export function createFolderState({ git, root, gitFolder, maxFiles, maxBytes }: FolderStateOptions): FolderState {
  const workTree = root.path;
  const inGitFolder = (...names: string[]) => join(gitFolder, ...names);

  const run = (args: readonly string[], signal: AbortSignal, input?: string, maxOutputBytes?: number) =>
    git.run(args, {
      gitFolder,
      workTree: root,
      signal,
      ...(input !== undefined && { input }),
      ...(maxOutputBytes !== undefined && { maxOutputBytes }),
    });

  async function prepare(signal: AbortSignal): Promise<void> {
    // A save that was killed leaves its lock behind.
    await rm(inGitFolder('index.lock'), { force: true });
    if ((await readFile(inGitFolder('ready'), 'utf8').catch(() => '')) !== '') return;
    await rm(gitFolder, { recursive: true, force: true });
    for (const name of ['objects/info', 'objects/pack', 'refs', 'info']) {
      await mkdir(inGitFolder(name), { recursive: true, mode: 0o700 });
    }
    await writeFile(inGitFolder('HEAD'), 'ref: refs/heads/none\n');
    await writeFile(inGitFolder('config'), GIT_SETTINGS);
    await writeFile(inGitFolder('info', 'exclude'), EXCLUDED);
    const isSeeded = await seed(signal).catch((error: unknown) => {
      if (signal.aborted) throw error;
      return false;
    });
    if (!isSeeded) {
      await rm(inGitFolder('index'), { force: true });
      await rm(inGitFolder('objects', 'info', 'alternates'), { force: true });
    }
    await writeFile(inGitFolder('info', 'attributes'), RAW_ATTRIBUTES);
    await writeFile(inGitFolder('ready'), '1');
  }

  /**
   * Copies the repository's index, so that unchanged files need not be read. The copy is not trusted: its paths are checked, and files
   * that git would convert (filters, line ends) are saved again, byte by byte.
   */
  async function seed(signal: AbortSignal): Promise<boolean> {
    if (!(await copyIndex())) return false;
    const [listed, converted] = await Promise.all([
      run(['ls-files', '-z', '-s', '-v'], signal),
      run(['ls-files', '-z', '--', ':(exclude,attr:!filter !ident !eol !working-tree-encoding)'], signal),
    ]);
    if (!isUtf8(listed)) return false;
    const odd = new Set(entriesOf(converted));
    const plain: { readonly path: string; readonly oid: string }[] = [];
    for (const entry of entriesOf(listed)) {
      const [, tag = '', mode = '', oid = '', stage = '', path = ''] =
        /^(\S) (\d+) ([0-9a-f]+) (\d)\t([\s\S]+)$/.exec(entry) ?? [];
      if (ODD_PATH.test(path) || path === '') return false;
      if (tag !== 'H' || stage !== '0' || !isFileMode(mode)) odd.add(path);
      else if (!odd.has(path) && mode !== '120000') plain.push({ path, oid });
    }
    const step = Math.max(1, Math.floor(plain.length / MAX_SAMPLES));
    for (let at = 0; at < plain.length; at += step) {
      const { path, oid } = plain[at] ?? { path: '', oid: '' };
      if (await isConverted(path, oid, signal)) return false;
    }
    if (odd.size > 0) await run(['update-index', '-z', '--force-remove', '--stdin'], signal, joined(odd));
    return true;
  }

  async function copyIndex(): Promise<boolean> {
    if (workTree.includes('\n')) return false;
    const folder = await openFolder(root, ['.git']);
    try {
      // Repositories with attributes or objects in another place are rare; all of their files are read.
      for (const name of ['info/attributes', 'objects/info/alternates', 'objects/info/http-alternates', 'commondir']) {
        if (await exists(folder.entry(name))) return false;
      }
      if (!(await lstat(folder.entry('objects'))).isDirectory()) return false;
      const { handle, size } = await openEntry(folder, 'index');
      try {
        if (size > MAX_INDEX_BYTES) return false;
        const { atimeMs, mtimeMs } = await handle.stat();
        await writeFile(inGitFolder('index'), await handle.readFile());
        // Git compares files with the time of the index: a younger copy would hide changes of the same moment.
        await utimes(inGitFolder('index'), Math.floor(atimeMs) / 1000, Math.floor(mtimeMs) / 1000);
      } finally {
        await handle.close();
      }
      await writeFile(inGitFolder('objects', 'info', 'alternates'), `${join(workTree, '.git', 'objects')}\n`);
      return true;
    } finally {
      await folder.close();
    }
  }

  /** Whether a file that git reports as unchanged has other bytes than git has stored: then git converts files here. */
  async function isConverted(path: string, oid: string, signal: AbortSignal): Promise<boolean> {
    const names = path.split('/');
    const folder = await openFolder(root, names.slice(0, -1)).catch(() => undefined);
    if (folder === undefined) return false;
    try {
      const file = await openEntry(folder, names.at(-1) ?? '').catch(() => undefined);
      if (file === undefined) return false;
      try {
        if (file.size > MAX_SAMPLE_BYTES) return false;
        if (blobDigest(await file.handle.readFile()) === oid) return false;
      } finally {
        await file.handle.close();
      }
    } finally {
      await folder.close();
    }
    return !entriesOf(await run(['ls-files', '-z', '-m', '--', `:(literal)${path}`], signal)).includes(path);
  }

  /** Paths whose files may differ from the last save. */
  async function scan(signal: AbortSignal): Promise<readonly string[]> {
    const printed = await run(['ls-files', '-z', '-t', '-m', '-d', '-o', '--exclude-standard'], signal);
    const found = entriesOf(printed).map((entry) => entry.slice(2));
    // A repository inside the folder is named with a slash at its end.
    return [...new Set(found.filter((path) => !path.endsWith('/')))];
  }

  async function sizeOf(paths: readonly string[]): Promise<number> {
    if (paths.length > maxFiles) throw failed(`${paths.length} files would have to be read, more than ${maxFiles}`);
    let bytes = 0;
    for (let at = 0; at < paths.length; at += STATS_AT_A_TIME) {
      const some = paths.slice(at, at + STATS_AT_A_TIME);
      const sizes = await Promise.all(some.map((path) => lstat(join(workTree, path)).catch(() => undefined)));
      for (const one of sizes) bytes += one?.isFile() === true ? one.size : 0;
      if (bytes > maxBytes) throw failed(`its changed files hold more than ${maxBytes} bytes`);
    }
    return bytes;
  }

  async function saveOnce(known: string | undefined, signal: AbortSignal) {
    const paths = await scan(signal);
    if (paths.length === 0 && known !== undefined) return { tree: known, savedBytes: 0 };
    const savedBytes = await sizeOf(paths);
    if (paths.length > 0)
      await run(['update-index', '-z', '--add', '--remove', '--replace', '--stdin'], signal, joined(paths));
    const tree = (await run(['write-tree', '--missing-ok'], signal)).toString().trim();
    return { tree, savedBytes };
  }

  return {
    async save(known, signal) {
      await prepare(signal);
      try {
        return await saveOnce(known, signal);
      } catch (error) {
        // Files may change or vanish while they are read.
        if (signal.aborted || errorCode(error) !== 'GIT_FAILED') throw error;
        return saveOnce(undefined, signal);
      }
    },
    async compare(before, after, signal) {
      if (before === after) return [];
      const options = ['-r', '-z', '--raw', '--numstat', '--no-renames', '--no-ext-diff', '--no-textconv'];
      return readChanges(entriesOf(await run(['diff-tree', ...options, '--no-abbrev', before, after], signal)));
    },
    async keep(oids, signal) {
      if (oids.length === 0 || !(await exists(inGitFolder('objects', 'info', 'alternates')))) return;
      const pack = inGitFolder('objects', 'pack', 'pack');
      await run(['pack-objects', '--quiet', pack], signal, `${oids.join('\n')}\n`);
    },
    async read(oids, signal) {
      return readBatch(await run(['cat-file', '--batch'], signal, `${oids.join('\n')}\n`));
    },
    async diff(before, after, signal) {
      if (before === null || after === null) await writeEmptyBlob(inGitFolder('objects', EMPTY_OID.slice(0, 2)));
      const pair = [before ?? EMPTY_OID, after ?? EMPTY_OID];
      const args = ['diff', '--no-color', '--no-ext-diff', '--no-textconv', '--no-renames', ...pair];
      const text = (await run(args, signal, '', MAX_DIFF_BYTES)).toString();
      const start = text.search(/^@@/m);
      return start === -1 ? '' : text.slice(start);
    },
  };
}

/** Returns the id that git gives to a file with these bytes. */
export function blobDigest(bytes: Uint8Array): string {
  return createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
}

async function writeEmptyBlob(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
  const handle = await open(join(folder, EMPTY_OID.slice(2)), flags, 0o444).catch(() => undefined);
  if (handle === undefined) return;
  try {
    await handle.writeFile(deflateSync('blob 0\0'));
  } catch (error) {
    await unlink(join(folder, EMPTY_OID.slice(2)));
    throw error;
  } finally {
    await handle.close();
  }
}

/** Parses the output of `diff-tree --raw --numstat -z`: all files, followed by the line counts of each. */
function readChanges(tokens: readonly string[]): readonly FolderChange[] {
  const files = new Map<string, Pick<FolderChange, 'before' | 'after'>>();
  const changes: FolderChange[] = [];
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at] ?? '';
    if (token.startsWith(':')) {
      at += 1;
      const [oldMode = '', newMode = '', oldOid = '', newOid = ''] = token.slice(1).split(' ');
      files.set(tokens[at] ?? '', { before: savedFile(oldMode, oldOid), after: savedFile(newMode, newOid) });
      continue;
    }
    const [, added = '', removed = '', path = ''] = /^(\d+|-)\t(\d+|-)\t([\s\S]+)$/.exec(token) ?? [];
    const file = files.get(path);
    if (file === undefined || (file.before ?? file.after) === null) continue;
    const binary = added === '-';
    const lines = binary ? { added: 0, removed: 0 } : { added: Number(added), removed: Number(removed) };
    changes.push({ path, ...file, ...lines, binary });
  }
  return changes;
}

function savedFile(mode: string, oid: string): SavedFile | null {
  return isFileMode(mode) ? { mode, oid } : null;
}

function isFileMode(mode: string): mode is SavedFile['mode'] {
  return mode === '100644' || mode === '100755' || mode === '120000';
}

/** Parses the output of `cat-file --batch`: a line for each object, followed by its bytes if it exists. */
function readBatch(printed: Buffer): ReadonlyMap<string, Buffer> {
  const found = new Map<string, Buffer>();
  for (let at = 0; at < printed.length; ) {
    const end = printed.indexOf(0x0a, at);
    const [oid = '', kind, size] = printed.toString('latin1', at, end).split(' ');
    at = end + 1;
    if (kind === 'missing') continue;
    const length = Number(size);
    found.set(oid, printed.subarray(at, at + length));
    at += length + 1;
  }
  return found;
}

/** Names that are not UTF-8 cannot be sent in JSON, and are left out. */
function entriesOf(printed: Buffer): readonly string[] {
  if (isUtf8(printed)) return printed.toString().split('\0').filter(Boolean);
  const entries: string[] = [];
  for (let at = 0, end = printed.indexOf(0, at); end !== -1; at = end + 1, end = printed.indexOf(0, at)) {
    const entry = printed.subarray(at, end);
    if (isUtf8(entry)) entries.push(entry.toString());
  }
  return entries;
}

function joined(paths: Iterable<string>): string {
  return [...paths].map((path) => `${path}\0`).join('');
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined;
}

function failed(reason: string): AppError {
  return new AppError('CHECKPOINT_FAILED', { reason });
}
