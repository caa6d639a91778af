import { test } from 'node:test';
import { startPostgres } from '../kit/real-postgres.ts';
import { startRollingLoad } from '../kit/rolling-load.ts';

test('DS-8: instances behind HAProxy are restarted one after the other: no call and no stream fails, no follower misses an update', {
  timeout: 400_000,
}, async (t) => {
  const postgres = await startPostgres();
  t.after(() => postgres.stop());
  const load = await startRollingLoad(t, postgres.url);
  for (const index of load.places.keys()) {
    const from = performance.now();
    await load.restart(index);
    t.diagnostic(`restarted in ${Math.round(performance.now() - from)} ms`);
  }
  t.diagnostic(await load.finish());
});
