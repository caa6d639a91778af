import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdtemp, realpath, rm, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { NO_FENCE } from '../../src/bridge/agents/agent-fence.ts';
import { connectAgent, createAgentLauncher } from '../../src/bridge/agents/agent-launcher.ts';
import { createAgentProbe, createBuiltinProbe, createProgramProbe } from '../../src/bridge/agents/agent-probe.ts';
import { createGatewayProbe } from '../../src/bridge/gateway/gateway-connection.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { silentLogger } from '../kit/silent-logger.ts';
import { until } from '../kit/until.ts';

const never = new AbortController().signal;
const FAKES = join(import.meta.dirname, '..', 'kit');

/** A probe of a real program, which is a script that runs one of the scripted agents with these flags. */
async function probeProgram(t: TestContext, script: string, protocol: 'acp' | 'codex' = 'acp', id = 'mine') {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-probe-')));
  t.after(() => rm(folder, { recursive: true }));
  const command = join(folder, 'agent');
  await writeFile(command, `#!/bin/sh\n${script}\n`);
  await chmod(command, 0o755);
  const clock = createFakeClock();
  let starts = 0;
  const launch = createAgentLauncher({
    environment: { PATH: process.env.PATH },
    folder,
    journalFolder: folder,
    programs: folder,
    fence: NO_FENCE,
  });
  const probe = createProgramProbe({
    id,
    place: { kind: 'program', protocol, command, args: [], environment: {} },
    effects: {
      findProgram: async () => command,
      launch(program) {
        starts += 1;
        return launch(program);
      },
      folder,
    },
    connect: (child) =>
      connectAgent(child, { protocol, permissions: 'allow', version: '0', clock: systemClock, logger: silentLogger }),
    clock,
  });
  return { probe, clock, command, starts: () => starts };
}

const runs = (agent: 'acp' | 'codex', flags = '') =>
  `exec ${process.execPath} ${join(FAKES, `scripted-${agent}-agent.ts`)} ${flags}`;

test('DU-17: a program that is not on the path is not installed, and the status says how to install it', async () => {
  for (const [id, command, advice] of [
    ['codex', 'codex', 'trestle agents install codex'],
    ['claude', 'claude-agent-acp', 'trestle agents install claude'],
    ['mine', 'mine', 'install "mine", or correct the command of the agent in the settings'],
    ['codex', '/opt/codex', 'install "/opt/codex", or correct the command of the agent in the settings'],
  ] as const) {
    const { look } = createProgramProbe({
      id,
      place: { kind: 'program', protocol: 'acp', command, args: [], environment: {} },
      effects: { findProgram: async () => undefined, launch: async () => undefined, folder: '/' },
      connect: () => Promise.reject(new Error('nothing runs')),
      clock: systemClock,
    });
    assert.deepEqual(await look(never), { status: 'not_installed', version: '', advice });
  }
});

test('a program that ends says why in its own words, and a file that is there and was not found is hidden by the sandbox', async (t) => {
  const says = (path: string) =>
    `printf 'node:internal/modules:1\n  throw err;\n\nError: Cannot find module "%s"\n    at main (x.js:1)\n' "${path}" >&2; exit 1`;
  const { probe, command } = await probeProgram(t, says('$0'));
  assert.deepEqual(await probe.look(never), {
    status: `failed: "agent" ended with exit code 1: Error: Cannot find module "${command}"`,
    version: '',
    advice: `the sandbox does not show ${command}: name its folder in bridge.sandbox_read_paths`,
  });
  const missing = await probeProgram(t, says('/no/such/file.js'));
  const { status, advice } = await missing.probe.look(never);
  assert.deepEqual(
    [status, advice],
    ['failed: "agent" ended with exit code 1: Error: Cannot find module "/no/such/file.js"', undefined],
  );
});

test('DB-13: the version is the one that the agent gives itself, not that of the program which runs it', async (t) => {
  const acp = await probeProgram(t, runs('acp'));
  assert.deepEqual(await acp.probe.look(never), { status: 'ok', version: '1.2.3' });
  const codex = await probeProgram(t, runs('codex'), 'codex');
  assert.deepEqual(await codex.probe.look(never), { status: 'ok', version: '0.166.0' });
});

