import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { link, mkdir, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { repeat } from '../../platform/clock/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { asObject } from '../agents/agent-text.ts';
import { type Confine, type ConfinedRoot, openFolder, withFile } from '../agents/builtin/tools/confinement.ts';
import { MAX_TEXT_BYTES, type PlacedFile } from '../agents/prompt-content.ts';
import { contentTypeOf } from '../artifacts/create-artifacts.ts';
import { MAX_INLINE_BYTES, type UploadedAttachment } from '../contract/session.ts';
import { TENANT } from '../principal.ts';
import type { AttachmentRow, BridgeSchema } from '../storage/bridge-schema.ts';
import { createAttachmentStore } from '../storage/file-stores.ts';
import {
  ATTACHMENT_FOLDER,
  type AttachmentParams,
  freeName,
  type GivenFile,
  imageType,
  isShownAsText,
  namesUploads,
  readGivenFiles,
  refused,
  requireFew,
  safeName,
} from './given-files.ts';

/** Keeps files that are sent with prompts: uploads, and files inside of a call. */
export interface Attachments {
  /** Keeps a file for 24 hours. Throws ATTACHMENTS_FULL. */
  upload(owner: string, name: string, contentType: string, bytes: Buffer): Promise<UploadedAttachment>;
  /** Throws ATTACHMENT_NOT_FOUND unless the owner has all of the uploads. */
  check(owner: string, files: readonly GivenFile[]): Promise<void>;
  /** Puts the files of a turn where its agent can read them, in a folder of the session. */
  place(target: PlaceTarget, files: readonly GivenFile[]): Promise<readonly PlacedFile[]>;
  /** Turns the files of a job into uploads that are kept until the job has run. */
  forJob(owner: string, params: AttachmentParams, until: number): Promise<AttachmentParams>;
  /** Returns the params of a call for another bridge, with the content of uploads, because that bridge does not have them. */
  inCall(owner: string, params: unknown): Promise<unknown>;
  stop(): Promise<void>;
}

interface PlaceTarget {
  readonly owner: string;
  /** The private folder of the session. */
  readonly folder: string;
  /** Where programs in the sandbox find the same files. Undefined: they see the private folder. */
  readonly shelf?: string | undefined;
  readonly turnId: string;
}

interface AttachmentsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly database: Database<BridgeSchema>;
  /** Where uploads are kept. */
  readonly folder: string;
  readonly confine: Confine;
  readonly maxBytesOfOwner: number;
  /** The data directory of this bridge, where others share the database. */
  readonly home?: string;
  /** Reads an upload that is in the data directory of another instance. Undefined: there are no others. */
  readElsewhere?: ((row: AttachmentRow) => Promise<Buffer>) | undefined;
}

