import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** Private to the tests, so that other tests search without it. */
const FOLDER = join(tmpdir(), 'trestle-ripgrep');
const PROGRAM = join(FOLDER, 'usr', 'bin', 'rg');
const LINE =
  'apt-get download ripgrep || { apt-get update && apt-get download ripgrep; }; dpkg -x ripgrep_*.deb . && test -x usr/bin/rg';

/**
 * The folder of ripgrep's program (in PATH, or Debian's package, unpacked in a folder of its own), and why there is none, if so. Tests
 * that need it are then skipped, and say so on standard error.
 */
export function findRipgrep(): { readonly folder: string; readonly missing: string | false } {
  const { status, stdout } = spawnSync('sh', ['-c', 'command -v rg'], { encoding: 'utf8' });
  if (status === 0) return { folder: dirname(stdout.trim()), missing: false };
  if (!existsSync(PROGRAM)) unpack();
  if (existsSync(PROGRAM)) return { folder: dirname(PROGRAM), missing: false };
  const missing = 'SEARCH WITH RIPGREP IS NOT TESTED: there is no rg in PATH, and its package could not be downloaded';
  process.stderr.write(`\n${'='.repeat(100)}\n${missing}\n${'='.repeat(100)}\n`);
  return { folder: '', missing };
}

function unpack(): void {
  mkdirSync(FOLDER, { recursive: true });
  const fresh = mkdtempSync(join(FOLDER, 'new-'));
  spawnSync('sh', ['-c', LINE], { cwd: fresh, stdio: 'ignore', timeout: 120_000 });
  try {
    renameSync(join(fresh, 'usr'), join(FOLDER, 'usr'));
  } catch {
    // Another test was faster, or it could not be downloaded.
  }
  rmSync(fresh, { recursive: true, force: true });
}