test('a program is started again only when its file changed, or it has failed since', async (t) => {
  const { probe, clock, command, starts } = await probeProgram(t, runs('acp'));
  await probe.look(never);
  await clock.advance(3_600_000);
  await probe.look(never);
  assert.equal(starts(), 1);
  await utimes(command, new Date(), new Date(0));
  await probe.look(never);
  assert.equal(starts(), 2);
  probe.forget();
  await probe.look(never);
  assert.equal(starts(), 3);
});

test('a program that fails is a failure with its last words, and is started again after growing pauses', async (t) => {
  const { probe, clock, starts } = await probeProgram(t, 'echo no licence >&2; exit 3');
  assert.match((await probe.look(never)).status, /^failed: ".*ended with exit code 3/);
  await probe.look(never);
  assert.equal(starts(), 1);
  await clock.advance(30_000);
  await probe.look(never);
  await clock.advance(30_000);
  await probe.look(never);
  assert.equal(starts(), 2);
  await clock.advance(30_000);
  await probe.look(never);
  assert.equal(starts(), 3);
});

test('DB-11: an agent that nobody has logged in to says so, and what to do', async (t) => {
  const acp = await probeProgram(t, runs('acp', '--auth missing'));
  const found = await acp.probe.look(never);
  assert.equal(found.status, 'not_logged_in');
  assert.match(found.advice ?? '', /^log in with the agent's own command.*Log in \(run agent login\)/);
  // As Auggie does: no way to log in is offered, and the error says what to do.
  const silent = await probeProgram(t, runs('acp', '--auth unoffered'));
  const refused = await silent.probe.look(never);
  assert.equal(refused.status, 'not_logged_in');
  assert.match(refused.advice ?? '', /^log in with the agent's own command.*Authentication required/);
  const codex = await probeProgram(t, runs('codex', '--login missing'), 'codex');
  const advice = 'run "codex login" as the user that runs Trestle';
  assert.deepEqual(await codex.probe.look(never), { status: 'not_logged_in', version: '0.166.0', advice });
  for (const [agent, flags] of [
    ['acp', '--auth done'],
    ['codex', '--login done'],
  ] as const) {
    const { probe } = await probeProgram(t, runs(agent, flags), agent);
    assert.equal((await probe.look(never)).status, 'ok');
  }
});

test('a program that is slow to answer counts as installed, with its version unknown, and is looked at again', async (t) => {
  const { probe, clock, starts } = await probeProgram(t, runs('acp', '--hang initialize'));
  const timeUp = new AbortController();
  const found = probe.look(timeUp.signal);
  await new Promise((resolve) => setTimeout(resolve, 300));
  timeUp.abort();
  const { status, version } = await found;
  assert.deepEqual([status, version], ['ok', '']);
  await clock.advance(30_000);
  await probe.look(timeUp.signal);
  assert.equal(starts(), 2);
});

test('DU-15: the built-in agent shows its model, and what is missing to use it', async () => {
  assert.deepEqual(await createBuiltinProbe('1', 'demo/echo', undefined)(never), {
    status: 'ok',
    version: '1',
    model: 'demo/echo',
  });
  const missing = await createBuiltinProbe('1', 'openai/x', 'set OPENAI_API_KEY to use "openai/x"')(never);
  assert.deepEqual([missing.status, missing.advice], ['not_configured', 'set OPENAI_API_KEY to use "openai/x"']);
});

test('an agent at an address is available while it answers as healthy', async (t) => {
  let status = 200;
  const server = createServer((_, response) => response.writeHead(status).end());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const probe = createAgentProbe({
    agent: { id: 'far', label: 'Far', category: 'native', place: { kind: 'remote', url, token: '' } },
    effects: { findProgram: async () => undefined, launch: async () => undefined, folder: '/' },
    connect: () => Promise.reject(new Error('nothing runs')),
    clock: systemClock,
    builtin: createBuiltinProbe('0', '', undefined),
  });
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
