import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';

const INSTALL_LIMIT_MS = 180_000;

/**
 * A program of others for comparison, from npm, in a cache folder outside the project. Resolves with the folder of its
 * package, or with undefined where it cannot be had: without a network there is no comparison. `plugins` are packages
 * of the same version that it looks for beside itself.
 */
export async function installPeer(
  name: string,
  version: string,
  plugins: readonly string[] = [],
): Promise<string | undefined> {
  const folder = join(homedir(), '.cache', 'trestle-bench', `${basename(name)}-${version}`);
  const installed = join(folder, 'node_modules', name);
  const wanted = [name, ...plugins];
  if (wanted.every((one) => existsSync(join(folder, 'node_modules', one, 'package.json')))) return installed;
  await mkdir(folder, { recursive: true });
  const npm = join(dirname(process.execPath), 'npm');
  const args = ['install', '--prefix', folder, '--no-audit', '--no-fund', '--ignore-scripts'];
  args.push(...wanted.map((one) => `${one}@${version}`));
  const child = spawn(existsSync(npm) ? npm : 'npm', args, { stdio: 'ignore', cwd: folder, timeout: INSTALL_LIMIT_MS });
  const code = await new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
  return code === 0 ? installed : undefined;
}
