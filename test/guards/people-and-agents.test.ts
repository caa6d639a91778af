import assert from 'node:assert/strict';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { environmentFor, NO_FENCE } from '../../src/bridge/agents/agent-fence.ts';
import { BRIDGE_TOKEN, bearer, CHAT, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { until } from '../kit/until.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const OWN = { OPENAI_API_KEY: 'key-of-the-operator-5f2c8a91d4' };
const program = { command: process.execPath, args: [AGENT] };
const state = await mkdtemp(join(tmpdir(), 'trestle-conversations-'));
after(() => rm(state, { recursive: true, force: true }));
const people = await startPeople(
  { after },
  { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
  {
    completions: { prices: { 'demo/echo': { input: 0.001, output: 0.002 } } },
    agents: {
      builtin: { model: 'demo/echo' },
      custom: [
        { id: 'scripted', ...program },
        { id: 'configured', ...program, env: OWN },
        { id: 'resuming', ...program, args: [AGENT, '--state', state] },
      ],
    },
  },
);
const { send, rpc, newPerson, newToken } = people;

/** The environment that an agent has for a caller. */
async function environmentOf(
  headers: Headers,
  explicitProviderId = 'scripted',
  sessionId = 's',
  method: 'session.start' | 'session.message' = 'session.start',
) {
  const params = { sessionId, taskPrompt: 'environment', routing: { explicitProviderId } };
  const { body } = await rpc(method, headers, params);
  assert.equal(body.result?.status, 'completed', JSON.stringify(body));
  return (JSON.parse(body.result.output) as { variables: Record<string, string | undefined> }).variables;
}

async function newWorker() {
  const person = await newPerson('operator');
  return { ...person, headers: bearer((await newToken(person, ['bridge'])).token) };
}

test('without a sandbox, agents have a home and a key of their own for each person, and none of them for static tokens', async () => {
  const [ann, bob] = [await newWorker(), await newWorker()];
  const [anns, bobs] = [await environmentOf(ann.headers), await environmentOf(bob.headers)];
  const homes = [anns.HOME ?? '', bobs.HOME ?? ''];
  for (const home of homes) {
    assert.match(home, /\/agent-homes\/[0-9a-f]{32}\/scripted$/);
    assert.equal((await stat(home)).mode & 0o777, 0o700);
  }
  assert.equal(new Set(homes).size, 2);
  assert.notEqual(anns.OPENAI_API_KEY, bobs.OPENAI_API_KEY);
  assert.equal(anns.ANTHROPIC_API_KEY, anns.OPENAI_API_KEY);
  assert.equal(anns.OPENAI_BASE_URL, `${anns.ANTHROPIC_BASE_URL}/v1`);
  const operators = await environmentOf(bearer(BRIDGE_TOKEN));
  assert.deepEqual(
    [operators.HOME, operators.OPENAI_API_KEY, operators.ANTHROPIC_API_KEY],
    [undefined, undefined, undefined],
  );
  const configured = await environmentOf(ann.headers, 'configured', 'c');
  assert.deepEqual([configured.OPENAI_API_KEY, configured.OPENAI_BASE_URL], [OWN.OPENAI_API_KEY, undefined]);
  assert.match(configured.ANTHROPIC_API_KEY ?? '', /^tsk_/);
});

test('the key of an agent charges its person, opens nothing else, and ends with the process', async () => {
  const ann = await newWorker();
  const variables = await environmentOf(ann.headers);
  const key = bearer(variables.OPENAI_API_KEY ?? '');
  const call = async () => {
    const response = await fetch(`${variables.OPENAI_BASE_URL}/chat/completions`, {
      method: 'POST',
      headers: { ...key, 'content-type': 'application/json' },
      body: JSON.stringify(CHAT),
    });
    await response.text();
    return response.status;
  };
  assert.equal(await call(), 200);
  await until('the call is counted for Ann', async () => {
    const { body } = await send('GET', `/usage?group_by=owner&owner=user:${ann.id}`, bearer(MASTER_KEY));
    return JSON.stringify(body).includes(`user:${ann.id}`);
  });
  assert.equal((await rpc('session.start', key, { sessionId: 'x', taskPrompt: 'echo x' })).status, 401);
  assert.equal((await send('GET', '/api/auth/session', key)).status, 401);
  assert.equal((await send('GET', '/keys', key)).status, 403);
  await rpc('session.close', ann.headers, { sessionId: 's' });
  await until('the key has ended with the process', async () => (await call()) === 401);
});

test('a turn of the built-in agent costs what its owner is charged for it', async () => {
  const ann = await newWorker();
  const routing = { explicitProviderId: 'builtin' };
  const params = { sessionId: 'own', taskPrompt: 'one two three', routing };
  const { result } = (await rpc('session.start', ann.headers, params)).body;
  assert.equal(result.status, 'completed', JSON.stringify(result));
  assert.ok(result.usage.costUsd > 0, JSON.stringify(result.usage));
  await until('the call to be counted', async () => {
    const { body } = await send('GET', `/usage?owner=user:${ann.id}`, bearer(MASTER_KEY));
    return (body.data as Json[]).some((one) => Math.abs(Number(one.cost_usd) - result.usage.costUsd) < 1e-9);
  });
});

test('a turn of an agent costs what its calls of our models cost, and is not guessed where turns overlap', async () => {
  const ann = await newWorker();
  const routing = { explicitProviderId: 'scripted' };
  const turn = async (sessionId: string, taskPrompt: string) => {
    const { result } = (await rpc('session.start', ann.headers, { sessionId, taskPrompt, routing })).body;
    assert.equal(result.status, 'completed', JSON.stringify(result));
    return result.usage?.costUsd as number | undefined;
  };
  /** Has the agent call a model with what its environment has. */
  const call = () => {
    const body = JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: 'one two three' }] });
    const headers = '{ "content-type": "application/json", authorization: "Bearer " + OPENAI_API_KEY }';
    const sent = `{ method: "POST", headers: ${headers}, body: JSON.stringify(${body}) }`;
    const { execPath: node } = process;
    return `sh ${node} -e 'const { OPENAI_API_KEY, OPENAI_BASE_URL: url } = process.env; fetch(url + "/chat/completions", ${sent})'`;
  };
  const spent = async () => {
    const { body } = await send('GET', `/usage?owner=user:${ann.id}`, bearer(MASTER_KEY));
    return (body.data as Json[]).reduce((sum, one) => sum + Number(one.cost_usd), 0);
  };
  const one = await turn('one', call());
  assert.ok(one !== undefined && one > 0, String(one));
  await until('the call to be counted', async () => Math.abs((await spent()) - one) < 1e-9);
  assert.equal(await turn('two', call()), one, 'the turn before does not count');
  assert.equal(await turn('three', 'say nothing'), undefined, 'nothing was called');
  const beside = rpc('session.start', ann.headers, { sessionId: 'four', taskPrompt: 'wait', routing });
  await until('that turn to run', async () => {
    const { sessions } = (await send('GET', '/api/bridge/sessions', ann.headers)).body;
    return JSON.stringify(sessions).includes('"running"');
  });
  assert.equal(await turn('five', call()), undefined, 'another turn of the process ran at the same time');
  await rpc('session.cancel', ann.headers, { sessionId: 'four' });
  assert.equal((await beside).body.result.usage?.costUsd, undefined, 'the calls were those of the other turn');
  const { sessions } = (await send('GET', '/api/bridge/sessions', ann.headers)).body;
  const costs = Object.fromEntries((sessions as Json[]).map((each) => [each.sessionId, each.costUsd]));
  assert.deepEqual(costs, { one, two: one, three: null, four: null, five: null });
  const again = await rpc('session.message', ann.headers, { sessionId: 'five', taskPrompt: call() });
  assert.ok(again.body.result.usage.costUsd > 0, 'after that, turns are told apart again');
});

