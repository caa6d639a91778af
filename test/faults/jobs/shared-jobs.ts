import { setTimeout as sleep } from 'node:timers/promises';
import type { DatabaseLocation } from '../../../src/platform/database/database.ts';
import { listJobs, submit } from '../../kit/bridge/job-client.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { type BridgeUnderTest, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScope } from '../../kit/create-scope.ts';
import { startPostgres } from '../../kit/real-postgres.ts';
import type { Scope } from '../../kit/running-program.ts';
import { createScriptedProvider, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';
import { type FaultSuite, neverFigure, workFigure } from '../fault-suite.ts';

export interface SharedPlace {
  readonly location: DatabaseLocation;
}

const AT_ONCE = 20;
const JOBS_PER_CYCLE = 50;
const MIN_PATIENCE_MS = 60_000;
const PATIENCE_PER_JOB_MS = 100;

/** Lets two bridges on one PostgreSQL run jobs, and tells what did not hold: each job runs once, on one of them. */
export async function spreadJobs(scope: Scope, place: SharedPlace, count: number): Promise<string[]> {
  const violations: string[] = [];
  const runs = new Map<string, number>();
  const noting: TurnScript = async ({ prompt }) => {
    const earlier = runs.get(prompt) ?? 0;
    runs.set(prompt, earlier + 1);
    if (earlier > 0) violations.push(`"${prompt}" was run again`);
    await sleep(2);
    return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
  };
  const agents = [createScriptedProvider('one', noting), createScriptedProvider('one', noting)];
  const settings = 'jobs: { max_running: 8 }\n';
  const bridges: BridgeUnderTest[] = [];
  for (const agent of agents) bridges.push(await startBridge(scope, { providers: [agent], settings, ...place }));
  const url = bridges[0]?.url ?? '';
  for (let from = 0; from < count; from += AT_ONCE) {
    const batch = Array.from({ length: AT_ONCE }, (_, index) =>
      submitSurely(bridges[index % 2]?.url ?? '', from + index),
    );
    await Promise.all(batch);
  }
  const openJobs = async () => [
    ...(await listJobs(url, { status: 'pending', limit: 1 })),
    ...(await listJobs(url, { status: 'running', limit: 1 })),
  ];
  const patienceMs = MIN_PATIENCE_MS + count * PATIENCE_PER_JOB_MS;
  await until('all jobs to end', async () => (await openJobs()).length === 0, patienceMs);
  const { result } = await call(url, 'app.jobs.stats', {});
  const expected = JSON.stringify({ pending: 0, running: 0, completed: count, failed: 0, total: count });
  if (JSON.stringify(result?.summary) !== expected) violations.push(`the statistics say ${JSON.stringify(result)}`);
  if (runs.size !== count) violations.push(`${runs.size} of ${count} jobs were run`);
  for (const { asked } of agents) {
    if (asked.length < count / 10) violations.push(`one of the bridges ran ${asked.length} of ${count} jobs`);
  }
  return violations;
}

/** On a machine that is busy otherwise a connection to the database may not come in time: the same submit is sent again. */
function submitSurely(url: string, number: number): Promise<string> {
  const taskPrompt = `job ${number}`;
  const params = { taskPrompt, idempotencyKey: taskPrompt, timeoutMs: 86_400_000 };
  return until(`${taskPrompt} to be taken`, () => submit(url, params).catch(() => undefined));
}

/** 200 cycles are 10,000 jobs. */
export const sharedJobsFaults: FaultSuite = async ({ cycles }) => {
  const server = await startPostgres();
  const scope = createScope();
  scope.after(() => server.stop());
  try {
    const location: DatabaseLocation = { engine: 'postgres', url: server.url, schema: 'bridge' };
    const count = cycles * JOBS_PER_CYCLE;
    const violations = await spreadJobs(scope, { location }, count);
    const again = violations.filter((text) => text.endsWith('was run again')).length;
    return { violations, figures: [workFigure('jobs on two bridges', count), neverFigure('jobs run twice', again)] };
  } finally {
    await scope.end();
  }
};
