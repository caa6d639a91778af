import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { readProcess } from '../../src/platform/child-process/process-table.ts';
import { callBridge, type StreamedCall } from '../kit/bridge/agent-session.ts';
import { type RunningProgram, startProgram } from '../kit/running-program.ts';
import type { ScriptedModel } from '../kit/scripted-model.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';
import { startObedientModel } from './obedient-model.ts';
import { newestFirst, type RealAgentId, realFolder, setUpAgent } from './real-agent.ts';

const AGENTS: readonly RealAgentId[] = ['codex', 'opencode', 'gemini'];
/** Whose conversations outlive a restart of the bridge. */
const LASTING: ReadonlySet<RealAgentId> = new Set(['codex', 'opencode']);

const wholeFile = newestFirst({ after });
let model: ScriptedModel;
let folder: string;
let bridge: RunningProgram;

before(async () => {
  model = await startObedientModel();
  wholeFile.after(() => model.stop());
  folder = await realFolder(wholeFile, 'trestle-bridge-');
  const agents: Record<string, unknown> = { catalog: AGENTS, default: 'codex' };
  for (const id of AGENTS) {
    const { command, args, environment } = await setUpAgent(wholeFile, id, model.url);
    agents[id] = { command, args, env: environment };
  }
  await writeFile(join(folder, 'trestle.yaml'), JSON.stringify({ agents }));
  bridge = await startBridge();
});

function startBridge(): Promise<RunningProgram> {
  const args = ['--config', join(folder, 'trestle.yaml')];
  return startProgram(wholeFile, { args, dataDirectory: join(folder, 'data') });
}

function run(method: string, sessionId: string, taskPrompt: string, more: object): StreamedCall {
  return callBridge(bridge.url, method, { sessionId, taskPrompt, ...more });
}

async function ask(method: string, sessionId: string, taskPrompt: string, more: object) {
  const call = run(method, sessionId, taskPrompt, more);
  return { ...call, answer: await call.answer };
}

const on = (id: RealAgentId) => ({ routing: { explicitProviderId: id } });
const isText = ({ type }: Readonly<Record<string, unknown>>) => type === 'delta';

test('the agents appear by themselves, with their versions', async () => {
  const probes = async () => {
    const { result } = await callBridge(bridge.url, 'acp.capabilities', {}).answer;
    return (result?.providerCatalog ?? []) as { providerId: string; enabled: boolean; version: string }[];
  };
  // An agent that answers too late on a busy machine is offered without its version, and is asked again.
  const isKnown = ({ enabled, version }: { enabled: boolean; version: string }) => enabled && version !== '';
  await until('every agent to be found', async () => (await probes()).every(isKnown), 200_000);
  for (const { providerId, version } of await probes()) assert.match(version, /^\d+\.\d+\.\d+/, providerId);
});

for (const id of AGENTS) {
  test(`${id}: an app gets streamed text, a tool with its permission, and the result`, async (t) => {
    const workingDirectory = await realFolder(t, 'work-');
    const { answer, updates } = await ask('session.start', `${id}-tool`, 'RUN touch made', {
      workingDirectory,
      ...on(id),
    });
    assert.equal(answer.result?.status, 'completed', JSON.stringify(answer));
    assert.equal(answer.result?.resolvedProviderId, id);
    assert.match(String(answer.result?.output), /^It printed: /);
    assert.ok(existsSync(join(workingDirectory, 'made')));
    const texts = updates.filter(isText).map(({ delta }) => delta);
    assert.equal(texts.join(''), `I run it.${String(answer.result?.output)}`);
    assert.ok(updates.some(({ message, event }) => event === 'status' && /touch made/.test(String(message))));
    const kinds = updates.flatMap(({ structuredEvent }) => (structuredEvent as { kind?: string })?.kind ?? []);
    assert.deepEqual([...new Set(kinds)].sort(), ['status', 'text', 'tool_call']);
  });

  test(`${id}: an app cancels a turn and goes on`, async (t) => {
    const workingDirectory = await realFolder(t, 'work-');
    const sessionId = `${id}-cancel`;
    const turn = run('session.start', sessionId, 'SAY alpha, then WAIT', { workingDirectory, ...on(id) });
    await turn.until(isText);
    const started = performance.now();
    await callBridge(bridge.url, 'session.cancel', { sessionId }).answer;
    const { result } = await turn.answer;
    assert.ok(performance.now() - started < timeLimit(5000));
    assert.deepEqual([result?.status, result?.code], ['cancelled', 'TURN_CANCELLED']);
    const next = await ask('session.message', sessionId, 'SAY beta', { workingDirectory });
    assert.equal(next.answer.result?.status, 'completed', JSON.stringify(next.answer));
  });
}

