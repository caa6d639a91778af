import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { copyDatabases } from '../../../src/platform/database/backup/copy-into.ts';
import { findProblems } from '../../../src/platform/database/backup/database-backup.ts';
import type { EngineName } from '../../../src/platform/database/database.ts';
import type { DatabaseDefinition } from '../../../src/platform/database/migrations.ts';
import { compareDigests, digestTables } from '../../../src/platform/database/tables.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { fillSample } from './fill-sample.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

const WAYS: readonly (readonly [EngineName, EngineName])[] = [
  ['sqlite', 'postgres'],
  ['postgres', 'sqlite'],
];

async function copyDatabase(
  from: Parameters<typeof copyDatabases>[0][number]['from'],
  to: Parameters<typeof copyDatabases>[0][number]['to'],
) {
  return (await copyDatabases([{ from, to }])).flat();
}

for (const [from, to] of WAYS) {
  describe(`copying from ${from} to ${to}`, () => {
    const places = databasePlaces(from, to);
    const copy = (definition: DatabaseDefinition, location = places.location(to), replace = false) => ({
      ...definition,
      location,
      clock: systemClock,
      replace,
    });

    test('O-12: a copy has the same counts and checksums, and the same rows', async () => {
      const source = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(source, 1500);
      const location = places.location(to);
      const digests = await copyDatabase(source, copy(sampleDatabase, location));
      const byName = digests.toSorted((a, b) => a.rows - b.rows).map(({ name, rows }) => ({ name, rows }));
      assert.deepEqual(byName, [
        { name: 'items', rows: 1500 },
        { name: 'entries', rows: 3000 },
      ]);
      assert.deepEqual(digests, await source.snapshot(digestTables));
      const target = await places.open<SampleSchema>(sampleDatabase, { location });
      assert.deepEqual(await target.snapshot((connection) => findProblems(connection, digests)), []);
      const rows = () => source.query.selectFrom('items').selectAll().orderBy('id').execute();
      assert.deepEqual(await target.query.selectFrom('items').selectAll().orderBy('id').execute(), await rows());
      await target.write([target.query.insertInto('items').values(item('later')).compile()]);
    });

    test('a target that holds anything is refused, and replaced when told so', async () => {
      const source = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(source, 10);
      const location = places.location(to);
      const occupied = await places.open<SampleSchema>(sampleDatabase, { location });
      await occupied.query.insertInto('items').values(item('precious')).execute();
      await occupied.close();
      await assert.rejects(copyDatabase(source, copy(sampleDatabase, location)), { code: 'STORAGE_NOT_EMPTY' });
      const digests = await copyDatabase(source, copy(sampleDatabase, location, true));
      assert.deepEqual(digests, await source.snapshot(digestTables));
    });

    test('rows that a migration makes are not doubled', async () => {
      const seeded: DatabaseDefinition = {
        name: 'seeded',
        migrations: [
          {
            id: '0001',
            statements: ({ schema, query }) => [
              schema.createTable('tenants').addColumn('id', 'text', (column) => column.primaryKey()),
              query.insertInto('tenants').values({ id: 'default' }),
            ],
          },
        ],
      };
      const source = await places.open(seeded);
      await source.write([{ sql: "insert into tenants values ('second')", parameters: [] }]);
      const [digest] = await copyDatabase(source, copy(seeded));
      assert.equal(digest?.rows, 2);
    });

    test('a copy that breaks off leaves the target empty, so that it can be tried again', async () => {
      const source = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(source, 100);
      const location = places.location(to);
      const breaking: Pick<typeof source, 'snapshot'> = {
        snapshot: (work) =>
          source.snapshot((connection) =>
            work({
              ...connection,
              execute: (statement) =>
                /FROM "entries"/.test(statement.sql)
                  ? Promise.reject(new Error('cable'))
                  : connection.execute(statement),
            }),
          ),
      };
      await assert.rejects(copyDatabase(breaking, copy(sampleDatabase, location)), /cable/);
      await copyDatabase(source, copy(sampleDatabase, location));
    });
  });
}

describe('copying several databases to PostgreSQL', () => {
  const places = databasePlaces('sqlite', 'postgres');

  test('one that is refused, or breaks off, leaves all of them empty', async () => {
    const sources = [await places.open<SampleSchema>(sampleDatabase), await places.open<SampleSchema>(sampleDatabase)];
    for (const source of sources) await fillSample(source, 10);
    const [first, last] = [places.location('postgres'), places.location('postgres')];
    const copies = sources.map((from, index) => {
      return { from, to: { ...sampleDatabase, location: index === 0 ? first : last, clock: systemClock } };
    });
    const isFirstEmpty = async () => {
      const target = await places.open<SampleSchema>(sampleDatabase, { location: first });
      const rows = await target.query.selectFrom('items').select('id').execute();
      await target.close();
      return rows.length === 0;
    };
    const occupied = await places.open<SampleSchema>(sampleDatabase, { location: last });
    await occupied.query.insertInto('items').values(item('precious')).execute();
    await assert.rejects(copyDatabases(copies), { code: 'STORAGE_NOT_EMPTY' });
    assert.ok(await isFirstEmpty());
    await occupied.write([
      { sql: 'delete from items', parameters: [] },
      { sql: 'create table foreign_one (id text primary key)', parameters: [] },
    ]);
    await assert.rejects(copyDatabases(copies), /foreign_one should not exist/);
    assert.ok(await isFirstEmpty());
    await occupied.write([{ sql: 'drop table foreign_one', parameters: [] }]);
    const digests = await copyDatabases(copies);
    for (const [index, source] of sources.entries()) {
      assert.deepEqual(digests[index], await source.snapshot(digestTables));
    }
    assert.equal(await isFirstEmpty(), false);
  });
});

describe('comparing copies', () => {
  const places = databasePlaces('sqlite');

  test('a row more, a row less and a value that differs are each found', async () => {
    const database = await places.open<SampleSchema>(sampleDatabase);
    await fillSample(database, 30);
    const expected = await database.snapshot(digestTables);
    const find = async (sql: string) => {
      const found = await database.transaction(async ({ run }) => {
        await run({ sql, parameters: [] });
        return digestTables({ engine: 'sqlite', execute: run });
      });
      return compareDigests(expected, found);
    };
    assert.deepEqual(compareDigests(expected, expected), []);
    assert.deepEqual(await find("update entries set body = body || ' ' where item = 'item-00003' and place = 2"), [
      'table entries has other contents',
    ]);
    assert.match((await find("delete from entries where item = 'item-00004'")).join(), /58 rows instead of 60/);
    assert.deepEqual(compareDigests([{ name: 'gone', rows: 0, checksum: '' }], []), ['table gone is missing']);
    assert.deepEqual(compareDigests([], [{ name: 'more', rows: 0, checksum: '' }]), ['table more should not exist']);
  });

  test('values that look alike are told apart', async () => {
    const digestOf = async (label: string | null, content: Uint8Array | null) => {
      const database = await places.open<SampleSchema>(sampleDatabase);
      await database.query.insertInto('items').values(item('a', { label, content })).execute();
      return (await database.snapshot(digestTables)).find(({ name }) => name === 'items')?.checksum;
    };
    const checksums = [
      await digestOf(null, null),
      await digestOf('null', null),
      await digestOf('', null),
      await digestOf(null, new Uint8Array()),
      await digestOf('61', null),
      await digestOf(null, new Uint8Array([0x61])),
      await digestOf(null, new Uint8Array([0x36, 0x31])),
    ];
    assert.equal(new Set(checksums).size, checksums.length);
  });
});
