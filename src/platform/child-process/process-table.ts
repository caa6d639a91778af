import { readdirSync, readFileSync } from 'node:fs';

/** A process, told from a later one with the same number by the moment it was started. */
export interface ProcessIdentity {
  readonly pid: number;
  /** In ticks since the machine's start; 0 where the system has no /proc. */
  readonly startTime: number;
}

export interface ProcessEntry extends ProcessIdentity {
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

export function isRunning({ pid, startTime }: ProcessIdentity): boolean {
  return readProcess(pid)?.startTime === startTime;
}

/** Changes with every start of the machine, after which process numbers mean nothing. Empty without /proc. */
export function readBootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
  } catch {
    return '';
  }
}

/**
 * All living processes that came from a leader which had a session of its own: those of its group and session, also
 * after the leader has ended, and the descendants that moved to a session of their own while their parents live, or that
 * were `seen` before.
 */
export function readProcessTree(
  leader: ProcessIdentity,
  seen: readonly ProcessIdentity[] = [],
): readonly ProcessEntry[] {
  const table = readTable();
  const tree = new Map<number, ProcessEntry>();
  for (const { pid, startTime } of seen) {
    const entry = table.get(pid);
    if (entry?.startTime === startTime) tree.set(pid, entry);
  }
  const first = table.get(leader.pid);
  // Otherwise the number was given away again, which the kernel does only after the last of the old group has ended.
  if (first === undefined || first.startTime === leader.startTime) {
    for (const entry of table.values()) {
      const related = entry.group === leader.pid || entry.session === leader.pid;
      if (related && entry.startTime >= leader.startTime) tree.set(entry.pid, entry);
    }
  }
  for (let size = -1; size !== tree.size; ) {
    size = tree.size;
    for (const entry of table.values()) if (tree.has(entry.parent)) tree.set(entry.pid, entry);
  }
  return [...tree.values()];
}

function readTable(): Map<number, ProcessEntry> {
  const table = new Map<number, ProcessEntry>();
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    const entry = Number.isInteger(pid) ? readProcess(pid) : undefined;
    if (entry !== undefined) table.set(pid, entry);
  }
  return table;
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
