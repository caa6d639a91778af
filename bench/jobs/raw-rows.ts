import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';
import { type Scope, temporaryFolder } from '../../test/kit/running-program.ts';

const PAYLOAD = JSON.stringify({ taskPrompt: 'wait', routing: {} });

/** One-row commits with node:sqlite and nothing around it: the bound for durable submits. */
export async function openRawRows(scope: Scope): Promise<{ commitFor(ms: number): number }> {
  const database = new DatabaseSync(join(await temporaryFolder(scope), 'raw.db'));
  scope.after(() => database.close());
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL');
  database.exec('CREATE TABLE rows (id text PRIMARY KEY, created_at integer NOT NULL, payload text NOT NULL) STRICT');
  const insert = database.prepare('INSERT INTO rows (id, created_at, payload) VALUES (?, ?, ?)');
  const makeId = createSortableIds(systemClock, systemRandomness);
  return {
    commitFor(ms) {
      const start = performance.now();
      let count = 0;
      for (; performance.now() - start < ms; count += 1) insert.run(makeId('job-'), Date.now(), PAYLOAD);
      return (count * 1000) / (performance.now() - start);
    },
  };
}
