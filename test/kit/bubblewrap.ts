import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openSandbox } from '../../src/platform/child-process/sandbox.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';

/** Private to the tests: a bubblewrap in PATH would change what other programs under test do. */
const FOLDER = join(tmpdir(), 'trestle-bubblewrap');
const PROGRAM = join(FOLDER, 'usr', 'bin', 'bwrap');
const DOWNLOAD = 'apt-get download bubblewrap || { apt-get update && apt-get download bubblewrap; }';
const LIMITS = { processes: 200, memoryBytes: 2 ** 33, cpuPercent: 0, temporaryBytes: 8 * 2 ** 20 };

/**
 * The program of bubblewrap (`BUBBLEWRAP`, PATH, or Debian's package, unpacked in a folder of its own), and why it cannot be
 * used here, if so. Tests that need it are then skipped, and say so on standard error.
 */
export async function findBubblewrap(): Promise<{ readonly program: string; readonly missing: string | false }> {
  const program = process.env.BUBBLEWRAP ?? inPath() ?? unpacked();
  const serveOwn = () => undefined;
  const environment = { PATH: process.env.PATH ?? '' };
  const state = await openSandbox({ program, environment, limits: LIMITS, hosts: [], serveOwn, clock: systemClock });
  if (state.works) {
    await state.sandbox.stop();
    return { program, missing: false };
  }
  const missing = `THE SANDBOX IS NOT TESTED: ${state.reason}`;
  process.stderr.write(`\n${'='.repeat(100)}\n${missing}\n${'='.repeat(100)}\n`);
  return { program, missing };
}

function inPath(): string | undefined {
  const { status, stdout } = spawnSync('sh', ['-c', 'command -v bwrap'], { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

function unpacked(): string {
  if (existsSync(PROGRAM)) return PROGRAM;
  mkdirSync(FOLDER, { recursive: true });
  const fresh = mkdtempSync(join(FOLDER, 'new-'));
  const line = `${DOWNLOAD}; dpkg -x bubblewrap_*.deb .`;
  spawnSync('sh', ['-c', line], { cwd: fresh, stdio: 'ignore', timeout: 120_000 });
  try {
    renameSync(join(fresh, 'usr'), join(FOLDER, 'usr'));
  } catch {
    // Another test was faster, or it could not be downloaded.
  }
  rmSync(fresh, { recursive: true, force: true });
  return PROGRAM;
}
