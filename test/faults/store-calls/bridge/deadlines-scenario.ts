import { createJobStore } from '../../../../src/bridge/storage/job-store.ts';
import { waitingJob } from '../../../kit/bridge/job-rows.ts';
import { call } from '../../../kit/bridge/session-client.ts';
import { startBridge } from '../../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless } from '../../../kit/scripted-provider.ts';
import { until } from '../../../kit/until.ts';
import { createJobSubmits } from '../../jobs/job-operations.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskBridge } from './ask-bridge.ts';

const HOUR_MS = 3_600_000;
const TICK_MS = 1000;
const TIMEOUT_MS = 120_000;
/** How exactly a deadline is kept. */
const NEAR_MS = 10_000;
const ELSEWHERE = 'runs elsewhere';

/** Jobs that wait past their time while the clock is set, and one that another bridge runs. */
export const deadlinesScenario: Scenario = {
  name: 'deadlines',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const providers = [createScriptedProvider('one', endless)];
    const { url, database } = await startBridge(stage.scope, {
      providers,
      clock,
      settings: 'jobs: { max_running: 1 }\n',
    });
    const { query } = database;
    const ask = createAskBridge(url, clock);
    const { submitJob } = createJobSubmits();
    const { jobId: running = '' } = await submitJob(url, 'running');
    const jobOf = (id: string) => query.selectFrom('jobs').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
    await until('the first job to run', async () => (await jobOf(running)).status === 'running');
    const { jobId: waiting = '' } = await submitJob(url, 'waiting', { timeoutMs: TIMEOUT_MS });
    const now = clock.now();
    const other = { id: 'ins_other', version: '', address: '', started_at: now, heartbeat_at: now };
    await query.insertInto('instances').values(other).execute();
    const times = { created_at: now, started_at: now, deadline_at: now + 24 * HOUR_MS };
    const names = { session_id: ELSEWHERE, thread_id: ELSEWHERE, instance: other.id };
    const elsewhere = waitingJob({ status: 'running', ...times, ...names });
    await createJobStore(database).add(elsewhere);
    stage.watch(database);

    await stage.step({
      name: 'a stop of a job that another bridge runs',
      ask: () => ask('session.cancel', { sessionId: ELSEWHERE }),
      stored: async () => storedOf((await jobOf(elsewhere.id)).stop_requested === 1),
    });
    /** By the monotonic clock, which nobody sets. */
    const endsAt = async () => (await jobOf(waiting)).deadline_at - clock.now() + clock.monotonic();
    const before = await endsAt();
    // Deadlines are moved on SQLite alone, whose answers are lost only together with the thread that gives them.
    for (const byMs of stage.when === 'before' ? [HOUR_MS, -2 * HOUR_MS] : []) {
      clock.stepWall(byMs);
      await clock.advance(TICK_MS);
      const isNear = async () => Math.abs((await endsAt()) - before) < NEAR_MS;
      await passUntil(clock, TICK_MS, 'the deadlines to be moved', isNear).catch(() => undefined);
      const apart = Math.round(((await endsAt()) - before) / NEAR_MS);
      stage.note({
        kind: 'fact',
        name: `how far a deadline is off after a step of ${byMs} ms`,
        wanted: 0,
        found: apart,
      });
    }
    const isOver = async () => (await jobOf(waiting)).completed_at !== null;
    await passUntil(clock, TIMEOUT_MS, 'the waiting job to end', isOver);
    stage.mend();
    await call(url, 'session.cancel', { sessionId: (await jobOf(running)).session_id });
    await passUntil(clock, TICK_MS, 'the running job to end', async () => (await jobOf(running)).completed_at !== null);
    const { status, outcome } = await jobOf(waiting);
    stage.note({
      kind: 'fact',
      name: 'how a job ended that nobody could run in time',
      wanted: ['failed', 'JOB_TIMEOUT'],
      found: [status, (JSON.parse(outcome) as { readonly errorCode: string }).errorCode],
    });
  },
};
