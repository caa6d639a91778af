import assert from 'node:assert/strict';
import { mkdir, readdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { AskPermission } from '../../../src/bridge/agents/agent-provider.ts';
import { startAgent } from '../../kit/bridge/agent-under-test.ts';
import { startScripted } from './scripted-agent.ts';

const ALLOW: AskPermission = async () => ({ optionId: 'once' });

test('DB-19: with permissions denied, Codex gets a read-only sandbox, also for a thread that is taken up', async (t) => {
  const run = async (permissions: 'allow' | 'deny', folder?: string, reference?: string) => {
    const flags = ['--state', 'FOLDER'];
    const agent = await startScripted(t, { protocol: 'codex', permissions, flags, ...(folder && { folder }) });
    const turn = agent.run({ prompt: 'policy', folder: agent.work, ...(reference && { reference }) });
    const end = await turn.end;
    await agent.provider.stop();
    return { agent, reference: turn.reference(), said: end.kind === 'completed' ? end.output : end.kind };
  };
  const denied = await run('deny');
  assert.equal(denied.said, 'read-only untrusted');
  assert.equal((await run('allow')).said, 'workspace-write untrusted');
  assert.equal((await run('deny', denied.agent.folder, denied.reference)).said, 'read-only untrusted');
});

test('DB-19: with permissions denied, an agent that has a read-only mode is put into it and kept there', async (t) => {
  const agent = await startScripted(t, { permissions: 'deny', flags: ['--modes', '--state', 'FOLDER'] });
  const first = agent.run({ prompt: 'write one', folder: agent.work });
  await first.end;
  assert.equal(first.text(), 'in mode plan');
  const left = agent.run({ prompt: 'leave two', folder: agent.work, reference: first.reference() });
  await left.end;
  assert.equal(left.text(), 'in mode plan', 'a mode that the agent left by itself is set again');
  await agent.provider.stop();
  const { folder } = agent;
  const later = await startScripted(t, { permissions: 'deny', flags: ['--modes', '--state', 'FOLDER'], folder });
  const resumed = later.run({ prompt: 'write three', folder: later.work, reference: first.reference() });
  await resumed.end;
  assert.equal(resumed.text(), 'in mode plan');
  assert.deepEqual(await readdir(agent.work), []);
});

test('DB-19: an agent whose modes are an option of the session is kept in its read-only mode too', async (t) => {
  const agent = await startScripted(t, { permissions: 'deny', flags: ['--option', '--state', 'FOLDER'] });
  const first = agent.run({ prompt: 'leave one', folder: agent.work });
  await first.end;
  assert.equal(first.text(), 'in mode plan', 'a mode that the agent left by itself is set again');
  assert.deepEqual(await readdir(agent.work), []);
});

test('DB-19: an agent without a read-only mode says so, and what it asks for is denied', async (t) => {
  const agent = await startScripted(t, { permissions: 'deny' });
  const turn = agent.run({ prompt: 'ask', folder: agent.work, ask: async () => ({ optionId: 'once' }) });
  await turn.end;
  assert.equal(turn.text(), 'answered selected never', 'a person at the client cannot allow what the settings deny');
  assert.ok(turn.events.some((event) => event.kind === 'status' && event.text.includes('no read-only mode')));
  assert.deepEqual(await readdir(agent.work), []);
});

test('DB-19: with permissions allowed, modes and environment stay as they are', async (t) => {
  const agent = await startScripted(t, { flags: ['--modes'] });
  const turn = agent.run({ prompt: 'write one', folder: agent.work });
  await turn.end;
  assert.equal(turn.text(), 'in mode build');
  assert.deepEqual(await readdir(agent.work), ['one']);
});

test('a call that denies makes one turn read-only in the agent, and the next one is as before', async (t) => {
  const codex = await startScripted(t, { protocol: 'codex', flags: ['--state', 'FOLDER'] });
  const said: string[] = [];
  let reference = '';
  for (const isReadOnly of [false, true, true, false]) {
    const turn = codex.run({ prompt: 'policy', folder: codex.work, isReadOnly, ...(reference && { reference }) });
    const end = await turn.end;
    said.push(end.kind === 'completed' ? end.output : end.kind);
    reference = turn.reference();
  }
  const [writable, readOnly] = ['workspaceWrite /extra untrusted', 'readOnly untrusted'];
  assert.deepEqual(said, ['workspace-write untrusted', readOnly, readOnly, writable]);
  const denied = codex.run({ prompt: 'run make', folder: codex.work, reference, isReadOnly: true, ask: ALLOW });
  const end = await denied.end;
  assert.equal(end.kind === 'completed' && end.output, 'answered decline', 'nobody is asked');
  const acp = await startScripted(t, { flags: ['--modes'] });
  const first = acp.run({ prompt: 'write one', folder: acp.work, isReadOnly: true });
  await first.end;
  assert.equal(first.text(), 'in mode plan');
  for (const [prompt, isReadOnly, expected] of [
    ['leave two', true, 'in mode plan'],
    ['ask', true, 'answered selected never'],
    ['write three', false, 'in mode build'],
  ] as const) {
    const turn = acp.run({ prompt, folder: acp.work, reference: first.reference(), isReadOnly, ask: ALLOW });
    await turn.end;
    assert.equal(turn.text(), expected);
  }
  assert.deepEqual(await readdir(acp.work), ['three']);
});

test('Codex gets the read-only sandbox again after a turn that it refused', async (t) => {
  const codex = await startScripted(t, { protocol: 'codex', flags: ['--state', 'FOLDER'] });
  const first = codex.run({ prompt: 'policy', folder: codex.work });
  await first.end;
  const reference = first.reference();
  const refused = await codex.run({ prompt: 'refuse', folder: codex.work, reference, isReadOnly: true }).end;
  assert.equal(refused.kind, 'failed');
  const end = await codex.run({ prompt: 'policy', folder: codex.work, reference, isReadOnly: true }).end;
  assert.equal(end.kind === 'completed' && end.output, 'readOnly untrusted');
});

for (const permissions of ['allow', 'deny'] as const) {
  test(`DB-19: the environment makes OpenCode deny all that writes: ${permissions}`, async (t) => {
    const { folder, work } = await startScripted(t);
    await mkdir(join(folder, 'bin'));
    const command = join(folder, 'bin', 'opencode');
    await symlink(process.execPath, command);
    const script = join(import.meta.dirname, '..', '..', 'kit', 'scripted-acp-agent.ts');
    const environment = { OPENCODE_PERMISSION: '{"edit":"allow"}' };
    const program = { id: 'opencode', command, args: [script], environment };
    const agent = startAgent(t, program, { protocol: 'acp', permissions, folder });
    const turn = agent.run({ prompt: 'environment', folder: work });
    await turn.end;
    const { variables } = JSON.parse(turn.text()) as { variables: Record<string, string> };
    const rules = JSON.parse(variables.OPENCODE_PERMISSION ?? '{}') as Record<string, string>;
    assert.deepEqual([rules.edit, rules.bash], permissions === 'deny' ? ['deny', 'deny'] : ['allow', undefined]);
    assert.equal(Object.keys(rules)[0], permissions === 'deny' ? '*' : 'edit');
  });
}
