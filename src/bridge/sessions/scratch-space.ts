import { lstat, opendir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, pause } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';

/** The private folders of all sessions: how much they hold, and which of them belong to nobody any more. */
export interface ScratchSpace {
  /** Throws WORKING_DIRECTORY_REFUSED when the private folders of the owner hold too much, as of the last sweep. */
  check(owner: string): void;
  /** Removes folders whose session is gone, and measures the others. Ends soon after `signal` aborts. */
  sweep(signal: AbortSignal): Promise<void>;
}

export interface ScratchSpaceOptions {
  /** Holds one folder for each session, named by its key, and those of closed ones that are being removed. */
  readonly folder: string;
  /** In all, and of one owner. */
  readonly maxBytes: number;
  readonly maxBytesOfOwner: number;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  /** The owner of an open session; undefined when there is no such session. */
  ownerOf(sessionKey: string): Promise<string | undefined>;
}

/** Whoever makes a folder stores its session soon after; whoever closes one removes its folder soon after. */
const MIN_AGE_MS = 3_600_000;
/** Others use the disk between two folders. */
const PAUSE_MS = 5;
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
        await pause(clock, PAUSE_MS, signal);
      }
      bytesOf = found;
    },
  };

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
