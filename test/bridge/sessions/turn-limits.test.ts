import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createFairGate, createTurnLimits, idsOf } from '../../../src/bridge/sessions/turn-limits.ts';
import { atWorkFor, type Principal, type Scope } from '../../../src/platform/identity/principal.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import fc from '../../kit/properties.ts';
import { createScriptedProvider, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const [MAIN, REVIEW] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];

/** Guarded, and with few places: turns whose prompt is `hold` last until `release`. */
function limited(limits: string) {
  const held = Promise.withResolvers<void>();
  const script: TurnScript = async ({ prompt, signal }) => {
    if (prompt === 'hold') {
      await Promise.race([held.promise, new Promise((resolve) => signal.addEventListener('abort', resolve))]);
    }
    return signal.aborted
      ? { kind: 'cancelled', output: '' }
      : { kind: 'completed', output: prompt, stopReason: 'end_turn' };
  };
  const tokens = `auth_token: ${MAIN_TOKEN}, review_auth_token: ${REVIEW_TOKEN}`;
  const settings = `bridge: { ${tokens}, limits: { ${limits} } }\n`;
  return { agent: createScriptedProvider('one', script), settings, release: () => held.resolve() };
}

describe('DB-10: the number of concurrent turns is limited', () => {
  test('DB-10: turns beyond the limit of a principal wait, those beyond the queue are OVERLOADED, and all taken ones end', async (context) => {
    const { agent, settings, release } = limited('turns_per_principal: 3, waiting_turns_per_principal: 4');
    const { url } = await startBridge(context, { providers: [agent], settings });
    const start = (index: number) => call(url, 'session.start', { sessionId: `s${index}`, taskPrompt: 'hold' }, REVIEW);
    const taken = Array.from({ length: 7 }, (_, index) => start(index));
    await until('three turns to run', () => agent.running() === 3);
    const refused = await until('the queue to be full', async () => {
      const answer = await start(99);
      return answer.error === undefined ? undefined : answer;
    });
    assert.deepEqual([refused.error?.code, refused.error?.data.code], [-32020, 'OVERLOADED']);
    const raw = await fetch(`${url}/acp/rpc`, {
      method: 'POST',
      headers: { ...REVIEW, 'content-type': 'application/json', accept: 'text/event-stream' },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'session.start',
        params: { sessionId: 'x', taskPrompt: 'hold' },
      }),
    });
    assert.equal(raw.status, 503);
    assert.notEqual(raw.headers.get('retry-after'), null);
    await raw.body?.cancel();
    const other = await call(url, 'session.start', { sessionId: 'mine', taskPrompt: 'quick' }, MAIN);
    assert.equal(other.result?.status, 'completed', 'another principal does not wait');
    release();
    for (const answer of await Promise.all(taken)) assert.equal(answer.result?.status, 'completed');
    assert.ok(agent.mostRunning() <= 4);
    assert.equal((await start(100)).result?.status, 'completed', 'every place was given back');
  });

  test('DB-10: one agent works on a limited number of turns, and another agent is free', async (context) => {
    const { agent, settings, release } = limited('turns_per_agent: 2');
    const other = createScriptedProvider('two');
    const { url } = await startBridge(context, { providers: [agent, other], settings });
    const start = (sessionId: string, explicitProviderId: string) =>
      call(url, 'session.start', { sessionId, taskPrompt: 'hold', routing: { explicitProviderId } }, MAIN);
    const taken = ['a', 'b', 'c', 'd'].map((sessionId) => start(sessionId, 'one'));
    await until('two turns to run', () => agent.running() === 2);
    assert.equal((await start('e', 'two')).result?.status, 'completed');
    const steps = [1, 2, 3, 4].map(() => ({ providerId: 'one', prompt: 'hold' }));
    const params = { sessionId: 'm', multiAgent: true, routing: { orchestrationMode: 'parallel', steps } };
    const run = call(url, 'session.start', params, MAIN);
    release();
    for (const answer of await Promise.all([...taken, run])) assert.equal(answer.result?.status, 'completed');
    assert.equal(agent.mostRunning(), 2, 'the steps of a run take places too');
  });

  test('DB-10: a turn that waits for a place can be cancelled, and its session closed', async (context) => {
    const { agent, settings, release } = limited('turns: 1');
    const { url } = await startBridge(context, { providers: [agent], settings });
    const running = call(url, 'session.start', { sessionId: 'a', taskPrompt: 'hold' }, MAIN);
    await until('the turn to run', () => agent.running() === 1);
    const waiting = ['b', 'c'].map((sessionId) => call(url, 'session.start', { sessionId, taskPrompt: 'hold' }, MAIN));
    await call(url, 'session.cancel', { sessionId: 'b' }, MAIN);
    await call(url, 'session.close', { sessionId: 'c' }, MAIN);
    for (const answer of await Promise.all(waiting)) assert.equal(answer.result?.status, 'cancelled');
    release();
    assert.equal((await running).result?.status, 'completed');
    assert.equal(agent.asked.length, 1);
  });

  test('DB-10: a hostile principal that submits without end never delays a well-behaved one by more than its share', () => {
    const action = fc.record({
      kind: fc.constantFrom('hostile enters', 'hostile leaves', 'good enters', 'good leaves'),
      who: fc.nat(2),
    });
    const property = fc.property(
      fc.integer({ min: 2, max: 8 }),
      fc.integer({ min: 1, max: 7 }),
      fc.array(action, { maxLength: 200 }),
      (limit, ofOne, actions) => {
        const limitOfOne = Math.min(ofOne, limit - 1);
        const gate = createFairGate(limit, () => limitOfOne);
        const inside = new Map<string, number>();
        const queue: { readonly principal: string; hasPlace: boolean; isOver: boolean }[] = [];
        const count = (principal: string) => inside.get(principal) ?? 0;
        const total = () => [...inside.values()].reduce((sum, one) => sum + one, 0);
        for (const { kind, who } of actions) {
          const principal = kind.startsWith('good') ? 'good' : `hostile ${who}`;
          if (kind.endsWith('enters')) {
            const hadRoom = gate.hasRoom(principal);
            if (gate.tryEnter(principal)) {
              assert.ok(hadRoom);
              inside.set(principal, count(principal) + 1);
            } else queue.push({ principal, hasPlace: false, isOver: false });
          } else if (count(principal) > 0) {
            inside.set(principal, count(principal) - 1);
            gate.leave(principal);
          }
          assert.ok(total() <= limit, 'never more than the limit');
          for (const [name, own] of inside) assert.ok(own <= limitOfOne, `${name} has more than its share`);
          // With one hostile principal there is always a place for somebody who has none.
          const hostileOnes = [...inside].filter(([name, own]) => name !== 'good' && own > 0).length;
          if (hostileOnes <= 1 && count('good') === 0) assert.ok(gate.hasRoom('good'));
        }
      },
    );
    fc.assert(property, { numRuns: 300 });
  });

  test('DB-10: a caller that waits gets the next place in turn, however many wait before it of somebody else', async () => {
    const gate = createFairGate(2, () => 2);
    for (let taken = 0; taken < 2; taken += 1) assert.ok(gate.tryEnter('hostile'));
    const order: string[] = [];
    const enter = (principal: string) =>
      void gate.enter(principal, new AbortController().signal).then((hasPlace) => hasPlace && order.push(principal));
    for (let index = 0; index < 100; index += 1) enter('hostile');
    for (let index = 0; index < 3; index += 1) enter('good');
    for (let left = 0; left < 8; left += 1) {
      gate.leave(order.length % 2 === 0 || left < 2 ? 'hostile' : 'good');
      await Promise.resolve();
    }
    assert.deepEqual(order.slice(0, 4), ['hostile', 'good', 'hostile', 'good']);
  });

  test('one that gives up waiting leaves nothing behind: the next one, and it itself, may enter', async () => {
    const gate = createFairGate(1, () => 1);
    assert.ok(gate.tryEnter('ann'));
    const [first, second] = [new AbortController(), new AbortController()];
    const waits = [gate.enter('bob', first.signal), gate.enter('bob', second.signal)];
    first.abort();
    assert.equal(await waits[0], false);
    gate.leave('ann');
    assert.equal(await waits[1], true);
    second.abort();
    gate.leave('bob');
    assert.ok(gate.hasRoom('bob'), 'nobody waits');
    assert.ok(gate.tryEnter('bob'));
    assert.ok(!gate.hasRoom('ann'));

    const third = new AbortController();
    const alone = gate.enter('ann', third.signal);
    third.abort();
    assert.equal(await alone, false);
    gate.leave('bob');
    assert.ok(gate.tryEnter('ann'));
    gate.leave('ann');
    assert.ok(gate.hasRoom('bob'));
  });

  test('one who has opened nothing has the places of the settings, and each agent has places of its own', () => {
    const limits = createTurnLimits({
      turns: 4,
      turns_per_principal: 2,
      turns_per_agent: 1,
      waiting_turns: 3,
      waiting_turns_per_principal: 1,
    });
    assert.deepEqual(
      [1, 2, 3].map(() => limits.running.tryEnter('ann')),
      [true, true, false],
    );
    assert.equal(limits.ofAgent('one'), limits.ofAgent('one'));
    assert.ok(limits.ofAgent('one').tryEnter('ann'));
    assert.ok(!limits.ofAgent('one').hasRoom('bob'));
    assert.ok(limits.ofAgent('two').tryEnter('bob'));
  });

  test('of a principal whose plan limits running turns, further turns wait until one has ended', async () => {
    const limits = createTurnLimits({
      turns: 4,
      turns_per_principal: 3,
      turns_per_agent: 4,
      waiting_turns: 9,
      waiting_turns_per_principal: 9,
    });
    const bucket = (runningTurns: number) => ({ id: `limit ${runningTurns}`, name: 'x', limits: { runningTurns } });
    const ann = { id: 'ann', buckets: [bucket(8), bucket(1)] };
    for (let count = 0; count < 3; count += 1) limits.opened(ann);
    for (let count = 0; count < 3; count += 1) limits.opened(one('bob'));
    assert.ok(limits.running.tryEnter('ann'));
    assert.ok(!limits.running.tryEnter('ann'));
    for (let count = 0; count < 3; count += 1) assert.ok(limits.running.tryEnter('bob'));
    const waits = limits.running.enter('ann', new AbortController().signal);
    limits.running.leave('bob');
    assert.ok(!limits.running.hasRoom('ann'), 'a place that bob leaves is not for ann');
    limits.running.leave('ann');
    limits.ended(ann);
    assert.ok(await waits);
  });

  test('a turn for a team takes a place of the person and of the team, and holds up no other work of the person', async () => {
    const limits = createTurnLimits({
      turns: 9,
      turns_per_principal: 3,
      turns_per_agent: 9,
      waiting_turns: 9,
      waiting_turns_per_principal: 0,
    });
    const bucket = { id: 'team:t', name: 'the team', limits: { runningTurns: 1 } };
    const person = (id: string): Principal => ({
      ...{ id, role: 'user', teams: ['t'], scopes: new Set<Scope>(), buckets: [], seesAll: false },
    });
    const team = { id: 't', allowed: undefined, bridge: true, plan: '', budget: undefined, bucket };
    const forTeam = (id: string) => atWorkFor(team, person(id));
    const [ann, bob] = [forTeam('ann'), forTeam('bob')];
    for (const principal of [ann, ann, bob]) limits.opened(principal);
    assert.throws(() => limits.opened(bob), { code: 'OVERLOADED' }, 'three turns of the team are open');
    limits.opened(person('ann'));
    assert.throws(() => limits.opened(person('ann')), { code: 'OVERLOADED' }, 'and three that ann has asked for');
    limits.opened(person('bob'));
    assert.ok(limits.running.tryEnter(idsOf(ann)));
    assert.ok(!limits.running.hasRoom(idsOf(bob)), 'the team runs one at a time');
    const waits = limits.running.enter(idsOf(ann), new AbortController().signal);
    assert.ok(limits.running.tryEnter('ann'), 'their own work does not wait for the team');
    limits.running.leave(idsOf(ann));
    limits.ended(ann);
    assert.ok(await waits);
    limits.running.leave(idsOf(ann));
    assert.ok(limits.running.tryEnter(idsOf(bob)));
  });

  test('DB-10: open turns are counted per principal, and what has ended is not', () => {
    const limits = createTurnLimits({
      turns: 4,
      turns_per_principal: 2,
      turns_per_agent: 4,
      waiting_turns: 3,
      waiting_turns_per_principal: 1,
    });
    for (let count = 0; count < 3; count += 1) limits.opened(one('a'));
    assert.throws(() => limits.opened(one('a')), { code: 'OVERLOADED' });
    for (let count = 0; count < 3; count += 1) limits.opened(one('b'));
    limits.opened(one('c'));
    assert.throws(() => limits.opened(one('c')), { code: 'OVERLOADED' }, 'seven in all');
    limits.ended(one('a'));
    limits.opened(one('c'));
  });
});

/** A principal without limits of its own. */
function one(id: string) {
  return { id, buckets: [] };
}
