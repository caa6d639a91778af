import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { errorCode } from '../errors/app-error.ts';

/** Not one of our settings, whose names begin with TRESTLE_: a Trestle that an agent starts must not take it for one. */
const MARK = '_CHILD_OF_TRESTLE';

/** A process, told from a later one with the same number by the moment it was started. */
export interface ProcessIdentity {
  readonly pid: number;
  /** In ticks since the machine's start; 0 where the system has no /proc. */
  readonly startTime: number;
}

/** The first process of a tree, which had a session of its own. */
export interface ProcessLeader extends ProcessIdentity {
  /** Stands in its environment, and so in that of all that come from it; nobody else has it. */
  readonly mark?: string;
}

interface ProcessEntry extends ProcessIdentity {
  readonly parent: number;
  readonly group: number;
  readonly session: number;
}

/** One living process; undefined when there is none of that number, or it only waits to be collected by its parent. */
export function readProcess(pid: number): ProcessEntry | undefined {
  try {
    return parseStat(pid, readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return undefined;
  }
}

function isRunning({ pid, startTime }: ProcessIdentity): boolean {
  return readProcess(pid)?.startTime === startTime;
}

/** Changes with every start of the machine, after which process numbers mean nothing. Empty without /proc. */
function readBootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return '';
  }
}

/** The environment that marks what comes from a leader. */
export function markEnvironment(mark: string): Record<string, string> {
  return { [MARK]: mark };
}

/**
 * All living processes that came from a leader: those of its group and session, also after the leader has ended, those
 * that bear its mark, their descendants, and those that were `seen` before. Blocks the event loop for milliseconds: only for
 * the last moment of our own process; everything else uses `scanProcessTree`.
 */
export function readProcessTree(leader: ProcessLeader, seen: readonly ProcessIdentity[] = []): readonly ProcessEntry[] {
  const table = new Map<number, ProcessEntry>();
  for (const pid of readdirSync('/proc').map(Number).filter(Number.isInteger)) {
    const entry = readProcess(pid);
    if (entry !== undefined) table.set(pid, entry);
  }
  const isMarked = ({ pid }: ProcessEntry): boolean => {
    try {
      return bearsMark(readFileSync(`/proc/${pid}/environ`, 'latin1'), leader);
    } catch {
      // Of another user, or gone.
      return false;
    }
  };
  return findTree(table, leader, seen, isMarked);
}

/** Files of /proc that are read at the same time: each is answered by a thread, and the event loop runs on between them. */
const READ_AT_ONCE = 16;

/** The same without blocking the event loop. */
export async function scanProcessTree(
  leader: ProcessLeader,
  seen: readonly ProcessIdentity[] = [],
): Promise<readonly ProcessEntry[]> {
  const table = new Map<number, ProcessEntry>();
  const pids = (await readdir('/proc')).map(Number).filter(Number.isInteger);
  await inBatches(pids, async (pid) => {
    const entry = parseStat(pid, await readFile(`/proc/${pid}/stat`, 'latin1'));
    if (entry !== undefined) table.set(pid, entry);
  });
  const marked = new Set<number>();
  if (leader.mark !== undefined) {
    const younger = [...table.values()].filter(({ startTime }) => startTime >= leader.startTime);
    await inBatches(younger, async ({ pid }) => {
      if (bearsMark(await readFile(`/proc/${pid}/environ`, 'latin1'), leader)) marked.add(pid);
    });
  }
  return findTree(table, leader, seen, ({ pid }) => marked.has(pid));
}

/** Processes end while they are looked at, and some belong to other users: what cannot be read is left out. */
async function inBatches<Item>(items: readonly Item[], read: (item: Item) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += READ_AT_ONCE) {
    await Promise.allSettled(items.slice(at, at + READ_AT_ONCE).map(read));
  }
}

