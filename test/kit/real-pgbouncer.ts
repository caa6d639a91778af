import { spawn } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { freePort } from './free-port.ts';
import { ended, installedProgram } from './real-haproxy.ts';
import { type Scope, temporaryFolder } from './running-program.ts';
import { until } from './until.ts';

const PLACES = ['/usr/sbin/pgbouncer', '/usr/local/bin/pgbouncer', '/usr/bin/pgbouncer'];

/** Starts Debian's PgBouncer in transaction mode in front of a PostgreSQL server, and returns the URL of the pool. */
export async function startPgbouncer(scope: Scope, server: string, settings: readonly string[] = []): Promise<string> {
  const program = await installedProgram('pgbouncer', PLACES);
  const { hostname, port, username, password, pathname } = new URL(server);
  const database = pathname.slice(1);
  const ownPort = await freePort();
  const folder = await temporaryFolder(scope);
  await chmod(folder, 0o755);
  const file = join(folder, 'pgbouncer.ini');
  const lines = [
    '[databases]',
    `${database} = host=${hostname} port=${port} dbname=${database} user=${username} password=${password}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${ownPort}`,
    'unix_socket_dir =',
    'auth_type = any',
    'pool_mode = transaction',
    // Fewer than the clients have: a connection is used by many of them in turn.
    'default_pool_size = 4',
    'max_client_conn = 500',
    ...settings,
  ];
  await writeFile(file, `${lines.join('\n')}\n`, { mode: 0o644 });
  // It refuses to run as root.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn(program, [...user, file], { stdio: ['ignore', 'ignore', 'pipe'] });
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  scope.after(() => ended(child));
  await until('PgBouncer to listen', async () => {
    if (child.exitCode !== null) throw new Error(`PgBouncer did not start: ${errors}`);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const socket = createConnection(ownPort, '127.0.0.1', () => resolve(true));
    socket.on('error', () => resolve(false));
    const isOpen = await promise;
    socket.destroy();
    return isOpen;
  });
  return `postgres://${username}:${password}@127.0.0.1:${ownPort}/${database}`;
}
