import assert from 'node:assert/strict';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { runProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { facts, fixtureSecretKey, unpackFixture } from './release-fixture.ts';

const CONFIGURATION_EXIT = 78;
const PASSPHRASE = 'nine green bottles';

test('DU-10: a restore without the secret key is refused, names the key, and changes nothing', async (t) => {
  const { backup, fingerprint } = await backUp(t);
  const fresh = await temporaryFolder(t);
  const refused = await runProgram(['restore', backup, '--data-dir', fresh]);
  assert.equal(refused.code, CONFIGURATION_EXIT, refused.stderr);
  assert.match(refused.stderr, new RegExp(fingerprint));
  assert.deepEqual(
    (await readdir(fresh)).filter((name) => name.endsWith('.db') || name === 'secret.key'),
    [],
  );
});

test('DU-10: a restore beside another secret key is refused', async (t) => {
  const { backup, fingerprint } = await backUp(t);
  const other = await startProgram(t);
  await other.stop();
  const refused = await runProgram(['restore', backup, '--replace', '--data-dir', other.dataDirectory]);
  assert.equal(refused.code, CONFIGURATION_EXIT, refused.stderr);
  assert.match(refused.stderr, new RegExp(`another secret key \\(${fingerprint}\\) than the one in use`));
});

test('DU-10: a backup that includes the key is restored on a new machine, and the second factor works', async (t) => {
  const { backup } = await backUp(t, PASSPHRASE);
  const manifest = await readFile(join(backup, 'manifest.json'), 'utf8');
  assert.ok(!manifest.includes(await fixtureSecretKey()), 'the key is not in the backup as it is');
  const fresh = await temporaryFolder(t);
  const wrong = await runProgram(['restore', backup, '--key-passphrase-stdin', '--data-dir', fresh], {
    input: 'another passphrase\n',
  });
  assert.equal(wrong.code, 1, wrong.stderr);
  assert.match(wrong.stderr, /passphrase/);
  const restored = await runProgram(['restore', backup, '--key-passphrase-stdin', '--data-dir', fresh], {
    input: `${PASSPHRASE}\n`,
  });
  assert.equal(restored.code, 0, restored.stderr);
  const { url } = await startProgram(t, { dataDirectory: fresh });
  assert.equal(await logInWithSecondFactor(url), 200);
});

test('DU-10: a server refuses data of another secret key, and doctor says why', async (t) => {
  const program = await startProgram(t);
  await program.stop();
  await rm(join(program.dataDirectory, 'secret.key'));
  const missing = await runProgram(['serve', '--listen', '127.0.0.1:0', '--data-dir', program.dataDirectory]);
  assert.equal(missing.code, CONFIGURATION_EXIT, missing.stderr);
  assert.match(missing.stderr, /secret\.key does not exist/);
  assert.ok(!(await readdir(program.dataDirectory)).includes('secret.key'), 'no new key is created');

  await writeFile(join(program.dataDirectory, 'secret.key'), `${Buffer.alloc(32, 7).toString('base64')}\n`, {
    mode: 0o600,
  });
  const refused = await runProgram(['serve', '--listen', '127.0.0.1:0', '--data-dir', program.dataDirectory]);
  assert.equal(refused.code, CONFIGURATION_EXIT, refused.stderr);
  assert.match(refused.stderr, /The data of "\w+" is encrypted with another secret key \(/);
  const doctor = await runProgram(['doctor', '--json', '--data-dir', program.dataDirectory]);
  const { findings } = JSON.parse(doctor.stdout) as { findings: { name: string; state: string; text: string }[] };
  const finding = findings.find(({ name }) => name === 'secret key');
  assert.equal(finding?.state, 'broken');
  assert.match(finding?.text ?? '', /encrypted with the key/);

  const adopted = await runProgram(['secret-key', 'adopt', '--data-dir', program.dataDirectory]);
  assert.equal(adopted.code, 0, adopted.stderr);
  const again = await startProgram(t, { dataDirectory: program.dataDirectory });
  assert.equal((await fetch(`${again.url}/readyz`)).status, 200);
});

test('a rotated secret key is accepted while the old one stands behind it', async (t) => {
  const program = await startProgram(t);
  await program.stop();
  const file = join(program.dataDirectory, 'secret.key');
  const old = await readFile(file, 'utf8');
  await writeFile(file, `${Buffer.alloc(32, 9).toString('base64')}\n${old}`);
  const rotated = await startProgram(t, { dataDirectory: program.dataDirectory });
  await rotated.stop();
  await writeFile(file, old);
  const refused = await runProgram(['serve', '--listen', '127.0.0.1:0', '--data-dir', program.dataDirectory]);
  assert.equal(refused.code, CONFIGURATION_EXIT, 'the data now belongs to the new key');
});

test('DU-1: a server that starts while commands read waits for them, and commands wait for the server', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const list = () => runProgram(['nodes', '--json', '--data-dir', dataDirectory]);
  const commands = [list(), list(), list()];
  const program = startProgram(t, { dataDirectory });
  commands.push(list(), list());
  for (const { code, stderr } of await Promise.all(commands)) assert.equal(code, 0, stderr);
  assert.equal((await fetch(`${(await program).url}/readyz`)).status, 200);
});

async function backUp(scope: Scope, passphrase?: string): Promise<{ backup: string; fingerprint: string }> {
  const dataDirectory = await unpackFixture(scope);
  const backup = join(await temporaryFolder(scope), 'backup');
  const args = ['backup', backup, '--data-dir', dataDirectory];
  const done =
    passphrase === undefined
      ? await runProgram(args)
      : await runProgram([...args, '--key-passphrase-stdin'], { input: `${passphrase}\n` });
  assert.equal(done.code, 0, done.stderr);
  const manifest = JSON.parse(await readFile(join(backup, 'manifest.json'), 'utf8'));
  return { backup, fingerprint: manifest.secretKey.fingerprint };
}

async function logInWithSecondFactor(url: string): Promise<number> {
  const post = (path: string, body: object) =>
    fetch(`${url}/api/auth/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const login = await post('login', { identifier: 'Ben', password: facts.ben.password });
  const { mfa_ticket: ticket } = (await login.json()) as { mfa_ticket: string };
  const code = new TOTP({ secret: Secret.fromBase32(facts.ben.totp) }).generate();
  return (await post('mfa/verify', { mfa_ticket: ticket, code })).status;
}
