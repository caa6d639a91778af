import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { AgentProvider, LoginReport } from '../../../src/bridge/agents/agent-provider.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { bearer } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);
const REPORT: LoginReport = { loggedIn: false, methods: [], command: 'agent login', text: 'Run: agent login' };

let probes = 0;
let entered = Promise.withResolvers<void>();
let release = Promise.withResolvers<void>();
const worker: AgentProvider = {
  ...createScriptedProvider('worker', async ({ prompt, report }) => {
    report({ kind: 'text', text: `heard ${prompt}` });
    return { kind: 'completed', output: `heard ${prompt}`, stopReason: 'end_turn' };
  }),
  async probe() {
    probes += 1;
    return { status: 'ok', version: '' };
  },
  async logIn(methodId) {
    entered.resolve();
    await release.promise;
    return { ...REPORT, text: methodId ?? REPORT.text };
  },
};
const broken = createScriptedProvider('broken', async () => ({
  kind: 'failed',
  code: 'AGENT_FAILED',
  error: 'no model',
  output: '',
}));
const { url } = await startBridge(
  { after },
  {
    providers: [worker, broken],
    isGuarded: true,
    installer: {
      async install(id, { timeoutMs, signal }) {
        if (id !== 'worker' && id !== 'claude') throw new AppError('AGENT_UNKNOWN', { agent: id, known: 'claude' });
        assert.ok(timeoutMs <= 5 * 60_000 && signal?.aborted === false);
        return '1.2.3';
      },
    },
  },
);

async function post(path: string, headers = main, body?: object) {
  const response = await fetch(`${url}/api/bridge/agents/${path}`, {
    method: 'POST',
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

test('a test runs one turn of the caller and closes its session', async () => {
  for (const headers of [main, review]) {
    const { status, body } = await post('worker/test', headers);
    const { firstMs, durationMs, ...rest } = body;
    assert.deepEqual(
      [status, rest],
      [200, { providerId: 'worker', status: 'completed', output: 'heard Say OK', error: '', code: '' }],
    );
    assert.ok(Number(firstMs) <= Number(durationMs));
  }
  const failed = (await post('broken/test')).body;
  assert.deepEqual([failed.status, failed.error, failed.code], ['failed', 'no model', 'AGENT_FAILED']);
  const listed = await fetch(`${url}/api/bridge/sessions`, { headers: main });
  assert.deepEqual(((await listed.json()) as { sessions: unknown[] }).sessions, []);
  const unknown = await post('nobody/test');
  assert.deepEqual([unknown.status, unknown.body.error], [404, 'agent_unknown']);
  assert.match(String(unknown.body.message), /Known agents: worker, broken/);
});

test('an install is for administrators, looks at the agent again, and says whether it is offered', async () => {
  const before = probes;
  assert.deepEqual(await post('worker/install'), {
    status: 200,
    body: { providerId: 'worker', version: '1.2.3', offered: true },
  });
  await until('the agent is looked at', () => probes > before);
  assert.equal((await post('claude/install')).body.offered, false);
  assert.equal((await post('nobody/install')).status, 404);
  for (const path of ['worker/install', 'worker/login']) {
    const { status, body } = await post(path, review, path.endsWith('login') ? {} : undefined);
    assert.deepEqual([status, body.error], [403, 'forbidden'], path);
  }
});

test('a login returns what the agent says; a second one of the same agent is refused until the first has ended', async () => {
  entered = Promise.withResolvers();
  release = Promise.withResolvers();
  const first = post('worker/login', main, { methodId: 'by-key' });
  await entered.promise;
  const second = await post('worker/login', main, {});
  assert.deepEqual([second.status, second.body.error], [409, 'agent_logging_in']);
  release.resolve();
  assert.deepEqual((await first).body, { providerId: 'worker', ...REPORT, text: 'by-key' });
  assert.equal((await post('worker/login', main, {})).body.text, REPORT.text);
  const without = await post('broken/login', main, {});
  assert.deepEqual([without.status, without.body.error], [409, 'agent_without_login']);
  const wrong = await post('worker/login', main, { methodId: 5 });
  assert.deepEqual([wrong.status, wrong.body.error], [400, 'invalid_request']);
});
