import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { WebSocketServer } from 'ws';
import type { CatalogAgent } from '../../src/bridge/agents/agent-catalog.ts';
import { createAgentProbe, createProgramProbe, type ProbeEffects } from '../../src/bridge/agents/agent-probe.ts';
import { createGatewayProbe } from '../../src/bridge/gateway/gateway-probe.ts';
import { until } from '../fakes/until.ts';

const never = new AbortController().signal;
const program: CatalogAgent = {
  id: 'codex',
  label: 'Codex',
  category: 'native',
  place: { kind: 'program', protocol: 'codex', command: 'codex', args: [], environment: { CODEX_HOME: '/x' } },
};

function effects(found: string | undefined, answer: { code: number; stdout: string }) {
  const runs: unknown[] = [];
  const probeEffects: ProbeEffects = {
    findProgram: () => Promise.resolve(found),
    run(file, args, environment) {
      runs.push([file, args, environment]);
      return Promise.resolve(answer);
    },
  };
  return { runs, probeEffects };
}

test('a program that is not on the path is not installed', async () => {
  const { probeEffects } = effects(undefined, { code: 0, stdout: '' });
  const probe = createAgentProbe({ agent: program, effects: probeEffects, ownVersion: '0' });
  assert.deepEqual(await probe(never), { status: 'not_installed', version: '' });
});

test('a program is asked for its version with its own environment, and again only when its file changed', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-probe-'));
  t.after(() => rm(folder, { recursive: true }));
  const file = join(folder, 'codex');
  await writeFile(file, '');
  const { runs, probeEffects } = effects(file, { code: 0, stdout: 'codex-cli 0.166.0\n' });
  const probe = createAgentProbe({ agent: program, effects: probeEffects, ownVersion: '0' });
  assert.deepEqual(await probe(never), { status: 'ok', version: '0.166.0' });
  await probe(never);
  assert.deepEqual(runs, [[file, ['--version'], { CODEX_HOME: '/x' }]]);
  await utimes(file, new Date(), new Date(0));
  await probe(never);
  assert.equal(runs.length, 2);
});

test('a program that fails is a failure, and is asked again the next time', async () => {
  const { runs, probeEffects } = effects(process.execPath, { code: 3, stdout: '' });
  const probe = createAgentProbe({ agent: program, effects: probeEffects, ownVersion: '0' });
  assert.equal((await probe(never)).status, 'failed: "codex --version" ended with 3');
  await probe(never);
  assert.equal(runs.length, 2);
});

test('an agent at an address is available while it answers as healthy', async (t) => {
  let status = 200;
  const server = createServer((_, response) => response.writeHead(status).end());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const agent: CatalogAgent = { ...program, place: { kind: 'remote', url, token: '' } };
  const { probeEffects } = effects(undefined, { code: 0, stdout: '' });
  const probe = createAgentProbe({ agent, effects: probeEffects, ownVersion: '0' });
  assert.equal((await probe(never)).status, 'ok');
  status = 503;
  assert.equal((await probe(never)).status, 'failed: status 503');
});

test('a gateway is available when it greets; no connection is left open', { timeout: 5000 }, async (t) => {
  assert.equal((await createGatewayProbe('')(never)).status, 'not_configured');
  const greeting = { text: JSON.stringify({ type: 'event', event: 'connect.challenge', payload: { nonce: 'n' } }) };
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  server.on('connection', (socket) => socket.send(greeting.text));
  await once(server, 'listening');
  t.after(() => server.close());
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  assert.equal((await createGatewayProbe(url)(never)).status, 'ok');
  greeting.text = 'hello';
  await assert.rejects(createGatewayProbe(url)(never), /not a gateway/);
  await assert.rejects(createGatewayProbe('ws://127.0.0.1:1')(never), /cannot connect/);
  await until('all connections to be closed', () => server.clients.size === 0);
});

test('a program of an npm package that is too slow to say its version is there all the same', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-probe-'));
  t.after(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, 'package', 'dist'), { recursive: true });
  await writeFile(join(folder, 'package', 'package.json'), '{"name":"slow","version":"4.5.6"}');
  await writeFile(join(folder, 'package', 'dist', 'slow.js'), '');
  await symlink(join(folder, 'package', 'dist', 'slow.js'), join(folder, 'slow'));
  await writeFile(join(folder, 'alone'), '');
  const probe = (program: string) =>
    createProgramProbe(
      { command: 'slow', environment: {} },
      { findProgram: async () => join(folder, program), run: () => Promise.reject(new Error('too slow')) },
    );
  assert.deepEqual(await probe('slow')(never), { status: 'ok', version: '4.5.6' });
  await assert.rejects(probe('alone')(never), { message: 'too slow' });
});
