import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import { type TestContext, test } from 'node:test';
import { systemClock } from '../../src/platform/clock/clock.ts';
import {
  createModelAccess,
  createModelGate,
  type FencedPrograms,
  openAgentSandbox,
  refuseAll,
  sandboxFinding,
} from '../../src/system/agent-sandbox.ts';
import { listenOnLoopback } from '../kit/loopback-server.ts';

/** The gate of the networks of two people, and what reaches the program behind it. */
async function startGate(t: TestContext) {
  const seen: IncomingHttpHeaders[] = [];
  const program = await listenOnLoopback(
    createServer((request, response) => {
      seen.push(request.headers);
      response.end('{}');
    }),
  );
  const programs: FencedPrograms = new Map();
  const gate = createModelGate({
    url: () => program.url,
    keyOf: ({ owner }) => `key of ${owner}`,
    programs,
    tools: () => undefined,
  });
  let network = 'user:ann';
  const entrance = await listenOnLoopback(createServer((request, response) => gate(network, request, response)));
  for (const server of [program, entrance]) t.after(() => server.close());
  const ended: string[] = [];
  const completions = {
    keyForProgram: () => ({
      key: 'key of the process',
      meter: () => () => 1,
      follow: () => undefined,
      end: () => void ended.push('key'),
    }),
  };
  const access = createModelAccess({ url: () => program.url, planned: '' }, completions, programs);
  /** The credential that a call arrives with. */
  const arriving = async (headers: Readonly<Record<string, string>>, from = 'user:ann') => {
    network = from;
    await (await fetch(`${entrance.url}/v1/models`, { headers })).text();
    const { authorization, 'x-api-key': key, 'x-goog-api-key': google } = seen.at(-1) ?? {};
    return [authorization, key, google].filter((one) => one !== undefined).join(' and ');
  };
  return { access, arriving, ended };
}

test('a program in the sandbox is told apart by a word that opens nothing itself', async (t) => {
  const { access, arriving, ended } = await startGate(t);
  const models = access({ owner: 'user:ann' }, true);
  assert.ok(models !== undefined && !models.key.includes('key of the process'));
  assert.equal(models.meter?.()(), 1);
  for (const headers of [
    { authorization: `Bearer ${models.key}` },
    { 'x-api-key': models.key },
    { 'x-goog-api-key': models.key },
  ]) {
    assert.equal(await arriving(headers), 'Bearer key of the process');
  }
  assert.equal(await arriving({ authorization: 'Bearer anything' }), 'Bearer key of user:ann');
  assert.equal(await arriving({ authorization: `Bearer ${models.key}` }, 'user:bob'), 'Bearer key of user:bob');
  models.end();
  assert.deepEqual(ended, ['key']);
  assert.equal(await arriving({ authorization: `Bearer ${models.key}` }), 'Bearer key of user:ann');
});

for (const system of ['darwin', 'win32']) {
  test(`on ${system}, where there is no sandbox, agents run without one only where that is allowed`, async (t) => {
    const real = Object.getOwnPropertyDescriptor(process, 'platform') ?? {};
    Object.defineProperty(process, 'platform', { ...real, value: system });
    t.after(() => Object.defineProperty(process, 'platform', real));
    const bridge = (more: object) => ({
      limits: {},
      sandbox_program: '',
      sandbox_hosts: [],
      trust_users: false,
      ...more,
    });
    const given = (more: object, plans: object = {}) =>
      ({
        settings: { bridge: bridge(more), plans },
        environment: {},
        clock: systemClock,
        serveOwn: refuseAll,
      }) as unknown as Parameters<typeof openAgentSandbox>[0];
    const people = { team: { bridge: true } };
    const reason = 'it needs Linux';
    assert.equal(await openAgentSandbox(given({ sandbox: 'auto' })), undefined);
    assert.equal(await openAgentSandbox(given({ sandbox: 'auto', trust_users: true }, people)), undefined);
    await assert.rejects(openAgentSandbox(given({ sandbox: 'require' })), {
      code: 'SANDBOX_UNAVAILABLE',
      details: { reason },
    });
    await assert.rejects(openAgentSandbox(given({ sandbox: 'auto' }, people)), {
      code: 'PEOPLE_NEED_SANDBOX',
      details: { plan: 'team', reason },
    });
    const shown = await sandboxFinding(given({ sandbox: 'auto' }));
    assert.match(JSON.stringify(shown), /not in force: it needs Linux; until then agents can read and change whatever/);
    assert.match(JSON.stringify(await sandboxFinding(given({ sandbox: 'require' }))), /required, and it needs Linux/);
  });
}
