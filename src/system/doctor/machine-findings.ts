import { mkdtemp, realpath, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createPrivatePlaces } from '../../bridge/sessions/private-places.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { readSecretKeys } from '../../platform/secrets/secret-keys.ts';
import { prepareDataDirectory } from '../data-directory.ts';
import { opens } from '../secret-key.ts';
import { broken, type Finding, fine, note } from './finding.ts';

const NEEDED_NODE_MAJOR = 24;
const MEBIBYTE = 1024 * 1024;
const SCARCE_DISK = 1024 * MEBIBYTE;
const TOO_LITTLE_DISK = 64 * MEBIBYTE;
const CLOCK_TOLERANCE_MS = 5000;
/** No release is older than this: a clock before it is wrong, and with it every expiry of a token or session. */
const EARLIEST_TIME = Date.UTC(2026, 0, 1);

export function runtimeFinding(version: string): Finding {
  const major = Number(/^v(\d+)/.exec(version)?.[1]);
  if (major >= NEEDED_NODE_MAJOR) return fine('node', version);
  return broken('node', `${version} is too old: Node ${NEEDED_NODE_MAJOR} or newer is needed`);
}

export async function dataDirectoryFinding(folder: string): Promise<Finding> {
  const name = 'data directory';
  try {
    await prepareDataDirectory(folder);
    const { mode } = await stat(folder);
    if ((mode & 0o077) !== 0) return note(name, `${folder} is open to other users; run: chmod 700 ${folder}`);
    return fine(name, folder);
  } catch (error) {
    const reason = error instanceof AppError ? error.details.reason : error;
    return broken(name, `${folder} cannot be used (${reason}); choose another with --data-dir`);
  }
}

/** Warns of listed folders in which an agent's own program finds the data directory. */
export async function workspaceFindings(roots: readonly string[], folder: string): Promise<readonly Finding[]> {
  const places = createPrivatePlaces({ folders: [await realpath(folder)], files: [] });
  const findings: Finding[] = [];
  for (const root of roots) {
    const identity = await stat(root, { bigint: true }).catch(() => undefined);
    if (identity === undefined || !(await places.isAbove(identity))) continue;
    findings.push(
      note(
        'bridge.workspace_roots',
        `${root} contains the data directory ${folder}: our file tools do not enter it, but commands and other agents can; list folders below, or choose another --data-dir`,
      ),
    );
  }
  return findings;
}

/** The key that encrypts stored secrets; `needed` holds the fingerprints of the keys that the databases need. */
export async function secretKeyFinding(file: string, given: string, needed: readonly string[]): Promise<Finding> {
  const name = 'secret key';
  try {
    const keys = await readSecretKeys({ file, given });
    const where = given === '' ? file : 'given by the configuration';
    if (keys === undefined) {
      if (needed.length === 0) return fine(name, 'will be created at the first start');
      return broken(name, `the data needs the key ${needed.join(', ')}, and ${file} does not exist; put that key back`);
    }
    const missing = needed.filter((fingerprint) => !opens(keys, fingerprint));
    if (missing.length === 0) return fine(name, where);
    return broken(name, `the data is encrypted with the key ${missing.join(', ')}, not with this one (${where})`);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return broken(name, String(error.details.reason));
  }
}

export async function diskFinding(folder: string): Promise<Finding> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const text = `${Math.floor(free / MEBIBYTE)} MiB free`;
  if (free < TOO_LITTLE_DISK) return broken('disk', `${text} for ${folder}: nothing more can be stored soon`);
  return free < SCARCE_DISK ? note('disk', `${text} for ${folder}`) : fine('disk', text);
}

/** Compares the wall clock with the file system's, which differ where one of them is not this machine's. */
export async function clockFinding(folder: string, now: () => number): Promise<Finding> {
  if (now() < EARLIEST_TIME) {
    return broken('clock', `says ${new Date(now()).toISOString()}, which is past; set it right`);
  }
  const probe = await mkdtemp(join(folder, '.doctor-'));
  try {
    const file = join(probe, 'clock');
    await writeFile(file, '');
    const difference = Math.abs((await stat(file)).mtimeMs - now());
    if (difference > CLOCK_TOLERANCE_MS) {
      return note('clock', `differs from that of the data directory's disk by ${Math.round(difference / 1000)} s`);
    }
    return fine('clock', new Date(now()).toISOString());
  } finally {
    await rm(probe, { recursive: true });
  }
}
