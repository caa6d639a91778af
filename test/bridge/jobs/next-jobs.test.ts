import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createJobSearchStore } from '../../../src/bridge/storage/job-search-store.ts';
import type { Runnable } from '../../../src/platform/database/statement.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

for (const engine of engines) {
  describe(`the next jobs on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('the next jobs are found through those that run and those that wait, however many jobs and sessions there are', async () => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      let asked: Runnable | undefined;
      const noting: typeof database = {
        ...database,
        read(statement) {
          asked = statement;
          return database.read(statement);
        },
      };
      await createJobSearchStore(noting).nextOfSessions({ owner: 'main', provider_id: '' }, 1000);
      const { sql, parameters } = asked ?? assert.fail('nothing was asked for');
      const plan = await database.snapshot(async (connection) => {
        // Small tables are read whole whatever indexes they have.
        if (engine === 'postgres') await connection.execute({ sql: 'SET LOCAL enable_seqscan = off', parameters: [] });
        const explain = engine === 'sqlite' ? 'EXPLAIN QUERY PLAN' : 'EXPLAIN';
        const { rows } = await connection.execute<object>({ sql: `${explain} ${sql}`, parameters });
        return rows.map((row) => Object.values(row).join(' ')).join('\n');
      });
      assert.match(plan, engine === 'sqlite' ? /running USING (?:COVERING )?INDEX jobs_instance/ : /jobs_instance/);
      assert.match(plan, /jobs_waiting_by_priority/);
      // Not by their names, one by one: PostgreSQL reads all sessions instead where there are many jobs.
      assert.match(plan, engine === 'sqlite' ? /held USING INDEX sessions_updated_at/ : /sessions_updated_at/);
    });
  });
}
