import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { Permission } from '../../../src/bridge/contract/workbench.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const OPTIONS = [{ optionId: 'no', name: 'Reject', kind: 'reject_once' }];

/** Says of each path of its prompt whether it may be read; `ask` before a path asks for permission to read it first. */
const reader = createScriptedProvider('reader', async ({ prompt, ask, deniedPaths, workingDirectory, signal }) => {
  const [path = '', isAsked] = prompt.split(' ').toReversed();
  const input = { path };
  if (isAsked === 'ask')
    await ask?.({ toolCallId: 't', title: path, toolKind: 'read', input, options: OPTIONS }, signal);
  const denies = await deniedPaths?.(['read'], workingDirectory);
  const output = denies?.(join(workingDirectory, path)) === true ? 'denied' : 'free';
  return { kind: 'completed', output, stopReason: 'end_turn' };
});
const settings = `bridge:
  auth_token: ${MAIN_TOKEN}
  permission_rules:
    - { when: { path: "**/.env*" }, then: deny }
`;
const { url, root } = await startBridge({ after }, { providers: [reader], settings });

let count = 0;
async function read(taskPrompt: string, more = {}): Promise<unknown> {
  count += 1;
  const params = { sessionId: `s${count}`, taskPrompt, workingDirectory: root, ...more };
  return (await call(url, 'session.start', params, main)).result?.output;
}

test('turns know what the rules of the operator, and remembered answers, keep from being read', async () => {
  assert.equal(await read('.env.local'), 'denied');
  assert.equal(await read('secret.txt'), 'free');
  const asking = read('ask secret.txt', { routing: { permissions: 'ask' } });
  const { permissionId: id } = await until('the question', async () => {
    const response = await fetch(`${url}/api/bridge/permissions`, { headers: main });
    return ((await response.json()) as { permissions: Permission[] }).permissions[0];
  });
  const answered = await fetch(`${url}/api/bridge/permissions/${id}/answer`, {
    method: 'POST',
    headers: { ...main, 'content-type': 'application/json' },
    body: JSON.stringify({ decision: 'deny', scope: 'always' }),
  });
  assert.equal(answered.status, 200, await answered.text());
  assert.equal(await asking, 'denied', 'in the same turn');
  assert.equal(await read('secret.txt'), 'denied', 'in the sessions of that folder');
  assert.equal(await read('other.txt'), 'free');
});
