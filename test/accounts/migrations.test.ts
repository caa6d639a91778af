import assert from 'node:assert/strict';
import { test } from 'node:test';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: { '0001-accounts': '4d4095d72fcccd9e56e869d4b225bf3178a4934ba98ccf70a74084bd2f9362b3' },
  postgres: { '0001-accounts': 'd4f7b98546851af91c01f64bf4b5e67d1662a6281beb115c0b03913e789a961d' },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations of accounts still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, accountsMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}
