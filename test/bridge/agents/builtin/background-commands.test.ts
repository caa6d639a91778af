import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { createBackgroundCommands } from '../../../../src/bridge/agents/builtin/background-commands.ts';
import { toolTable } from '../../../../src/bridge/agents/builtin/create-builtin-agent.ts';
import type { ToolContext, ToolOutput } from '../../../../src/bridge/agents/builtin/tools/tool.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { scriptedAgent, toolContext, workingDirectory } from '../../../kit/bridge/builtin-agent.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { isAlive } from '../../../kit/processes.ts';
import type { ScriptedAnswer } from '../../../kit/scripted-answers.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

const PERSON = { owner: 'user:usr_1' };
const shell = (script: string) => ({ command: 'sh', args: ['-c', script] });

function call(context: ToolContext, name: string, input: unknown): Promise<ToolOutput> {
  const tool = toolTable.find((found) => found.name === name);
  assert.ok(tool !== undefined);
  return tool.run(input, context);
}

/** Commands of their own for each test, which are ended with it. */
async function setUp(t: TestContext, more: Partial<Parameters<typeof createBackgroundCommands>[0]> = {}) {
  const root = await workingDirectory(t);
  const all = createBackgroundCommands({ clock: systemClock, timeoutMs: 60_000, isKept: async () => true, ...more });
  t.after(() => all.stop());
  const context = { ...toolContext(root), background: all.of('c', PERSON) };
  const start = async (script: string, given: ToolContext = context) => {
    const { text } = await call(given, 'start_command', shell(script));
    return Number(/^\[command (\d+) runs in the background\]$/.exec(text)?.[1]);
  };
  const pidIn = (name: string) =>
    until('the command to run', async () => {
      const text = await readFile(join(root, name), 'utf8').catch(() => '');
      return text.endsWith('\n') && Number(text);
    });
  return { root, all, context, start, pidIn };
}

test('read what a command printed since the last time, and all of it on request', async (t) => {
  const { context, start } = await setUp(t);
  const id = await start('echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; echo err >&2; exit 3');
  const first = await call(context, 'read_command', { id, wait_seconds: 30 });
  assert.equal(first.text, '[running]\none\n');
  assert.equal((await call(context, 'read_command', { id })).text, '[running]\n');
  await call(context, 'write_file', { path: 'go', content: '' });
  await until('the command to end', () => context.background.find(id)?.isRunning() === false);
  const last = await call(context, 'read_command', { id, wait_seconds: 30 });
  assert.deepEqual([last.text, last.exitCode], ['[exit code 3]\ntwo\n\n[standard error]\nerr', 3]);
  assert.match((await call(context, 'read_command', { id, all: true })).text, /^\[exit code 3\]\none\ntwo\n/);
  assert.equal((await call(context, 'read_command', {})).text, `${id}: ${listed(context, id)} [ended]`);
});

const listed = ({ background }: ToolContext, id: number) => background.find(id)?.title ?? '';

test('keep the end of long output, count what is lost, and cut no character', async (t) => {
  const { context, start } = await setUp(t);
  const id = await start("printf 'a%.0s' $(seq 1 50000); printf '€%.0s' $(seq 1 20000)");
  await until('the command to end', () => context.background.find(id)?.isRunning() === false);
  const { text } = await call(context, 'read_command', { id });
  const [, lost = '', rest = ''] = /^\[exit code 0\]\n\[(\d+) bytes left out\]\n(€+)$/.exec(text) ?? [];
  // A cut character at the beginning is neither shown nor counted.
  assert.ok(110_000 - Number(lost) - Buffer.byteLength(rest) < 3, text.slice(0, 80));
  assert.ok(Buffer.byteLength(rest) <= 32 * 1024);
});

test('stop a command with all that it has started', async (t) => {
  const { context, start, pidIn } = await setUp(t);
  const id = await start("trap '' TERM; echo said; sleep 600 & echo $! > child; wait");
  const child = await pidIn('child');
  await call(context, 'read_command', { id, wait_seconds: 30 });
  assert.equal((await call(context, 'stop_command', { id })).text, '[ended by stop_command]\n');
  assert.equal(isAlive(child), false);
});

test('refuse an unknown number, and list what there is', async (t) => {
  const { context } = await setUp(t);
  for (const name of ['read_command', 'stop_command']) {
    await assert.rejects(call(context, name, { id: 7 }), ({ details }) =>
      /no command 7 in the background any more.\n\[no command is in the background\]/.test(details.reason),
    );
  }
});

test('run eight commands of a conversation, forget ended ones, and refuse the ninth', async (t) => {
  const { context, start } = await setUp(t);
  const first = await start('exit 0');
  await until('the first to end', () => context.background.find(first)?.isRunning() === false);
  const ids = await Promise.all(Array.from({ length: 7 }, () => start('sleep 600')));
  assert.equal(await start('sleep 600'), ids.length + 2);
  assert.equal(context.background.find(first), undefined);
  await assert.rejects(start('sleep 600'), { code: 'TOOL_CALL_REFUSED' });
});

test('refuse more than 32 commands of one owner, and serve another owner', async (t) => {
  const { all, context, start } = await setUp(t);
  for (const reference of ['c', 'd', 'e', 'f']) {
    const background = all.of(reference, PERSON);
    await Promise.all(Array.from({ length: 8 }, () => start('sleep 600', { ...context, background })));
  }
  await assert.rejects(start('sleep 600', { ...context, background: all.of('g', PERSON) }), ({ details }) =>
    /^32 commands of this owner/.test(details.reason),
  );
  assert.equal(await start('sleep 600', { ...context, background: all.of('h', { owner: 'user:usr_2' }) }), 1);
});