const KEPT_MS = 24 * 3_600_000;
const SWEEP_PAUSE_MS = 10 * 60_000;
const SWEEP_STEP = 200;
const HEAD_BYTES = 16;
export function createAttachments(options: AttachmentsOptions): Attachments {
  const { folder, confine, clock, makeId, logger } = options;
  const store = createAttachmentStore(options.database);
  const fileOf = (id: string) => join(folder, id);
  /** Uploads are counted one after the other, so that simultaneous ones cannot exceed the limit. */
  let counted: Promise<unknown> = Promise.resolve();

  async function removeFiles(ids: readonly string[]): Promise<void> {
    await store.remove(ids);
    for (const id of ids) await rm(fileOf(id), { force: true });
  }

  /** Removes uploads that were used, oldest first, because their sessions have copies. */
  async function makeRoom(owner: string, wanted: number): Promise<void> {
    const limit = options.maxBytesOfOwner;
    let used = await store.bytesOf(owner);
    while (used + wanted > limit) {
      const oldest = await store.oldestUsed(owner, clock.now() + KEPT_MS);
      if (oldest === undefined) throw new AppError('ATTACHMENTS_FULL', { used, limit });
      await removeFiles([oldest.id]);
      used -= oldest.size_bytes;
    }
  }

  function upload(owner: string, name: string, given: string, bytes: Buffer, keptMs = KEPT_MS) {
    const result = counted.then(async (): Promise<UploadedAttachment> => {
      if (bytes.length === 0) throw refused('the file is empty');
      await makeRoom(owner, bytes.length);
      const now = clock.now();
      const shownName = safeName(name);
      const row: AttachmentRow = {
        id: makeId('att_'),
        owner,
        tenant: TENANT,
        name: JSON.stringify(shownName),
        content_type: typeOf(shownName, given),
        size_bytes: bytes.length,
        sha256: createHash('sha256').update(bytes).digest('hex'),
        used_at: null,
        created_at: now,
        expires_at: now + keptMs,
        home: options.home ?? '',
      };
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeFile(fileOf(row.id), bytes, { flag: 'wx', mode: 0o600, flush: true });
      await store.insert(row).catch(async (error: unknown) => {
        await rm(fileOf(row.id), { force: true });
        throw error;
      });
      const { content_type: contentType, size_bytes: sizeBytes, sha256, expires_at: expiresAt } = row;
      return { attachmentId: row.id, name: shownName, contentType, sizeBytes, sha256, expiresAt };
    });
    counted = result.catch(() => undefined);
    return result;
  }

  /** The rows of uploads, by id. Throws ATTACHMENT_NOT_FOUND for one that the owner does not have. */
  async function findStored(owner: string, ids: readonly string[]): Promise<ReadonlyMap<string, AttachmentRow>> {
    if (ids.length === 0) return new Map();
    const rows = await store.find(ids);
    const now = clock.now();
    const own = new Map(rows.filter((row) => row.owner === owner && row.expires_at > now).map((row) => [row.id, row]));
    const missing = ids.find((id) => !own.has(id));
    if (missing !== undefined) throw new AppError('ATTACHMENT_NOT_FOUND', { attachmentId: missing });
    return own;
  }

  async function readStored(row: AttachmentRow): Promise<Buffer> {
    const { id, home } = row;
    const isElsewhere = home !== '' && home !== options.home;
    try {
      if (isElsewhere && options.readElsewhere !== undefined) return await options.readElsewhere(row);
      return await readFile(fileOf(id));
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' && errorCode(error) !== 'NOT_FOUND') throw error;
      throw new AppError('ATTACHMENT_NOT_FOUND', { attachmentId: id });
    }
  }

  /** Writes the files where the agent can read them. Links in the path are not followed, because an agent may have created them. */
  async function place({ owner, folder: own, shelf: shelves, turnId }: PlaceTarget, files: readonly GivenFile[]) {
    const rows = await findStored(owner, storedIds(files));
    const target = await openFolder(confine(own), [ATTACHMENT_FOLDER, turnId], { create: true }).catch(notAFolder);
    const shelf = shelves === undefined ? undefined : join(shelves, turnId);
    if (shelf !== undefined) await mkdir(shelf, { recursive: true, mode: 0o700 });
    const taken = new Set<string>();
    const placed: PlacedFile[] = [];
    try {
      for (const file of files) {
        if (file.kind === 'unsent') {
          const { name, path } = file;
          placed.push({ name, contentType: '', sizeBytes: 0, path, kind: 'unsent', read: async () => Buffer.alloc(0) });
          continue;
        }
        const row = file.kind === 'stored' ? rows.get(file.attachmentId) : undefined;
        const bytes = file.kind === 'bytes' ? file.bytes : row === undefined ? undefined : await readStored(row);
        if (bytes === undefined) continue;
        const name = freeName(row === undefined ? nameOf(file) : (JSON.parse(row.name) as string), taken);
        const given = row?.content_type ?? typeOf(name, file.kind === 'bytes' ? file.contentType : '');
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
        const handle = await open(target.entry(name), flags, 0o600);
        await handle.writeFile(bytes).finally(() => handle.close());
        const sizeBytes = bytes.length;
        const read = () => readPlaced(confine(own), join(ATTACHMENT_FOLDER, turnId, name), sizeBytes);
        const fencedPath = shelf === undefined ? undefined : join(shelf, name);
        // A hard link needs no more space, and programs in the sandbox cannot change the file through it.
        if (fencedPath !== undefined) await link(target.entry(name), fencedPath);
        placed.push({ name, sizeBytes, path: join(target.path, name), fencedPath, ...kindOf(given, bytes), read });
      }
    } finally {
      await target.close();
    }
    await store.use([...rows.keys()], clock.now());
    return placed;
  }

  const sweeping = repeat({
    clock,
    pauseMs: SWEEP_PAUSE_MS,
    async work(signal) {
      const now = clock.now();
      for (let more = true; more && !signal.aborted; ) {
        const ids = await store.expired(now, SWEEP_STEP);
        await removeFiles(ids);
        more = ids.length === SWEEP_STEP;
      }
      await removeOrphans(now, signal);
    },
    onError: (error) => logger.warn({ err: error }, 'old attachments could not be deleted'),
  });

  /** Files whose row was not stored, because the bridge died in between. */
  async function removeOrphans(now: number, signal: AbortSignal): Promise<void> {
    for (const name of await readdir(folder).catch(() => [])) {
      if (signal.aborted) return;
      const found = await stat(fileOf(name)).catch(() => undefined);
      if (found === undefined || found.mtimeMs > now - KEPT_MS) continue;
      if ((await store.find([name])).length === 0) await rm(fileOf(name), { force: true });
    }
  }

  return {
    upload: (owner, name, contentType, bytes) => upload(owner, name, contentType, bytes),
    async check(owner, files) {
      await findStored(owner, storedIds(files));
    },
    place: async (target, files) => (files.length === 0 ? [] : place(target, files)),
    async forJob(owner, params, until) {
      const files = readGivenFiles(params);
      if (files.length === 0) return {};
      const keptMs = Math.max(KEPT_MS, until - clock.now() + KEPT_MS);
      const rows = await findStored(owner, storedIds(files));
      const attachments: NonNullable<AttachmentParams['attachments']> = [];
      for (const file of files) {
        if (file.kind === 'unsent') attachments.push({ name: file.name, path: file.path });
        else if (file.kind === 'stored') attachments.push({ attachmentId: file.attachmentId });
        else {
          const { attachmentId } = await upload(owner, file.name, file.contentType, file.bytes, keptMs);
          attachments.push({ attachmentId });
        }
      }
      await store.keep([...rows.keys()], clock.now() + keptMs);
      return { attachments };
    },
    async inCall(owner, params) {
      if (!namesUploads(params)) return params;
      const given = asObject(params).attachments as readonly unknown[];
      // No schema has checked the call yet: that node will.
      requireFew(given);
      const ids = given.flatMap((one) => asObject(one).attachmentId ?? []).map(String);
      const rows = await findStored(owner, ids);
      // A file that is named twice is in the call twice.
      const bytes = ids.reduce((sum, id) => sum + (rows.get(id)?.size_bytes ?? 0), 0);
      if (bytes > MAX_INLINE_BYTES) {
        throw refused(
          `this session is on another bridge, which takes at most ${MAX_INLINE_BYTES} bytes of files with one call; send smaller ones`,
        );
      }
      const attachments = await Promise.all(
        given.map(async (one) => {
          const row = rows.get(String(asObject(one).attachmentId));
          if (row === undefined) return one;
          const data = (await readStored(row)).toString('base64');
          return { name: JSON.parse(row.name) as string, contentType: row.content_type, data };
        }),
      );
      await store.use([...rows.keys()], clock.now());
      return { ...asObject(params), attachments };
    },
    stop: sweeping.stop,
  };
}

