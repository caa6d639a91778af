import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Steer } from '../../../src/bridge/agents/agent-provider.ts';
import type { AgentList } from '../../../src/bridge/contract/surface.ts';
import type {
  PlainUpdate,
  SessionPage,
  SessionView,
  Summary,
  TurnPage,
} from '../../../src/bridge/contract/workbench.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, echo, endless } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const main = bearer(MAIN_TOKEN);
const review = bearer(REVIEW_TOKEN);

/** Says what is sent to its turn, until that is `end`. */
const listener = createScriptedProvider('listener', async ({ prompt, steerable, report, signal }) => {
  if (prompt === 'deaf') return endless({ signal, report } as Parameters<typeof endless>[0]);
  const heard: string[] = [];
  const { promise, resolve } = Promise.withResolvers<void>();
  const steer: Steer = async (text) => {
    if (text === 'no') return false;
    heard.push(text);
    if (text === 'end') resolve();
    return true;
  };
  steerable?.(steer);
  report({ kind: 'text', text: 'listening' });
  signal.addEventListener('abort', () => resolve());
  await promise;
  return { kind: 'completed', output: heard.join(' '), stopReason: 'end_turn' };
});
const { fork: _none, ...plain } = createScriptedProvider('plain', echo);
const parrot = createScriptedProvider('parrot', async ({ prompt, reference, count }) => ({
  kind: 'completed',
  output: `${prompt} ${reference} ${count}`,
  stopReason: 'end_turn',
}));
/** Says how its turn runs. */
const chooser = createScriptedProvider('chooser', async ({ model, mode, thinking, isReadOnly, offers }) => {
  const commands = [{ name: 'review', description: 'Reviews' }];
  const levels = [{ id: 'hard', name: 'Hard' }];
  const models = [{ id: 'v/large', name: 'Large' }];
  offers?.({ modes: [{ id: 'fast', name: 'Fast' }], models, thinking: levels, commands });
  return { kind: 'completed', output: `${model}|${mode}|${thinking}|${isReadOnly}`, stopReason: 'end_turn' };
});
const strict = {
  ...createScriptedProvider('strict', async ({ mode, isReadOnly }) => {
    return { kind: 'completed', output: `${mode}|${isReadOnly}`, stopReason: 'end_turn' };
  }),
  modes: [
    { id: 'edit', name: 'Edit' },
    { id: 'plan', name: 'Plan', permissions: 'deny' as const },
  ],
};
const settings = `bridge:\n  auth_token: ${MAIN_TOKEN}\n  review_auth_token: ${REVIEW_TOKEN}\n`;
const { url } = await startBridge({ after }, { providers: [listener, plain, parrot, chooser, strict], settings });

function turn(method: string, sessionId: string, taskPrompt: string, agent: string) {
  const routing = { routingMode: 'explicit', explicitProviderId: agent };
  return call(url, method, { sessionId, taskPrompt, routing }, main).then(({ result }) => result);
}

