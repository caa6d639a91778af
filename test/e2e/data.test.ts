import assert from 'node:assert/strict';
import { copyFile, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { Client } from 'pg';
import { Type } from 'typebox';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { serveControlSocket } from '../../src/platform/control-socket/control-socket.ts';
import { AppError, type ErrorCode } from '../../src/platform/errors/app-error.ts';
import { platformErrors } from '../../src/platform/errors/error-table.ts';
import { createDispatch, defineMethod } from '../../src/platform/json-rpc/method-table.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';

test('O-11: a running server is backed up, and the backup restored elsewhere serves the same data', async (t) => {
  const program = await startProgram(t);
  const folder = join(await temporaryFolder(t), 'backup');
  const backup = await runProgram(['backup', folder, '--data-dir', program.dataDirectory, '--json']);
  assert.equal(backup.code, 0, backup.stderr);
  const manifest = JSON.parse(backup.stdout);
  const counted = manifest.databases[0].tables.find(({ name }: { name: string }) => name === 'instances');
  assert.equal(counted.rows, 1);
  assert.equal((await stat(folder)).mode & 0o777, 0o700);
  assert.equal((await stat(join(folder, 'bridge.db'))).mode & 0o777, 0o600);

  const restored = await temporaryFolder(t);
  await copyFile(join(program.dataDirectory, 'secret.key'), join(restored, 'secret.key'));
  const restore = await runProgram(['restore', folder, '--data-dir', restored]);
  assert.equal(restore.code, 0, restore.stderr);
  const database = new DatabaseSync(join(restored, 'bridge.db'), { readOnly: true });
  t.after(() => database.close());
  assert.equal(database.prepare('select count(*) as count from instances').get()?.count, 1);
});

test('O-11: a restore over existing data, over a running server, or of a damaged backup is refused', async (t) => {
  const program = await startProgram(t);
  const parent = await temporaryFolder(t);
  const folder = join(parent, 'backup');
  assert.equal((await runProgram(['backup', folder, '--data-dir', program.dataDirectory])).code, 0);
  const again = await runProgram(['backup', folder, '--data-dir', program.dataDirectory]);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /exists already; name a new folder/);
  const inFile = await runProgram([
    'backup',
    join(folder, 'manifest.json', 'new'),
    '--data-dir',
    program.dataDirectory,
  ]);
  assert.deepEqual([inFile.code, /cannot be written \(\w+\); name another folder/.test(inFile.stderr)], [1, true]);
  const running = await runProgram(['restore', folder, '--data-dir', program.dataDirectory]);
  assert.equal(running.code, 1);
  assert.match(running.stderr, new RegExp(String(program.pid)));
  await program.stop('SIGKILL');
  const filled = await runProgram(['restore', folder, '--data-dir', program.dataDirectory]);
  assert.equal(filled.code, 1);
  const replaced = await runProgram(['restore', folder, '--replace', '--data-dir', program.dataDirectory]);
  assert.equal(replaced.code, 0, replaced.stderr);
  const bytes = await readFile(join(folder, 'bridge.db'));
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  await writeFile(join(folder, 'bridge.db'), bytes);
  const damaged = await runProgram(['restore', folder, '--data-dir', join(parent, 'fresh')]);
  assert.equal(damaged.code, 1);
  assert.match(damaged.stderr, /bridge\.db/);
});

test('a backup that the running server cannot write says why', async (t) => {
  const folder = await temporaryFolder(t);
  let refusal: ErrorCode = 'STORAGE_FULL';
  const any = { params: Type.Unknown(), result: Type.Unknown() };
  const rows = [
    defineMethod({ ...any, name: 'status', summary: '', handle: async () => ({}) }),
    defineMethod({ ...any, name: 'backup', summary: '', handle: () => Promise.reject(new AppError(refusal)) }),
  ];
  const server = await serveControlSocket({
    file: join(folder, 'bridge.sock'),
    dispatch: createDispatch({ rows }),
    errors: platformErrors,
    clock: systemClock,
    makeRequestId: () => 'req-1',
    onUnexpectedError: () => undefined,
  });
  t.after(() => server.close());
  await writeFile(join(folder, 'bridge.db'), '');
  const target = await temporaryFolder(t);
  const backUp = () => runProgram(['backup', join(target, 'new'), '--data-dir', folder]);
  const full = await backUp();
  assert.deepEqual(
    [full.code, full.stderr],
    [1, `trestle: Backup or restore failed: no room is left on the disk of ${target}\n`],
  );
  refusal = 'STORAGE_UNAVAILABLE';
  const away = await backUp();
  assert.equal(away.code, 1);
  assert.match(away.stderr, /the running server says: The /);
  assert.deepEqual(await readdir(target), []);
});

