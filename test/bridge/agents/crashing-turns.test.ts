import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { REVIEW_TOKEN, startOtherBridge, TOKEN } from '../../kit/bridge/other-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';
import { until } from '../../kit/until.ts';
import { type ScriptedAgent, startScripted } from './scripted-agent.ts';

const CRASHES = ['die 1', 'die 0', 'die signal', 'orphan', 'mute'];

test('DB-24: a start after two crashes is served with a new process, not refused as unavailable', async (t) => {
  const agent = await startScripted(t, { isInstalled: true });
  const url = await startOtherBridge(t, agent.provider);
  let sessions = 0;
  const start = async (token: string, taskPrompt: string) => {
    sessions += 1;
    const response = await fetch(`${url}/acp/rpc`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: '1',
        method: 'session.start',
        params: { sessionId: `s-${sessions}`, taskPrompt, routing: { explicitProviderId: 'scripted' } },
      }),
    });
    const { result } = (await response.json()) as { result: { status: string; code?: string; output: string } };
    return result;
  };
  for (const token of [TOKEN, REVIEW_TOKEN]) {
    for (let crash = 0; crash < 3; crash += 1) assert.equal((await start(token, 'die 1')).code, 'AGENT_EXITED');
    for (const caller of [TOKEN, REVIEW_TOKEN]) {
      const { status, output } = await start(caller, 'say here');
      assert.deepEqual([status, output], ['completed', 'here']);
    }
  }
});

test('DB-24: a caller that crashes the agent again and again is not noticed by another caller', async (t) => {
  const turn = fc.constantFrom('start', 'continue');
  const attack = fc.array(fc.constantFrom(...CRASHES), { maxLength: 2 });
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(attack, turn), { minLength: 2, maxLength: 5 }), async (rounds) => {
      // Time stands still: were the good caller made to wait for anything, its turn would never end.
      const clock = createFakeClock();
      const agent = await startScripted(t, { clock });
      const first = agent.run({ prompt: 'say zero', folder: agent.work, owner: 'good' });
      await first.end;
      const beside = agent.run({ prompt: 'wait', folder: agent.work, owner: 'good' });
      await beside.until(({ kind }) => kind === 'text');
      const attacks: Promise<unknown>[] = [];
      for (const [prompts, kind] of rounds) {
        for (const prompt of prompts) {
          attacks.push(agent.run({ prompt, folder: agent.work, owner: 'hostile' }).end);
        }
        const reference = kind === 'continue' ? { reference: first.reference() } : {};
        const end = await agent.run({ prompt: 'say on', folder: agent.work, owner: 'good', ...reference }).end;
        assert.deepEqual([end.kind, end.kind === 'completed' && end.output], ['completed', 'on']);
      }
      // The turn that ran beside all of this still does.
      await agent.provider.cancel(beside.turnId);
      assert.deepEqual(await beside.end, { kind: 'cancelled', output: 'waiting' });
      const { length } = agent.started;
      await agent.provider.stop();
      await Promise.all(attacks);
      assert.ok(length >= 1);
    }),
    { numRuns: 4 },
  );
});

test('DB-24: the caller whose turns crash the agent waits longer each time, until a turn ends well', async (t) => {
  const fake = createFakeClock();
  const timers: number[] = [];
  const clock = {
    ...fake,
    after(ms: number, action: () => void) {
      timers.push(ms);
      return fake.after(ms, action);
    },
  };
  const PAUSES = [1010, 2020, 3030];
  const agent = await startScripted(t, { clock, limits: { firstPauseMs: 1010, longestPauseMs: 3030 } });
  /** How long a turn waits for its process. `atOnce`: the clock stands still until the process has started. */
  const waited = async (prompt: string, atOnce = false): Promise<number> => {
    const before = clock.monotonic();
    const started = agent.started.length;
    const { end } = agent.run({ prompt, folder: agent.work });
    if (!atOnce) await pause(100);
    await until('the next start', async () => {
      if (!atOnce && agent.started.length === started) await clock.advance(500);
      return agent.started.length > started;
    });
    const ms = clock.monotonic() - before;
    await end;
    return ms;
  };
  const pauses: number[] = [];
  for (let crash = 0; crash < 5; crash += 1) pauses.push(await waited('die 1', crash < 2));
  assert.deepEqual(pauses.slice(0, 2), [0, 0], 'neither the first turn nor the one after the first crash waits');
  const [, , third = 0, fourth = 0, fifth = 0] = pauses;
  assert.ok(third >= 1010 && fourth >= 2020 && fifth >= 3030, String(pauses));
  // How long a start takes after its pause depends on the machine; how long the pause is does not.
  assert.deepEqual(
    timers.filter((ms) => [...PAUSES, 4040].includes(ms)),
    PAUSES,
  );
  await waited('say well');
  assert.equal((await agent.run({ prompt: 'die 1', folder: agent.work }).end).kind, 'failed');
  assert.equal(await waited('say again', true), 0);
});