async function request<Shape>(method: string, path: string, body?: unknown, headers = main) {
  const response = await fetch(`${url}/api/bridge/${path}`, {
    method,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Shape & { error: string; message: string } };
}
const steer = (sessionId: string, text: unknown, headers = main) =>
  request<{ turnId: string }>('POST', `sessions/${sessionId}/steer`, { text }, headers);
const fork = (sessionId: string, body: object = {}, headers = main) =>
  request<{ sessionId: string }>('POST', `sessions/${sessionId}/fork`, body, headers);
const updatesOf = async (sessionId: string) =>
  (await request<{ updates: PlainUpdate[] }>('GET', `sessions/${sessionId}/updates`)).body.updates;
const isListening = (sessionId: string) =>
  until('the turn listens', async () => (await updatesOf(sessionId))?.some(({ kind }) => kind === 'text'));

test('a message reaches the running turn, and its updates show it', async () => {
  const running = turn('session.start', 's1', 'work', 'listener');
  await isListening('s1');
  assert.equal((await steer('s1', 'hidden', review)).status, 404, 'a session of another owner is not there');
  const refused = await steer('s1', 'no');
  assert.deepEqual([refused.status, refused.body.error], [409, 'not_steerable']);
  assert.match(refused.body.message, /did not take it\. Send it with session\.message/);
  for (const wrong of ['', 7, 'x'.repeat(65_537)]) assert.equal((await steer('s1', wrong)).status, 400);
  const taken = await steer('s1', 'use tabs');
  assert.equal(taken.status, 200);
  const [shown] = (await updatesOf('s1')).filter(({ kind }) => kind === 'steer');
  assert.deepEqual(
    [shown?.turnId, shown !== undefined && 'text' in shown && shown.text],
    [taken.body.turnId, 'use tabs'],
  );
  await steer('s1', 'end');
  assert.equal((await running)?.output, 'use tabs end');
  const late = await steer('s1', 'too late');
  assert.deepEqual([late.status, late.body.error], [409, 'not_steerable']);
  assert.match(late.body.message, /no turn runs/);
});

test('a turn whose agent takes no messages says so, and goes on', async () => {
  const running = turn('session.start', 's2', 'deaf', 'listener');
  await isListening('s2');
  const refused = await steer('s2', 'hello');
  assert.deepEqual([refused.status, refused.body.error], [409, 'not_steerable']);
  assert.match(refused.body.message, /takes no further messages/);
  await call(url, 'session.cancel', { sessionId: 's2' }, main);
  assert.equal((await running)?.status, 'cancelled');
});

test('a message that waits is removed: its turn ends as cancelled, and the others go on', async () => {
  const running = turn('session.start', 'line', 'work', 'listener');
  await isListening('line');
  const messages = ['one', 'two', 'three'].map((text) => turn('session.message', 'line', text, 'listener'));
  const view = async () => (await request<SessionView>('GET', 'sessions/line')).body;
  const waiting = async () => (await view()).queued.map(({ prompt }) => prompt);
  const { queued } = await until('three to wait', async () => {
    const seen = await view();
    return seen.queued.length === 3 && seen;
  });
  assert.deepEqual(
    queued.map(({ prompt }) => prompt),
    ['one', 'two', 'three'],
  );
  const [one, two] = queued.map(({ turnId }) => turnId);
  const remove = (turnId = '', headers = main) =>
    request<{ accepted: true }>('DELETE', `sessions/line/turns/${turnId}`, undefined, headers);
  assert.equal((await remove(two, review)).status, 404, 'a session of another owner is not there');
  const removed = await remove(two);
  assert.deepEqual([removed.status, removed.body], [200, { accepted: true }]);
  const result = await messages[1];
  assert.deepEqual([result?.status, result?.code, result?.turnId], ['cancelled', 'TURN_CANCELLED', two]);
  assert.deepEqual(await waiting(), ['one', 'three'], 'while the first turn still runs');
  const told = (await updatesOf('line')).filter(({ turnId }) => turnId === two);
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ['queued', 'cancelled'],
  );
  assert.deepEqual([(await remove(two)).status, (await remove(two)).body.error], [409, 'turn_not_waiting']);
  assert.equal((await remove('turn-none')).body.error, 'turn_not_found');
  const { turns } = (await request<TurnPage>('GET', 'sessions/line/turns')).body;
  assert.deepEqual(
    turns.map(({ prompt, status }) => `${prompt} ${status}`),
    ['three queued', 'two cancelled', 'one queued', 'work running'],
  );
  const begun = await remove(turns.at(-1)?.turnId);
  assert.deepEqual([begun.status, begun.body.error], [409, 'turn_not_waiting']);
  assert.match(begun.body.message, /has started or ended.*session\.cancel/);

  await steer('line', 'end');
  assert.equal((await running)?.output, 'end', 'the running turn has noticed nothing');
  await until('the next one', async () => (await waiting()).join() === 'three');
  // Of two removals at the same time, one counts.
  const both = await Promise.all([remove(queued[2]?.turnId), remove(queued[2]?.turnId)]);
  assert.ok(both.some(({ status }) => status === 200));
  assert.equal((await messages[2])?.status, 'cancelled');
  assert.deepEqual(await waiting(), []);
  await until('the turn of one to take messages', async () => (await steer('line', 'end')).status === 200);
  assert.deepEqual([(await messages[0])?.turnId, (await messages[0])?.status], [one, 'completed']);
  const after = turn('session.message', 'line', 'after', 'listener');
  await until('the session goes on', async () => (await steer('line', 'end')).status === 200);
  assert.equal((await after)?.status, 'completed');
});

test('a session is copied with its conversation, and both go on by themselves', async () => {
  await turn('session.start', 's3', 'one', 'parrot');
  await turn('session.message', 's3', 'two', 'parrot');
  const { turns } = (await request<TurnPage>('GET', 'sessions/s3/turns')).body;
  const whole = await fork('s3');
  assert.equal(whole.status, 201);
  const { sessionId } = whole.body;
  const listed = (await request<SessionPage>('GET', 'sessions?providerId=parrot')).body.sessions;
  const found = listed.find((one) => one.sessionId === sessionId);
  assert.deepEqual([found?.title, found?.owner, found?.turns, found?.state], ['Copy of one', 'main', 0, 'idle']);
  assert.match(
    String((await turn('session.message', sessionId, 'three', 'parrot'))?.output),
    /^three .*-copy-whole 2$/,
  );
  assert.match(String((await turn('session.message', 's3', 'three', 'parrot'))?.output), /-1 2$/);
  const last = await fork('s3', { turnId: turns[0]?.turnId });
  assert.equal(last.status, 201, 'also after a turn in its middle');
  const part = await turn('session.message', last.body.sessionId, 'four', 'parrot');
  assert.match(String(part?.output), new RegExp(`-copy-${turns[0]?.turnId} 3$`));
});