test('restore, copy and secret-key adopt are refused while a server uses the PostgreSQL database, and work after it', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const place = ['--database', postgres.url, '--data-dir', await temporaryFolder(t)];
  const server = await startProgram(t, { args: ['--database', postgres.url] });
  const folder = join(await temporaryFolder(t), 'backup');
  const backup = await runProgram(['backup', folder, ...place]);
  assert.equal(backup.code, 0, backup.stderr);
  const { instances } = (await (await fetch(`${server.url}/api/system/instances`)).json()) as {
    instances: readonly { id: string; address: string }[];
  };
  const [own] = instances;
  // The port that the server holds is in order.
  const listen = ['--listen', `127.0.0.1:${server.port}`, '--data-dir', server.dataDirectory];
  const doctor = await runProgram(['doctor', '--database', postgres.url, ...listen]);
  assert.equal(doctor.code, 0, doctor.stdout);
  assert.match(doctor.stdout, /ok +server +runs \(ins_\w+\)\n[\s\S]*ok +port +127\.0\.0\.1:\d+, held by the server\n/);
  const elsewhere = await runProgram(['doctor', ...listen.slice(0, 2), ...place]);
  assert.match(elsewhere.stdout, /broken +port +Port \d+ on 127\.0\.0\.1 is in use/);
  // Nothing is copied there: it is not reached before the refusal.
  const copy = ['copy', '--to', 'postgres://nobody@127.0.0.1:1/none'];
  for (const command of [['restore', folder, '--replace'], copy, ['secret-key', 'adopt']]) {
    const { code, stderr } = await runProgram([...command, ...place]);
    assert.equal(code, 1, stderr);
    assert.ok(stderr.includes(`${own?.id} (${own?.address})`) && stderr.includes('Stop them all first'), stderr);
  }
  assert.equal(await server.stop(), 0);
  for (const command of [
    ['secret-key', 'adopt'],
    ['restore', folder, '--replace'],
  ]) {
    const { code, stderr } = await runProgram([...command, ...place]);
    assert.equal(code, 0, stderr);
  }
});

test('a database without Trestle data stays as it is: commands that need data say so', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const place = ['--database', postgres.url, '--data-dir', await temporaryFolder(t)];
  const folder = join(await temporaryFolder(t), 'backup');
  for (const command of [['backup', folder], ['cluster'], ['user', 'list'], ['secret-key', 'adopt']]) {
    const { code, stderr } = await runProgram([...command, ...place]);
    assert.equal(code, 78, stderr);
    assert.match(
      stderr,
      /There is no Trestle data in the database of 127\.0\.0\.1:\d+; check --data-dir and --database/,
    );
  }
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  const { rows } = await client.query(
    "SELECT 1 FROM pg_namespace WHERE nspname IN ('bridge', 'completions', 'accounts')",
  );
  await client.end();
  assert.deepEqual(rows, []);
});

test('O-12: all data is copied to PostgreSQL, where the program then runs, twice at the same time', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const source = await startProgram(t);
  await source.stop('SIGKILL');
  const copy = await runProgram(['copy', '--to', postgres.url, '--data-dir', source.dataDirectory, '--json']);
  assert.equal(copy.code, 0, copy.stderr);
  assert.equal(
    JSON.parse(copy.stdout).databases[0].tables.find((table: { name: string }) => table.name === 'instances').rows,
    1,
  );
  const again = await runProgram(['copy', '--to', postgres.url, '--data-dir', source.dataDirectory]);
  assert.equal(again.code, 1);

  const args = ['--database', postgres.url];
  const other = await runProgram(['serve', '--listen', '127.0.0.1:0', ...args], {
    environment: { HOME: await temporaryFolder(t) },
  });
  assert.equal(other.code, 78, 'DS-9: an instance with another secret key does not start');
  assert.match(other.stderr, /secret key/);
  const environment = { TRESTLE_SECRET_KEY: (await readFile(join(source.dataDirectory, 'secret.key'), 'utf8')).trim() };
  const [first, second] = await Promise.all([
    startProgram(t, { args, environment }),
    startProgram(t, { args, environment }),
  ]);
  assert.equal(first.summary.database, 'PostgreSQL');
  for (const { url } of [first, second]) assert.equal((await fetch(`${url}/readyz`)).status, 200);
  assert.deepEqual(
    (await readdir(first.dataDirectory)).filter((name) => name.endsWith('.db')),
    [],
  );
  const backup = join(await temporaryFolder(t), 'backup');
  const { stdout, code, stderr } = await runProgram(['backup', backup, '--json', ...args], { environment });
  assert.equal(code, 0, stderr);
  const { rows } = JSON.parse(stdout).databases[0].tables.find((table: { name: string }) => table.name === 'instances');
  // Both that run; the copied one is taken off the list as soon as it counts as dead.
  assert.ok(rows === 2 || rows === 3, String(rows));
  assert.equal(await first.stop(), 0);
  assert.equal(await second.stop(), 0);
});

test('A-63: readiness fails while the database is gone, after cluster.outage, and liveness stays; it recovers without a restart', async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const environment = { TRESTLE_CLUSTER_OUTAGE: '0s' };
  const strict = await startProgram(t, { args: ['--database', postgres.url], environment });
  const patient = await startProgram(t, {
    args: ['--database', postgres.url],
    environment: { TRESTLE_CLUSTER_OUTAGE: '1h' },
  });
  await postgres.pause();
  assert.equal((await fetch(`${strict.url}/readyz`)).status, 503);
  assert.equal((await fetch(`${strict.url}/healthz`)).status, 200);
  const away = await fetch(`${patient.url}/readyz`);
  assert.equal(away.status, 200);
  assert.deepEqual(await away.json(), { status: 'ready', checks: { store: 'away' } });
  await postgres.start();
  for (const { url, child } of [strict, patient]) {
    const back = await fetch(`${url}/readyz`);
    assert.deepEqual([back.status, await back.json()], [200, { status: 'ready', checks: { store: 'ok' } }]);
    assert.equal(child.exitCode, null);
  }
});
