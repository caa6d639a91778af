import { once } from 'node:events';
import { closeSync, constants, fstatSync, lstatSync, openSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { delimiter, isAbsolute } from 'node:path';
import type { Clock } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import type { Environment } from '../runtime/runtime.ts';
import { findExecutable } from './child-environment.ts';
import { findLimitEnforcement, type LimitEnforcement, type SandboxLimits } from './sandbox-limits.ts';
import { createSandboxNetworks, NETWORK_URL, type SandboxNetworks, type ServeOwn } from './sandbox-network.ts';
import { firstDescriptor, type ProcessOptions, type RunningProcess, startProcess } from './start-process.ts';

/** What a program sees of this machine, besides the system's own programs and libraries. Paths are the same inside. */
export interface Fence {
  /** The folder that the program works in. */
  readonly folder: string;
  /** `device:inode` of that folder; a folder that was put in its place since then is refused. */
  readonly identity: string;
  readonly isReadOnly: boolean;
  /** Where the program runs; inside `folder`. */
  readonly startIn: string;
  /** Where the program finds its home, and the folder that it finds there. Without `source` the home is empty and private. */
  readonly home: { readonly path: string; readonly source?: string };
  /** Further files and folders that can be read, as far as they exist. */
  readonly readable: readonly string[];
  /** Further files and folders that can be changed, as far as they exist. */
  readonly writable: readonly string[];
  /** What must not be seen although `folder` contains it. */
  readonly hidden: { readonly folders: readonly string[]; readonly files: readonly string[] };
  /** Inside a hidden folder, what can be read anyway. */
  readonly installation: readonly string[];
  /** The network that the program shares with others of this name. */
  readonly network: string;
}

export interface Sandbox {
  /** What is in force, for people. */
  readonly description: string;
  /** Starts a program behind a fence. */
  start(options: ProcessOptions, fence: Fence): Promise<RunningProcess>;
  stop(): Promise<void>;
}

/** Whether programs can be fenced in on this machine; if not, the reason and what to do. */
export type SandboxState =
  | { readonly works: true; readonly sandbox: Sandbox }
  | { readonly works: false; readonly reason: string };

export interface SandboxOptions {
  /** Path of bubblewrap's program. Empty: `bwrap` in PATH. */
  readonly program: string;
  readonly environment: Environment;
  readonly limits: SandboxLimits;
  /** Hosts that may be reached; see `SandboxNetworksOptions`. Empty: none. */
  readonly hosts: readonly string[];
  readonly serveOwn: ServeOwn;
  readonly clock: Pick<Clock, 'after'>;
}

const TRIAL_MS = 10_000;
const MAX_SAID = 20_000;
const MAX_REASON = 300;
/** The first version that can bound the size of a private folder. */
const MIN_VERSION = [0, 7] as const;

/** Finds the programs that a sandbox is made of, and tries it once. */
export async function openSandbox(options: SandboxOptions): Promise<SandboxState> {
  const { program, environment, clock } = options;
  if (process.platform !== 'linux') return { works: false, reason: 'it needs Linux' };
  const path = environment.PATH ?? '';
  const find = (name: string) =>
    findExecutable(name, `${path}${delimiter}/usr/bin${delimiter}/usr/sbin${delimiter}/bin`);
  const bubblewrap = await find(program === '' ? 'bwrap' : program);
  if (bubblewrap === undefined) {
    const reason =
      program === ''
        ? 'bubblewrap (bwrap) is not in PATH; install the package bubblewrap, or name its program in bridge.sandbox_program'
        : `there is no program ${program}; correct bridge.sandbox_program`;
    return { works: false, reason };
  }
  const [nsenter, prlimit] = await Promise.all([find('nsenter'), find('prlimit')]);
  if (nsenter === undefined || prlimit === undefined) {
    return { works: false, reason: 'nsenter and prlimit are not in PATH; install the package util-linux' };
  }
  const version = await run({ command: bubblewrap, args: ['--version'], cwd: '/', env: {} }, clock);
  const [major = 0, minor = 0] = version.output.replace(/^\D+/, '').split('.').map(Number);
  if (major === MIN_VERSION[0] && minor < MIN_VERSION[1]) {
    const needed = MIN_VERSION.join('.');
    return { works: false, reason: `bubblewrap ${major}.${minor} is too old; install ${needed} or newer` };
  }
  const help = await run({ command: bubblewrap, args: ['--help'], cwd: '/', env: {} }, clock);
  const enforcement = findLimitEnforcement();
  const networks = createSandboxNetworks({ ...options, bubblewrap });
  const tools = { bubblewrap, nsenter, prlimit };
  const bindsDescriptors = help.output.includes('--ro-bind-fd ');
  const sandbox = createSandbox({ ...options, tools, networks, enforcement, bindsDescriptors });
  const failure = await tryOut(sandbox, clock);
  if (failure === undefined) return { works: true, sandbox };
  await sandbox.stop();
  return { works: false, reason: `${bubblewrap} cannot create a sandbox here (${failure})` };
}

interface CreateSandboxOptions extends SandboxOptions {
  readonly tools: Tools;
  readonly networks: SandboxNetworks;
  readonly enforcement: LimitEnforcement;
  /** Whether bubblewrap mounts a folder that we hold open, and checks that it has mounted that one. */
  readonly bindsDescriptors: boolean;
}

interface Tools {
  readonly bubblewrap: string;
  readonly nsenter: string;
  readonly prlimit: string;
}

/**
 * Limits memory to kilobytes (0: not here), joins control groups, then becomes the program. Each argument from the second up to `--` is a file
 * to write to. The shell is needed for the groups anyway: another start of `prlimit` would take as long again.
 */
const JOIN =
  'ulimit -c 0 || exit 125; [ "$1" = 0 ] || ulimit -d "$1" || exit 125; shift; ' +
  'while [ "$1" != -- ]; do echo 0 >"$1" || exit 125; shift; done; shift; exec "$@"';
const REPLACED = 'the working directory was replaced';
/** Runs inside: refuses a folder that is not the one that was checked, then becomes the program. */
const CHECK = `[ "$(stat -c %d:%i "$1")" = "$2" ] || { echo "${REPLACED}" >&2; exit 125; }; shift 2; exec "$@"`;

function createSandbox(options: CreateSandboxOptions): Sandbox {
  const { tools, networks, enforcement, limits, bindsDescriptors } = options;
  const { mounts: system, files } = systemMounts();
  const path = (options.environment.PATH ?? '')
    .split(delimiter)
    .filter((place) => isAbsolute(place) && !isSystem(place));
  const surroundings = { system, path, temporaryBytes: limits.temporaryBytes };

  async function startBehind(given: ProcessOptions, fence: Fence, held: number | undefined): Promise<RunningProcess> {
    const network = await networks.hold(fence.network);
    const copied = openAll(files);
    const group = enforcement.createGroup(limits);
    const release = (): void => {
      network.release();
      group?.remove();
    };
    const check =
      held === undefined
        ? ['/bin/sh', '-c', CHECK, 'check', fence.folder, fence.identity, given.command]
        : [given.command];
    const [command = '', ...args] = [
      ...(group === undefined ? limitArguments(options) : joinArguments(group.procs, options)),
      ...[tools.nsenter, '--user', '--net', '--preserve-credentials', '--target', String(network.pid), '--'],
      tools.bubblewrap,
      ...fenceArguments(fence, { ...surroundings, isHeld: held !== undefined, copied }),
      ...['--', ...check, ...given.args],
    ];
    const env = fencedEnvironment(given, fence);
    const descriptors = [...(held === undefined ? [] : [held]), ...copied.map(({ fd }) => fd)];
    try {
      const started = await startProcess({ ...given, command, args, cwd: '/', env, descriptors });
      void started.exited.then(release);
      return started;
    } catch (error) {
      release();
      throw error;
    } finally {
      for (const { fd } of copied) closeSync(fd);
    }
  }

  return {
    description: describe(options),
    async start(given, fence) {
      const held = bindsDescriptors ? await holdFolder(given, fence) : undefined;
      try {
        return await startBehind(given, fence, held?.fd);
      } finally {
        // Not waited for: Node drops the output of a program that ends before anyone listens.
        void held?.close();
      }
    },
    stop: networks.stop,
  };
}

/** Opens the folder for bubblewrap. Throws PROCESS_NOT_STARTED when it is not the one that was checked. */
async function holdFolder({ command }: ProcessOptions, { folder, identity }: Fence): Promise<FileHandle> {
  const refused = (reason: string, cause?: unknown) =>
    new AppError('PROCESS_NOT_STARTED', { command, reason }, { cause });
  const held = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY).catch((cause: unknown) => {
    throw refused(`the working directory cannot be opened (${errorCode(cause)})`, cause);
  });
  const { dev, ino } = await held.stat({ bigint: true });
  if (`${dev}:${ino}` === identity) return held;
  await held.close();
  throw refused(REPLACED);
}

