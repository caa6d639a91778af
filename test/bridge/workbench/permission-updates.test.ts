import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { UpdatePage } from '../../../src/bridge/contract/workbench.ts';
import { clientOf } from '../../kit/bridge/client-of.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const OPTIONS = [
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];

/** Asks for permission to run its prompt as a command, and reports how that was answered. */
const reporter = createScriptedProvider('reporter', async ({ prompt, permit, signal }) => {
  const question = { toolCallId: 't', title: `run ${prompt}`, toolKind: 'execute', input: { command: prompt } };
  const { optionId } = await permit({ ...question, options: OPTIONS }, 'allow', signal);
  return { kind: 'completed', output: `chosen: ${optionId}`, stopReason: 'end_turn' };
});
const settings = `bridge:
  auth_token: ${MAIN_TOKEN}
  permission_rules:
    - { when: { kind: execute, command: [git, status] }, then: allow }
    - { when: { command: [rm] }, then: deny }
`;
const { url, root } = await startBridge({ after }, { providers: [reporter], settings });
const trestle = clientOf({ after }, { url, token: MAIN_TOKEN });
let count = 0;

test('the update of a decision names the person who answered, or the rule', async () => {
  const run = async (prompt: string, permissions: string, scope?: 'always') => {
    count += 1;
    const sessionId = `s${count}`;
    const params = { sessionId, taskPrompt: prompt, workingDirectory: root, routing: { permissions } };
    const ended = call(url, 'session.start', params, main);
    if (scope !== undefined) {
      const question = await until('a question', async () => (await trestle.permissions.list())[0]);
      await trestle.permissions.answer(question.permissionId, { decision: 'allow', scope });
    }
    await ended;
    const page = await fetch(`${url}/api/bridge/sessions/${sessionId}/updates?kinds=permission`, { headers: main });
    const body = (await page.json()) as UpdatePage;
    const { answeredBy, rule, state } = body.updates.at(-1) as Record<string, unknown>;
    return { state, ...(answeredBy !== undefined && { answeredBy }), ...(rule !== undefined && { rule }) };
  };
  assert.deepEqual(await run('make', 'allow'), { state: 'allowed' });
  assert.deepEqual(await run('make', 'deny'), { state: 'denied' });
  assert.deepEqual(await run('git status -s', 'ask'), { state: 'allowed', rule: { text: 'git status' } });
  assert.deepEqual(await run('sudo rm x', 'allow'), { state: 'denied', rule: { text: 'rm' } });
  assert.deepEqual(await run('npm outdated', 'ask', 'always'), { state: 'allowed', answeredBy: 'main' });
  const ruleId = (await trestle.permissions.rules())[0]?.ruleId;
  assert.deepEqual(await run('npm outdated', 'ask'), { state: 'allowed', rule: { ruleId, text: 'npm outdated' } });
});
