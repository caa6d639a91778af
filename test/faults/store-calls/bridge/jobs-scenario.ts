import type { JobStatistics } from '../../../../src/bridge/contract/jobs.ts';
import type { JobDeliveryRow } from '../../../../src/bridge/storage/bridge-schema.ts';
import { listJobs } from '../../../kit/bridge/job-client.ts';
import { call } from '../../../kit/bridge/session-client.ts';
import { type BridgeUnderTest, startBridge } from '../../../kit/bridge/start-bridge.ts';
import type { FakeClock } from '../../../kit/fake-clock.ts';
import { startScriptedHttp } from '../../../kit/scripted-http.ts';
import { createScriptedProvider, echo, endless, type TurnScript } from '../../../kit/scripted-provider.ts';
import { until } from '../../../kit/until.ts';
import { createJobSubmits, type JobSubmits } from '../../jobs/job-operations.ts';
import { createJumpingClock } from '../jumping-clock.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { createAskBridge, passing } from './ask-bridge.ts';
import type { StoredTurn, StoredWork } from './check-jobs.ts';

const ENDLESS = 'work on';
const TICK_MS = 1000;
/** A delivery that is due later has an attempt under way, or one that ended without being noted. */
const MAX_PAUSE_MS = 10_000;
/** So long, in real time, such an attempt gets to end: a jump of the clock would cut it off. */
const ATTEMPT_PATIENCE_MS = 2000;
const MAX_LOOKS = 12;
const KEYS = ['first', 'second', 'long'];
const script: TurnScript = (turn) => (turn.prompt === ENDLESS ? endless : echo)(turn);

/** Jobs from their submit to their webhook, and turns beside them. */
export const jobsScenario: Scenario = {
  name: 'jobs',
  service: 'bridge',
  async play(stage) {
    const clock = stage.passing(createJumpingClock());
    const receiver = await startScriptedHttp(stage.scope, ({ response }, index) => {
      response.writeHead(index === 0 ? 500 : 200).end();
    });
    const bridge = await startBridge(stage.scope, { providers: [createScriptedProvider('one', script)], clock });
    const { url, database } = bridge;
    const { storedJobs, submitJob } = createJobSubmits();
    const ask = createAskBridge(url, clock);
    stage.watch(database);

    const submit = async (key: string, params: object = {}) => {
      const operation = await passing(clock, submitJob(url, key, params));
      stage.note(operation);
      return operation.jobId ?? 'unknown';
    };
    const turn = async (method: string, prompt: string): Promise<void> => {
      const { code } = await ask(method, { sessionId: 'talk', taskPrompt: prompt });
      const outcome = code === '' ? 'ok' : code === 'storage_unavailable' ? 'unknown' : 'fail';
      stage.note({ kind: 'turn', prompt, outcome });
    };
    const { query } = database;
    const jobs = () => query.selectFrom('jobs').selectAll().execute();
    const deliveries = () => query.selectFrom('job_deliveries').selectAll().execute();
    const pass = (what: string, isDone: () => Promise<boolean>, ms = TICK_MS) => passUntil(clock, ms, what, isDone);

    const first = await submit('first', { callbackUrl: `${receiver.url}/first` });
    await submit('second', { retryOnRestart: true });
    await pass('the first two to end', async () => (await jobs()).every(({ completed_at: at }) => at !== null));
    await submit('first');
    await turn('session.start', 'one two');
    await turn('session.message', 'three four');
    const long = await submit('long', { taskPrompt: ENDLESS });
    // Or to fail, when that it runs could not be stored.
    await pass('the long one to run', async () =>
      (await jobs()).every(({ id, status }) => id !== long || status !== 'pending'),
    );
    for (const [method, params] of [
      ['app.jobs.list', {}],
      ['app.jobs.stats', {}],
      ['app.jobs.get', { jobId: first }],
    ] as const) {
      // One that was not submitted, since the store had failed, is not there either.
      if (first !== 'unknown') await stage.step({ name: method, ask: () => ask(method, params) });
    }
    await ask('session.cancel', { sessionId: long });
    // Closing takes the turns of a session away, so that it is another one.
    await ask('session.start', { sessionId: 'closed', taskPrompt: 'five' });
    await ask('session.close', { sessionId: 'closed' });
    await passDeliveries(clock, deliveries);
    stage.mend();

    stage.note(await workAtTheEnd(bridge, clock, storedJobs));
    const [withWebhook] = (await jobs()).filter(({ id }) => id === first);
    const told = new Set(receiver.requests.map(({ headers }) => headers['x-app-delivery']));
    const found = [withWebhook?.webhook_sent ?? 1, told.size <= 1];
    stage.note({ kind: 'fact', name: 'the webhook arrived, under one id', wanted: [1, true], found });
  },
};

/** Lets time pass until nothing is to be delivered any more: from one attempt to the next, and never during one. */
async function passDeliveries(
  clock: FakeClock,
  deliveries: () => Promise<readonly Pick<JobDeliveryRow, 'due_at'>[]>,
): Promise<void> {
  for (let looks = 1; looks <= MAX_LOOKS; looks += 1) {
    const times = (await deliveries()).map(({ due_at: at }) => at);
    if (times.length === 0) return;
    const due = Math.min(...times);
    const hasMoved = async () => !(await deliveries()).some(({ due_at: at }) => at === due);
    const isUnderWay = due - clock.now() > MAX_PAUSE_MS;
    if (isUnderWay && (await until('an attempt to end', hasMoved, ATTEMPT_PATIENCE_MS).catch(() => false))) continue;
    await clock.advance(Math.max(0, due - clock.now()) + TICK_MS);
    await until('an attempt to begin', hasMoved, ATTEMPT_PATIENCE_MS).catch(() => false);
  }
}

async function workAtTheEnd(
  { url, database }: BridgeUnderTest,
  clock: FakeClock,
  storedJobs: JobSubmits['storedJobs'],
): Promise<StoredWork> {
  const isQuiet = async (): Promise<boolean> => {
    // Whoever was to be cancelled when the call failed is cancelled now.
    const running = await listJobs(url, { status: 'running' });
    for (const { sessionId } of running) await call(url, 'session.cancel', { sessionId });
    return running.length === 0 && (await listJobs(url, { status: 'pending' })).length === 0;
  };
  const settle = (what: string) => passUntil(clock, TICK_MS, what, isQuiet).catch(() => undefined);
  await settle('all jobs to end');
  const { jobOfKey } = await passing(clock, storedJobs(url, KEYS));
  await settle('the repeated jobs to end');
  const { jobs } = await passing(clock, storedJobs(url, []));
  const { result } = await call(url, 'app.jobs.stats', {});
  const { pending, running, completed, failed } = (result as unknown as JobStatistics).summary;
  const turns = async (): Promise<StoredTurn[]> => {
    const rows = await database.query.selectFrom('turns').select(['prompt', 'status', 'ended_at']).execute();
    return rows.map(({ prompt, status, ended_at: endedAt }) => ({
      prompt: JSON.parse(prompt) as string,
      status,
      isOpen: endedAt === null,
    }));
  };
  const areEnded = async () => (await turns()).every(({ isOpen }) => !isOpen);
  await until('all turns to end', areEnded, TICK_MS).catch(() => undefined);
  return {
    kind: 'stored',
    jobs,
    jobOfKey: [...jobOfKey],
    turns: await turns(),
    counts: { pending, running, completed, failed },
  };
}
