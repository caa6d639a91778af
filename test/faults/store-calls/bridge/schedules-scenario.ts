import type { Owner } from '../../../../src/platform/identity/owner.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../../kit/scripted-provider.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskWorkbench } from './ask-workbench.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

/** Schedules: made, changed, fired, missed, refused, removed, and left by someone who is gone. */
export const schedulesScenario: Scenario = {
  name: 'schedules',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const owner = { id: 'main', state: 'active' as Owner['state'], bridge: true, teams: [], buckets: [] };
    const listeners = new Set<(owner: Owner) => void>();
    const owners = {
      ownerOf: () => owner as unknown as Owner,
      watch(listener: (owner: Owner) => void) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    };
    const { url, database } = await startBridge(stage.scope, {
      providers: [createScriptedProvider('one')],
      clock,
      owners,
    });
    const rest = createAskWorkbench(url, clock);
    const { query } = database;
    stage.watch(database);

    const schedules = () => query.selectFrom('schedules').selectAll().orderBy('id').execute();
    const jobs = () => query.selectFrom('jobs').select(['id', 'status', 'completed_at']).execute();
    const areEnded = async () => (await jobs()).every(({ completed_at: at }) => at !== null);
    const make = async (name: string, every: string) => {
      const known = (await schedules()).length;
      await stage.step({
        name: `a schedule: ${name}`,
        ask: () => rest('POST', 'schedules', { body: { name, every, task: { taskPrompt: 'sweep' } } }),
        stored: async () => storedOf((await schedules()).length > known),
      });
      return (await schedules()).at(-1)?.id ?? '';
    };
    const rowOf = async (id: string) => (await schedules()).find((row) => row.id === id);

    const id = await make('floor', '5m');
    await stage.step({ name: 'the schedules', ask: () => rest('GET', 'schedules') });
    await stage.step({ name: 'a schedule', ask: () => rest('GET', `schedules/${id}`) });
    await stage.step({
      name: 'another name',
      ask: () => rest('PATCH', `schedules/${id}`, { body: { name: 'stairs' } }),
      stored: async () => storedOf((await rowOf(id))?.name === '"stairs"'),
    });
    await stage.step({
      name: 'a run at once',
      ask: () => rest('POST', `schedules/${id}/run`, { body: {} }),
      stored: async () => storedOf((await jobs()).length > 0, ((await rowOf(id))?.last_job_id ?? '') !== ''),
    });
    await passUntil(clock, 1000, 'the job to end', areEnded);
    const dueIn = async () => Math.max(0, ((await rowOf(id))?.next_at ?? 0) - clock.now());
    await clock.advance(await dueIn());
    const fired = async () => (await schedules()).some(({ last_result: result }) => result === 'fired');
    await passUntil(clock, 2000, 'the schedule to fire', fired);
    await passUntil(clock, 1000, 'the fired job to end', areEnded);
    // The program was stopped for a day, as far as a clock can tell.
    clock.stepWall(DAY_MS);
    const missed = async () => (await schedules()).some(({ last_result: result }) => result === 'missed');
    await passUntil(clock, 30_000, 'the times of a day to be missed', missed);
    // A clock that was wrong by a year is set back.
    const isNear = async () => (await schedules()).every((row) => (row.next_at ?? 0) < clock.now() + DAY_MS);
    clock.stepWall(-300 * DAY_MS);
    await passUntil(clock, 30_000, 'the next times to be counted again', isNear);
    await stage.step({
      name: 'the end of a schedule',
      ask: () => rest('DELETE', `schedules/${id}`),
      stored: async () => storedOf((await rowOf(id)) === undefined),
      whenDone: ['schedule_not_found'],
    });

    await make('of someone who goes', '1h');
    owner.state = 'gone';
    for (const listener of listeners) listener(owner as unknown as Owner);
    const areGone = async () => (await schedules()).length === 0;
    await passUntil(clock, 60 * MINUTE_MS, 'the schedules of who is gone to be removed', areGone).catch(
      () => undefined,
    );
    stage.mend();
    const left = (await schedules()).length;
    stage.note({ kind: 'fact', name: 'schedules of someone who is gone', wanted: 0, found: left });
    const open = (await jobs()).filter(({ completed_at: at }) => at === null).length;
    stage.note({ kind: 'fact', name: 'jobs that were never ended', wanted: 0, found: open });
  },
};
