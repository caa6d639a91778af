import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What one program with all that comes from it may use. */
export interface SandboxLimits {
  readonly processes: number;
  readonly memoryBytes: number;
  /** Of the private folder for temporary files, and of an empty home. */
  readonly temporaryBytes: number;
}

/** A control group for one program. */
interface ControlGroup {
  /** Files that a process writes `0` to in order to join. */
  readonly procs: readonly string[];
  /** Removes the group, once its last process has ended. */
  remove(): void;
}

/** How limits are enforced on this machine. */
export interface LimitEnforcement {
  /** Undefined: there are no control groups that we may use. */
  createGroup(limits: SandboxLimits): ControlGroup | undefined;
  readonly processes: 'cgroup' | 'rlimit' | 'none';
  readonly memory: 'cgroup' | 'rlimit';
}

/** A place where groups can be made, and the file that each limit is written to. */
interface GroupPlace {
  readonly folder: string;
  readonly limits: (limits: SandboxLimits) => readonly (readonly [file: string, value: string])[];
}

const CGROUPS = '/sys/fs/cgroup';

/**
 * Finds out which limits can be enforced. Control groups count a program with all that comes from it; without them, limits are
 * those of `prlimit`, and the kernel does not limit the number of processes of the system's root user that way.
 */
export function findLimitEnforcement(isRoot = process.getuid?.() === 0, root = CGROUPS): LimitEnforcement {
  const places = groupPlaces(root);
  const createGroup = (limits: SandboxLimits) => createIn(places, limits);
  // A group without any limit, made only to find out whether it can be.
  const works = places.length > 0 && canCreate(createGroup);
  const hasMemory = works && places.some(({ limits }) => limits(UNLIMITED).some(([file]) => file === 'memory.max'));
  return {
    createGroup: works ? createGroup : () => undefined,
    processes: works ? 'cgroup' : isRoot ? 'none' : 'rlimit',
    memory: hasMemory ? 'cgroup' : 'rlimit',
  };
}

const UNLIMITED: SandboxLimits = { processes: 1000, memoryBytes: 1024 ** 4, temporaryBytes: 0 };

function canCreate(createGroup: LimitEnforcement['createGroup']): boolean {
  const group = createGroup(UNLIMITED);
  group?.remove();
  return group !== undefined;
}

/**
 * Version 2: beside our own group, in a group that was delegated to us (systemd: `Delegate=yes`, `DelegateSubgroup=main`).
 * Version 1: below our own group of processes; its memory is left alone.
 */
function groupPlaces(root: string): readonly GroupPlace[] {
  let lines: readonly string[];
  try {
    lines = readFileSync('/proc/self/cgroup', 'utf8').trim().split('\n');
  } catch {
    return [];
  }
  for (const line of lines) {
    const [number = '', controllers = '', path = '/'] = line.split(':');
    const isProcesses = controllers.split(',').includes('pids');
    if (isProcesses) {
      const folder = join(root, 'pids', path);
      return existsSync(folder) ? [{ folder, limits: processLimits }] : [];
    }
    if (number === '0' && path !== '/' && existsSync(join(root, 'cgroup.controllers'))) {
      const folder = join(root, dirname(path));
      return enablesControllers(folder) ? [{ folder, limits: allLimits }] : [];
    }
  }
  return [];
}

function enablesControllers(folder: string): boolean {
  try {
    writeFileSync(join(folder, 'cgroup.subtree_control'), '+pids +memory');
    return true;
  } catch {
    return false;
  }
}

const processLimits: GroupPlace['limits'] = ({ processes }) => [['pids.max', String(processes)]];
const allLimits: GroupPlace['limits'] = (limits) => [
  ...processLimits(limits),
  ['memory.max', String(limits.memoryBytes)],
  ['memory.swap.max', '0'],
];

function createIn(places: readonly GroupPlace[], limits: SandboxLimits): ControlGroup | undefined {
  const made: string[] = [];
  const remove = (): void => {
    for (const folder of made) {
      try {
        rmdirSync(folder);
      } catch {
        // A process of it still ends. An empty group costs nothing.
      }
    }
  };
  try {
    for (const place of places) {
      const folder = join(place.folder, `trestle-${randomUUID()}`);
      mkdirSync(folder);
      made.push(folder);
      for (const [file, value] of place.limits(limits)) {
        // Machines without swap have no file for it.
        if (existsSync(join(folder, file))) writeFileSync(join(folder, file), value);
      }
    }
    return { procs: made.map((folder) => join(folder, 'cgroup.procs')), remove };
  } catch {
    remove();
    return undefined;
  }
}
