import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createScope } from '../kit/create-scope.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { startScriptedUpstream } from '../kit/scripted-upstream.ts';
import { BRIDGE_TOKEN, bearer, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';

/** Each answer uses 1,000 tokens, at a cent for a thousand. */
const ANSWER = JSON.stringify({
  ...{ id: 'c', object: 'chat.completion', created: 1, model: 'big' },
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 500, completion_tokens: 500, total_tokens: 1000 },
});

for (const engine of engines) {
  describe(`teams on ${engine}`, () => {
    const places = databasePlaces(engine);
    const scope = createScope();
    after(() => scope.end());
    let world: Awaited<ReturnType<typeof startPeople>>;
    before(async () => {
      const upstream = await startScriptedUpstream(scope, (response) => {
        response.setHeader('content-type', 'application/json');
        response.end(ANSWER);
      });
      const lab = { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-5f2c8a91d4' };
      const place = places.location();
      world = await startPeople(
        scope,
        { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
        {
          plans: {
            pro: { models: ['*'], budget: { usd: 1, period: 'month' }, keys: 20 },
            tight: { models: ['*'], budget: { usd: 0.015, period: 'month' } },
            demo: { models: ['demo/*'], budget: { usd: 1, period: 'day' } },
          },
          completions: { apis: { lab }, prices: { 'lab/big': { input: 0.00001, output: 0.00001 } } },
          ...(place.engine === 'postgres' && { database: { url: place.url } }),
        },
      );
    });

    const chat = async (headers: Headers, model = 'lab/big'): Promise<string> => {
      const messages = [{ role: 'user', content: 'Hi' }];
      const { status, body } = await world.send('POST', '/v1/chat/completions', headers, {
        model,
        messages,
        max_tokens: 10,
      });
      return status === 200 ? 'ok' : `${body.error.code} ${body.error.message}`;
    };
    const usage = async (headers: Headers, query = '') => (await world.send('GET', `/usage${query}`, headers)).body;
    const groups = (body: Json) =>
      Object.fromEntries((body.data as { group: string; requests: number }[]).map((one) => [one.group, one.requests]));
    const forTeam = (token: string, team: string): Headers => ({ ...bearer(token), 'x-team': team });

    test('work for a team counts for the key, the person and the team; the lowest of them decides', async () => {
      const { newPerson, newTeam, send } = world;
      const [ann, bob] = [await newPerson('user', 'pro'), await newPerson('user', 'pro')];
      const team = await newTeam({ budget: { usd: 0.025, period: 'month' } }, ann, bob);
      const { key } = (
        await send('POST', '/api/auth/keys', bearer(ann.token), { name: 'k', budget: { usd: 0.015, period: 'total' } })
      ).body;
      assert.equal(await chat(forTeam(key, team)), 'ok');
      assert.equal(await chat(forTeam(bob.token, team)), 'ok');
      // Two cents of two and a half are spent; a call is let in while something is left, and the last one may cost more.
      assert.equal(await chat(forTeam(bob.token, team)), 'ok');
      for (const credential of [ann.token, bob.token, key]) {
        assert.match(
          await chat(forTeam(credential, team)),
          /^insufficient_quota The budget of the team Team \d+ is used up/,
        );
      }
      // Nothing was left reserved by the refusals: what is not for the team is not limited by it, but by the key and the plan.
      assert.equal(await chat(bearer(key)), 'ok');
      assert.match(await chat(bearer(key)), /the budget of this key/i);
      assert.equal(await chat(bearer(ann.token)), 'ok');

      const cid = await newPerson('user', 'tight');
      const rich = await newTeam({ budget: { usd: 100, period: 'month' } }, cid);
      assert.equal(await chat(forTeam(cid.token, rich)), 'ok');
      assert.equal(await chat(forTeam(cid.token, rich)), 'ok');
      assert.match(
        await chat(forTeam(cid.token, rich)),
        /the plan tight/,
        'a team does not lift the limit of a person',
      );
      assert.match(await chat(bearer(cid.token)), /the plan tight/, 'work for a team counts for the person, too');
    });

    test('the plan of a team limits the models, and a change of it counts from the next call on', async () => {
      const { newPerson, newTeam, send, asRoot } = world;
      const ann = await newPerson('user', 'pro');
      const team = await newTeam({ plan: 'demo' }, ann);
      assert.equal(await chat(forTeam(ann.token, team), 'demo/echo'), 'ok');
      assert.match(await chat(forTeam(ann.token, team)), /^model_not_allowed/);
      assert.equal((await send('PATCH', `/api/auth/teams/${team}`, asRoot, { plan: null })).status, 200);
      assert.equal(await chat(forTeam(ann.token, team)), 'ok');
    });

    test('only members work for a team, with a login, a key or a token that may be bound to it', async () => {
      const { newPerson, newTeam, send, asRoot } = world;
      const [ann, eve] = [await newPerson('user', 'pro'), await newPerson('user', 'pro')];
      const [team, other] = [await newTeam({}, ann), await newTeam({}, ann)];
      const refused = /^not_in_team You are not a member of the team/;
      for (const given of [team, 'team_none', '', '*'])
        assert.match(await chat(forTeam(eve.token, given)), given === '' ? /^ok/ : refused);
      assert.match(await chat(forTeam(MASTER_KEY, team)), refused);
      assert.equal((await send('POST', '/api/auth/keys', bearer(eve.token), { name: 'k', team })).status, 404);
      assert.equal(
        (await send('POST', '/api/auth/tokens', bearer(eve.token), { name: 't', scopes: ['completions'], team }))
          .status,
        404,
      );

      const { key } = (await send('POST', '/api/auth/keys', bearer(ann.token), { name: 'k', team })).body;
      const made = (
        await send('POST', '/api/auth/tokens', bearer(ann.token), { name: 't', scopes: ['completions'], team })
      ).body;
      assert.equal(made.team, team);
      for (const bound of [key, made.token]) {
        assert.equal(await chat(bearer(bound)), 'ok');
        assert.equal(await chat(forTeam(bound, team)), 'ok');
        assert.match(await chat(forTeam(bound, other)), refused, 'a bound one works for its team only');
      }
      const keys = async (headers: Headers) => (await send('GET', `/keys?owner=team:${team}`, headers)).body;
      assert.deepEqual(
        (await keys(bearer(ann.token))).data.map((one: Json) => one.team),
        [team],
      );
      assert.equal((await keys(bearer(eve.token))).error.code, 'forbidden');
      assert.deepEqual(groups(await usage(bearer(ann.token), `?owner=team:${team}&group_by=owner`)), {
        [`user:${ann.id}`]: 4,
      });

      await send('DELETE', `/api/auth/teams/${team}/members/${ann.id}`, asRoot);
      assert.match(await chat(bearer(key)), refused);
      assert.match(await chat(bearer(made.token)), /^invalid_api_key/, 'a token of a team ends with the membership');
      assert.match(await chat(forTeam(ann.token, team)), refused);
      assert.equal(await chat(forTeam(ann.token, other)), 'ok');
    });

    test('members see the usage and the calls of their teams, and nothing that others do for themselves', async () => {
      const { newPerson, newTeam, send, asRoot } = world;
      const [ann, bob, eve] = [
        await newPerson('user', 'pro'),
        await newPerson('user', 'pro'),
        await newPerson('user', 'pro'),
      ];
      const team = await newTeam({}, ann, bob);
      const owner = `team:${team}`;
      for (const one of [ann, ann, bob]) assert.equal(await chat(forTeam(one.token, team)), 'ok');
      assert.equal(await chat(bearer(bob.token)), 'ok');
      const byOwner = await usage(bearer(ann.token), `?owner=${owner}&group_by=owner`);
      assert.deepEqual(groups(byOwner), { [`user:${ann.id}`]: 2, [`user:${bob.id}`]: 1 });
      assert.deepEqual(groups(await usage(bearer(ann.token), '?group_by=team')), { [owner]: 2 });
      assert.deepEqual(groups(await usage(bearer(bob.token), `?owner=${owner}&group_by=team`)), { [owner]: 3 });
      assert.equal((await usage(bearer(bob.token))).total.requests, 2);
      assert.equal(groups(await usage(asRoot, `?owner=${owner}&group_by=model`))['lab/big'], 3);
      assert.equal(groups(await usage(bearer(MASTER_KEY), '?group_by=team'))[owner], 3);
      assert.equal((await send('GET', `/usage?owner=${owner}`, bearer(eve.token))).status, 403);

      const calls = async (headers: Headers, query = '') =>
        (await send('GET', `/usage/calls${query}`, headers)).body.data as {
          id: string;
          owner: string;
          team: string | null;
        }[];
      const ofTeam = await calls(bearer(ann.token), `?owner=${owner}`);
      assert.deepEqual(
        ofTeam.map((one) => one.owner).sort(),
        [ann.id, ann.id, bob.id].map((id) => `user:${id}`).sort(),
      );
      assert.ok(ofTeam.every((one) => one.team === owner));
      assert.deepEqual(await calls(bearer(eve.token), `?owner=${owner}`), []);
      const [alone] = (await calls(bearer(bob.token))).filter((one) => one.team === null);
      const bobs = ofTeam.find((one) => one.owner === `user:${bob.id}`);
      const statusOf = async (headers: Headers, id = '') => (await send('GET', `/usage/calls/${id}`, headers)).status;
      assert.equal(await statusOf(bearer(ann.token), bobs?.id), 200);
      assert.equal(await statusOf(bearer(ann.token), alone?.id), 404, 'what a mate does alone stays theirs');
      assert.equal(await statusOf(bearer(eve.token), bobs?.id), 404);
    });
  });
}
