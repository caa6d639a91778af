import { createServer } from 'node:http';
import { LEGACY_PLAN } from '../../accounts/owners.ts';
import { callControlSocket } from '../../platform/control-socket/control-socket.ts';
import { countRows, inspectDatabase } from '../../platform/database/inspect-database.ts';
import { describeError, platformErrors } from '../../platform/errors/error-table.ts';
import { openAddress } from '../../platform/http/listen-address.ts';
import type { DataFiles } from '../data-directory.ts';
import { listenAddress, SERVICE_NAMES, type Settings } from '../settings.ts';
import { storeDefinitions, storeLocation } from '../store-location.ts';
import { broken, type Finding, fine, note } from './finding.ts';
import { secretKeyFinding } from './machine-findings.ts';

const STATUS_TIMEOUT_MS = 2000;

/** The process that serves this data directory, if one runs. */
export async function runningServer(files: DataFiles): Promise<number | undefined> {
  for (const { name } of storeDefinitions(SERVICE_NAMES)) {
    const answer = await callControlSocket(files.controlSocket(name), 'status', {}, STATUS_TIMEOUT_MS);
    if (answer !== undefined) return (answer.result as { pid: number }).pid;
  }
  return undefined;
}

/** Inspects each database as a start would find it, and changes nothing; then the key that they are encrypted with. */
export async function databaseFindings(settings: Settings, files: DataFiles): Promise<readonly Finding[]> {
  const { url } = settings.database;
  const fingerprints = new Set<string>();
  const databases = await Promise.all(
    storeDefinitions(SERVICE_NAMES).map(async (definition) => {
      const name = `database ${definition.name}`;
      const location = storeLocation(url, files, definition.name);
      const place = location.engine === 'sqlite' ? `SQLite, ${location.file}` : 'PostgreSQL';
      try {
        const { exists, secretKey } = await inspectDatabase(definition, location);
        if (secretKey !== undefined) fingerprints.add(secretKey);
        return fine(name, exists ? place : `${place}, will be created at the first start`);
      } catch (error) {
        return broken(name, describeError(platformErrors, error).message);
      }
    }),
  );
  return [...databases, await secretKeyFinding(files.secretKey, settings.secret_key, [...fingerprints])];
}

/** Users from 0.1.0 keep what they could do: the operator should know how many there are. */
export async function legacyPlanFindings(settings: Settings, files: DataFiles): Promise<readonly Finding[]> {
  if (Object.hasOwn(settings.plans, LEGACY_PLAN)) return [];
  const location = storeLocation(settings.database.url, files, 'accounts');
  const count = await countRows(location, { table: 'users', column: 'plan', value: LEGACY_PLAN }).catch(() => 0);
  if (count === 0) return [];
  const who = count === 1 ? '1 user' : `${count} users`;
  const what = `define plans.${LEGACY_PLAN}, or give them another plan with: trestle user plan`;
  return [note(`plan ${LEGACY_PLAN}`, `${who} from 0.1.0 may use every model without limit; ${what}`)];
}

/** Whether the address could be opened now. One that the running server holds is fine. */
export async function portFinding(settings: Settings, serverPid: number | undefined): Promise<Finding> {
  const address = listenAddress(settings);
  const text = `${address.host}:${address.port}`;
  const server = createServer();
  try {
    await openAddress(server, address);
    return fine('port', `${text} is free`);
  } catch (error) {
    const { code, message, details } = describeError(platformErrors, error);
    if (code === 'PORT_IN_USE' && serverPid !== undefined && details.pid === serverPid) {
      return fine('port', `${text}, held by the server (pid ${serverPid})`);
    }
    return broken('port', message);
  } finally {
    server.close();
  }
}