function describe({ tools, hosts, enforcement, limits }: CreateSandboxOptions): string {
  const reach = hosts.length === 0 ? 'no host' : hosts.includes('*') ? 'public hosts' : hosts.join(', ');
  const processes =
    enforcement.processes === 'none'
      ? 'processes not limited (the program runs as root without a control group)'
      : `at most ${limits.processes} processes (${enforcement.processes})`;
  const memory = `memory by ${enforcement.memory === 'cgroup' ? 'cgroup' : 'rlimit, for each process'}`;
  return `${tools.bubblewrap}, network: ${reach}, ${processes}, ${memory}${describeTime(enforcement, limits)}`;
}

function describeTime({ cpu }: LimitEnforcement, { cpuPercent }: SandboxLimits): string {
  if (cpuPercent === 0) return '';
  return cpu === 'cgroup'
    ? `, at most ${cpuPercent} % of a core (cgroup)`
    : ', processor time not limited (there is no control group for it)';
}

function joinArguments(procs: readonly string[], { enforcement, limits }: CreateSandboxOptions): readonly string[] {
  const kilobytes = enforcement.memory === 'rlimit' ? Math.floor(limits.memoryBytes / 1024) : 0;
  return ['/bin/sh', '-c', JOIN, 'join', String(kilobytes), ...procs, '--'];
}

