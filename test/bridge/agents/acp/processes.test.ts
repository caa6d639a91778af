import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHiding } from '../../../../src/bridge/agents/agent-text.ts';
import { createFakeClock } from '../../../kit/fake-clock.ts';
import { timeLimit } from '../../../kit/time.ts';
import { until } from '../../../kit/until.ts';
import { startScripted } from '../scripted-agent.ts';

const isText = (event: { kind: string }) => event.kind === 'text';

for (const [how, prompt, words] of [
  ['exits with a code', 'die 7', /ended with exit code 7/],
  ['exits as if all were well', 'die 0', /ended with exit code 0/],
  ['is killed by a signal', 'die signal', /was ended by SIGSEGV/],
] as const) {
  test(`B-61: an agent that ${how} ends its turn within a second, with its last words`, async (t) => {
    const agent = await startScripted(t);
    const first = agent.run({ prompt: 'say x', folder: agent.work });
    await first.end;
    const before = performance.now();
    const end = await agent.run({ prompt, folder: agent.work, reference: first.reference() }).end;
    assert.ok(performance.now() - before < timeLimit(1000));
    assert.equal(end.kind, 'failed');
    if (end.kind !== 'failed') return;
    assert.equal(end.code, 'AGENT_EXITED');
    assert.match(end.error, words);
    assert.match(end.error, /the disk is on fire/);
    assert.doesNotMatch(end.error, /abcdefghijklmnop/);
    // DB-29: apps do not learn where the program is.
    assert.ok(!end.error.includes(process.execPath), end.error);
  });
}

test('B-61: an agent that died is started again for the next turn', async (t) => {
  const agent = await startScripted(t);
  await agent.run({ prompt: 'die 1', folder: agent.work }).end;
  const end = await agent.run({ prompt: 'say alive', folder: agent.work }).end;
  assert.equal(end.kind === 'completed' && end.output, 'alive');
  assert.equal(agent.started.length, 2);
});

test('an agent that keeps ending is left alone for longer and longer, and the probe says why', async (t) => {
  const clock = createFakeClock();
  const limits = { firstPauseMs: 1000, longestPauseMs: 3000, startMs: 60_000 };
  const agent = await startScripted(t, { flags: ['--crash'], clock, limits });
  const pauses: number[] = [];
  for (let attempt = 0; attempt < 4; attempt += 1) {
    const before = clock.monotonic();
    const { end } = agent.run({ prompt: 'say x', folder: agent.work });
    let isOver = false;
    end.finally(() => {
      isOver = true;
    });
    const started = agent.started.length;
    await until('the next start', async () => {
      // The first start waits for nothing, so time need not pass for it.
      if (attempt > 0 && agent.started.length === started) await clock.advance(100);
      return agent.started.length > started;
    });
    pauses.push(clock.monotonic() - before);
    await until('the turn to end', () => isOver);
    const ended = await end;
    assert.equal(ended.kind === 'failed' && ended.code, 'AGENT_EXITED');
    assert.match(ended.kind === 'failed' ? ended.error : '', /cannot start: no licence/);
    const { status } = await agent.provider.probe(new AbortController().signal);
    assert.match(status, attempt === 0 ? /^not_installed$/ : /^failed: .*ended with exit code 3/);
  }
  const [first = 0, second = 0, third = 0, fourth = 0] = pauses;
  assert.ok(first === 0 && second >= 900 && third >= 1900 && fourth >= 2900, String(pauses));
  await clock.advance(3000);
  assert.equal((await agent.provider.probe(new AbortController().signal)).status, 'not_installed');
});

test('an agent that does not answer at its start ends the turn as timed out, and is gone', async (t) => {
  const agent = await startScripted(t, { flags: ['--hang', 'initialize'], limits: { startMs: 500 } });
  const end = await agent.run({ prompt: 'say x', folder: agent.work }).end;
  assert.equal(end.kind === 'failed' && end.code, 'AGENT_TIMEOUT');
  assert.equal(agent.living(), 0);
});

test('an agent that opens no conversation ends the turn as timed out', async (t) => {
  const agent = await startScripted(t, { flags: ['--hang', 'session/new'], limits: { startMs: 1000 } });
  const end = await agent.run({ prompt: 'say x', folder: agent.work }).end;
  assert.equal(end.kind === 'failed' && end.code, 'AGENT_TIMEOUT');
});

test('an agent that speaks another version of the protocol is refused', async (t) => {
  const agent = await startScripted(t, { flags: ['--version', '2'] });
  const end = await agent.run({ prompt: 'say x', folder: agent.work }).end;
  assert.equal(end.kind === 'failed' && end.code, 'AGENT_FAILED');
  assert.match(end.kind === 'failed' ? end.error : '', /version 2 of the protocol/);
  assert.equal(agent.living(), 0);
});

