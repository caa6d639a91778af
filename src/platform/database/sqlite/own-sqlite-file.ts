import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as delay } from 'node:timers/promises';
import { AppError, errorCode } from '../../errors/app-error.ts';
import { isBusy } from './sqlite-errors.ts';
import { makePrivateFile } from './sqlite-file.ts';

export interface Ownership {
  release(): void;
}

const ATTEMPTS_TO_READ_OWNER = 5;
const PAUSE_MS = 20;

/**
 * Claims a database file for this process: a server, or a command that works while no server runs. A second one is
 * refused with STORAGE_IN_USE and the process id of the first. The claim is a lock of the operating system on an empty
 * file beside it (taken with SQLite, as Node has no call for it), so that it ends with the process, however that ends.
 */
export async function ownSqliteFile(file: string): Promise<Ownership> {
  const ownerFile = `${file}.pid`;
  const lock = await openLock(`${file}.lock`);
  try {
    lock.exec('BEGIN EXCLUSIVE');
    writeFileSync(ownerFile, `${process.pid}\n`, { mode: 0o600 });
  } catch (error) {
    lock.close();
    if (!isBusy(error)) throw new AppError('STORAGE_UNAVAILABLE', {}, { cause: error });
    throw new AppError('STORAGE_IN_USE', { file, pid: await readOwner(ownerFile) });
  }
  let released = false;
  return {
    release() {
      if (released) return;
      released = true;
      rmSync(ownerFile, { force: true });
      lock.close();
    },
  };
}

async function openLock(file: string): Promise<DatabaseSync> {
  try {
    await makePrivateFile(file);
    return new DatabaseSync(file, { timeout: 0 });
  } catch (cause) {
    throw new AppError('STORAGE_UNAVAILABLE', {}, { cause });
  }
}

/** The owner writes its number just after it has got the lock, so it may not be there yet, or be that of a dead one. */
async function readOwner(file: string): Promise<number | string> {
  for (let attempt = 1; attempt <= ATTEMPTS_TO_READ_OWNER; attempt += 1) {
    const pid = readNumber(file);
    if (pid !== undefined && isRunning(pid)) return pid;
    await delay(PAUSE_MS);
  }
  return 'unknown';
}

function readNumber(file: string): number | undefined {
  try {
    const pid = Number.parseInt(readFileSync(file, 'utf8'), 10);
    return Number.isSafeInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // It runs, but belongs to someone else.
    return errorCode(error) === 'EPERM';
  }
}
