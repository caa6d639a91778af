import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { describeError, platformErrors } from '../../../src/platform/errors/error-table.ts';
import { refusalToListen } from '../../../src/platform/http/listen-address.ts';
import { exchange, statusOf } from '../../kit/raw-connection.ts';
import { echoOf, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';

const routes = [routeOf({ path: '/lab/ok' })];
/** Of a version that nobody speaks: where the Host is allowed, the answer is 426. */
const UPGRADE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 99\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

test('B-24: a public address is refused while anything on it asks for no credential, and the refusal says what to set', () => {
  const open = surfaceOf({ title: 'Lab', isOpen: () => true, credentialSetting: 'lab.token' });
  const shut = surfaceOf({ title: 'Vault' });
  const reason = refusalToListen({ host: '0.0.0.0', insecure: false, surfaces: [shut, open] });
  assert.match(reason ?? '', /0\.0\.0\.0 .*Lab.*set lab\.token.*--insecure/);
  assert.doesNotMatch(reason ?? '', /Vault|\n/);
  for (const host of [
    '::',
    '192.168.1.5',
    '203.0.113.1',
    'example.org',
    'localhost.example.org',
    '',
    '127.0.0.1.nip.io',
  ]) {
    assert.notEqual(refusalToListen({ host, insecure: false, surfaces: [open] }), undefined, host);
  }
  for (const host of ['127.0.0.1', '127.8.8.8', '::1', 'localhost', '::ffff:127.0.0.1']) {
    assert.equal(refusalToListen({ host, insecure: false, surfaces: [open] }), undefined, host);
  }
  assert.equal(refusalToListen({ host: '0.0.0.0', insecure: true, surfaces: [open] }), undefined);
  assert.equal(refusalToListen({ host: '0.0.0.0', insecure: false, surfaces: [shut] }), undefined);
});

test('B-24: start refuses such an address, and takes it with the explicit flag', async (t) => {
  const surfaces = [surfaceOf({ isOpen: () => true, routes })];
  const address = { host: '0.0.0.0', port: 0 };
  await assert.rejects(startListener(t, { surfaces, address }), { code: 'LISTEN_REFUSED' });
  const { url } = await startListener(t, { surfaces, address, insecure: true });
  assert.equal((await fetch(`${url}/lab/ok`)).status, 200);
});

test('B-33: while nothing asks for a credential, the Host must be a name of this machine or an allowed one', async (t) => {
  const surfaces = [surfaceOf({ isOpen: () => true, routes, upgrades: [echoOf()] })];
  const { bound } = await startListener(t, { surfaces, allowedHosts: ['Bridge.example', 'other.example:8443'] });
  const ask = async (hosts: string[], version = '1.1') => {
    const lines = hosts.map((host) => `Host: ${host}\r\n`).join('');
    const get = `GET /lab/ok HTTP/${version}\r\n${lines}Connection: close\r\n\r\n`;
    const upgrade = `GET /lab/socket HTTP/1.1\r\n${lines}${UPGRADE}\r\n`;
    return [statusOf(await exchange(t, bound.port, get)), statusOf(await exchange(t, bound.port, upgrade))];
  };
  const allowed = ['localhost', 'LOCALHOST:8787', '127.0.0.1', '127.1.2.3:80', '[::1]', '[::1]:8787', 'app.localhost'];
  for (const host of [...allowed, 'bridge.example', 'BRIDGE.example:99', 'other.example:8443']) {
    assert.deepEqual(await ask([host]), [200, 426], host);
  }
  const foreign = ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', 'other.example', '192.168.0.1'];
  for (const host of [...foreign, '', 'localhost:99999', 'localhost,evil.example', '127.0.0.1@evil.example', '[::2]']) {
    assert.deepEqual(await ask([host]), [421, 421], host);
  }
  assert.deepEqual(await ask([]), [421, 421], 'none');
  assert.deepEqual(await ask([], '1.0'), [421, 421], 'none, in the old version');
  assert.deepEqual(await ask(['localhost', 'localhost']), [421, 421], 'two');
});

test('B-33: with a credential any one Host will do, and a reload that takes it away counts immediately', async (t) => {
  let open = false;
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ isOpen: () => open, routes })] });
  const ask = async (hosts: string, version = '1.1') =>
    statusOf(await exchange(t, bound.port, `GET /lab/ok HTTP/${version}\r\n${hosts}Connection: close\r\n\r\n`));
  assert.equal(await ask('Host: evil.example\r\n'), 200);
  assert.equal(await ask(''), 400);
  assert.equal(await ask('', '1.0'), 200);
  assert.equal(await ask('Host: a\r\nHost: a\r\n'), 400);
  open = true;
  assert.equal(await ask('Host: evil.example\r\n'), 421);
});

test('B-33: on a public address opened on purpose an address literal is no rebinding, a foreign name is', async (t) => {
  let open = true;
  const surfaces = [surfaceOf({ isOpen: () => open, routes })];
  const address = { host: '0.0.0.0', port: 0 };
  const ask = async (port: number, host: string) =>
    statusOf(await exchange(t, port, `GET /lab/ok HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`));
  const insecure = await startListener(t, { surfaces, address, insecure: true });
  assert.equal(await ask(insecure.bound.port, '192.168.0.1:8787'), 200);
  assert.equal(await ask(insecure.bound.port, 'localhost'), 200);
  assert.equal(await ask(insecure.bound.port, 'evil.example'), 421);
  open = false;
  const guarded = await startListener(t, { surfaces, address });
  assert.equal(await ask(guarded.bound.port, 'evil.example'), 200);
  open = true;
  assert.equal(await ask(guarded.bound.port, '127.0.0.1'), 421, 'a credential that a reload took away opens nothing');
});

test('O-09: a port in use is one line that names the port and who holds it', async (t) => {
  const other = createServer().listen(0, '127.0.0.1');
  t.after(() => other.close());
  await once(other, 'listening');
  const { port } = other.address() as AddressInfo;
  const error = await startListener(t, { address: { host: '127.0.0.1', port } }).then(
    () => assert.fail('it started'),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof AppError);
  const { code, message } = describeError(platformErrors, error);
  assert.equal(code, 'PORT_IN_USE');
  const owner = process.platform === 'linux' ? ` by node \\S+ \\(pid ${process.pid}\\)` : '';
  assert.match(message, new RegExp(`^Port ${port} on 127\\.0\\.0\\.1 is in use${owner};`));
});

test('an address that this machine does not have is named', async (t) => {
  const address = { host: '192.0.2.1', port: 0 };
  await assert.rejects(startListener(t, { address }), { code: 'ADDRESS_NOT_AVAILABLE' });
});

test('two rows for one method and path are refused before the address is opened', async (t) => {
  await assert.rejects(startListener(t, { surfaces: [surfaceOf({ routes: [...routes, ...routes] })] }));
});
