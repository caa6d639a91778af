import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What one program with all that comes from it may use. */
export interface SandboxLimits {
  readonly processes: number;
  readonly memoryBytes: number;
  /** Processor time, in percent of one core; 0: not limited. */
  readonly cpuPercent: number;
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
  readonly cpu: 'cgroup' | 'none';
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
  const places = groupPlaces(root).filter(canCreate);
  const has = (...files: readonly string[]) =>
    places.some(({ limits }) => limits(TRIED).some(([file]) => files.includes(file)));
  const works = has('pids.max');
  return {
    createGroup: works ? (limits) => createIn(places, limits) : () => undefined,
    processes: works ? 'cgroup' : isRoot ? 'none' : 'rlimit',
    memory: works && has('memory.max') ? 'cgroup' : 'rlimit',
    cpu: works && has('cpu.max', 'cpu.cfs_quota_us') ? 'cgroup' : 'none',
  };
}

const TRIED: SandboxLimits = { processes: 1000, memoryBytes: 1024 ** 4, cpuPercent: 100, temporaryBytes: 0 };

/** Makes a group that nothing joins, only to find out whether it can be made. */
function canCreate(place: GroupPlace): boolean {
  const group = createIn([place], TRIED);
  group?.remove();
  return group !== undefined;
}

/**
 * Version 2: beside our own group, in a group that was delegated to us (systemd: `Delegate=yes`, `DelegateSubgroup=main`).
 * Version 1: below our own groups for processes and for processor time; its memory is left alone.
 */
function groupPlaces(root: string): readonly GroupPlace[] {
  let lines: readonly string[];
  try {
    lines = readFileSync('/proc/self/cgroup', 'utf8').trim().split('\n');
  } catch {
    return [];
  }
  const found: GroupPlace[] = [];
  for (const line of lines) {
    const [number = '', controllers = '', path = '/'] = line.split(':');
    for (const controller of controllers.split(',')) {
      const limits = VERSION_1[controller];
      const folder = join(root, controller, path);
      if (limits !== undefined && existsSync(folder)) found.push({ folder, limits });
    }
    if (number === '0' && path !== '/' && existsSync(join(root, 'cgroup.controllers'))) {
      const folder = join(root, dirname(path));
      if (!enables(folder, '+pids +memory')) continue;
      const isTimed = enables(folder, '+cpu');
      found.push({ folder, limits: (limits) => [...VERSION_2(limits), ...(isTimed ? timeLimits(limits) : [])] });
    }
  }
  return found;
}

function enables(folder: string, controllers: string): boolean {
  try {
    writeFileSync(join(folder, 'cgroup.subtree_control'), controllers);
    return true;
  } catch {
    return false;
  }
}

/** Processor time is counted in periods of this length, as is usual. */
const PERIOD_US = 100_000;
const quota = (percent: number) => String(Math.round((percent / 100) * PERIOD_US));

const VERSION_1: Readonly<Record<string, GroupPlace['limits']>> = {
  pids: ({ processes }) => [['pids.max', String(processes)]],
  // The quota of a group that is not limited is left as it is, and the group is not made.
  cpu: ({ cpuPercent }) => (cpuPercent === 0 ? [] : [['cpu.cfs_quota_us', quota(cpuPercent)]]),
};

const VERSION_2: GroupPlace['limits'] = ({ processes, memoryBytes }) => [
  ['pids.max', String(processes)],
  ['memory.max', String(memoryBytes)],
  ['memory.swap.max', '0'],
];

const timeLimits: GroupPlace['limits'] = ({ cpuPercent }) =>
  cpuPercent === 0 ? [] : [['cpu.max', `${quota(cpuPercent)} ${PERIOD_US}`]];

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
      const files = place.limits(limits);
      if (files.length === 0) continue;
      const folder = join(place.folder, `trestle-${randomUUID()}`);
      mkdirSync(folder);
      made.push(folder);
      for (const [file, value] of files) {
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
