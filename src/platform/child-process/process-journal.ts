import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode } from '../errors/app-error.ts';
import {
  endProcessTree,
  isRunning,
  type ProcessIdentity,
  type ProcessLeader,
  readBootId,
  readProcess,
} from './process-table.ts';

interface JournalEntry {
  readonly child: ProcessLeader;
  readonly owner: ProcessIdentity;
  readonly bootId: string;
  /** For whoever looks into the folder. */
  readonly command: string;
}

/** Notes a running child in a folder, so that the next start finds it should we be killed. The result takes it out again. */
export function noteProcess(folder: string, child: ProcessLeader, command: string): () => void {
  const owner = readProcess(process.pid);
  if (owner === undefined || child.startTime === 0) return () => undefined;
  const file = join(folder, `${child.pid}-${child.startTime}.json`);
  const entry: JournalEntry = {
    child,
    owner: { pid: owner.pid, startTime: owner.startTime },
    bootId: readBootId(),
    command,
  };
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  // Written at once rather than in the background: between the child's start and its note we must not be killed.
  writeFileSync(file, JSON.stringify(entry), { mode: 0o600 });
  return () => rmSync(file, { force: true });
}

/** Ends what an earlier run that was killed left behind; returns how many process trees that were. For the start. */
export async function sweepLeftovers(folder: string): Promise<number> {
  const bootId = readBootId();
  const swept = await Promise.all(listFolder(folder).map((name) => sweepEntry(join(folder, name), bootId)));
  return swept.filter((ended) => ended).length;
}

async function sweepEntry(file: string, bootId: string): Promise<boolean> {
  const entry = readEntry(file);
  if (entry?.bootId === bootId) {
    if (isRunning(entry.owner)) return false;
    const gone = await endProcessTree(entry.child, () => 0);
    if (!gone) return false;
  }
  rmSync(file, { force: true });
  return entry?.bootId === bootId;
}

function listFolder(folder: string): readonly string[] {
  try {
    return readdirSync(folder).filter((name) => /^\d+-\d+\.json$/.test(name));
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

function readEntry(file: string): JournalEntry | undefined {
  try {
    const entry: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return isEntry(entry) ? entry : undefined;
  } catch {
    return undefined;
  }
}

function isEntry(value: unknown): value is JournalEntry {
  if (typeof value !== 'object' || value === null) return false;
  const { child, owner, bootId } = value as Partial<Record<string, unknown>>;
  return isLeader(child) && isIdentity(owner) && typeof bootId === 'string';
}

function isLeader(value: unknown): value is ProcessLeader {
  return isIdentity(value) && ['string', 'undefined'].includes(typeof (value as ProcessLeader).mark);
}

function isIdentity(value: unknown): value is ProcessIdentity {
  if (typeof value !== 'object' || value === null) return false;
  const { pid, startTime } = value as Partial<Record<string, unknown>>;
  // Signals to 0, 1 or a negative number would reach far more than one process.
  return Number.isInteger(pid) && Number(pid) > 1 && Number.isInteger(startTime);
}
