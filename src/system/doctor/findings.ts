import { mkdtemp, readdir, realpath, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LEGACY_PLAN } from '../../accounts/owners.ts';
import type { SetupChoice } from '../../accounts/setup/setup-choices.ts';
import { findHome } from '../../bridge/instances/open-instance.ts';
import { createPrivatePlaces } from '../../bridge/sessions/private-places.ts';
import { callControlSocket } from '../../platform/control-socket/control-socket.ts';
import { countRows, inspectDatabase, readDatabaseTime, readRows } from '../../platform/database/inspect-database.ts';
import { parseOwner } from '../../platform/database/sqlite/sqlite-file.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { describeError, platformErrors } from '../../platform/errors/error-table.ts';
import { exists } from '../../platform/files/make-folder.ts';
import { checkAddress } from '../../platform/http/listen-address.ts';
import { readSecretKeys } from '../../platform/secrets/secret-keys.ts';
import { findInstances } from '../cluster.ts';
import { type DataFiles, opens, prepareDataDirectory } from '../data-directory.ts';
import { listenAddress, SERVICE_NAMES, type Settings } from '../settings.ts';
import { storeDefinition, storeLocation } from '../stores.ts';

/** One line of a diagnosis. `broken`: the server cannot work as configured; `note`: information for the operator. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'note' | 'broken';
  readonly text: string;
}

export const fine = (name: string, text: string): Finding => ({ name, state: 'ok', text });
export const note = (name: string, text: string): Finding => ({ name, state: 'note', text });
export const broken = (name: string, text: string): Finding => ({ name, state: 'broken', text });

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
    const isThere = await exists(folder);
    await prepareDataDirectory(folder);
    const { mode } = await stat(folder);
    if ((mode & 0o077) !== 0) return note(name, `${folder} is open to other users; run: chmod 700 ${folder}`);
    return fine(name, isThere ? folder : `${folder}, will be created at the first start`);
  } catch (error) {
    const reason = error instanceof AppError ? error.details.reason : error;
    return broken(name, `${folder} cannot be used (${reason}); choose another with --data-dir`);
  }
}

/** Warns about listed folders that do not exist, and about folders from which an agent's program can reach the data directory. */
export async function workspaceFindings(roots: readonly string[], folder: string): Promise<readonly Finding[]> {
  const places = createPrivatePlaces({ folders: [await realpath(folder)], files: [] });
  const name = 'bridge.workspace_roots';
  const findings: Finding[] = [];
  for (const root of roots) {
    const identity = await stat(root, { bigint: true }).catch(() => undefined);
    if (identity?.isDirectory() !== true) {
      findings.push(note(name, `${root} is not a folder: agents cannot work there; correct the path, or create it`));
    } else if (await places.isAbove(identity)) {
      findings.push(
        note(
          name,
          `${root} contains the data directory ${folder}: our file tools do not enter it, but commands and other agents can; list folders below, or choose another --data-dir`,
        ),
      );
    }
  }
  return findings;
}

/** The key that encrypts stored secrets; `needed` holds the fingerprints of the keys that the databases need. */
async function secretKeyFinding(file: string, given: string, needed: readonly string[]): Promise<Finding> {
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
  if (free < TOO_LITTLE_DISK) return broken('disk', `${text} for ${folder}: soon nothing more can be stored`);
  return free < SCARCE_DISK ? note('disk', `${text} for ${folder}`) : fine('disk', text);
}

