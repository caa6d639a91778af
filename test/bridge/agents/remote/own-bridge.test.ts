import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { AskPermission, Steer } from '../../../../src/bridge/agents/agent-provider.ts';
import { createRemoteAgent } from '../../../../src/bridge/agents/remote/create-remote-agent.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../../src/platform/clock/randomness.ts';
import { makeId, scriptedAgent } from '../../../kit/bridge/builtin-agent.ts';
import { startCuttableLink, startOtherBridge, TOKEN } from '../../../kit/bridge/other-bridge.ts';
import { supervised } from '../../../kit/bridge/supervised.ts';
import { isAlive } from '../../../kit/processes.ts';
import type { ScriptedAnswer } from '../../../kit/scripted-answers.ts';
import { silentLogger } from '../../../kit/silent-logger.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

/** The built-in agent behind another bridge, reached through a link that can be cut. */
async function farAgent(context: TestContext, answer: (index: number) => ScriptedAnswer) {
  const there = scriptedAgent(answer);
  const link = await startCuttableLink(context, await startOtherBridge(context, there.agent));
  const at = (url: string, token: string) =>
    supervised(
      createRemoteAgent({
        id: 'far',
        url,
        token,
        clock: systemClock,
        randomness: systemRandomness,
        makeId,
        logger: silentLogger,
        isScratchFolder: (path) => path === '',
        hopLimit: 3,
        limits: { pauseMs: 5, longestPauseMs: 50 },
      }),
    );
  const root = await realpath(await mkdtemp(join(tmpdir(), 'trestle-far-')));
  context.after(() => rm(root, { recursive: true, force: true }));
  return { agent: at(link.url, TOKEN), at, link, there, root };
}

test('an agent behind another bridge works, goes on, and is closed', async (context) => {
  const { agent, there, root } = await farAgent(context, (index) =>
    index === 0
      ? { thinking: 'hm', calls: [{ name: 'write_file', input: { path: 'a.txt', content: 'far' } }] }
      : { text: ['Written', ` ${index}`] },
  );
  assert.deepEqual(await agent.probe(new AbortController().signal), { status: 'ok', version: '1.2.3' });
  const turn = recordTurn(root, 'Write a.txt');
  const end = await agent.startTurn(turn);
  assert.equal(end.kind === 'completed' && end.output, 'Written 1');
  assert.deepEqual(end.kind === 'completed' && end.usage, { inputTokens: 20, outputTokens: 10, totalTokens: 30 });
  assert.equal(await readFile(join(root, 'a.txt'), 'utf8'), 'far');
  assert.deepEqual(
    turn.events.map(({ kind }) => kind),
    ['thinking', 'tool_call', 'permission', 'tool_call', 'tool_call', 'text', 'text'],
  );
  const [reference = ''] = turn.references;
  const more = recordTurn(root, 'More');
  assert.equal((await agent.continueTurn(reference, more)).kind, 'completed');
  assert.equal(more.text(), 'Written 2');
  await agent.close(reference);
  assert.equal(there.store.rows.size, 0);
  assert.equal((await agent.continueTurn(reference, recordTurn(root, 'x'))).kind, 'lost');
  assert.equal(there.requests.length, 3);
});

test('a link that is cut again and again loses no update, repeats none, and starts nothing twice', async (context) => {
  const words = Array.from({ length: 400 }, (_, index) => `${index} `);
  const { agent, link, there, root } = await farAgent(context, () => ({ text: words, slow: true }));
  const turn = recordTurn(root, 'Count');
  const ending = agent.startTurn(turn);
  for (let cuts = 0; cuts < 5; cuts += 1) {
    const before = turn.events.length;
    await turn.when(() => turn.events.length > before + 20);
    // What had arrived already is not enough: there must be a link to cut.
    await until('a new link', () => link.connections() > cuts);
    link.cut();
  }
  const end = await ending;
  assert.equal(end.kind === 'completed' && end.output, words.join(''));
  assert.equal(turn.text(), words.join(''));
  assert.equal(there.requests.length, 1);
  assert.ok(link.connections() > 5);
});

test('cancel reaches the other side: what it runs is ended there', async (context) => {
  const script = "trap '' TERM; echo $$ > pid; sleep 600";
  const { agent, root } = await farAgent(context, () => ({
    calls: [{ name: 'run_command', input: { command: 'sh', args: ['-c', script] } }],
  }));
  const turn = recordTurn(root, 'Wait');
  const ending = agent.startTurn(turn);
  const pid = async () => Number(await readFile(join(root, 'pid'), 'utf8').catch(() => '0'));
  await until('the command to run', async () => (await pid()) > 0);
  await agent.cancel(turn.turnId);
  assert.equal((await ending).kind, 'cancelled');
  assert.equal(isAlive(await pid()), false);
});

test('a wrong token and a refused folder are failures with their reasons, and nothing is started', async (context) => {
  const { at, agent, link, there } = await farAgent(context, () => ({ text: ['x'] }));
  const refused = await at(link.url, 'wrong-token').startTurn(recordTurn('/etc', 'x'));
  assert.match(refused.kind === 'failed' ? refused.error : '', /token/);
  const outside = await agent.startTurn(recordTurn('/etc', 'x'));
  assert.match(outside.kind === 'failed' ? outside.error : '', /workspace_roots/);
  assert.equal(there.requests.length, 0);
  const own = await agent.startTurn(recordTurn('', 'x'));
  assert.equal(own.kind, 'completed');
});

