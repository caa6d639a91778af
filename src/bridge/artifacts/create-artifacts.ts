import { createHash } from 'node:crypto';
import { type FileHandle, lstat, mkdir, open, readdir, rm, stat } from 'node:fs/promises';
import { basename, extname, join, relative } from 'node:path';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { AgentEvent, FileElsewhere, ProducedFile } from '../agents/agent-provider.ts';
import { type Confine, withFile } from '../agents/builtin/tools/confinement.ts';
import type { Artifact } from '../contract/session.ts';
import { TENANT } from '../principal.ts';
import type { ArtifactRow } from '../storage/bridge-schema.ts';
import type { ArtifactStore } from '../storage/file-stores.ts';
import { type ArtifactLinks, MAX_ARTIFACT_BYTES, type SignedFile } from './artifact-links.ts';

/** Keeps the files that turns produced, as they were at the end of the turn, until their links expire. */
export interface Artifacts {
  /** Keeps copies. Leaves out files that are too large, do not exist, or are outside of the working directory. */
  keep(
    turn: ArtifactOrigin,
    paths: readonly string[],
    files: readonly (ProducedFile | FileElsewhere)[],
    outputs?: readonly LongOutput[],
  ): Promise<readonly Artifact[]>;
  /**
   * Returns the file of a signed path, or the link of another bridge. Throws for a path that is forged (403) or expired (410), and for a
   * file that no longer exists (404).
   */
  find(path: string): Promise<KeptFile | Extract<SignedFile, { path: string }>>;
  /** Deletes the files of a session. Their links then return 404. */
  removeSession(sessionKey: string): Promise<void>;
  /** Deletes files whose links have expired. */
  sweep(): Promise<void>;
}

export interface KeptFile {
  readonly row: ArtifactRow;
  /** Undefined: the file is in another data directory, that of `row.home`. */
  readonly file: string | undefined;
}

interface ArtifactOrigin {
  readonly owner: string;
  readonly sessionKey: string;
  readonly turnId: string;
  /** A real path. */
  readonly workingDirectory: string;
}

