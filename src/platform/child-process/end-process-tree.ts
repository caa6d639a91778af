import { existsSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { type ProcessIdentity, readProcessTree } from './process-table.ts';

const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 50;
/** A process that hangs in the kernel does not even die of SIGKILL; we do not wait for it for ever. */
const LONGEST_WAIT_AFTER_KILL_MS = 10_000;

const hasProcessTable = existsSync('/proc/self/stat');

/** Ends a process and all that came from it: SIGTERM, and SIGKILL when `killAt()` (monotonic) has come. False: some is left. */
export async function endProcessTree(leader: ProcessIdentity, killAt: () => number): Promise<boolean> {
  const started = performance.now();
  let asked = false;
  for (let wait = FIRST_PAUSE_MS; ; wait = Math.min(wait * 2, LONGEST_PAUSE_MS)) {
    const now = performance.now();
    const due = now >= killAt();
    if (due) killTree(leader);
    else if (!asked) signalTree(leader, 'SIGTERM');
    asked = true;
    if (isGone(leader)) return true;
    if (now > Math.max(started, killAt()) + LONGEST_WAIT_AFTER_KILL_MS) return false;
    await pause(Math.max(1, Math.min(wait, due ? wait : killAt() - now)));
  }
}

/** At once, without waiting: also for the last moment of our own process. */
export function killTree(leader: ProcessIdentity): void {
  signalTree(leader, 'SIGKILL');
}

function signalTree(leader: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!hasProcessTable) {
    sendSignal(-leader.pid, signal);
    return;
  }
  const tree = readProcessTree(leader);
  // The group first and as one, so that nobody in it can start another child meanwhile.
  if (tree.length > 0) sendSignal(-leader.pid, signal);
  for (const { pid } of tree) if (pid !== leader.pid) sendSignal(pid, signal);
}

function isGone(leader: ProcessIdentity): boolean {
  return hasProcessTable ? readProcessTree(leader).length === 0 : !sendSignal(-leader.pid, 0);
}

function sendSignal(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