test('what cannot be copied is refused with the reason', async () => {
  await turn('session.start', 's4', 'one', 'plain');
  const refused = await fork('s4');
  assert.deepEqual([refused.status, refused.body.error], [409, 'not_forkable']);
  assert.match(refused.body.message, /its agent cannot copy conversations/);
  await turn('session.start', 's5', 'one', 'parrot');
  assert.deepEqual((await fork('s5', { turnId: 'turn-none' })).body.error, 'turn_not_found');
  assert.equal((await fork('s5', {}, review)).status, 404);
  assert.equal((await fork('s5', { turn: 1 })).status, 400);
  assert.equal((await fork('none')).status, 404);
  const running = turn('session.message', 's5', 'x', 'parrot');
  await running;
  parrot.forget();
  assert.match((await fork('s5')).body.message, /no such conversation/);
  const busy = turn('session.start', 's6', 'work', 'listener');
  await isListening('s6');
  assert.deepEqual((await fork('s6')).body.error, 'turn_running');
  await call(url, 'session.cancel', { sessionId: 's6' }, main);
  await busy;
});

const choose = (sessionId: string, body: object, headers = main) =>
  request<{ session: Summary }>('PATCH', `sessions/${sessionId}`, body, headers);

test('mode, model and thinking are chosen for the next turns, from what the agent offers', async () => {
  assert.equal((await turn('session.start', 's7', 'x', 'chooser'))?.output, '|undefined|undefined|false');
  const shown = (await request<SessionView>('GET', 'sessions/s7')).body;
  assert.deepEqual(shown.modes, [{ id: 'fast', name: 'Fast' }]);
  assert.deepEqual([shown.models[0]?.id, shown.commands[0]?.name], ['v/large', 'review']);
  assert.deepEqual([shown.thinking, shown.thinkingLevels], ['', [{ id: 'hard', name: 'Hard' }]]);
  for (const [body, code, words] of [
    [{ mode: 'slow' }, 'unknown_mode', /does not have the mode "slow". Its modes: fast\./],
    [{ model: 'small' }, 'unknown_model', /does not offer the model "small". Its models: v\/large\./],
    [{ thinking: 'soft' }, 'unknown_thinking', /does not have the thinking level "soft". Its levels: hard\./],
  ] as const) {
    const refused = await choose('s7', body);
    assert.deepEqual([refused.status, refused.body.error], [400, code]);
    assert.match(refused.body.message, words);
  }
  assert.equal((await choose('s7', { mode: 'fast' }, review)).status, 404);
  const { session } = (await choose('s7', { mode: 'fast', model: 'large', thinking: 'hard', title: 'Mine' })).body;
  assert.deepEqual([session.mode, session.model, session.title], ['fast', 'large', 'Mine']);
  assert.equal((await request<SessionView>('GET', 'sessions/s7')).body.thinking, 'hard');
  assert.equal((await turn('session.message', 's7', 'x', 'chooser'))?.output, 'large|fast|hard|false');
  const { body } = await fork('s7');
  assert.equal(
    (await turn('session.message', body.sessionId, 'x', 'chooser'))?.output,
    'large|fast|hard|false',
    'a copy too',
  );
  await choose('s7', { mode: '' });
  assert.equal((await turn('session.message', 's7', 'x', 'chooser'))?.output, 'large|undefined|hard|false');
  await choose('s7', { mode: 'fast', thinking: '' });
  assert.equal((await turn('session.message', 's7', 'x', 'chooser'))?.output, 'large|fast|undefined|false');
  assert.equal(
    (await turn('session.start', 's7', 'x', 'chooser'))?.output,
    '|undefined|undefined|false',
    'a new start',
  );
  assert.equal((await turn('session.message', 's7', 'x', 'chooser'))?.output, '|undefined|undefined|false');
});

test('a mode of the bridge says what the turns of an agent may do', async () => {
  await turn('session.start', 's8', 'x', 'strict');
  assert.equal((await request<SessionView>('GET', 'sessions/s8')).body.modes.length, 2);
  await choose('s8', { mode: 'plan' });
  assert.equal((await turn('session.message', 's8', 'x', 'strict'))?.output, 'undefined|true');
  await choose('s8', { mode: 'edit' });
  assert.equal((await turn('session.message', 's8', 'x', 'strict'))?.output, 'undefined|false');
});

test('the list of agents says how they are, and what can be done with their sessions', async () => {
  const list = () => request<AgentList>('GET', 'agents');
  const { agents } = (await list()).body;
  const ids = agents.map(({ providerId }) => providerId);
  assert.deepEqual(ids, ['listener', 'plain', 'parrot', 'chooser', 'strict']);
  const { label: _label, category: _category, ...rest } = agents[4] ?? {};
  assert.deepEqual(rest, {
    ...{ providerId: 'strict', state: 'ok', advice: '', version: '1.0.0', model: '', steer: 'no', fork: 'no' },
    forkFrom: 'last_turn',
    modes: [
      { id: 'edit', name: 'Edit' },
      { id: 'plan', name: 'Plan' },
    ],
  });
  assert.equal((await request('GET', 'agents', undefined, {})).status, 401);
});
