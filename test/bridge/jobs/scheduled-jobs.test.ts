import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { DatabaseLocation } from '../../../src/platform/database/database.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const SCHEDULES = 8;
const FIRINGS = 3;

let server: RealPostgres | undefined;
after(() => server?.stop());

test('three bridges on one PostgreSQL fire each time of each schedule exactly once', async (context) => {
  server = await startPostgres();
  const location: DatabaseLocation = { engine: 'postgres', url: server.url, schema: 'schedules' };
  const clock = createFakeClock();
  const start = () => startBridge(context, { providers: [createScriptedProvider('one')], location, clock });
  const bridges = [await start(), await start(), await start()];
  const [{ url, database }] = bridges as [(typeof bridges)[0]];
  const body = JSON.stringify({ name: 'n', every: '1m', overlap: 'queue', task: { taskPrompt: 'x' } });
  for (let count = 0; count < SCHEDULES; count += 1) {
    const headers = { 'content-type': 'application/json' };
    assert.equal((await fetch(`${url}/api/bridge/schedules`, { method: 'POST', headers, body })).status, 201);
  }
  const rows = () => database.query.selectFrom('schedules').selectAll().execute();
  const firedAt: string[] = [];
  for (let firing = 1; firing <= FIRINGS; firing += 1) {
    // Bridges that share a database use its clock, so the schedules are made due there.
    const due = Date.now();
    await database.query.updateTable('schedules').set({ next_at: due }).execute();
    // All three wake up at the same moment, and find the same schedules due.
    await until('all schedules to have fired', async () => {
      await clock.advance(1000);
      return (await rows()).every(({ next_at: nextAt }) => (nextAt ?? 0) > due);
    });
    for (const row of await rows()) firedAt.push(`${row.last_result} ${row.last_job_id !== ''}`);
  }
  // Whoever was about to fire as well has had its turn by now.
  await clock.advance(5000);
  const jobs = await database.query.selectFrom('jobs').select(['id', 'schedule_id']).execute();
  const counts = Map.groupBy(jobs, ({ schedule_id: id }) => id);
  assert.deepEqual(
    [...counts.values()].map((made) => made.length),
    Array(SCHEDULES).fill(FIRINGS),
  );
  assert.deepEqual(new Set(firedAt), new Set(['fired true']));
});
