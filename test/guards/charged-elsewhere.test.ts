import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { eventsOf, startScriptedUpstream, streams } from '../kit/scripted-upstream.ts';
import {
  BRIDGE_TOKEN,
  bearer,
  ELSEWHERE,
  type Headers,
  MASTER_KEY,
  startElsewhere,
  startPeople,
} from '../kit/start-people.ts';
import { until } from '../kit/until.ts';

const scope = { after };
const TOKENS = { bridge: BRIDGE_TOKEN, completions: MASTER_KEY };
const asMain = bearer(BRIDGE_TOKEN);
/** USD for a token. */
const PRICE = { input: 0.001, output: 0.001 };
/** Each answer costs 4 USD, about as much as is reserved for it. */
const USAGE = { prompt_tokens: 3000, completion_tokens: 1000, total_tokens: 4000 };
const COST = USAGE.total_tokens * PRICE.input;
const ANSWER = streams(eventsOf(['ok'], { usage: USAGE }));
const plan = (more: object) => ({ models: ['*'], bridge: true, running_turns: 4, jobs: 4, ...more });
const budget = (usd: number) => ({ budget: { usd, period: 'month' } });

type People = Awaited<ReturnType<typeof startPeople>>;
let sessions = 0;
async function turn({ rpc }: Pick<People, 'rpc'>, headers: Headers, more: object = {}) {
  sessions += 1;
  const { body } = await rpc('session.start', headers, { sessionId: `s${sessions}`, taskPrompt: 'Say hello', ...more });
  return body;
}
const model = (explicitModel: string) => ({ routing: { explicitProviderId: 'builtin', explicitModel } });

/** How a turn ended: the code of its failure, or its status. */
const outcome = (body: { result?: { status: string; errorCode?: string } }) =>
  JSON.stringify(body).match(/BUDGET_EXCEEDED|PERSON_NOT_CHARGED|AGENT_FAILED/)?.[0] ?? body.result?.status;

/** What an owner or a team has spent, as the operator sees it. */
async function spent({ send }: Pick<People, 'send'>, master: Headers, by: 'owner' | 'team', name: string) {
  const { body } = await send('GET', `/usage?group_by=${by}`, master);
  const text = JSON.stringify(body);
  const groups = (body.groups ?? body.data ?? []) as readonly Record<string, unknown>[];
  const group = groups.find((one) => Object.values(one).includes(name));
  return { text, requests: Number(group?.requests ?? 0), usd: Number(group?.cost_usd ?? 0) };
}

for (const apiKey of ['', 'key-of-the-operator-3c2b1a']) {
  test(`people are charged here for an API ${apiKey === '' ? 'without' : 'with'} a key`, async (t) => {
    const upstream = await startScriptedUpstream(t, ANSWER);
    const people = await startPeople(t, TOKENS, {
      agents: { builtin: { model: 'small', base_url: upstream.url, ...(apiKey !== '' && { api_key: apiKey }) } },
      completions: { prices: { 'agents.builtin/small': PRICE, 'agents.builtin/free': { input: 0, output: 0 } } },
      plans: {
        rich: plan(budget(100)),
        tight: plan(budget(20)),
        nothing: plan(budget(0)),
        slow: plan({ ...budget(100), requests_per_minute: 1 }),
        other: plan({ ...budget(100), models: ['demo/*'] }),
      },
    });
    const [rich, nothing, slow, other] = await Promise.all(
      ['rich', 'nothing', 'slow', 'other'].map(async (name) => bearer((await people.newPerson('user', name)).token)),
    );
    assert.ok(rich && nothing && slow && other);
    const first = await turn(people, rich);
    assert.deepEqual([outcome(first), first.result?.usage?.costUsd], ['completed', COST]);
    assert.equal(upstream.requests.at(-1)?.headers.authorization, apiKey === '' ? undefined : `Bearer ${apiKey}`);

    const paid = upstream.requests.length;
    assert.equal(outcome(await turn(people, nothing)), 'BUDGET_EXCEEDED', 'a budget of 0 pays for nothing');
    assert.equal(outcome(await turn(people, other)), 'AGENT_FAILED', 'the plan does not include the model');
    assert.equal(outcome(await turn(people, rich, model('unheard-of'))), 'PERSON_NOT_CHARGED', 'no price');
    assert.equal(upstream.requests.length, paid, 'the API was not asked for any of them');
    assert.equal(outcome(await turn(people, nothing, model('free'))), 'completed', 'the settings say that it is free');
    assert.equal(outcome(await turn(people, asMain, model('unheard-of'))), 'completed', 'the operator pays for it');
    assert.equal(outcome(await turn(people, slow)), 'completed');
    assert.equal(outcome(await turn(people, slow)), 'AGENT_FAILED', 'one request a minute');

    const tight = await people.newPerson('user', 'tight');
    const team = await people.newTeam({ budget: { usd: 20, period: 'month' } }, tight);
    let calls = 0;
    while (outcome(await turn(people, bearer(tight.token), { team })) === 'completed') calls += 1;
    assert.ok(calls > 0 && calls <= 20 / COST, `${calls} calls`);
    const usage = await until('what was spent to be stored', async () => {
      const owner = await spent(people, bearer(MASTER_KEY), 'owner', `user:${tight.id}`);
      return owner.requests >= calls && owner;
    });
    assert.ok(Math.abs(usage.usd - calls * COST) < 1e-6, usage.text);
    assert.equal((await spent(people, bearer(MASTER_KEY), 'team', `team:${team}`)).requests, usage.requests);
  });
}

