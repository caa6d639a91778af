import { join } from 'node:path';
import { bridgeErrors } from '../../../../src/bridge/errors.ts';
import { bridgeMigrations } from '../../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../../src/bridge/storage/bridge-schema.ts';
import { createJobStore } from '../../../../src/bridge/storage/job-store.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { openDatabase } from '../../../../src/platform/database/open-database.ts';
import { waitingJob } from '../../../kit/bridge/job-rows.ts';
import { call } from '../../../kit/bridge/session-client.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { temporaryFolder } from '../../../kit/running-program.ts';
import { createScriptedProvider } from '../../../kit/scripted-provider.ts';
import { askInside } from '../ask-inside.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { passing } from './ask-bridge.ts';

const DEAD = 'ins_dead';
const DEAD_MS = 10_000;
const BEAT_MS = 2500;

/**
 * A bridge starts where another one has died, and stops. On SQLite: on PostgreSQL its clock decides who is dead, which a test
 * cannot move; `npm run faults -- cluster` kills instances there.
 */
export const startScenario: Scenario = {
  name: 'start and stop',
  service: 'bridge',
  async play(stage) {
    const file = join(await temporaryFolder(stage.scope), 'bridge.db');
    const location = { engine: 'sqlite', file } as const;
    const definition = { name: 'bridge', migrations: bridgeMigrations };
    const database = await openDatabase<BridgeSchema>({ ...definition, location, clock: systemClock });
    const { query } = database;
    const providers = [createScriptedProvider('one')];
    let clock = stage.passing(createJumpingClock());
    const first = await startBridge(stage.scope, { providers, database, clock });
    await call(first.url, 'session.start', { sessionId: 'talk', taskPrompt: 'hello' });
    await first.stop();
    await query.updateTable('turns').set({ status: 'running', outcome: '', ended_at: null, instance: DEAD }).execute();
    await query.updateTable('sessions').set({ instance: DEAD }).execute();
    const now = clock.now();
    const running = { status: 'running', instance: DEAD, attempt: 1, created_at: now, started_at: now } as const;
    const lost = waitingJob({ ...running, deadline_at: now + 600_000 });
    const retried = waitingJob({ ...running, deadline_at: now + 600_000, retry_on_restart: 1 });
    const jobs = createJobStore(database);
    for (const job of [lost, retried]) await jobs.add(job);
    stage.watch(database);

    const bridge = await stage.step({
      name: 'a start',
      // What is left of a start that has failed has no time any more: its process is gone.
      async ask() {
        clock = stage.passing(createJumpingClock(clock.now() + DEAD_MS));
        const starting = () => startBridge(stage.scope, { providers, clock, after: first });
        return askInside(bridgeErrors, () => passing(clock, starting()));
      },
      stored: async () => storedOf((await query.selectFrom('instances').select('id').execute()).length > 0),
    });
    await stage.step({
      name: 'the instances',
      ask: () => askInside(bridgeErrors, async () => bridge?.bridge.instances()),
    });
    const statuses = async () =>
      Promise.all([lost, retried].map(async ({ id }) => (await jobs.find(id))?.status ?? ''));
    const isSettled = async () => (await statuses()).every((status) => status === 'completed' || status === 'failed');
    await passUntil(clock, BEAT_MS, 'the jobs to be settled', () => stage.aside(isSettled));
    const listed = () => query.selectFrom('instances').select('id').execute();
    await stage.step({
      name: 'a stop',
      ask: () => askInside(bridgeErrors, () => passing(clock, bridge?.bridge.stop() ?? Promise.resolve())),
      stored: async () => storedOf((await listed()).length === 0),
    });
    stage.mend();
    const [turn] = await query.selectFrom('turns').selectAll().where('prompt', '=', '"hello"').execute();
    const [session] = await query.selectFrom('sessions').selectAll().where('session_id', '=', 'talk').execute();
    const [lostStatus = '', retriedStatus = ''] = await statuses();
    const found = [turn?.status, turn?.ended_at === null, session?.instance, lostStatus];
    const wanted = ['failed', false, '', 'failed'];
    stage.note({ kind: 'fact', name: 'turn, session and job of the dead', wanted, found });
    // The other one was run again: it has failed if the store did just then.
    const ended: readonly string[] = [lostStatus, retriedStatus];
    const counts = await query.selectFrom('job_counts').selectAll().execute();
    for (const status of ['pending', 'running', 'completed', 'failed'] as const) {
      const counted = counts.reduce((sum, row) => sum + row[status], 0);
      const stored = ended.filter((one) => one === status).length;
      stage.note({ kind: 'fact', name: `jobs that are counted as ${status}`, wanted: stored, found: counted });
    }
  },
};
