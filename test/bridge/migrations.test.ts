import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: { '0001-instances': '10c98cef1fa91dd339b5525aac7f06f4178721f88de189b879a2b969d499c403' },
  postgres: { '0001-instances': '8f7adc6c3db5eb2e942d7e02d56775e8d77eb1eb429cf03b888a8eebd3e44032' },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, bridgeMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}
