import { createJobStore } from '../../../../src/bridge/storage/job-store.ts';
import { call } from '../../../kit/bridge/session-client.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../../kit/scripted-provider.ts';
import { until } from '../../../kit/until.ts';
import { createJobSubmits } from '../../jobs/job-operations.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const RETENTION = { events: DAY_MS, audit: DAY_MS, jobs: DAY_MS };
const TABLES = ['jobs', 'turns', 'session_updates', 'audit_records'] as const;

/** What is older than it is kept is removed, with all sessions that nobody has used for as long. */
export const retentionScenario: Scenario = {
  name: 'retention',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const providers = [createScriptedProvider('one')];
    const { url, database } = await startBridge(stage.scope, { providers, clock, retention: RETENTION });
    const { query } = database;
    const store = createJobStore(database);
    const { submitJob } = createJobSubmits();
    for (const key of ['first', 'second']) {
      const { jobId = '' } = await submitJob(url, key);
      await until('the job to end', async () => (await store.find(jobId))?.completed_at !== null);
    }
    await call(url, 'session.start', { sessionId: 'talk', taskPrompt: 'hello' });
    const audit = { id: 'aud_1', at: clock.now(), owner: '', tenant: '', action: '', decision: '', session_id: '' };
    await query
      .insertInto('audit_records')
      .values({ ...audit, turn_id: '', provider_id: '', subject: '' })
      .execute();
    stage.watch(database);

    const left = async () => {
      const rows = await Promise.all(TABLES.map((table) => query.selectFrom(table).selectAll().execute()));
      return rows.flat().length;
    };
    const openSessions = async () =>
      (await query.selectFrom('sessions').select('session_id').where('closed_at', 'is', null).execute()).map(
        ({ session_id }) => session_id,
      );
    clock.stepWall(2 * DAY_MS);
    const isDone = async () => (await left()) === 0 && (await openSessions()).length === 0;
    await passUntil(clock, 11 * MINUTE_MS, 'old records to be removed', isDone).catch(() => undefined);
    stage.mend();
    const counts = await query.selectFrom('job_counts').select('completed').execute();
    stage.note({ kind: 'fact', name: 'rows that are too old', wanted: 0, found: await left() });
    stage.note({
      kind: 'fact',
      name: 'sessions that nobody has used for as long',
      wanted: [],
      found: await openSessions(),
    });
    const counted = counts.reduce((sum, { completed }) => sum + completed, 0);
    stage.note({ kind: 'fact', name: 'jobs that are counted', wanted: 0, found: counted });
  },
};