for (const method of ['initialize', 'session/new', 'session/prompt']) {
  test(`an agent that answers ${method} with null fails in words about it`, async (t) => {
    const agent = await startScripted(t, { flags: ['--blank', method] });
    const end = await agent.run({ prompt: 'say x', folder: agent.work }).end;
    assert.equal(end.kind === 'failed' && end.code, 'AGENT_FAILED');
    assert.equal(end.kind === 'failed' && end.error, `it answered ${method} with something that is not an object`);
  });
}

test('an agent that sends a message of more than 64 MiB is ended, and its turn says why', async (t) => {
  const agent = await startScripted(t);
  const end = await agent.run({ prompt: `burst 1 ${65 * 1024 * 1024}`, folder: agent.work }).end;
  assert.equal(end.kind === 'failed' && end.code, 'AGENT_EXITED');
  assert.match(end.kind === 'failed' ? end.error : '', /ended by the bridge: a message is longer than \d+ bytes$/);
});

test('a turn in which nothing happens for too long is given up, and the agent with it', async (t) => {
  const agent = await startScripted(t, { limits: { silenceMs: 300, cancelMs: 200 } });
  const end = await agent.run({ prompt: 'ignore', folder: agent.work }).end;
  assert.deepEqual(end, {
    kind: 'failed',
    code: 'AGENT_TIMEOUT',
    error: 'nothing has happened for 300 ms',
    output: 'deaf',
  });
  assert.equal(agent.living(), 0);
});

test('a turn that is given up is timed out also where the agent stops as it is asked to', async (t) => {
  const agent = await startScripted(t, { limits: { silenceMs: 300 } });
  const end = await agent.run({ prompt: 'wait', folder: agent.work }).end;
  assert.deepEqual([end.kind, end.kind === 'failed' && end.code], ['failed', 'AGENT_TIMEOUT']);
  assert.equal(agent.living(), 1);
});

test('a turn that is cancelled as soon as its conversation is open does nothing', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({
    prompt: 'ask',
    folder: agent.work,
    onOpened: () => void agent.provider.cancel(turn.turnId),
  });
  assert.deepEqual(await turn.end, { kind: 'cancelled', output: '' });
  const next = agent.run({ prompt: 'recall', folder: agent.work, reference: turn.reference() });
  await next.end;
  assert.equal(next.text(), 'recall');
});

test('a cancelled turn ends as cancelled, and the agent stays', async (t) => {
  const agent = await startScripted(t);
  const turn = agent.run({ prompt: 'wait', folder: agent.work });
  await turn.until(isText);
  await agent.provider.cancel(turn.turnId);
  assert.deepEqual(await turn.end, { kind: 'cancelled', output: 'waiting' });
  await agent.provider.cancel(turn.turnId);
  const next = await agent.run({ prompt: 'say on', folder: agent.work, reference: turn.reference() }).end;
  assert.equal(next.kind, 'completed');
  assert.equal(agent.started.length, 1);
});

test('a turn that is cancelled while the agent still starts ends immediately', async (t) => {
  const agent = await startScripted(t, { flags: ['--hang', 'initialize'] });
  const turn = agent.run({ prompt: 'say x', folder: agent.work });
  await agent.provider.cancel(turn.turnId);
  assert.deepEqual(await turn.end, { kind: 'cancelled', output: '' });
});

test('B-62: an agent that ignores cancelling and SIGTERM is ended by force within five seconds', async (t) => {
  const agent = await startScripted(t, { flags: ['--stubborn'] });
  const turn = agent.run({ prompt: 'child', folder: agent.work });
  await turn.until(isText);
  assert.equal(agent.living(), 2);
  const before = performance.now();
  await agent.provider.cancel(turn.turnId);
  assert.ok(performance.now() - before < timeLimit(5000));
  assert.deepEqual(await turn.end, { kind: 'cancelled', output: turn.text() });
  assert.equal(agent.living(), 0);
});

test('B-62: a turn beside one that had to be ended by force fails with the reason', async (t) => {
  const agent = await startScripted(t, { limits: { cancelMs: 100 } });
  const deaf = agent.run({ prompt: 'ignore', folder: agent.work });
  const beside = agent.run({ prompt: 'wait', folder: agent.work });
  await Promise.all([deaf.until(isText), beside.until(isText)]);
  await agent.provider.cancel(deaf.turnId);
  const end = await beside.end;
  assert.equal(end.kind === 'failed' && end.code, 'AGENT_EXITED');
  assert.match(end.kind === 'failed' ? end.error : '', /ended by the bridge: it went on with a turn that was stopped/);
});

