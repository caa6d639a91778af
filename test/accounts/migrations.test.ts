import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: { '0001-accounts': '' },
  postgres: { '0001-accounts': '' },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations of accounts still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, accountsMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}
