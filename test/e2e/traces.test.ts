import assert from 'node:assert/strict';
import { chmod, mkdir, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { callBridge } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { startSpanCollector } from '../kit/span-collector.ts';
import { until } from '../kit/until.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const AGENT = join(ROOT, 'test', 'kit', 'scripted-acp-agent.ts');
const { program: BUBBLEWRAP, missing } = await findBubblewrap();

/** Has the agent's program call our models as its variables say. */
const CALL_MODEL = `sh curl -sS -m 20 -H 'content-type: application/json' -H "authorization: Bearer $OPENAI_API_KEY" -d '{"model":"demo/echo","messages":[{"role":"user","content":"from-the-program"}]}' $OPENAI_BASE_URL/chat/completions`;

/** The program with a collector, and an agent that has the name of a preset, so that it gets our models. */
async function startTraced(scope: Scope, bridge: object) {
  const collector = await startSpanCollector(scope);
  const folder = await realpath(await temporaryFolder(scope));
  const home = join(folder, 'home');
  await mkdir(home);
  const command = join(folder, 'qwen');
  await writeFile(command, `#!/bin/sh\nexec ${process.execPath} ${AGENT}\n`);
  await chmod(command, 0o755);
  const settings = {
    bridge: { workspace_roots: [home], sandbox_read_paths: [ROOT, command], ...bridge },
    agents: {
      catalog: ['builtin'],
      custom: [{ id: 'qwen', command }],
      models: 'ours',
      model: 'demo/echo',
      builtin: { model: 'demo/echo' },
    },
    telemetry: { otlp_endpoint: collector.url },
  };
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify(settings));
  const program = await startProgram(scope, { args: ['--config', config], environment: { HOME: home } });
  const spans = () => collector.requests.flatMap((request) => request.spans);
  const run = async (agent: string, taskPrompt: string, more: object = {}) => {
    const params = {
      sessionId: `${agent}-${taskPrompt.length}`,
      taskPrompt,
      workingDirectory: home,
      routing: { explicitProviderId: agent },
      ...more,
    };
    const { result, error } = await callBridge(program.url, 'session.start', params).answer;
    assert.equal(result?.status, 'completed', JSON.stringify([result, error]));
    return String(result?.output);
  };
  const named = async (name: RegExp) => {
    await until(`a span ${name}`, () => spans().some((span) => name.test(span.name)), 20_000);
    return spans().filter((span) => name.test(span.name));
  };
  return { run, named, spans };
}

for (const [where, bridge, skip] of [
  ['without a sandbox', { sandbox: 'off' }, false],
  ['in the sandbox', { sandbox: 'require', sandbox_program: BUBBLEWRAP }, missing],
] as const) {
  test(`model calls of an agent's program ${where} are part of the trace of its turn`, { skip }, async (t) => {
    const { run, named } = await startTraced(t, bridge);
    assert.match(await run('qwen', CALL_MODEL), /from-the-program/);
    const [turn] = await named(/^invoke_agent qwen$/);
    const [call] = await named(/^chat demo\/echo$/);
    assert.ok(turn !== undefined && call !== undefined);
    assert.equal(turn.parentSpanId ?? '', '');
    assert.deepEqual([call.traceId, call.parentSpanId], [turn.traceId, turn.spanId]);
    assert.equal(JSON.stringify(turn).includes('from-the-program'), false, 'no text of people is sent');
  });
}

test('model calls of the built-in agent and the steps of a run are part of the trace of their turn', async (t) => {
  const { run, named } = await startTraced(t, { sandbox: 'off' });
  const steps = [{ providerId: 'builtin' }, { providerId: 'qwen', prompt: 'say done' }];
  await run('run', 'Say hello', { multiAgent: true, routing: { orchestrationMode: 'sequence', steps } });
  const [whole] = await named(/^invoke_agent (?!builtin|qwen)/);
  const [own] = await named(/^invoke_agent builtin$/);
  const [other] = await named(/^invoke_agent qwen$/);
  const [call] = await named(/^chat demo\/echo$/);
  assert.deepEqual([own?.parentSpanId, other?.parentSpanId], [whole?.spanId, whole?.spanId]);
  assert.equal(call?.parentSpanId, own?.spanId);
  assert.deepEqual(new Set([own, other, call].map((span) => span?.traceId)), new Set([whole?.traceId]));
});