test('end a command that runs too long, and one that prints without end', async (t) => {
  const clock = createFakeClock();
  const { context, start, pidIn } = await setUp(t, { clock, timeoutMs: 1000 });
  const id = await start('echo $$ > pid; exec sleep 600');
  const pid = await pidIn('pid');
  await clock.advance(1000);
  await until('the command to be gone', () => !isAlive(pid));
  await until('its end to be known', () => context.background.find(id)?.isRunning() === false);
  assert.equal((await call(context, 'read_command', { id })).text, '[ended after 1000 ms]\n');
  const endless = await start('yes');
  await until('the command to end', () => context.background.find(endless)?.isRunning() === false);
  assert.match((await call(context, 'read_command', { id: endless })).text, /^\[ended, because it printed more than/);
});

test('end the commands of a conversation that another instance has closed', async (t) => {
  const clock = createFakeClock();
  const kept = new Set(['c', 'd']);
  const { all, context, start, pidIn } = await setUp(t, { clock, isKept: async (one) => kept.has(one) });
  await start('echo $$ > one; exec sleep 600');
  await start('echo $$ > two; exec sleep 600', { ...context, background: all.of('d', PERSON) });
  const [one, two] = [await pidIn('one'), await pidIn('two')];
  kept.delete('c');
  await clock.advance(30_000);
  await until('the command to be gone', () => !isAlive(one));
  assert.equal(isAlive(two), true);
});

test('end the commands of those who may not work any more, and start none after', async (t) => {
  const { all, context, start, pidIn } = await setUp(t);
  await start('echo $$ > one; exec sleep 600');
  const team = { ...context, background: all.of('d', { owner: 'team:t', member: 'user:usr_1' }) };
  await start('echo $$ > two; exec sleep 600', team);
  const [one, two] = [await pidIn('one'), await pidIn('two')];
  all.endWhere(({ owner }) => owner === PERSON.owner);
  await until('the command to be gone', () => !isAlive(one));
  assert.equal(isAlive(two), true);
  await assert.rejects(start('true'), { code: 'TOOL_CALL_REFUSED' });
});

/** The agent plays one answer after the other, and then says that it is done. */
function agentThatPlays(t: TestContext, answers: readonly ScriptedAnswer[]) {
  const made = scriptedAgent((index) => answers[index] ?? { text: ['done'] });
  t.after(() => made.agent.stop());
  return made;
}

const background = (script: string) => ({ calls: [{ name: 'start_command', input: shell(script) }] });

test('leave a command running from turn to turn, and end it when the session is closed', async (t) => {
  const root = await workingDirectory(t);
  const { agent, requests } = agentThatPlays(t, [
    background('echo $$ > pid; echo here; exec sleep 600'),
    { text: ['started'] },
    { calls: [{ name: 'read_command', input: { id: 1, wait_seconds: 30 } }] },
  ]);
  const first = recordTurn(root, 'Start it');
  await agent.startTurn(first);
  const status = first.events.flatMap((event) => (event.kind === 'status' ? [event.text] : []));
  assert.match(status.join(), /^In the background command 1 is still running: sh -c /);
  const [reference = ''] = first.references;
  await agent.continueTurn(reference, recordTurn(root, 'What does it say?'));
  assert.equal(requests.at(-1)?.messages.at(-1)?.content, '[running]\nhere\n');
  const pid = Number(await readFile(join(root, 'pid'), 'utf8'));
  assert.equal(isAlive(pid), true);
  await agent.close(reference);
  assert.equal(isAlive(pid), false);
});

test('leave a command running when the turn that started it is cancelled', async (t) => {
  const root = await workingDirectory(t);
  const { agent, requests } = agentThatPlays(t, [
    background('echo $$ > pid; exec sleep 600'),
    { text: ['and'], hangs: true },
  ]);
  const turn = recordTurn(root, 'Start it');
  const ended = agent.startTurn(turn);
  await until('the second request', () => requests.length === 2);
  await agent.cancel(turn.turnId);
  assert.equal((await ended).kind, 'cancelled');
  const pid = await until(
    'the command to run',
    async () => Number(await readFile(join(root, 'pid'), 'utf8').catch(() => '')) || false,
  );
  assert.equal(isAlive(pid), true);
  await agent.stop();
  assert.equal(isAlive(pid), false);
});

test('offer nothing about commands where nothing may be started, unless something runs', async (t) => {
  const root = await workingDirectory(t);
  const { agent, requests } = agentThatPlays(t, [background('sleep 600'), { text: ['started'] }]);
  const names = () => requests.at(-1)?.tools?.map((tool) => tool.function.name) ?? [];
  await agent.startTurn(recordTurn(root, 'Look', { isReadOnly: true }));
  assert.ok(!names().some((name) => name.endsWith('_command')), names().join());
});

test('read and stop what runs in a turn that may only read', async (t) => {
  const root = await workingDirectory(t);
  const { agent, requests } = agentThatPlays(t, [
    background('sleep 600'),
    { text: ['started'] },
    { calls: [{ name: 'stop_command', input: { id: 1 } }] },
  ]);
  const first = recordTurn(root, 'Start it');
  await agent.startTurn(first);
  await agent.continueTurn(first.references[0] ?? '', recordTurn(root, 'Stop it', { isReadOnly: true }));
  const offered = requests.at(-1)?.tools?.map((tool) => tool.function.name) ?? [];
  assert.deepEqual(
    offered.filter((name) => name.endsWith('_command')),
    ['read_command', 'stop_command'],
  );
  assert.equal(requests.at(-1)?.messages.at(-1)?.content, '[ended by stop_command]\n');
});
