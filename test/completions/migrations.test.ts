import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { completionsMigrations } from '../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../src/completions/storage/completions-schema.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: {
    '0001-keys-and-usage': '5f858caa94c68281d07b21d662725ff6c8ee8f94bba542f7e2ee104ef7f76376',
    '0002-nano-usd': 'eee4f619ffe212043b77de2ed1cfae07c0ccbb76b32e881415f0468f1398eca3',
    '0003-no-tenant': '2b918cd1d43cf9e5f2638be5413662770107e9b2ab7f7270ff5b228d0fee02e7',
  },
  postgres: {
    '0001-keys-and-usage': '28fcb45c254eea4a70607b4ca2c53f820d3a78b2a42baae36972740c5158e6df',
    '0002-nano-usd': '5cbfd7190aa65c04a0641f0fdc6acef381fedc2a3ef004b6bbd81003452a95b8',
    '0003-no-tenant': '2b918cd1d43cf9e5f2638be5413662770107e9b2ab7f7270ff5b228d0fee02e7',
  },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations of completions still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, completionsMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}

for (const engine of engines) {
  describe(`spending of release 0.1.0 on ${engine}`, () => {
    const { open, location } = databasePlaces(engine);

    test('DC-28: what release 0.1.0 recorded in USD is kept as nano-USD', async () => {
      const place = { location: location(engine) };
      const old = await open<{ key_spending: Record<string, unknown> }>(
        { name: 'completions', migrations: completionsMigrations.slice(0, 1) },
        place,
      );
      const row = { key_id: 'k', period: 'total', cost_usd: 0.1 + 0.2 };
      await old.write([old.query.insertInto('key_spending').values(row).compile()]);
      await old.close();
      const now = await open<CompletionsSchema>({ name: 'completions', migrations: completionsMigrations }, place);
      const rows = await now.query.selectFrom('key_spending').selectAll().execute();
      assert.deepEqual(rows, [{ key_id: 'k', period: 'total', cost_nano_usd: 300_000_000 }]);
    });
  });
}