function findTree(
  table: ReadonlyMap<number, ProcessEntry>,
  leader: ProcessLeader,
  seen: readonly ProcessIdentity[],
  isMarked: (entry: ProcessEntry) => boolean,
): readonly ProcessEntry[] {
  const tree = new Map<number, ProcessEntry>();
  for (const { pid, startTime } of seen) {
    const entry = table.get(pid);
    if (entry?.startTime === startTime) tree.set(pid, entry);
  }
  const first = table.get(leader.pid);
  // Otherwise the number was given away again, which the kernel does only after the last of the old group has ended.
  const isSameGroup = first === undefined || first.startTime === leader.startTime;
  for (const entry of table.values()) {
    if (entry.startTime < leader.startTime) continue;
    const isRelated = isSameGroup && (entry.group === leader.pid || entry.session === leader.pid);
    if (isRelated || isMarked(entry)) tree.set(entry.pid, entry);
  }
  for (let size = -1; size !== tree.size; ) {
    size = tree.size;
    for (const entry of table.values()) if (tree.has(entry.parent)) tree.set(entry.pid, entry);
  }
  return [...tree.values()];
}

/** A process that moved to a session of its own and lost its parent is found by this alone. */
function bearsMark(environment: string, { mark }: ProcessLeader): boolean {
  return mark !== undefined && environment.split('\0').includes(`${MARK}=${mark}`);
}

function parseStat(pid: number, text: string): ProcessEntry | undefined {
  // The program's name stands in parentheses and may itself contain some.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, parent, group, session] = fields;
  if (state === 'Z' || state === 'X') return undefined;
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    startTime: Number(fields[19]),
  };
}

const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 50;
/** A process that hangs in the kernel does not even die of SIGKILL; we do not wait for it for ever. */
const MAX_WAIT_AFTER_KILL_MS = 10_000;

const hasProcessTable = existsSync('/proc/self/stat');

/** Ends a process and all that came from it: SIGTERM, and SIGKILL when `killAt()` (monotonic) has come. False: some is left. */
export async function endProcessTree(leader: ProcessLeader, killAt: () => number): Promise<boolean> {
  const started = performance.now();
  // One that moved to a session of its own and changed its environment cannot be traced once its parent has ended.
  let seen = await scanTree(leader, []);
  let asked = false;
  for (let wait = FIRST_PAUSE_MS; ; wait = Math.min(wait * 2, MAX_PAUSE_MS)) {
    const now = performance.now();
    const due = now >= killAt();
    if (due) signalTree(leader, seen, 'SIGKILL');
    else if (!asked) signalTree(leader, seen, 'SIGTERM');
    asked = true;
    // While the group lives there is no need to look who else does: one system call says so.
    if (due || !sendSignal(-leader.pid, 0)) {
      seen = await scanTree(leader, seen);
      if (hasProcessTable ? seen.length === 0 : !sendSignal(-leader.pid, 0)) return true;
    }
    if (now > Math.max(started, killAt()) + MAX_WAIT_AFTER_KILL_MS) return false;
    await pause(Math.max(1, Math.min(wait, due ? wait : killAt() - now)));
  }
}

async function scanTree(leader: ProcessLeader, seen: readonly ProcessIdentity[]): Promise<readonly ProcessEntry[]> {
  return hasProcessTable ? scanProcessTree(leader, seen) : [];
}

/** Synchronous: also for the last moment of our own process. */
export function killTree(leader: ProcessLeader): void {
  signalTree(leader, hasProcessTable ? readProcessTree(leader) : [], 'SIGKILL');
}

function signalTree(leader: ProcessLeader, tree: readonly ProcessEntry[], signal: NodeJS.Signals): void {
  // The group first and as one, so that nobody in it can start another child in between.
  if (!hasProcessTable || tree.some(({ group }) => group === leader.pid)) sendSignal(-leader.pid, signal);
  for (const { pid } of tree) if (pid !== leader.pid) sendSignal(pid, signal);
}

function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

interface JournalEntry {
  readonly child: ProcessLeader;
  readonly owner: ProcessIdentity;
  readonly bootId: string;
  /** For people who look into the folder. */
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
  // Written synchronously: between the child's start and its note we must not be killed.
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