test('B-53: closing during a running turn cancels it, and the process group is gone within five seconds', async (t) => {
  const agent = await startScripted(t, { flags: ['--stubborn'], limits: { cancelMs: 500 } });
  const turn = agent.run({ prompt: 'child', folder: agent.work });
  await turn.until(isText);
  const before = performance.now();
  await agent.provider.cancel(turn.turnId);
  await agent.provider.close(turn.reference());
  assert.ok(performance.now() - before < timeLimit(5000));
  assert.equal((await turn.end).kind, 'cancelled');
  assert.equal(agent.living(), 0);
});

test('B-53: closing one of two conversations leaves the process to the other', async (t) => {
  const agent = await startScripted(t);
  const [one, other] = ['say one', 'say other'].map((prompt) => agent.run({ prompt, folder: agent.work }));
  await Promise.all([one?.end, other?.end]);
  await agent.provider.close(one?.reference() ?? '');
  assert.equal(agent.living(), 1);
  await agent.provider.close(other?.reference() ?? '');
  assert.equal(agent.living(), 0);
});

test('a process that nobody used for long is ended; one whose conversations would be lost stays longer', async (t) => {
  for (const [flags, isKept] of [
    [['--state', 'FOLDER'], false],
    [[], true],
  ] as const) {
    const clock = createFakeClock();
    const limits = { idleMs: 60_000, idleWithConversationsMs: 600_000 };
    const agent = await startScripted(t, { flags, clock, limits });
    await agent.run({ prompt: 'say x', folder: agent.work }).end;
    await clock.advance(59_000);
    assert.equal(agent.living(), 1);
    await clock.advance(2000);
    if (!isKept) await gone(agent);
    assert.equal(agent.living(), isKept ? 1 : 0);
    await clock.advance(600_000);
    await gone(agent);
  }
});

test('a pause ends the processes of its person within a second, and of nobody else', async (t) => {
  const agent = await startScripted(t, { flags: ['--stubborn'] });
  const turn = agent.run({ prompt: 'child', folder: agent.work, owner: 'user:usr_ann' });
  await turn.until(isText);
  const idle = agent.run({ prompt: 'say x', folder: agent.work, owner: 'team:team_a' });
  await idle.end;
  assert.equal(agent.living(), 3);
  const before = performance.now();
  agent.provider.endWhere?.(({ owner }) => owner === 'user:usr_ann');
  // As the bridge does: what ends the processes also cancels the turns.
  await agent.provider.cancel(turn.turnId);
  assert.deepEqual(await turn.end, { kind: 'cancelled', output: turn.text() });
  await until('the processes of Ann to be gone', () => agent.living() === 1);
  assert.ok(performance.now() - before < timeLimit(1000), `${performance.now() - before} ms`);
  agent.provider.endWhere?.(({ owner }) => owner === 'team:team_a');
  await gone(agent);
  const after = await agent.run({ prompt: 'say back', folder: agent.work, owner: 'user:usr_ann' }).end;
  assert.equal(after.kind === 'completed' && after.output, 'back', 'a person who is resumed works again');
});

test('a pause ends a process that is just starting, which does not count as a failure of the agent', async (t) => {
  const agent = await startScripted(t, { flags: ['--hang', 'initialize'] });
  // From the second failed start in a row on, an agent counts as broken.
  for (const starts of [1, 2]) {
    const turn = agent.run({ prompt: 'say x', folder: agent.work, owner: 'user:usr_ann' });
    await until('the agent to start', () => agent.started.length === starts);
    const before = performance.now();
    agent.provider.endWhere?.(() => true);
    const end = await turn.end;
    assert.ok(performance.now() - before < timeLimit(1000));
    assert.match(end.kind === 'failed' ? end.error : '', /its owner may not work any more/);
    assert.equal(agent.living(), 0);
  }
  assert.equal((await agent.provider.probe(new AbortController().signal)).status, 'not_installed');
});

test('stopping ends every process, also one that is just starting', async (t) => {
  const agent = await startScripted(t, { flags: ['--hang', 'initialize'] });
  const turn = agent.run({ prompt: 'say x', folder: agent.work });
  await until('the agent to start', () => agent.started.length > 0);
  await agent.provider.stop();
  assert.equal((await turn.end).kind, 'failed');
  assert.equal(agent.living(), 0);
  const later = await agent.run({ prompt: 'say x', folder: agent.work }).end;
  assert.equal(later.kind === 'failed' && later.error, 'the bridge is stopping');
});

async function gone(agent: { living(): number }): Promise<void> {
  await until('every process of the agent to be gone', () => agent.living() === 0);
}

test('DB-29: no error of an agent discloses the path of its program or of its script', () => {
  const program = { command: '/opt/agents/bin/run', args: ['/opt/agents/agent.mjs', '--flag'], environment: {} };
  const hide = createHiding(program, 'Scripted');
  const said = 'Error: /opt/agents/bin/run: cannot load /opt/agents/agent.mjs:12';
  assert.equal(hide(said), 'Error: Scripted: cannot load Scripted:12');
});
