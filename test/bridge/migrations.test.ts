import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: {
    '0001-instances': '10c98cef1fa91dd339b5525aac7f06f4178721f88de189b879a2b969d499c403',
    '0002-sessions': '62c5177cbe27ca586106004d4042e549a755d877d01616763cf57ac14c35bbd6',
    '0003-builtin-conversations': '2a4afd60d97e862e63c96a613cd0dd350564357403154d61179c92f2924aced3',
  },
  postgres: {
    '0001-instances': '8f7adc6c3db5eb2e942d7e02d56775e8d77eb1eb429cf03b888a8eebd3e44032',
    '0002-sessions': '853426c3f46ea83eafd7c19339bd16f1dc47eeca515400f7584f642c84592e9e',
    '0003-builtin-conversations': '925e552f4fb93d17169880dd1a6d9e7fd37a3b82f5e08821def03dab1246aed0',
  },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, bridgeMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}