test('a message reaches the turn on the other bridge, and is shown once', async (context) => {
  const script = 'while [ ! -e go ]; do sleep 0.05; done';
  const { agent, there, root } = await farAgent(context, (index) =>
    index === 0
      ? { calls: [{ name: 'run_command', input: { command: 'sh', args: ['-c', script] } }] }
      : { text: ['Heard'] },
  );
  const { promise: steerable, resolve } = Promise.withResolvers<Steer>();
  const turn = recordTurn(root, 'Wait', { steerable: resolve });
  const ending = agent.startTurn(turn);
  const steer = await steerable;
  await turn.when(({ kind }) => kind === 'tool_call');
  assert.equal(await steer('use tabs'), true);
  await writeFile(join(root, 'go'), '');
  const end = await ending;
  assert.equal(end.kind === 'completed' && end.output, 'Heard');
  assert.match(JSON.stringify(there.requests[1]), /use tabs/);
  assert.equal(turn.events.filter(({ kind }) => kind === 'steer').length, 0, 'our own bridge tells it');
  assert.equal(await steer('too late'), false);
});

test('a session on another bridge is copied whole, and both go on', async (context) => {
  const { agent, there, root } = await farAgent(context, (index) => ({ text: [`Answer ${index}`] }));
  const turn = recordTurn(root, 'My name is Ada');
  await agent.startTurn(turn);
  const [reference = ''] = turn.references;
  const part = await agent.fork?.(reference, { owner: 'main', folder: root, turnId: 'turn-1' });
  assert.match(JSON.stringify(part), /copies whole conversations only/);
  const copy = await agent.fork?.(reference, { owner: 'main', folder: root });
  assert.ok(copy !== undefined && 'reference' in copy, JSON.stringify(copy));
  assert.notEqual(copy.reference, reference);
  assert.equal((await agent.continueTurn(copy.reference, recordTurn(root, 'Who am I?'))).kind, 'completed');
  assert.match(JSON.stringify(there.requests[1]), /My name is Ada.*Who am I\?/);
  assert.equal((await agent.continueTurn(reference, recordTurn(root, 'Go on'))).kind, 'completed');
  assert.doesNotMatch(JSON.stringify(there.requests[2]), /Who am I/);
  const lost = await agent.fork?.('remote-unknown', { owner: 'main', folder: root });
  assert.match(JSON.stringify(lost), /no longer has the session/);
});

test('what an agent on another bridge can do is learned from that bridge; an older one offers nothing', async (context) => {
  const there = scriptedAgent(() => ({ text: ['x'] }));
  const at = (url: string) =>
    createRemoteAgent({
      ...{ id: 'far', url, token: TOKEN, clock: systemClock, randomness: systemRandomness, makeId },
      ...{ logger: silentLogger, isScratchFolder: (path: string) => path === '', hopLimit: 3 },
    });
  const agent = at(await startOtherBridge(context, there.agent));
  const nothing = { steer: 'no', fork: 'no', forkFrom: 'last_turn' };
  assert.deepEqual(agent.abilities, nothing);
  await agent.probe(new AbortController().signal);
  assert.deepEqual(agent.abilities, { steer: 'yes', fork: 'offered', forkFrom: 'last_turn' });

  const old = createServer((_request, response) => response.writeHead(404).end('{}')).listen(0, '127.0.0.1');
  await once(old, 'listening');
  context.after(() => old.close());
  const older = at(`http://127.0.0.1:${(old.address() as AddressInfo).port}`);
  await older.probe(new AbortController().signal);
  assert.deepEqual(older.abilities, nothing);
  const refused = await older.fork?.('remote-1', { owner: 'main', folder: '' });
  assert.match(JSON.stringify(refused), /does not offer copies; it may be older/);
});

const writesOnce = (index: number): ScriptedAnswer =>
  index === 0 ? { calls: [{ name: 'write_file', input: { path: 'a.txt', content: 'far' } }] } : { text: ['Done'] };

test('what the agent there asks is decided here, with the reason, and shown once', async (context) => {
  for (const [kind, decision] of [
    ['reject_once', 'denied'],
    ['allow_once', 'allowed'],
  ] as const) {
    const { agent, there, root } = await farAgent(context, writesOnce);
    const asked: string[] = [];
    const ask: AskPermission = async ({ title, options }) => {
      asked.push(title);
      return { optionId: options.find((option) => option.kind === kind)?.optionId, reason: 'as agreed' };
    };
    const turn = recordTurn(root, 'Write a.txt', { ask, asks: true });
    assert.equal((await agent.startTurn(turn)).kind, 'completed');
    assert.equal(asked.length, 1);
    assert.equal(await readFile(join(root, 'a.txt'), 'utf8').catch(() => ''), kind === 'allow_once' ? 'far' : '');
    const decided = turn.events.filter((event) => event.kind === 'permission');
    assert.deepEqual(
      decided.map((event) => [event.decision, event.reason]),
      [[decision, 'as agreed']],
    );
    if (decision === 'denied') assert.match(JSON.stringify(there.requests), /as agreed/);
  }
});

test('where somebody on the other bridge answers first, the question here ends', async (context) => {
  const { agent, link, root } = await farAgent(context, writesOnce);
  const ended = Promise.withResolvers<void>();
  const ask: AskPermission = async (_question, signal) => {
    signal.addEventListener('abort', () => ended.resolve());
    await ended.promise;
    return { optionId: undefined };
  };
  const end = agent.startTurn(recordTurn(root, 'Write a.txt', { ask, asks: true }));
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' };
  const open = await until('the question', async () => {
    const response = await fetch(`${link.url}/api/bridge/permissions`, { headers });
    return ((await response.json()) as { permissions: { permissionId: string }[] }).permissions[0];
  });
  const body = JSON.stringify({ decision: 'allow' });
  await fetch(`${link.url}/api/bridge/permissions/${open.permissionId}/answer`, { method: 'POST', headers, body });
  await ended.promise;
  assert.equal((await end).kind, 'completed');
  assert.equal(await readFile(join(root, 'a.txt'), 'utf8'), 'far');
});
