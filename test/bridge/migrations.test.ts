import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import { planMigrations } from '../../src/platform/database/migration.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: {
    '0001-instances': '10c98cef1fa91dd339b5525aac7f06f4178721f88de189b879a2b969d499c403',
    '0002-sessions': '2179f40a44f020ce5951b101d068566fc94b249befc631d779d8d1da6d5c14c5',
    '0003-builtin-conversations': '2a4afd60d97e862e63c96a613cd0dd350564357403154d61179c92f2924aced3',
  },
  postgres: {
    '0001-instances': '8f7adc6c3db5eb2e942d7e02d56775e8d77eb1eb429cf03b888a8eebd3e44032',
    '0002-sessions': '50f244c5a2047ecc26adb983f2c06e34c058d15d607ffebffa54c25727ae420d',
    '0003-builtin-conversations': '925e552f4fb93d17169880dd1a6d9e7fd37a3b82f5e08821def03dab1246aed0',
  },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, bridgeMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}
