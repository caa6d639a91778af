import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { loadSecretKeys } from '../../../src/platform/secrets/secret-keys.ts';

async function keyFile(context: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'secret-keys-'));
  context.after(() => rm(folder, { recursive: true }));
  return join(folder, 'data', 'secret-key');
}

const load = (file: string, given?: string) => loadSecretKeys({ file, given, randomness: systemRandomness });

const refusal = (mention: RegExp) => (error: unknown) =>
  error instanceof AppError && error.code === 'SECRET_KEY_INVALID' && mention.test(String(error.details.reason));

test('the key is made at first start, for its owner alone, and is the same at every later start', async (context) => {
  const file = await keyFile(context);
  const [first] = await load(file);
  assert.equal(first.length, 32);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  assert.deepEqual(await load(file), [first]);
  assert.deepEqual(await readdir(join(file, '..')), ['secret-key']);
});

test('instances that start at the same moment all end up with one key', async (context) => {
  const file = await keyFile(context);
  const loaded = await Promise.all(Array.from({ length: 20 }, () => load(file)));
  const distinct = new Set(loaded.map(([key]) => Buffer.from(key).toString('hex')));
  assert.equal(distinct.size, 1);
  assert.deepEqual(await readdir(join(file, '..')), ['secret-key']);
});

test('an instance that finds another one was quicker goes on with the key of that one', async (context) => {
  const file = await keyFile(context);
  const winner = randomBytes(32);
  const randomness = {
    bytes(length: number) {
      // The draft is about to be written: the other instance is done just now.
      if (length === 32) writeFileSync(file, winner.toString('base64'), { mode: 0o600 });
      return randomBytes(length);
    },
  };
  assert.deepEqual(await loadSecretKeys({ file, randomness }), [Uint8Array.from(winner)]);
  assert.equal(await readFile(file, 'utf8'), winner.toString('base64'));
});

test('a given key wins over the file and no file is made', async (context) => {
  const file = await keyFile(context);
  const key = randomBytes(32);
  assert.deepEqual(await load(file, key.toString('base64')), [Uint8Array.from(key)]);
  assert.deepEqual(await load(file, ` ${key.toString('base64url')}\n`), [Uint8Array.from(key)]);
  await assert.rejects(stat(file), { code: 'ENOENT' });
});

test('several keys may be listed, the first one first', async (context) => {
  const file = await keyFile(context);
  await load(file);
  const old = (await readFile(file, 'utf8')).trim();
  const fresh = randomBytes(32);
  await writeFile(file, `${fresh.toString('base64')}\n${old}\n`);
  assert.deepEqual(await load(file), [Uint8Array.from(fresh), Uint8Array.from(Buffer.from(old, 'base64'))]);
  assert.equal((await load(file, `${old},${fresh.toString('base64')}`)).length, 2);
});

test('O-07: a key file that others may read or write is refused with the command that fixes it', async (context) => {
  const file = await keyFile(context);
  await load(file);
  for (const mode of [0o640, 0o604, 0o620, 0o602, 0o644, 0o610]) {
    await chmod(file, mode);
    await assert.rejects(load(file), refusal(/chmod 600/), mode.toString(8));
  }
  await chmod(file, 0o600);
  assert.equal((await load(file)).length, 1);
});

test('a key of the wrong length or alphabet is refused, and never shown in the error', async (context) => {
  const file = await keyFile(context);
  await load(file);
  for (const text of [randomBytes(31).toString('base64'), randomBytes(33).toString('base64'), 'not a key at all']) {
    await writeFile(file, text);
    await assert.rejects(load(file), (error) => refusal(/32 bytes/)(error) && !JSON.stringify(error).includes(text));
    await assert.rejects(load(file, text), refusal(/openssl rand/));
  }
  await writeFile(file, '\n');
  await assert.rejects(load(file), refusal(/empty/));
  await writeFile(file, 'A'.repeat(5000));
  await assert.rejects(load(file), refusal(/too large/));
});

test('a folder in place of the file, or a place where none can be made, is one clear error', async (context) => {
  const file = await keyFile(context);
  await load(file);
  await chmod(join(file, '..'), 0o700);
  await assert.rejects(load(join(file, '..')), refusal(/cannot be read \(EISDIR\)/));
  await assert.rejects(load(join(file, 'below', 'a', 'file')), refusal(/ENOTDIR/));
});