function limitArguments({ tools, enforcement, limits }: CreateSandboxOptions): readonly string[] {
  return [
    tools.prlimit,
    '--core=0',
    ...(enforcement.memory === 'rlimit' ? [`--data=${limits.memoryBytes}`] : []),
    ...(enforcement.processes === 'rlimit' ? [`--nproc=${limits.processes}`] : []),
    '--',
  ];
}

/** Programs find the way out by the usual variables. */
function fencedEnvironment({ env }: ProcessOptions, { home }: Fence): Record<string, string> {
  const own = Object.entries(env).filter(([name]) => !/^(?:https?|all|no)_proxy$|^TE?MP(?:DIR)?$/i.test(name));
  return {
    ...Object.fromEntries(own),
    HOME: home.path,
    TMPDIR: '/tmp',
    HTTP_PROXY: NETWORK_URL,
    HTTPS_PROXY: NETWORK_URL,
    http_proxy: NETWORK_URL,
    https_proxy: NETWORK_URL,
    NO_PROXY: 'localhost,127.0.0.1',
    no_proxy: 'localhost,127.0.0.1',
    NODE_USE_ENV_PROXY: '1',
  };
}

const SYSTEM_FOLDERS = ['/usr', '/nix'];
/** Links into `/usr` on most systems. */
const SYSTEM_LINKS = ['/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];
/** Of `/etc`, what programs need to run, to find names and to check certificates. Folders with keys beside certificates are not named here. */
const SYSTEM_SETTINGS = (
  'alternatives ca-certificates/extracted crypto-policies fonts group hosts ld.so.cache locale.conf localtime mime.types ' +
  'nsswitch.conf os-release passwd pki/ca-trust pki/tls/cert.pem pki/tls/certs pki/tls/openssl.cnf profile protocols ' +
  'resolv.conf services shells ssl/cert.pem ssl/certs ssl/openssl.cnf timezone'
).split(' ');

/**
 * What every program sees of the system: mounts, and files of `/etc`, which bubblewrap copies. Each mount costs bubblewrap a look at all
 * others, a copied file does not.
 */
function systemMounts(): { readonly mounts: readonly string[]; readonly files: readonly string[] } {
  const settings = SYSTEM_SETTINGS.map((name) => `/etc/${name}`);
  const isLink = (path: string) => linkTarget(path) !== undefined && isSystem(path);
  const isFolder = (path: string) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  const mounts = [
    ...SYSTEM_FOLDERS.flatMap((folder) => ['--ro-bind-try', folder, folder]),
    ...SYSTEM_LINKS.flatMap((link) => {
      const target = linkTarget(link);
      return target === undefined ? ['--ro-bind-try', link, link] : ['--symlink', target, link];
    }),
    ...settings.flatMap((path) => {
      if (isLink(path)) return ['--symlink', realpathSync(path), path];
      return isFolder(path) ? ['--ro-bind-try', path, path] : [];
    }),
    ...['--proc', '/proc', '--dev', '/dev', '--dir', '/run', '--dir', '/var', '--symlink', '/tmp', '/var/tmp'],
  ];
  return { mounts, files: settings.filter((path) => !isLink(path) && !isFolder(path)) };
}

interface OpenFile {
  readonly path: string;
  readonly fd: number;
}

/** Opens the files that exist, except those that not everyone on this machine may read. */
function openAll(paths: readonly string[]): readonly OpenFile[] {
  return paths.flatMap((path) => {
    let fd: number;
    try {
      fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch {
      return [];
    }
    const found = fstatSync(fd);
    if (found.isFile() && (found.mode & constants.S_IROTH) !== 0) return [{ path, fd }];
    closeSync(fd);
    return [];
  });
}

/** Whether a path leads into a folder that is mounted anyway: each mount costs bubblewrap a look at all others. */
function isSystem(path: string): boolean {
  try {
    const real = realpathSync(path);
    return SYSTEM_FOLDERS.some((folder) => isInside(real, folder));
  } catch {
    return false;
  }
}

function linkTarget(path: string): string | undefined {
  try {
    return lstatSync(path).isSymbolicLink() ? readlinkSync(path) : undefined;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

interface Surroundings {
  readonly system: readonly string[];
  /** Folders with programs. */
  readonly path: readonly string[];
  readonly temporaryBytes: number;
  /** Whether the working directory is the first descriptor that the program gets. */
  readonly isHeld: boolean;
  /** The next descriptors, and where bubblewrap copies them to. */
  readonly copied: readonly OpenFile[];
}

/** The arguments of bubblewrap. Later mounts lie over earlier ones: what must stay hidden comes last. */
function fenceArguments(fence: Fence, surroundings: Surroundings): readonly string[] {
  const { system, path, temporaryBytes, isHeld, copied } = surroundings;
  const { folder, home, hidden } = fence;
  const firstCopied = firstDescriptor() + (isHeld ? 1 : 0);
  const bind = fence.isReadOnly ? '--ro-bind' : '--bind';
  const bounded = ['--size', String(temporaryBytes), '--tmpfs'];
  const secret = [fence.home.path, ...hidden.folders, ...hidden.files];
  const readable = [...path, ...fence.readable].filter((place) => !secret.some((kept) => isInside(kept, place)));
  const both = (option: string, places: readonly string[]) => places.flatMap((place) => [option, place, place]);
  return [
    ...['--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    '--die-with-parent',
    ...system,
    ...copied.flatMap((file, index) => ['--perms', '0444', '--file', String(firstCopied + index), file.path]),
    ...[...bounded, '/tmp'],
    ...(home.source === undefined ? [...bounded, home.path] : ['--bind', home.source, home.path]),
    ...both('--ro-bind-try', readable),
    ...both('--bind-try', fence.writable),
    ...(isHeld ? [`${bind}-fd`, String(firstDescriptor()), folder] : [bind, folder, folder]),
    ...hidden.folders.filter((place) => isInside(place, folder)).flatMap((place) => ['--tmpfs', place]),
    ...hidden.files.filter((file) => isInside(file, folder)).flatMap((file) => ['--ro-bind', '/dev/null', file]),
    ...both('--ro-bind-try', fence.installation),
    ...['--chdir', fence.startIn],
  ];
}

/** Whether a path is a folder, or lies in it. */
function isInside(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith('/') ? folder : `${folder}/`);
}

/** Starts a program that does nothing; returns why that did not work. */
async function tryOut(sandbox: Sandbox, clock: Pick<Clock, 'after'>): Promise<string | undefined> {
  const { dev, ino } = lstatSync('/usr/share');
  const fence: Fence = {
    folder: '/usr/share',
    identity: `${dev}:${ino}`,
    isReadOnly: true,
    startIn: '/usr/share',
    home: { path: '/home' },
    readable: [],
    writable: [],
    hidden: { folders: [], files: [] },
    installation: [],
    network: 'trial',
  };
  const options = { command: '/bin/sh', args: ['-c', 'exit 0'], cwd: '/', env: {} };
  try {
    const { code, output } = await run(options, clock, (given) => sandbox.start(given, fence));
    return code === 0 ? undefined : output.slice(0, MAX_REASON) || `exit code ${code}`;
  } catch (error) {
    return error instanceof Error ? error.message : 'it did not start';
  }
}

async function run(
  options: ProcessOptions,
  clock: Pick<Clock, 'after'>,
  start: (options: ProcessOptions) => Promise<RunningProcess> = startProcess,
): Promise<{ readonly code: number | null; readonly output: string }> {
  const started = await start(options);
  let said = '';
  started.stdout.setEncoding('utf8').on('data', (text: string) => {
    said = `${said}${text}`.slice(0, MAX_SAID);
  });
  const stopTimer = clock.after(TRIAL_MS, () => void started.stop({ graceMs: 0 }));
  const [{ code, stderrTail }] = await Promise.all([started.exited, once(started.stdout, 'close')]);
  stopTimer();
  return { code, output: `${said}${stderrTail}`.replaceAll(/\s+/g, ' ').trim() };
}
