import assert from 'node:assert/strict';
import { createHash, createPublicKey, generateKeyPairSync, verify } from 'node:crypto';
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { loadDeviceKey } from '../../../src/bridge/gateway/gateway-messages.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';

async function keyFile(context: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'device-key-'));
  context.after(() => rm(folder, { recursive: true }));
  return join(folder, 'device-key');
}

const load = (file: string) => loadDeviceKey(file, systemRandomness);

const refusal = (mention: RegExp) => (error: unknown) =>
  error instanceof AppError && error.code === 'DEVICE_KEY_INVALID' && mention.test(String(error.details.reason));

test('the key of this device is made the first time, for its owner alone, and signs under the same name later', async (context) => {
  const file = await keyFile(context);
  const made = await load(file);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(join(file, '..')), ['device-key']);

  const { id, publicKey, sign } = await load(file);
  assert.deepEqual([id, publicKey], [made.id, made.publicKey]);
  assert.equal(id, createHash('sha256').update(Buffer.from(publicKey, 'base64url')).digest('hex'));
  const key = createPublicKey({ format: 'jwk', key: { kty: 'OKP', crv: 'Ed25519', x: publicKey } });
  assert.ok(verify(null, Buffer.from('ünder'), key, Buffer.from(sign('ünder'), 'base64url')));
});

test('bridges that start at the same moment end up with one key', async (context) => {
  const file = await keyFile(context);
  const loaded = await Promise.all(Array.from({ length: 10 }, () => load(file)));
  assert.equal(new Set(loaded.map(({ id }) => id)).size, 1);
  assert.deepEqual(await readdir(join(file, '..')), ['device-key']);
});

test('a key that others may read or change is refused', async (context) => {
  const file = await keyFile(context);
  await load(file);
  for (const mode of [0o640, 0o604, 0o620, 0o602]) {
    await chmod(file, mode);
    await assert.rejects(load(file), refusal(/chmod 600/), mode.toString(8));
  }
});

test('what is no key of the right kind is refused, and stays as it is', async (context) => {
  const file = await keyFile(context);
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  await writeFile(file, privateKey.export({ format: 'pem', type: 'pkcs8' }), { mode: 0o600 });
  await assert.rejects(load(file), refusal(/holds no Ed25519 key/));
  await writeFile(file, 'not a key');
  await assert.rejects(load(file), refusal(/cannot be read/));
  assert.equal((await stat(file)).size, 'not a key'.length);
});

test('a place where no key can be made is named', async (context) => {
  const file = join(await keyFile(context), 'missing', 'device-key');
  await assert.rejects(load(file), refusal(/missing\/device-key cannot be made \(ENOENT\)/));
});