/** Compares the wall clock with the file system's, which differ where one of them is not this machine's. */
export async function clockFinding(folder: string, now: () => number): Promise<Finding> {
  if (now() < EARLIEST_TIME) {
    return broken('clock', `says ${new Date(now()).toISOString()}, which is in the past; set the clock`);
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

/** Whether the clock of the database, which several instances go by, says the same; nothing where it cannot be read. */
export async function databaseClockFindings(
  settings: Settings,
  files: DataFiles,
  now: () => number,
): Promise<readonly Finding[]> {
  const location = storeLocation(settings.database, files, 'bridge');
  const before = now();
  const time = await readDatabaseTime(location).catch(() => undefined);
  if (time === undefined) return [];
  // The database read its clock between the two moments.
  const difference = time < before ? before - time : Math.min(0, now() - time);
  const name = 'clock of the database';
  if (Math.abs(difference) <= CLOCK_TOLERANCE_MS) return [fine(name, 'says the same')];
  const seconds = Math.round(Math.abs(difference) / 1000);
  const how = difference > 0 ? 'ahead of' : 'behind';
  return [note(name, `this machine is ${seconds} s ${how} it; set both by NTP`)];
}

const STATUS_TIMEOUT_MS = 2000;

interface FoundServer {
  /** Undefined where it cannot be known. */
  readonly pid: number | undefined;
  readonly finding: Finding;
}

/** The process that serves this data directory, if one runs. One that does not answer is named by its lock. */
export async function runningServer(settings: Settings, files: DataFiles): Promise<FoundServer | undefined> {
  if (settings.database.url !== '') return runningInstance(settings, files);
  for (const name of SERVICE_NAMES) {
    const asked = callControlSocket(files.controlSocket(name), 'status', {}, STATUS_TIMEOUT_MS);
    const answer = await asked.catch((error) => {
      if (error instanceof AppError && error.code === 'CALL_TIMEOUT') return 'silent' as const;
      throw error;
    });
    if (answer === undefined) continue;
    if (answer !== 'silent') {
      const { pid } = answer.result as { readonly pid: number };
      return { pid, finding: fine('server', `runs (pid ${pid})`) };
    }
    const pid = parseOwner(`${files.database(name)}.pid`)?.pid;
    const end = pid === undefined ? 'end it' : `end it (kill -9 ${pid})`;
    return { pid, finding: broken('server', `runs but does not respond; if it hangs, ${end} and start it again`) };
  }
  return undefined;
}

/** On PostgreSQL no socket tells who serves a data directory, but the list of instances names it, or that of a worker. */
async function runningInstance(settings: Settings, files: DataFiles): Promise<FoundServer | undefined> {
  const found = await findInstances(storeLocation(settings.database, files, 'bridge')).catch(() => []);
  if (found.length === 0) return undefined;
  const workers = await readdir(join(files.folder, 'workers')).catch(() => []);
  const folders = [files.folder, ...workers.map((name) => join(files.folder, 'workers', name))];
  const homes = await Promise.all(folders.map((folder) => findHome(folder).catch(() => undefined)));
  const ids = found.filter(({ home }) => home !== '' && homes.includes(home)).map(({ id }) => id);
  return ids.length === 0 ? undefined : { pid: undefined, finding: fine('server', `runs (${ids.join(', ')})`) };
}

/** Inspects each database as a start would find it, and changes nothing; then the key that they are encrypted with. */
export async function databaseFindings(settings: Settings, files: DataFiles): Promise<readonly Finding[]> {
  const fingerprints = new Set<string>();
  const databases = await Promise.all(
    SERVICE_NAMES.map(async (service) => {
      const name = `database ${service}`;
      const location = storeLocation(settings.database, files, service);
      const place = location.engine === 'sqlite' ? `SQLite, ${location.file}` : 'PostgreSQL';
      try {
        const { exists, secretKey } = await inspectDatabase(storeDefinition(service), location);
        if (secretKey !== undefined) fingerprints.add(secretKey);
        return fine(name, exists ? place : `${place}, will be created at the first start`);
      } catch (error) {
        return broken(name, describeError(platformErrors, error).message);
      }
    }),
  );
  return [...databases, await secretKeyFinding(files.secretKey, settings.secret_key, [...fingerprints])];
}

/** Reports how many users from 0.1.0 there are, because they keep their rights. */
export async function legacyPlanFindings(settings: Settings, files: DataFiles): Promise<readonly Finding[]> {
  if (Object.hasOwn(settings.plans, LEGACY_PLAN)) return [];
  const location = storeLocation(settings.database, files, 'accounts');
  const count = await countRows(location, { table: 'users', column: 'plan', value: LEGACY_PLAN }).catch(() => 0);
  if (count === 0) return [];
  const who = count === 1 ? '1 user' : `${count} users`;
  const what = `define plans.${LEGACY_PLAN}, or give them another plan with: trestle user plan`;
  return [note(`plan ${LEGACY_PLAN}`, `${who} from 0.1.0 may use every model without limit; ${what}`)];
}

/** What the first administrator chose at set-up. */
export async function setupChoices(settings: Settings, files: DataFiles): Promise<readonly SetupChoice[]> {
  const location = storeLocation(settings.database, files, 'accounts');
  const rows = await readRows(location, { table: 'setup_choices', column: 'value', order: 'name' }).catch(() => []);
  return rows.map(({ name, value }) => ({ name: String(name), value: String(value) }));
}

/** Webhooks whose deliveries fail. The path of an address may be a secret, so only the host is shown. */
export async function webhookFindings(settings: Settings, files: DataFiles): Promise<readonly Finding[]> {
  const location = storeLocation(settings.database, files, 'accounts');
  const failing = { table: 'webhooks', column: 'failing_since', order: 'id' };
  const rows = await readRows(location, failing).catch(() => []);
  return rows.map(({ id, url, failing_since: since, disabled_at: off }) => {
    const host = URL.parse(String(url))?.host;
    const text =
      off === null
        ? `no delivery to ${host} has succeeded since ${timeText(since)}; fix the receiver, or the webhook is switched off after three days`
        : `switched off at ${timeText(off)}, because ${host} failed for three days; fix the receiver, then send: POST /api/auth/admin/webhooks/${id}/enable`;
    return note(`webhook ${id}`, text);
  });
}

const timeText = (at: unknown) => new Date(Number(at)).toISOString();

/** Whether the address can be opened now. An address of the running server is in order. */
export async function portFinding(settings: Settings, server: FoundServer | undefined): Promise<Finding> {
  const address = listenAddress(settings);
  const text = `${address.host}:${address.port}`;
  try {
    await checkAddress(address);
    return fine('port', `${text} is free`);
  } catch (error) {
    const { code, message, details } = describeError(platformErrors, error);
    if (code === 'PORT_IN_USE' && server?.finding.state === 'ok') {
      // The list of instances knows no process.
      if (server.pid === undefined) return fine('port', `${text}, held by the server`);
      if (server.pid === details.pid) return fine('port', `${text}, held by the server (pid ${server.pid})`);
    }
    return broken('port', message);
  }
}
