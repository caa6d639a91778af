import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createScope } from '../kit/create-scope.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { inTime } from '../kit/in-time.ts';
import { BRIDGE_TOKEN, bearer, type Headers, type Json, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { until } from '../kit/until.ts';

const BUILTIN = { explicitProviderId: 'builtin' };
const SLOW = { ...BUILTIN, explicitModel: 'demo/echo?delay=200' };
const LONG_TEXT = Array.from({ length: 1000 }, (_, index) => `word${index}`).join(' ');

for (const engine of engines) {
  describe(`work for teams on ${engine}`, () => {
    const places = databasePlaces(engine);
    const scope = createScope();
    after(() => scope.end());
    type World = Awaited<ReturnType<typeof startPeople>>;
    let world: World;
    let roots: string;
    before(async () => {
      roots = await mkdtemp(join(tmpdir(), 'trestle-roots-'));
      scope.after(() => rm(roots, { recursive: true, force: true }));
      const place = places.location();
      world = await startPeople(
        scope,
        { bridge: BRIDGE_TOKEN, completions: MASTER_KEY },
        {
          bridge: { auth_token: BRIDGE_TOKEN, trust_users: true, user_root: join(roots, '{user}') },
          plans: {
            maker: { bridge: true, models: ['*'], keys: 20, jobs: 100, budget: { usd: 10, period: 'month' } },
            few: { bridge: true, models: ['*'], jobs: 2, running_turns: 1 },
            models: { bridge: false, models: ['*'] },
          },
          ...(place.engine === 'postgres' && { database: { url: place.url } }),
        },
      );
    });

    const forTeam = (token: string, team: string): Headers => ({ ...bearer(token), 'x-team': team });
    const start = (headers: Headers, sessionId: string, more: object = {}) =>
      world.rpc('session.start', headers, { sessionId, taskPrompt: `starts ${sessionId}`, routing: BUILTIN, ...more });
    const message = (headers: Headers, sessionId: string, more: object = {}) =>
      world.rpc('session.message', headers, { sessionId, taskPrompt: 'goes on', ...more });
    const sessions = async (headers: Headers, query = '') =>
      ((await world.send('GET', `/api/bridge/sessions${query}`, headers)).body.sessions as Json[]).map(
        ({ owner, sessionId }) => `${owner} ${sessionId}`,
      );
    const codeOf = ({ body }: { readonly body: Json }): string =>
      body.error?.data?.code ?? body.error?.code ?? body.error ?? 'ok';
    const leave = (team: string, { id }: { readonly id: string }) =>
      world.send('DELETE', `/api/auth/teams/${team}/members/${id}`, world.asRoot);
    async function newMates(plan = 'maker', settings: object = {}) {
      const [ann, bob, eve] = await Promise.all([plan, 'maker', 'maker'].map((one) => world.newPerson('user', one)));
      assert.ok(ann !== undefined && bob !== undefined && eve !== undefined);
      return { ann, bob, eve, team: await world.newTeam(settings, ann, bob) };
    }

    test('members see and use what was started for the team; others do not', async () => {
      const { ann, bob, eve, team } = await newMates();
      const owner = `team:${team}`;
      assert.equal(codeOf(await start(bearer(ann.token), 'plan', { team })), 'ok');
      assert.equal(codeOf(await start(forTeam(ann.token, team), 'notes')), 'ok');
      assert.equal(codeOf(await start(bearer(ann.token), 'own')), 'ok');
      const ofTeam = [`${owner} notes`, `${owner} plan`];
      assert.deepEqual((await sessions(bearer(bob.token))).sort(), ofTeam, 'what ann does alone stays hers');
      assert.deepEqual((await sessions(bearer(ann.token))).sort(), [...ofTeam, `user:${ann.id} own`]);
      assert.deepEqual(
        (await sessions(forTeam(ann.token, team))).sort(),
        ofTeam,
        'a call for the team is about its work',
      );
      assert.deepEqual(await sessions(bearer(bob.token), `?owner=${owner}&limit=1`), [`${owner} notes`]);
      const { body: first } = await world.send('GET', '/api/bridge/sessions?limit=2', bearer(ann.token));
      const rest = await sessions(bearer(ann.token), `?limit=2&cursor=${first.nextCursor}`);
      assert.deepEqual(
        [...first.sessions.map((one: Json) => one.sessionId), ...rest.map((one) => one.split(' ')[1])],
        ['own', 'notes', 'plan'],
      );
      assert.deepEqual(await sessions(bearer(eve.token)), []);
      assert.deepEqual(await sessions(bearer(eve.token), `?owner=${owner}`), []);

      assert.equal((await message(bearer(bob.token), 'plan')).body.result.output, 'goes on');
      assert.equal(codeOf(await message(bearer(eve.token), 'plan')), 'SESSION_CONTINUATION_UNAVAILABLE');
      assert.equal(codeOf(await message(bearer(bob.token), 'own')), 'SESSION_CONTINUATION_UNAVAILABLE');
      for (const asked of [forTeam(eve.token, team), forTeam(bob.token, 'team_none'), forTeam(BRIDGE_TOKEN, team)]) {
        const refused = await start(asked, 'plan');
        assert.deepEqual([refused.status, codeOf(refused)], [403, 'NOT_IN_TEAM']);
      }
      const refused = await start(bearer(eve.token), 'plan', { team });
      assert.deepEqual([refused.status, codeOf(refused)], [403, 'NOT_IN_TEAM']);
      assert.equal(codeOf(await start(bearer(ann.token), 'plan', { team: 7 })), 'INVALID_PARAMS');

      // The names of a team and of its members do not meet.
      assert.equal(codeOf(await start(bearer(bob.token), 'plan')), 'ok');
      assert.equal(codeOf(await world.rpc('session.close', bearer(bob.token), { sessionId: 'plan' })), 'ok');
      assert.ok((await sessions(bearer(ann.token))).includes(`${owner} plan`));
      const folder = join(roots, team);
      const inFolder = (headers: Headers) => start(headers, 'in-folder', { workingDirectory: folder });
      assert.equal(codeOf(await inFolder(forTeam(ann.token, team))), 'ok');
      assert.equal(
        codeOf(await inFolder(bearer(ann.token))),
        'WORKING_DIRECTORY_REFUSED',
        'the root is that of the team',
      );

      assert.equal(codeOf(await world.rpc('session.close', bearer(bob.token), { sessionId: 'notes' })), 'ok');
      assert.deepEqual((await sessions(bearer(ann.token), `?owner=${owner}`)).sort(), [
        `${owner} in-folder`,
        `${owner} plan`,
      ]);
    });

    test('a token of a team works for the team and sees nothing else', async () => {
      const { ann, bob, team } = await newMates();
      const other = await world.newTeam({}, ann);
      await start(bearer(ann.token), 'own');
      const { body } = await world.send('POST', '/api/auth/tokens', bearer(ann.token), {
        name: 't',
        scopes: ['bridge'],
        team,
      });
      assert.equal(codeOf(await start(bearer(body.token), 'built')), 'ok');
      assert.deepEqual(await sessions(bearer(body.token)), [`team:${team} built`]);
      assert.deepEqual(await sessions(bearer(bob.token)), [`team:${team} built`]);
      assert.deepEqual(await sessions(bearer(body.token), `?owner=user:${ann.id}`), []);
      assert.equal(codeOf(await start(forTeam(body.token, other), 'x')), 'NOT_IN_TEAM');
      assert.equal(codeOf(await start(bearer(body.token), 'x', { team: other })), 'NOT_IN_TEAM');
    });

    test('jobs and schedules of a team are those of all members', async () => {
      const { ann, bob, eve, team } = await newMates();
      const submit = (headers: Headers, more: object = {}) =>
        world.rpc('app.jobs.submit', headers, { taskPrompt: 'later', routing: BUILTIN, ...more });
      const { jobId } = (await submit(bearer(ann.token), { team })).body.result;
      const own = (await submit(bearer(ann.token))).body.result.jobId as string;
      const list = async (headers: Headers, params: object = {}) =>
        ((await world.rpc('app.jobs.list', headers, params)).body.result.jobs as Json[]).map((one) => one.jobId);
      assert.deepEqual(await list(bearer(bob.token)), [jobId]);
      assert.deepEqual(await list(bearer(ann.token)), [own, jobId]);
      assert.deepEqual(await list(bearer(ann.token), { team }), [jobId]);
      assert.deepEqual(await list(bearer(ann.token), { search: 'later' }), [own, jobId]);
      assert.deepEqual(await list(bearer(eve.token)), []);
      const job = await until('the job of the team to end', async () => {
        const { body } = await world.rpc('app.jobs.get', bearer(bob.token), { jobId });
        return body.result.status === 'completed' && body.result;
      });
      assert.equal(job.result.output, 'later');
      assert.equal((await world.rpc('app.jobs.get', bearer(eve.token), { jobId })).body.result.status, 'not_found');
      assert.equal((await world.rpc('app.jobs.stats', bearer(bob.token))).body.result.summary.completed, 1);
      const again = await world.rpc('app.jobs.submit', bearer(bob.token), { retryOf: jobId });
      assert.equal(codeOf(again), 'ok');
      assert.ok((await list(bearer(ann.token))).includes(again.body.result.jobId), 'it is run again for the team');

      const schedule = { name: 'nightly', cron: '0 3 * * *', task: { taskPrompt: 'tidy', routing: BUILTIN } };
      const made = await world.send('POST', '/api/bridge/schedules', forTeam(ann.token, team), schedule);
      assert.equal(made.body.schedule.owner, `team:${team}`, JSON.stringify(made.body));
      const path = `/api/bridge/schedules/${made.body.schedule.scheduleId}`;
      const names = async (headers: Headers) =>
        (await world.send('GET', '/api/bridge/schedules', headers)).body.schedules.map((one: Json) => one.name);
      assert.deepEqual(await names(bearer(bob.token)), ['nightly']);
      assert.deepEqual(await names(bearer(eve.token)), []);
      assert.equal((await world.send('GET', path, bearer(eve.token))).status, 404);
      assert.equal((await world.send('POST', `${path}/run`, bearer(bob.token), {})).status < 300, true);
      // It counts for the member who has made it, until another one changes it.
      await leave(team, ann);
      assert.equal((await world.send('PATCH', path, bearer(bob.token), { name: 'by night' })).status, 200);
      const { body: ran } = await world.send('POST', `${path}/run`, bearer(bob.token), {});
      assert.ok((await list(bearer(bob.token))).includes(ran.jobId));
      assert.deepEqual(await list(bearer(ann.token)), [own], 'ann has left');
    });

    test('the limits of the person and of the team both count', async () => {
      const { ann, bob, team } = await newMates('few', { plan: 'maker' });
      const submit = (token: string, more: object) =>
        world.rpc('app.jobs.submit', bearer(token), { taskPrompt: LONG_TEXT, routing: SLOW, ...more });
      assert.equal(codeOf(await submit(ann.token, { team })), 'ok');
      assert.equal(codeOf(await submit(ann.token, {})), 'ok');
      for (const more of [{}, { team }]) {
        const { body } = await submit(ann.token, more);
        assert.match(body.error.message, /The plan few allows 2 waiting or running jobs/);
      }
      assert.equal(codeOf(await submit(bob.token, { team })), 'ok');
      await world.pause(ann.id);
      await world.pause(bob.id);

      const { ann: cid, bob: dan, team: small } = await newMates('maker', { plan: 'few' });
      assert.equal(codeOf(await submit(cid.token, { team: small })), 'ok');
      assert.equal(codeOf(await submit(dan.token, { team: small })), 'ok');
      assert.match(
        (await submit(cid.token, { team: small })).body.error.message,
        /The team Team \d+ allows 2 waiting or running jobs/,
      );
      assert.equal(codeOf(await submit(cid.token, {})), 'ok');
      const running = async () =>
        ((await world.rpc('app.jobs.list', bearer(dan.token), { team: small })).body.result.jobs as Json[]).filter(
          ({ status }) => status === 'running',
        ).length;
      await until('one job of the team to run', async () => (await running()) === 1);
      await world.pause(cid.id);
      await world.pause(dan.id);

      const { ann: fay, team: without } = await newMates('maker', { plan: 'models' });
      const refused = await start(forTeam(fay.token, without), 's');
      assert.deepEqual([refused.status, codeOf(refused)], [403, 'TEAM_WITHOUT_BRIDGE']);
    });

    test('models that an agent uses for a team are charged to the member and to the team', async () => {
      const { ann, team } = await newMates();
      await start(forTeam(ann.token, team), 'charged');
      await message(bearer(ann.token), 'charged');
      await start(bearer(ann.token), 'alone');
      const usage = (await world.send('GET', '/usage?group_by=team', bearer(ann.token))).body;
      const requests = Object.fromEntries(usage.data.map((one: Json) => [one.group, one.requests]));
      assert.equal(requests[`team:${team}`], 2, JSON.stringify(usage.data));
      const { total } = (await world.send('GET', '/usage', bearer(ann.token))).body;
      assert.equal(total.requests, 3, 'it is what ann has used as well');
    });

    test('a member who leaves loses sockets, turns and jobs immediately, and the work of others goes on', async () => {
      const { ann, bob, team } = await newMates();
      const slow = { taskPrompt: LONG_TEXT, routing: SLOW };
      const socket = await world.openSocket(bearer(ann.token));
      socket.call('session.start', { sessionId: 'of-ann', team, ...slow });
      await until('the turn to write', () => socket.messages.some((text) => text.includes('word1')));
      const live = await world.openSocket(bearer(ann.token), '/api/bridge/live');
      live.call('watch', { topics: ['sessions'] });
      const { jobId } = (await world.rpc('app.jobs.submit', bearer(ann.token), { team, ...slow })).body.result;
      const stays = await world.openSocket(bearer(bob.token));
      stays.call('session.start', { sessionId: 'of-bob', team, ...slow });
      await until('the turn of bob to write', () => stays.messages.some((text) => text.includes('word1')));
      const stateOf = async (sessionId: string) =>
        (await world.send('GET', `/api/bridge/sessions/${sessionId}`, bearer(bob.token))).body.session;
      const jobOf = async () => (await world.rpc('app.jobs.get', bearer(bob.token), { jobId })).body.result;
      await until('the job to run', async () => (await jobOf()).status === 'running');

      assert.ok((await leave(team, ann)).status < 300);
      assert.equal(await socket.closed(), 1008);
      assert.equal(await live.closed(), 1008);
      await until('the turn of ann to end', async () => (await stateOf('of-ann')).lastTurn?.status === 'cancelled');
      await until('the job of ann to end', async () => (await jobOf()).errorCode === 'JOB_CANCELLED');
      assert.equal((await stateOf('of-bob')).state, 'running');
      assert.deepEqual(await sessions(bearer(ann.token)), []);
      assert.equal(codeOf(await message(bearer(ann.token), 'of-ann')), 'SESSION_CONTINUATION_UNAVAILABLE');

      const removed = await world.send('DELETE', `/api/auth/teams/${team}`, world.asRoot);
      assert.ok(removed.status < 300, JSON.stringify(removed.body));
      assert.equal(await inTime('the socket of bob to close', stays.closed()), 1008);
      const asRoot = async () => (await world.send('GET', '/api/bridge/sessions/of-bob', world.asRoot)).body.session;
      await until('the work of the team to end', async () => (await asRoot()).lastTurn?.status === 'cancelled');
    });
  });
}