test('sessions of all agents run at the same time, and each keeps to itself', async (t) => {
  const sessions = AGENTS.flatMap((id) => ['x', 'y'].map((word) => ({ id, word, sessionId: `${id}-both-${word}` })));
  const outputs = await Promise.all(
    sessions.map(async ({ id, word, sessionId }) => {
      const workingDirectory = await realFolder(t, 'work-');
      await ask('session.start', sessionId, `SAY ${word}${id}`, { workingDirectory, ...on(id) });
      const { answer } = await ask('session.message', sessionId, 'RECALL', { workingDirectory });
      return answer.result?.output;
    }),
  );
  assert.deepEqual(
    outputs,
    sessions.map(({ id, word }) => `Said: ${word}${id}.`),
  );
});

test('after a restart of the bridge, conversations go on where the agent keeps them, and are an error where not', async (t) => {
  const workingDirectory = await realFolder(t, 'work-');
  for (const id of AGENTS) await ask('session.start', `${id}-later`, 'SAY alpha', { workingDirectory, ...on(id) });
  assert.equal(await bridge.stop(), 0);
  bridge = await startBridge();
  const requests = model.requests.length;
  for (const id of AGENTS) {
    const { answer } = await ask('session.message', `${id}-later`, 'RECALL', { workingDirectory });
    if (LASTING.has(id)) {
      assert.equal(answer.result?.output, 'Said: alpha.', JSON.stringify(answer));
      continue;
    }
    assert.equal(answer.error?.code, -32002);
    assert.match(String(answer.error?.message), /^SESSION_CONTINUATION_UNAVAILABLE: /);
    assert.deepEqual(answer.error?.data, {
      code: 'SESSION_CONTINUATION_UNAVAILABLE',
      sessionId: `${id}-later`,
      threadId: `${id}-later`,
      providerId: id,
    });
  }
  assert.equal(model.requests.length - requests, LASTING.size, 'no other conversation was opened instead');
});

test('after kill -9 of the bridge no agent is left, and conversations go on', async (t) => {
  const workingDirectory = await realFolder(t, 'work-');
  const turns = AGENTS.map((id) =>
    run('session.start', `${id}-killed`, 'SAY alpha, then WAIT', { workingDirectory, ...on(id) }),
  );
  for (const turn of turns) turn.answer.catch(() => undefined);
  await Promise.all(turns.map((turn) => turn.until(isText)));
  const children = processesOf(bridge.pid);
  assert.ok(children.length >= AGENTS.length);
  await bridge.stop('SIGKILL');
  bridge = await startBridge();
  await until(`these to be gone: ${children}`, () => children.every((pid) => readProcess(pid) === undefined));
  for (const id of LASTING) {
    const { answer } = await ask('session.message', `${id}-killed`, 'RECALL', { workingDirectory });
    assert.equal(answer.result?.output, 'Said: alpha.', JSON.stringify(answer));
  }
});

/** All living processes that came from one. */
function processesOf(parent: number): readonly number[] {
  const table = readdirSync('/proc').flatMap((name) => readProcess(Number(name)) ?? []);
  const found = new Set([parent]);
  for (let size = 0; size !== found.size; ) {
    size = found.size;
    for (const entry of table) if (found.has(entry.parent)) found.add(entry.pid);
  }
  found.delete(parent);
  return [...found];
}