function storedIds(files: readonly GivenFile[]): readonly string[] {
  return [...new Set(files.flatMap((file) => (file.kind === 'stored' ? [file.attachmentId] : [])))];
}

/** An agent that works in the folder may have put something else there. */
function notAFolder(error: unknown): never {
  const code = errorCode(error);
  if (code !== 'ELOOP' && code !== 'ENOTDIR' && code !== 'TOOL_CALL_REFUSED') throw error;
  throw refused(
    `"${ATTACHMENT_FOLDER}" in the private folder of the session is not a folder; have the agent remove it, or start another session`,
  );
}

function nameOf(file: GivenFile): string {
  return file.kind === 'stored' ? 'file' : file.name;
}

/** Matches the types that programs send when they do not know the type. */
const ANY_TYPE = /^application\/(?:octet-stream|x-www-form-urlencoded)\b/i;

function typeOf(name: string, given: string): string {
  const [plain = ''] = contentTypeOf(name, ANY_TYPE.test(given) ? '' : given).split(';');
  return plain;
}

/** Reads a placed file. The agent may have changed it: links are not followed, and no more bytes are read than were placed. */
function readPlaced(root: ConfinedRoot, path: string, sizeBytes: number): Promise<Buffer> {
  return withFile(root, path, async ({ handle, size }) => {
    if (size > sizeBytes) throw refused('the file has changed since it was given');
    return handle.readFile();
  });
}

function kindOf(given: string, bytes: Buffer): Pick<PlacedFile, 'kind' | 'contentType'> {
  const image = imageType(bytes.subarray(0, HEAD_BYTES));
  if (image !== undefined) return { kind: 'image', contentType: image };
  const isText = bytes.length <= MAX_TEXT_BYTES && isShownAsText(given, bytes);
  return { kind: isText ? 'text' : 'file', contentType: given };
}
