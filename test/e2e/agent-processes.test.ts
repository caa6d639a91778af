import assert from 'node:assert/strict';
import { mkdir, readFile, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type TestContext, test } from 'node:test';
import { readProcess } from '../../src/platform/child-process/process-table.ts';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const TOKEN = 'main-token-0123456789abcdef';
const SECRETS = {
  BRIDGE_AUTH_TOKEN: TOKEN,
  BRIDGE_REVIEW_AUTH_TOKEN: 'review-token-0123456789abcdef',
  GATEWAY_TOOLS_TOKEN: 'tools-token-0123456789abcdef',
  BRIDGE_WEBHOOK_SECRET: 'webhook-secret-0123456789abcdef',
  OTHER_KEY: 'key-of-another-agent-0123456789',
};

/** The program with a scripted agent, and another agent whose key is a secret to the first. */
async function startWithAgent(t: TestContext, flags: readonly string[] = [], dataDirectory?: string) {
  const folder = await realpath(await temporaryFolder(t));
  const work = join(folder, 'work');
  await mkdir(work);
  const custom = [
    { id: 'scripted', command: process.execPath, args: [AGENT, ...flags], env: { OWN_KEY: 'its own key' } },
    { id: 'other', command: 'other', env: { KEY: SECRETS.OTHER_KEY } },
  ];
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ agents: { catalog: ['builtin'], custom } }));
  const program = await startProgram(t, {
    args: ['--config', config],
    environment: SECRETS,
    ...(dataDirectory !== undefined && { dataDirectory }),
  });
  return { program, work };
}

function start(program: RunningProgram, sessionId: string, taskPrompt: string, workingDirectory: string) {
  const routing = { explicitProviderId: 'scripted' };
  return callBridge(program.url, 'session.start', { sessionId, taskPrompt, workingDirectory, routing }, TOKEN);
}

const isText = ({ type }: Readonly<Record<string, unknown>>) => type === 'delta';

/** The agent's own process: the parent of the one that the prompt `child` names. */
function agentOf(child: number): number {
  return readProcess(child)?.parent ?? 0;
}

async function gone(pids: readonly number[]): Promise<void> {
  await until(`these to be gone: ${pids}`, () => pids.every((pid) => readProcess(pid) === undefined));
}

test('B-57: nothing that the running bridge keeps secret reaches the environment of an agent', async (t) => {
  const { program, work } = await startWithAgent(t);
  const { result } = await start(program, 's', 'environment', work).answer;
  const { variables } = JSON.parse(String(result?.output)) as { variables: Record<string, string> };
  assert.equal(variables.OWN_KEY, 'its own key');
  const text = JSON.stringify(variables);
  for (const [name, value] of Object.entries(SECRETS)) {
    assert.ok(!(name in variables), name);
    assert.ok(!text.includes(value), name);
  }
});

test('B-53: session.close during a running turn leaves no process of the agent', async (t) => {
  const { program, work } = await startWithAgent(t, ['--stubborn']);
  const turn = start(program, 's', 'child', work);
  await turn.until(isText);
  const child = Number(turn.updates.find(isText)?.delta);
  const pids = [child, agentOf(child)];
  const closed = await callBridge(program.url, 'session.close', { sessionId: 's' }, TOKEN).answer;
  assert.deepEqual(closed.result, { accepted: true });
  await gone(pids);
  await turn.answer;
});

test('DB-8: what an agent keeps of a closed session is in the audit log', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const { program, work } = await startWithAgent(t, [], dataDirectory);
  await start(program, 's', 'say x', work).answer;
  await callBridge(program.url, 'session.close', { sessionId: 's' }, TOKEN).answer;
  const query = "SELECT owner, session_id, provider_id, decision, subject FROM audit_records WHERE action = 'delete'";
  const rows = () => {
    const database = new DatabaseSync(join(dataDirectory, 'bridge.db'), { readOnly: true });
    try {
      return database.prepare(query).all();
    } finally {
      database.close();
    }
  };
  await until('the record', () => rows().length > 0);
  assert.deepEqual(
    { ...rows()[0] },
    {
      owner: 'main',
      session_id: 's',
      provider_id: 'scripted',
      decision: 'incomplete',
      subject: '{"what":"the agent offers no way to delete a conversation"}',
    },
  );
});

test('B-61: an agent that is killed in the middle of a turn is a failed result, and the next turn runs', async (t) => {
  const { program, work } = await startWithAgent(t);
  const turn = start(program, 's', 'child', work);
  await turn.until(isText);
  const before = performance.now();
  process.kill(agentOf(Number(turn.updates.find(isText)?.delta)), 'SIGKILL');
  const { result } = await turn.answer;
  assert.ok(performance.now() - before < timeLimit(1500));
  assert.deepEqual([result?.success, result?.status, result?.code], [false, 'failed', 'AGENT_EXITED']);
  const next = await start(program, 's', 'say again', work).answer;
  assert.equal(next.result?.output, 'again');
});

test('after kill -9 of the bridge, what its agents left is ended at the next start, and noted nowhere', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const { program, work } = await startWithAgent(t, ['--stubborn'], dataDirectory);
  const turn = start(program, 's', 'child', work);
  turn.answer.catch(() => undefined);
  await turn.until(isText);
  const child = Number(turn.updates.find(isText)?.delta);
  const pids = [child, agentOf(child)];
  await program.stop('SIGKILL');
  assert.ok(pids.every((pid) => readProcess(pid) !== undefined));
  const second = await startWithAgent(t, [], dataDirectory);
  await gone(pids);
  assert.equal(await second.program.stop(), 0);
});

test('B-63: a decision about a permission is an update of the session', async (t) => {
  const { program, work } = await startWithAgent(t);
  const turn = start(program, 's', 'ask', work);
  const { result } = await turn.answer;
  assert.equal(result?.output, 'answered selected once');
  const shown = turn.updates.filter(({ message }) => String(message).includes('touch made'));
  assert.ok(
    shown.some(({ event, structuredEvent }) => event === 'status' && Object(structuredEvent).kind === 'status'),
  );
  assert.equal(await readFile(join(work, 'made'), 'utf8'), '');
});
