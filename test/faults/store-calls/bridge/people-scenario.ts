import type { Owner } from '../../../../src/platform/identity/owner.ts';
import type { Principal } from '../../../../src/platform/identity/principal.ts';
import { bearer } from '../../../kit/bridge/session-client.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../../kit/scripted-provider.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge, passUntilStored } from './ask-bridge.ts';
import { createAskWorkbench } from './ask-workbench.ts';

const TALK = 'talk of a team';
const TEAM_HEADER = 'x-team';
const BUCKET = { id: 'team:team_a', name: 'the team', limits: {} };
const TEAM = { id: 'team_a', allowed: undefined, bridge: true, plan: '', budget: undefined, bucket: BUCKET };
const OWNER: Owner = {
  ...{ id: 'user:usr_ann', state: 'active', role: 'user', plan: '', allowed: undefined, buckets: [], bridge: true },
  ...{ teams: [TEAM], revision: 1 },
};
const ANN: Principal = {
  id: OWNER.id,
  role: 'user',
  teams: [TEAM.id],
  scopes: new Set(['bridge']),
  buckets: [],
  seesAll: false,
  credential: { id: 'ses_1', owner: OWNER, isLive: () => true, onEnd: () => () => undefined },
};

/** What a person does for a team, and sees of it without saying for which. */
export const peopleScenario: Scenario = {
  name: 'people and teams',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const { url, database } = await startBridge(stage.scope, {
      providers: [createScriptedProvider('one')],
      clock,
      isGuarded: true,
      owners: { ownerOf: () => OWNER, watch: () => () => undefined },
      identify: () => ANN,
    });
    const ask = createAskBridge(url, clock);
    const headers = bearer('the-session-of-ann');
    const rest = createAskWorkbench(url, clock, headers);
    const ofTeam = { ...headers, [TEAM_HEADER]: TEAM.id };
    const { query } = database;
    stage.watch(database);

    const openTurns = () => query.selectFrom('turns').select('id').where('ended_at', 'is', null).execute();
    const pause = () => passUntilStored(clock, async () => (await openTurns()).length === 0);
    await stage.step({
      name: 'a turn for a team',
      ask: () => ask('session.start', { sessionId: TALK, taskPrompt: 'hello' }, ofTeam),
      stored: async () =>
        storedOf((await query.selectFrom('sessions').selectAll().execute()).some(({ owner }) => owner === BUCKET.id)),
      pause,
    });
    await stage.step({
      name: 'a look at the session of the team',
      ask: () => rest('GET', `sessions/${encodeURIComponent(TALK)}`),
    });
    await stage.step({ name: 'the sessions', ask: () => rest('GET', 'sessions') });
    const jobs = () => query.selectFrom('jobs').selectAll().execute();
    for (const [name, as] of [
      ['a job', headers],
      ['a job for a team', ofTeam],
    ] as const) {
      await stage.step({
        name,
        ask: () => ask('app.jobs.submit', { taskPrompt: name, idempotencyKey: name }, as),
        stored: async () => storedOf((await jobs()).some((job) => JSON.stringify(job).includes(name))),
      });
    }
    const areEnded = async () => (await jobs()).every(({ completed_at: at }) => at !== null);
    await passUntil(clock, 1000, 'the jobs to end', areEnded);
    await stage.step({
      name: 'jobs with words',
      ask: () => ask('app.jobs.list', { search: 'a job', limit: 50 }, headers),
    });
    stage.mend();
    const owners = (await jobs()).map(({ owner }) => owner).sort();
    stage.note({ kind: 'fact', name: 'owners of the jobs', wanted: [BUCKET.id, OWNER.id], found: owners });
  },
};
