import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import {
  type ProcessEntry,
  type ProcessIdentity,
  type ProcessLeader,
  readProcessTree,
  scanProcessTree,
} from './process-table.ts';

const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 50;
/** A process that hangs in the kernel does not even die of SIGKILL; we do not wait for it for ever. */
const LONGEST_WAIT_AFTER_KILL_MS = 10_000;

const hasProcessTable = existsSync('/proc/self/stat');

/** Ends a process and all that came from it: SIGTERM, and SIGKILL when `killAt()` (monotonic) has come. False: some is left. */
export async function endProcessTree(leader: ProcessLeader, killAt: () => number): Promise<boolean> {
  const started = performance.now();
  // One that moved to a session of its own and changed its environment cannot be traced once its parent has ended.
  let seen = await scanTree(leader, []);
  let asked = false;
  for (let wait = FIRST_PAUSE_MS; ; wait = Math.min(wait * 2, LONGEST_PAUSE_MS)) {
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
    if (now > Math.max(started, killAt()) + LONGEST_WAIT_AFTER_KILL_MS) return false;
    await pause(Math.max(1, Math.min(wait, due ? wait : killAt() - now)));
  }
}

async function scanTree(leader: ProcessLeader, seen: readonly ProcessIdentity[]): Promise<readonly ProcessEntry[]> {
  return hasProcessTable ? scanProcessTree(leader, seen) : [];
}

/** At once, without waiting: also for the last moment of our own process. */
export function killTree(leader: ProcessLeader): void {
  signalTree(leader, hasProcessTable ? readProcessTree(leader) : [], 'SIGKILL');
}

function signalTree(leader: ProcessLeader, tree: readonly ProcessEntry[], signal: NodeJS.Signals): void {
  // The group first and as one, so that nobody in it can start another child meanwhile.
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