test('a pause ends the key of an agent', async () => {
  const ann = await newWorker();
  const { OPENAI_API_KEY: key = '' } = await environmentOf(ann.headers);
  assert.equal(await people.chat(bearer(key)), 200);
  await people.pause(ann.id);
  assert.equal(await people.chat(bearer(key)), 401);
});

test('members of a team share the home of an agent, and each has a key that charges them and the team', async () => {
  const [ann, bob] = [await newWorker(), await newWorker()];
  const team = await people.newTeam({}, ann, bob);
  const forTeam = (headers: Headers): Headers => ({ ...headers, 'x-team': team });
  const own = await environmentOf(ann.headers);
  const anns = await environmentOf(forTeam(ann.headers), 'resuming', 'shared');
  // Bob goes on with the conversation of Ann, and Ann with that of Bob.
  const bobs = await environmentOf(bob.headers, 'resuming', 'shared', 'session.message');
  assert.equal(anns.HOME, bobs.HOME);
  assert.notEqual(anns.HOME, own.HOME);
  // An agent that cannot take up conversations has them in one process, whose key is that of one member.
  await environmentOf(forTeam(ann.headers), 'scripted', 'held');
  const refused = await rpc('session.message', bob.headers, { sessionId: 'held', taskPrompt: 'environment' });
  assert.equal(refused.body.error.data.code, 'SESSION_CONTINUATION_UNAVAILABLE');
  assert.equal(new Set([own, anns, bobs].map((one) => one.OPENAI_API_KEY)).size, 3);
  const again = await environmentOf(ann.headers, 'resuming', 'shared', 'session.message');
  assert.equal(again.OPENAI_API_KEY, anns.OPENAI_API_KEY);
  for (const { OPENAI_API_KEY: key = '' } of [own, anns, bobs]) assert.equal(await people.chat(bearer(key)), 200);
  const { body } = await send('GET', `/usage?owner=team:${team}&group_by=owner`, bearer(ann.token));
  const requests = Object.fromEntries((body.data as Json[]).map((one) => [one.group, one.requests]));
  assert.deepEqual(requests, { [`user:${ann.id}`]: 1, [`user:${bob.id}`]: 1 });
  await send('DELETE', `/api/auth/teams/${team}/members/${ann.id}`, people.asRoot);
  const status = ({ OPENAI_API_KEY: key = '' }: typeof own) => people.chat(bearer(key));
  assert.deepEqual([await status(own), await status(anns), await status(bobs)], [200, 403, 200]);
});

test('folders and sockets of the operator are not in the environment of people', async (t) => {
  const homes = await mkdtemp(join(tmpdir(), 'trestle-homes-'));
  t.after(() => rm(homes, { recursive: true, force: true }));
  const operators = {
    HOME: '/home/op',
    XDG_RUNTIME_DIR: '/run/user/1',
    XDG_CONFIG_HOME: '/home/op/.config',
    LANG: 'C',
  };
  const given = (owner: string | undefined) => environmentFor(operators, NO_FENCE, { owner, agent: 'codex' }, homes);
  for (const owner of ['user:usr_1', 'service:svc_1', 'team:team_1']) {
    const { HOME = '', ...rest } = await given(owner);
    assert.ok(HOME.startsWith(`${homes}/`), owner);
    assert.deepEqual(rest, { LANG: 'C' });
  }
  for (const owner of ['main', 'review', 'node:a:user:usr_1', undefined])
    assert.deepEqual(await given(owner), operators);
  assert.deepEqual(
    await environmentFor(operators, { isFenced: () => true }, { owner: 'user:usr_1', agent: 'codex' }, homes),
    operators,
    'the sandbox has a home of its own',
  );
});
