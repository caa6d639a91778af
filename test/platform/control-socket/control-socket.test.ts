import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Type } from 'typebox';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { callControlSocket, serveControlSocket } from '../../../src/platform/control-socket/control-socket.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { platformErrors } from '../../../src/platform/errors/error-table.ts';
import { createDispatch, defineMethod } from '../../../src/platform/json-rpc/method-table.ts';

const echo = defineMethod({
  name: 'echo',
  summary: 'Answers with what it was given.',
  params: Type.Object({ text: Type.String() }),
  result: Type.Object({ text: Type.String() }),
  handle: ({ text }) => ({ text }),
});

async function folderFor(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-control-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function serve(t: TestContext, file: string): Promise<void> {
  const socket = await serveControlSocket({
    file,
    dispatch: createDispatch({ rows: [echo] }),
    errors: platformErrors,
    clock: systemClock,
    makeRequestId: () => 'req_1',
    onUnexpectedError: () => {},
  });
  t.after(() => socket.close());
}

test('a command calls the server that owns the data, and only its owner may', async (t) => {
  const file = join(await folderFor(t), 'x.sock');
  await serve(t, file);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  assert.deepEqual(await callControlSocket(file, 'echo', { text: 'hello' }, 2000), { result: { text: 'hello' } });
  await assert.rejects(callControlSocket(file, 'nope', {}, 2000), AppError);
});

test('where no server runs there is no answer: no file, a file left by a killed server, or something else', async (t) => {
  const folder = await folderFor(t);
  assert.equal(await callControlSocket(join(folder, 'none.sock'), 'echo', {}, 2000), undefined);
  const plain = join(folder, 'plain.sock');
  await writeFile(plain, '');
  assert.equal(await callControlSocket(plain, 'echo', {}, 2000), undefined);
});

test('a socket file that a killed server left is replaced', async (t) => {
  const file = join(await folderFor(t), 'x.sock');
  await writeFile(file, '');
  await serve(t, file);
  assert.deepEqual(await callControlSocket(file, 'echo', { text: 'x' }, 2000), { result: { text: 'x' } });
});

test('a path longer than the address of a socket works too', {
  skip: process.platform !== 'linux',
}, async (t) => {
  const folder = join(await folderFor(t), 'a'.repeat(100), 'b'.repeat(100));
  await mkdir(folder, { recursive: true });
  const file = join(folder, 'x.sock');
  await serve(t, file);
  assert.deepEqual(await callControlSocket(file, 'echo', { text: 'far' }, 2000), { result: { text: 'far' } });
});

test('a server that does not answer is given up after the time limit', async (t) => {
  const file = join(await folderFor(t), 'silent.sock');
  const silent = createServer();
  await new Promise<void>((resolve) => silent.listen(file, resolve));
  t.after(() => silent.close());
  await assert.rejects(callControlSocket(file, 'echo', {}, 50), { code: 'CALL_TIMEOUT' });
});
