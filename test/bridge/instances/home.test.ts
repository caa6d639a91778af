import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { readHome } from '../../../src/bridge/instances/open-instance.ts';
import { temporaryFolder } from '../../kit/running-program.ts';

test('a data directory keeps the name of its first start, and processes that start together agree on it', async (t) => {
  const folder = await temporaryFolder(t);
  let made = 0;
  const makeName = () => {
    made += 1;
    return `home_${made}`;
  };
  const names = await Promise.all(Array.from({ length: 5 }, () => readHome(folder, makeName)));
  assert.equal(new Set(names).size, 1);
  assert.equal(await readHome(folder, () => 'home_later'), names[0]);
  assert.deepEqual(await readdir(folder), ['home']);
  assert.equal((await stat(join(folder, 'home'))).mode & 0o777, 0o600);
});

test('a data directory whose first start was interrupted gets a name: an empty one would mean that its files are anywhere', async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, 'home'), '');
  assert.equal(await readHome(folder, () => 'home_new'), 'home_new');
  assert.equal(await readFile(join(folder, 'home'), 'utf8'), 'home_new');
  assert.equal(await readHome(folder, () => 'home_later'), 'home_new');
});

test('a start that cannot write the name fails, and the next one makes it', async (t) => {
  const folder = await temporaryFolder(t);
  const missing = join(folder, 'missing');
  await assert.rejects(
    readHome(missing, () => 'home_new'),
    { code: 'ENOENT' },
  );
  assert.equal(await readHome(folder, () => 'home_new'), 'home_new');
});