for (const crash of ['mute', 'orphan', 'die 1']) {
  test(`DB-18: no turn gets the process that is ending after "${crash}"`, async (t) => {
    const agent = await startScripted(t);
    const turns = [agent.run({ prompt: 'say warm', folder: agent.work })];
    await turns[0]?.end;
    const crashed = agent.run({ prompt: crash, folder: agent.work });
    await until('the prompt to be sent', () => crashed.reference() !== '');
    for (let turn = 0; turn < 30; turn += 1) {
      await pause(25);
      turns.push(agent.run({ prompt: 'recall', folder: agent.work }));
    }
    await crashed.end;
    const ends = await Promise.all(turns.map(({ end }) => end));
    // Those that were sent to the process before it closed its output have shared its end.
    const late = ends.slice(8);
    assert.deepEqual(new Set(late.map(({ kind }) => kind)), new Set(['completed']), JSON.stringify(ends));
  });
}

test('processes are bounded: an idle one makes room, and when none is idle the turn says so', async (t) => {
  const agent = await startScripted(t, { maxProcesses: 2 });
  const run = (owner: string, prompt: string) => agent.run({ prompt, folder: agent.work, owner });
  const one = run('one', 'wait');
  await one.until(({ kind }) => kind === 'text');
  await run('two', 'say idle').end;
  assert.equal((await run('three', 'say in').end).kind, 'completed');
  assert.equal(agent.living(), 2);
  const busy = run('three', 'wait');
  await busy.until(({ kind }) => kind === 'text');
  const refused = await run('four', 'say x').end;
  assert.match(refused.kind === 'failed' ? refused.error : '', /agents\.max_processes/);
  await finish(agent, [one, busy]);
});

test('one person or team leaves a quarter of the processes to others, and ends its own idle one first', async (t) => {
  const agent = await startScripted(t, { maxProcesses: 4, isByFolder: true });
  const folders = await Promise.all(
    ['a', 'b', 'c', 'd', 'e'].map(async (name) => {
      const folder = join(agent.work, name);
      await mkdir(folder);
      return folder;
    }),
  );
  const [a = '', b = '', c = '', d = '', e = ''] = folders;
  const wait = async (owner: string, folder: string) => {
    const turn = agent.run({ prompt: 'wait', folder, owner });
    await turn.until(({ kind }) => kind === 'text');
    return turn;
  };
  const busy = [await wait('user:usr_1', a), await wait('user:usr_1', b)];
  await agent.run({ prompt: 'say idle', folder: c, owner: 'user:usr_1' }).end;
  assert.equal(agent.living(), 3);
  busy.push(await wait('user:usr_1', d));
  assert.equal(agent.living(), 3, 'the idle one made room');
  const refused = await agent.run({ prompt: 'say x', folder: e, owner: 'user:usr_1' }).end;
  assert.match(refused.kind === 'failed' ? refused.error : '', /all that one user or team may have/);
  const other = await agent.run({ prompt: 'say in', folder: e, owner: 'user:usr_2' }).end;
  assert.equal(other.kind, 'completed');
  await finish(agent, busy);
});

test('DB-21: an agent has the ssh agent and the proxy password of the operator only when it works for the operator', async (t) => {
  const ownEnvironment = { HTTPS_PROXY: 'http://u:w@p:1', HTTP_PROXY: 'http://p:2', SSH_AUTH_SOCK: '/run/agent' };
  const agent = await startScripted(t, { ownEnvironment });
  for (const [owner, names] of [
    ['main', ['HTTPS_PROXY', 'HTTP_PROXY', 'SSH_AUTH_SOCK']],
    ['review', ['HTTP_PROXY']],
    ['node:edge:main', ['HTTP_PROXY']],
  ] as const) {
    const turn = agent.run({ prompt: 'environment', folder: agent.work, owner });
    await turn.end;
    const { variables } = JSON.parse(turn.text()) as { variables: Record<string, string> };
    assert.deepEqual(
      Object.keys(ownEnvironment).filter((name) => name in variables),
      names,
      owner,
    );
  }
});

async function finish(agent: ScriptedAgent, turns: readonly { readonly turnId: string }[]): Promise<void> {
  await Promise.all(turns.map(({ turnId }) => agent.provider.cancel(turnId)));
}