test('people are charged by a Trestle elsewhere, which gets a token of theirs and knows them by it', async () => {
  const upstream = await startScriptedUpstream(scope, ANSWER);
  const proxy = await startFaultProxy(scope, 9);
  const builtin = { model: 'lab/small', base_url: `${proxy.url}/v1`, charge_people: 'there' };
  const people = await startPeople(scope, TOKENS, { agents: { builtin }, plans: { rich: plan({}), poor: plan({}) } });
  const there = await startElsewhere(
    scope,
    {
      accounts: { issuer: people.url },
      completions: {
        master_key: ELSEWHERE.master.authorization?.slice('Bearer '.length),
        apis: { lab: { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-5f2c8a91d4' } },
        prices: { 'lab/small': PRICE },
      },
      plans: { rich: plan(budget(100)), poor: plan(budget(0)) },
    },
    ['completions'],
  );
  proxy.setTarget(Number(new URL(there.url).port));
  const ann = await people.newPerson('user', 'rich');
  const team = await people.newTeam({}, ann);
  assert.equal(outcome(await turn(people, bearer(ann.token))), 'completed');
  assert.equal(outcome(await turn(people, bearer(ann.token), { team })), 'completed');
  const poor = bearer((await people.newPerson('user', 'poor')).token);
  const refused = await turn(people, poor);
  assert.equal(outcome(refused), 'BUDGET_EXCEEDED', JSON.stringify(refused));

  const job = { sessionId: 'later', taskPrompt: 'Say hello', idempotencyKey: 'later' };
  const { body: submitted } = await people.rpc('app.jobs.submit', bearer(ann.token), job);
  await until('the job to end', async () => {
    const { body } = await people.rpc('app.jobs.get', bearer(ann.token), { jobId: submitted.result.jobId });
    return JSON.stringify(body).includes('"completed"');
  });
  const owner = await until('three calls to be charged', async () => {
    const found = await spent(there, ELSEWHERE.master, 'owner', `user:${ann.id}`);
    return found.requests === 3 && found;
  });
  assert.ok(Math.abs(owner.usd - 3 * COST) < 1e-6, owner.text);
  assert.equal((await spent(there, ELSEWHERE.master, 'team', `team:${team}`)).requests, 1);

  const tight = await people.newTeam(budget(20), ann);
  let calls = 0;
  while (calls < 10 && outcome(await turn(people, bearer(ann.token), { team: tight })) === 'completed') calls += 1;
  assert.ok(calls > 0 && calls <= 20 / COST, `the budget of the team paid for ${calls} calls of ${COST} USD`);
  const over = await turn(people, bearer(ann.token), { team: tight });
  assert.equal(outcome(over), 'BUDGET_EXCEEDED', JSON.stringify(over));
  assert.equal(outcome(await turn(people, bearer(ann.token))), 'completed', 'the person alone has money left');
  assert.equal(outcome(await turn(people, asMain)), 'AGENT_FAILED', 'the operator has given no key for that API');
});

test('the token that pays elsewhere opens nothing where it was issued', async (t) => {
  const upstream = await startScriptedUpstream(t, ANSWER);
  const builtin = { model: 'any', base_url: upstream.url, charge_people: 'there' };
  const people = await startPeople(t, TOKENS, { agents: { builtin }, plans: { rich: plan({}) } });
  const ann = await people.newPerson('user', 'rich');
  assert.equal(outcome(await turn(people, bearer(ann.token))), 'completed');
  const sent = { authorization: upstream.requests[0]?.headers.authorization ?? '' };
  assert.match(sent.authorization, /^Bearer ey/);
  assert.equal(await people.chat(sent), 401);
  assert.equal((await people.rpc('acp.capabilities', sent)).status, 401);
  assert.equal((await people.send('GET', '/api/auth/session', sent)).status, 401);
});