/** A text that is too long for the result. It is streamed to the disk, because it may be too large for memory. */
export interface LongOutput {
  /** Its file name without the extension. */
  readonly label: string;
  readonly chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

interface ArtifactsOptions {
  readonly folder: string;
  /** The data directory of this bridge, where others share the database. */
  readonly home?: string;
  /** Opens working directories. */
  readonly confine: Confine;
  readonly store: ArtifactStore;
  /** What the copies of all owners, and those of one, may take. */
  readonly maxBytes: number;
  readonly maxBytesOfOwner: number;
  readonly links: ArtifactLinks;
  readonly clock: Pick<Clock, 'now'>;
  readonly makeId: MakeId;
  readonly logger: Pick<Logger, 'warn'>;
}

/** How long a link is valid. */
const LINK_MS = 24 * 3_600_000;
const MAX_FILES = 20;
const CHUNK_BYTES = 256 * 1024;
const SWEEP_STEP = 500;

interface Copied {
  readonly sizeBytes: number;
  readonly sha256: string;
}

export function createArtifacts(options: ArtifactsOptions): Artifacts {
  const { folder, store, links, clock, makeId, logger } = options;

  async function keepOne(
    { owner, sessionKey, turnId }: ArtifactOrigin,
    name: string | (() => string),
    givenType: string,
    write: (file: string) => Promise<Copied>,
  ): Promise<Artifact> {
    const id = makeId('art_');
    const file = join(folder, id);
    const { sizeBytes, sha256 } = await write(file);
    const relativePath = typeof name === 'string' ? name : name();
    const contentType = contentTypeOf(relativePath, givenType);
    await makeRoom(owner, sizeBytes).catch(removing(file));
    const now = clock.now();
    const expiresAt = now + LINK_MS;
    const label = basename(relativePath);
    await store
      .insert({
        id,
        owner,
        tenant: TENANT,
        session_key: sessionKey,
        turn_id: turnId,
        relative_path: JSON.stringify(relativePath),
        content_type: contentType,
        size_bytes: sizeBytes,
        sha256,
        created_at: now,
        expires_at: expiresAt,
        home: options.home ?? '',
      })
      .catch(removing(file));
    return { relativePath, label, contentType, sizeBytes, sha256, downloadUrl: links.sign(id, label, expiresAt) };
  }

  /** Returns a handler that removes a copy whose row was not stored. */
  function removing(file: string): (error: unknown) => Promise<never> {
    return async (error) => {
      await rm(file, { force: true });
      throw error;
    };
  }

  async function removeFiles(ids: readonly string[]): Promise<void> {
    await store.remove(ids);
    for (const id of ids) await rm(join(folder, id), { force: true });
  }

  /** Removes the oldest copies: of the owner while it is over its limit, then of the owner with the most bytes. */
  async function makeRoom(owner: string, wanted: number): Promise<void> {
    if (wanted > Math.min(options.maxBytes, options.maxBytesOfOwner)) throw new AppError('STORAGE_FULL');
    const bytesOf = new Map(await store.bytesByOwner());
    for (;;) {
      const own = (bytesOf.get(owner) ?? 0) + wanted;
      const all = [...bytesOf.values()].reduce((sum, bytes) => sum + bytes, wanted);
      if (own <= options.maxBytesOfOwner && all <= options.maxBytes) return;
      const [heaviest = owner] = [...bytesOf].toSorted(([, a], [, b]) => b - a)[0] ?? [];
      const from = own > options.maxBytesOfOwner ? owner : heaviest;
      const [oldest] = await store.oldest(from, 1);
      if (oldest === undefined) throw new AppError('STORAGE_FULL');
      await removeFiles([oldest.id]);
      bytesOf.set(from, (bytesOf.get(from) ?? 0) - oldest.size_bytes);
    }
  }

  async function keepPath(origin: ArtifactOrigin, path: string, room: number): Promise<Artifact | undefined> {
    return withFile(options.confine(origin.workingDirectory), path, async ({ path: real, handle, size }) => {
      if (size > room) return undefined;
      const relativePath = relative(origin.workingDirectory, real);
      const copy = (file: string) => writeCopy(file, readChunks(handle, room));
      return keepOne(origin, relativePath, '', copy);
    }).catch(notKept(origin));
  }

  /** Keeps as much of a long text as there is room for. If it is cut, the file name says so. */
  function keepOutput(
    origin: ArtifactOrigin,
    { label, chunks }: LongOutput,
    room: number,
    taken: ReadonlyMap<string, unknown>,
  ): Promise<Artifact | undefined> {
    let isCut = false;
    async function* fitting(): AsyncGenerator<Uint8Array> {
      let left = room;
      for await (const chunk of chunks) {
        isCut = chunk.length > left;
        yield isCut ? wholeCharacters(chunk, left) : chunk;
        if (isCut) return;
        left -= chunk.length;
      }
    }
    const name = () => freeName(`${label}${isCut ? '-beginning' : ''}.txt`, taken);
    return keepOne(origin, name, '', (file) => writeCopy(file, fitting())).catch(notKept(origin));
  }

  /** A file that stays on another bridge takes no room here: its link leads there through this bridge. */
  function linkElsewhere(
    { place, artifact }: FileElsewhere,
    taken: ReadonlyMap<string, unknown>,
  ): Artifact | undefined {
    const downloadUrl = links.relay(place, artifact.downloadUrl);
    if (downloadUrl === undefined) return undefined;
    const relativePath = freeName(artifact.relativePath, taken);
    return { ...artifact, relativePath, contentType: contentTypeOf(relativePath, artifact.contentType), downloadUrl };
  }

  /** Logs that a file was not kept. The outcome of the turn stays the same. */
  function notKept({ turnId }: ArtifactOrigin): (error: unknown) => undefined {
    return (error) =>
      void logger.warn({ turnId, reason: errorCode(error) }, 'a file that a turn produced was not kept');
  }

  return {
    async keep(origin, paths, files, outputs = []) {
      if (paths.length === 0 && files.length === 0 && outputs.length === 0) return [];
      await mkdir(folder, { recursive: true, mode: 0o700 }).catch(notKept(origin));
      const kept = new Map<string, Artifact>();
      let room = MAX_ARTIFACT_BYTES;
      const add = (artifact: Artifact | undefined, isElsewhere = false): void => {
        if (artifact === undefined || kept.has(artifact.relativePath)) return;
        kept.set(artifact.relativePath, artifact);
        room -= isElsewhere ? 0 : artifact.sizeBytes;
      };
      for (const produced of files.slice(0, MAX_FILES)) {
        if ('place' in produced) {
          add(linkElsewhere(produced, kept), true);
          continue;
        }
        const { label, contentType, bytes } = produced;
        if (bytes.length > room) continue;
        const name = basename(label.replaceAll('\\', '/')).replaceAll(/\p{Cc}/gu, '') || 'file';
        const free = freeName(name, kept);
        const copy = (file: string) => writeCopy(file, [bytes]);
        add(await keepOne(origin, free, contentType, copy).catch(notKept(origin)));
      }
      for (const path of paths) if (kept.size < MAX_FILES) add(await keepPath(origin, path, room));
      // A long text does not take the room of the files that the turn was about.
      room = Math.min(MAX_ARTIFACT_BYTES, options.maxBytes, options.maxBytesOfOwner);
      for (const output of outputs.slice(0, MAX_FILES)) add(await keepOutput(origin, output, room, kept));
      return [...kept.values()];
    },
    async find(path) {
      const link = links.read(path);
      if (link === undefined) throw new AppError('ARTIFACT_LINK_INVALID');
      if (link.expiresAt <= clock.now()) throw new AppError('ARTIFACT_EXPIRED');
      if ('place' in link) return link;
      const row = await store.find(link.artifactId);
      if (row === undefined) throw new AppError('NOT_FOUND');
      if (row.home !== (options.home ?? '') && row.home !== '') return { row, file: undefined };
      const file = join(folder, row.id);
      const found = await lstat(file).catch(() => undefined);
      if (found?.isFile() !== true || found.size !== row.size_bytes) throw new AppError('NOT_FOUND');
      return { row, file };
    },
    removeSession: async (sessionKey) => removeFiles(await store.ofSession(sessionKey)),
    async sweep() {
      const now = clock.now();
      for (let more = true; more; ) more = (await store.deleteExpired(now, SWEEP_STEP)) === SWEEP_STEP;
      const names = await readdir(folder).catch(() => []);
      for (const name of names) {
        const file = join(folder, name);
        const found = await stat(file).catch(() => undefined);
        if (found !== undefined && found.mtimeMs < now - LINK_MS) await rm(file, { force: true });
      }
    },
  };
}

/** The beginning of a text in UTF-8, at most that many bytes, without the first bytes of a character that does not fit. */
function wholeCharacters(text: Uint8Array, maxBytes: number): Uint8Array {
  let end = maxBytes;
  while (end > 0 && ((text[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return text.subarray(0, end);
}

function freeName(name: string, taken: ReadonlyMap<string, unknown>): string {
  for (let count = 2, free = name; ; count += 1) {
    if (!taken.has(free)) return free;
    free = `${count}-${name}`;
  }
}

async function* readChunks(handle: FileHandle, most: number): AsyncGenerator<Uint8Array> {
  const buffer = Buffer.alloc(CHUNK_BYTES);
  for (let total = 0; ; ) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, null);
    if (bytesRead === 0) return;
    total += bytesRead;
    // The file grew while it was read, so the program that writes it has not finished.
    if (total > most) throw new AppError('TOOL_CALL_REFUSED', { reason: 'the file is too large' });
    yield buffer.subarray(0, bytesRead);
  }
}

/** Writes a copy that is durable when this resolves; removes an incomplete one. */
async function writeCopy(file: string, chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<Copied> {
  const digest = createHash('sha256');
  let sizeBytes = 0;
  const handle = await open(file, 'wx', 0o600);
  try {
    for await (const chunk of chunks) {
      digest.update(chunk);
      sizeBytes += chunk.length;
      await handle.writeFile(chunk);
    }
    await handle.sync();
    return { sizeBytes, sha256: digest.digest('hex') };
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}

const TYPES: Readonly<Record<string, string>> = {
  '.csv': 'text/csv; charset=utf-8',
  '.gif': 'image/gif',
  '.htm': 'text/html; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.jpeg': 'image/jpeg',
  '.jpg': 'image/jpeg',
  '.json': 'application/json',
  '.md': 'text/markdown; charset=utf-8',
  '.mp3': 'audio/mpeg',
  '.mp4': 'video/mp4',
  '.pdf': 'application/pdf',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.wav': 'audio/wav',
  '.webp': 'image/webp',
  '.xml': 'application/xml',
  '.zip': 'application/zip',
};
const ANY = 'application/octet-stream';
const SHAPE = /^[a-z]{1,20}\/[a-z0-9.+-]{1,80}$/;

/** The type that was given, if it is well-formed; otherwise by the file name. */
export function contentTypeOf(name: string, given = ''): string {
  const said = given.toLowerCase().split(';')[0]?.trim() ?? '';
  return SHAPE.test(said) ? said : (TYPES[extname(name).toLowerCase()] ?? ANY);
}

/** The files that a turn wrote, according to its agent. */
interface ProducedPaths {
  note(event: AgentEvent): void;
  paths(): readonly string[];
}

const MAX_PATHS = 100;

/** Collects the locations of completed tool calls of kind `edit`. Texts and folders are not searched for files. */
export function createProducedPaths(): ProducedPaths {
  const found = new Set<string>();
  /** Some agents name the place when a call begins, and not again when it has ended. */
  const open = new Map<string, readonly string[]>();
  return {
    note(event) {
      if (event.kind !== 'tool_call') return;
      const { toolCallId, toolKind, status, locations } = event;
      const named = locations?.map(({ path }) => path) ?? open.get(toolCallId) ?? [];
      if (status === 'pending' || status === 'in_progress') {
        if (toolKind === 'edit' && named.length > 0 && open.size < MAX_PATHS) open.set(toolCallId, named);
        return;
      }
      const isEdit = toolKind === 'edit' || open.has(toolCallId);
      open.delete(toolCallId);
      if (status !== 'completed' || !isEdit) return;
      for (const path of named) if (found.size < MAX_PATHS) found.add(path);
    },
    paths: () => [...found],
  };
}
