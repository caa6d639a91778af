import assert from 'node:assert/strict';
import { test } from 'node:test';
import { completionsMigrations } from '../../src/completions/storage/completions-migrations.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: { '0001-keys-and-usage': '5f858caa94c68281d07b21d662725ff6c8ee8f94bba542f7e2ee104ef7f76376' },
  postgres: { '0001-keys-and-usage': '28fcb45c254eea4a70607b4ca2c53f820d3a78b2a42baae36972740c5158e6df' },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations of completions still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, completionsMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}
