import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ownSqliteFile } from '../../../src/platform/database/sqlite/sqlite-file.ts';

const VICTIM = fileURLToPath(new URL('./owning-victim.ts', import.meta.url));
let folder = '';
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trestle-ownership-'));
});
after(() => rm(folder, { recursive: true, force: true }));

test('a file that another process owns is refused with its number, until that process is killed', async () => {
  const file = join(folder, 'killed.db');
  const owner = spawn(process.execPath, [VICTIM, file], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    await once(owner.stdout, 'data');
    await assert.rejects(ownSqliteFile(file), { code: 'STORAGE_IN_USE', details: { file, pid: owner.pid } });
    await assert.rejects(ownSqliteFile(file), { code: 'STORAGE_IN_USE' });
  } finally {
    owner.kill('SIGKILL');
    await once(owner, 'exit');
  }
  (await ownSqliteFile(file)).release();
});

test('a second claim of the same process is refused, and does not break the first', async () => {
  const file = join(folder, 'twice.db');
  const ownership = await ownSqliteFile(file);
  await assert.rejects(ownSqliteFile(file), { code: 'STORAGE_IN_USE', details: { file, pid: process.pid } });
  const rival = spawn(process.execPath, [VICTIM, file], { stdio: 'ignore' });
  const [code] = await once(rival, 'exit');
  assert.equal(code, 1);
  ownership.release();
  ownership.release();
  (await ownSqliteFile(file)).release();
});

test('the number of an owner that is long dead is not shown', async () => {
  const file = join(folder, 'stale.db');
  const ownership = await ownSqliteFile(file);
  const dead = spawn(process.execPath, ['-e', '']);
  await once(dead, 'exit');
  await writeFile(`${file}.pid`, `${dead.pid}\n`);
  await assert.rejects(ownSqliteFile(file), { details: { file, pid: 'unknown' } });
  ownership.release();
});

test('the owner is written where others can read it, and removed on release', async () => {
  const file = join(folder, 'new', 'folder', 'shown.db');
  const ownership = await ownSqliteFile(file);
  assert.equal(await readFile(`${file}.pid`, 'utf8'), `${process.pid} server\n`);
  ownership.release();
  await assert.rejects(readFile(`${file}.pid`), { code: 'ENOENT' });
});

test('a place that cannot be written is refused as unavailable', async () => {
  const obstacle = join(folder, 'obstacle');
  await writeFile(obstacle, '');
  await assert.rejects(ownSqliteFile(join(obstacle, 'file.db')), { code: 'STORAGE_UNAVAILABLE' });
});
