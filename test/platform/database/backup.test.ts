import assert from 'node:assert/strict';
import { appendFile, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import {
  backUpDatabases,
  findProblems,
  restoreDatabases,
} from '../../../src/platform/database/backup/database-backup.ts';
import type { Database } from '../../../src/platform/database/database.ts';
import { inspectDatabase } from '../../../src/platform/database/inspect-database.ts';
import { ownSqliteFile } from '../../../src/platform/database/sqlite/sqlite-file.ts';
import { digestTables } from '../../../src/platform/database/tables.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { until } from '../../kit/until.ts';
import { fillSample } from './fill-sample.ts';
import { type GrownSchema, grownDatabase, versionOf } from './grown-database.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

for (const engine of engines) {
  const other = engine === 'sqlite' ? 'postgres' : 'sqlite';

  describe(`backups of ${engine}`, () => {
    const places = databasePlaces(engine, other);
    let folders = 0;
    const newFolder = () => {
      folders += 1;
      return join(places.folder(), 'backups', `${folders}`);
    };
    const backUp = (database: Database<SampleSchema>, folder: string) =>
      backUpDatabases({ databases: [database], folder, programVersion: '1.2.3', clock: { now: () => 0 } });
    const restore = (folder: string, location = places.location(), replace = false) =>
      restoreDatabases({ folder, targets: [{ ...sampleDatabase, location }], clock: systemClock, replace });

    test('O-11: a backup under load is of one moment, and its restored copy passes the checker', async () => {
      const database = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(database, 200);
      const put = database.statement((query, given: { id: string }) =>
        query.insertInto('items').values(item(given.id)),
      );
      const entry = database.statement((query, given: { item: string }) =>
        query.insertInto('entries').values({ item: given.item, place: 1, body: '' }),
      );
      let stopped = false;
      let written = 0;
      const load = Array.from({ length: 4 }, async (_, worker) => {
        while (!stopped) {
          written += 1;
          const id = `load-${worker}-${written}`;
          await database.write([put({ id }), entry({ item: id })]);
        }
      });
      await until('fifty writes', () => written >= 50);
      const folder = newFolder();
      const manifest = await backUp(database, folder);
      const during = written;
      await until('fifty more writes', () => written >= during + 50);
      stopped = true;
      await Promise.all(load);
      for (const target of [engine, other] as const) {
        const location = places.location(target);
        await restore(folder, location);
        const copy = await places.open<SampleSchema>(sampleDatabase, { location });
        const tables = manifest.databases[0]?.tables;
        assert.deepEqual(await copy.snapshot((connection) => findProblems(connection, tables)), []);
        const ids = await copy.query.selectFrom('items').select('id').where('id', 'like', 'load-%').execute();
        const entries = await copy.query.selectFrom('entries').select('item').where('item', 'like', 'load-%').execute();
        // Each batch is there as a whole or not at all.
        assert.deepEqual(new Set(entries.map((row) => row.item)), new Set(ids.map(({ id }) => id)));
        assert.ok(ids.length >= 40);
        // It is a database like any other.
        await copy.write([copy.query.insertInto('items').values(item('later')).compile()]);
      }
    });

    test('a backup holds one file and a manifest, readable by nobody else', async () => {
      const database = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(database, 20);
      const folder = newFolder();
      const manifest = await backUp(database, folder);
      assert.deepEqual((await readdir(folder)).sort(), ['manifest.json', 'sample.db']);
      assert.equal((await stat(folder)).mode & 0o777, 0o700);
      for (const name of await readdir(folder)) assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600);
      assert.deepEqual(JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')), manifest);
      assert.equal(manifest.programVersion, '1.2.3');
      assert.equal(manifest.createdAt, '1970-01-01T00:00:00.000Z');
      const [entry] = manifest.databases;
      assert.equal(entry?.engine, engine);
      assert.deepEqual(entry?.tables, await database.snapshot(digestTables));
      const siblings = await readdir(join(folder, '..'));
      assert.deepEqual(
        siblings.filter((name) => name.includes('partial')),
        [],
      );
    });

    test('a backup does not overwrite anything, and leaves nothing behind when it fails', async () => {
      const database = await places.open<SampleSchema>(sampleDatabase);
      const folder = newFolder();
      await backUp(database, folder);
      await assert.rejects(backUp(database, folder), { code: 'BACKUP_FAILED' });
      const failing = { ...database, backupTo: () => Promise.reject(new Error('no')) };
      await assert.rejects(backUp(failing, newFolder()), /no/);
      const full = { ...database, backupTo: () => Promise.reject(new AppError('STORAGE_FULL')) };
      await assert.rejects(backUp(full, newFolder()), {
        code: 'BACKUP_FAILED',
        details: { reason: `no room is left on the disk of ${join(places.folder(), 'backups')}` },
      });
      const siblings = await readdir(join(folder, '..'));
      assert.deepEqual(
        siblings.filter((name) => name.includes('partial')),
        [],
      );
    });

    test('a restore refuses a target that holds anything, unless it may replace it', async () => {
      const database = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(database, 20);
      const folder = newFolder();
      await backUp(database, folder);
      const location = places.location();
      const occupied = await places.open<SampleSchema>(sampleDatabase, { location });
      await occupied.query.insertInto('items').values(item('precious')).execute();
      await occupied.close();
      await assert.rejects(restore(folder, location), { code: 'STORAGE_NOT_EMPTY' });
      await restore(folder, location, true);
      const restored = await places.open<SampleSchema>(sampleDatabase, { location });
      const expected = await database.snapshot(digestTables);
      assert.deepEqual(await restored.snapshot((connection) => findProblems(connection, expected)), []);
    });

    test('a restore that fails at one of several databases changes none of them, and works when tried again', async () => {
      const second = { ...sampleDatabase, name: 'second' };
      const databases = [await places.open<SampleSchema>(sampleDatabase), await places.open<SampleSchema>(second)];
      for (const database of databases) await fillSample(database, 5);
      const folder = newFolder();
      await backUpDatabases({ databases, folder, programVersion: '1', clock: systemClock });
      const targets = [sampleDatabase, second].map((definition) => ({ ...definition, location: places.location() }));
      const [first, last] = targets;
      assert.ok(first !== undefined && last !== undefined);
      const open = (definition: typeof first) =>
        places.open<SampleSchema>(definition, { location: definition.location });
      const precious = await open(first);
      await precious.query.insertInto('items').values(item('precious')).execute();
      await precious.close();
      // What the restore cannot put in order: a folder in place of a file, or a table that is not ours.
      const obstacle = last.location.engine === 'sqlite' ? `${last.location.file}.restoring` : '';
      if (obstacle !== '') await mkdir(obstacle);
      else {
        const other = await open(last);
        await other.write([{ sql: 'create table foreign_one (id text primary key)', parameters: [] }]);
        await other.close();
      }
      const replace = () => restoreDatabases({ folder, targets, clock: systemClock, replace: true });
      await assert.rejects(replace());
      const kept = await open(first);
      assert.deepEqual(
        (await kept.query.selectFrom('items').select('id').execute()).map(({ id }) => id),
        ['precious'],
      );
      await kept.close();
      if (obstacle !== '') await rm(obstacle, { recursive: true });
      else {
        const other = await open(last);
        await other.write([{ sql: 'drop table foreign_one', parameters: [] }]);
        await other.close();
      }
      await replace();
      for (const [index, target] of targets.entries()) {
        const restored = await open(target);
        const expected = await databases[index]?.snapshot(digestTables);
        assert.deepEqual(await restored.snapshot((connection) => findProblems(connection, expected)), []);
      }
    });

    test('a restore into an empty schema is accepted', async () => {
      const database = await places.open<SampleSchema>(sampleDatabase);
      await fillSample(database, 5);
      const folder = newFolder();
      await backUp(database, folder);
      const location = places.location();
      await (await places.open<SampleSchema>(sampleDatabase, { location })).close();
      await restore(folder, location);
    });
  });
}

describe('a damaged or foreign backup', () => {
  const places = databasePlaces('sqlite');
  const restore = (folder: string, definition = sampleDatabase, location = places.location()) =>
    restoreDatabases({ folder, targets: [{ ...definition, location }], clock: systemClock });
  async function makeBackup(name: string): Promise<string> {
    const database = await places.open<SampleSchema>(sampleDatabase);
    await fillSample(database, 50);
    const folder = join(places.folder(), name);
    await backUpDatabases({ databases: [database], folder, programVersion: '1', clock: systemClock });
    return folder;
  }

  test('databases that a restore has replaced in part are opened only after a restore to the end', async () => {
    const folder = join(places.folder(), 'of-two');
    const databases = [await places.open<SampleSchema>(sampleDatabase)];
    databases.push(await places.open<SampleSchema>({ ...sampleDatabase, name: 'second' }));
    await backUpDatabases({ databases, folder, programVersion: '1', clock: systemClock });
    const targets = databases.map(({ name }) => ({ ...sampleDatabase, name, location: places.location() }));
    const [first, last] = targets;
    assert.ok(first !== undefined && last?.location.engine === 'sqlite');
    const open = (target: typeof first) => places.open<SampleSchema>(target, { location: target.location });
    const replace = () => restoreDatabases({ folder, targets, clock: systemClock, replace: true });
    // The last file cannot take its place when the first one has.
    await mkdir(last.location.file);
    await assert.rejects(replace(), { code: 'EISDIR' });
    await rm(last.location.file, { recursive: true });
    for (const target of targets) {
      await assert.rejects(open(target), { code: 'RESTORE_UNFINISHED' });
      await assert.rejects(inspectDatabase(target, target.location), { code: 'RESTORE_UNFINISHED' });
    }
    await replace();
    for (const target of targets) await open(target);
  });

  test('a file that changed by a byte is refused', async () => {
    const folder = await makeBackup('changed');
    await appendFile(join(folder, 'sample.db'), 'x');
    await assert.rejects(restore(folder), {
      code: 'BACKUP_FAILED',
      details: { reason: 'sample.db is not the file that was written' },
    });
  });

  test('a manifest whose counts do not match is refused', async () => {
    const folder = await makeBackup('miscounted');
    const file = join(folder, 'manifest.json');
    await writeFile(file, (await readFile(file, 'utf8')).replace('"rows": 50', '"rows": 51'));
    await assert.rejects(restore(folder), {
      code: 'BACKUP_FAILED',
      details: { reason: 'sample.db: table items has 50 rows instead of 51' },
    });
  });

  test('a manifest that points outside its folder is refused', async () => {
    const folder = await makeBackup('outside');
    const file = join(folder, 'manifest.json');
    await writeFile(file, (await readFile(file, 'utf8')).replace('"sample.db"', '"../sample.db"'));
    await assert.rejects(restore(folder), {
      code: 'BACKUP_FAILED',
      details: { reason: 'manifest.json is not one that this version understands' },
    });
  });

  test('a folder without a manifest, and a backup without the database, are refused', async () => {
    await assert.rejects(restore(join(places.folder(), 'nowhere')), { code: 'BACKUP_FAILED' });
    await assert.rejects(restore(await makeBackup('other'), grownDatabase), {
      details: { reason: 'it has no database "grown"' },
    });
  });

  test('a backup of an older version is restored and brought forward, one of a newer version is refused', async () => {
    const old = await places.open<GrownSchema>(versionOf(1));
    await old.write([{ sql: "insert into notes values ('a', 'one')", parameters: [] }]);
    const folder = join(places.folder(), 'old');
    await backUpDatabases({ databases: [old], folder, programVersion: '1', clock: systemClock });
    const location = places.location();
    await restore(folder, grownDatabase, location);
    const grown = await places.open<GrownSchema>(grownDatabase, { location });
    assert.deepEqual(await grown.query.selectFrom('words').selectAll().execute(), [{ note: 'a', word: 'one' }]);
    const newer = join(places.folder(), 'newer');
    await backUpDatabases({ databases: [grown], folder: newer, programVersion: '2', clock: systemClock });
    await assert.rejects(restore(newer, versionOf(1)), { code: 'SCHEMA_TOO_NEW' });
  });

  test('a target that a server owns is refused', async () => {
    const folder = await makeBackup('owned');
    const location = places.location();
    assert.ok(location.engine === 'sqlite');
    const ownership = await ownSqliteFile(location.file);
    await assert.rejects(restore(folder, sampleDatabase, location), { code: 'STORAGE_IN_USE' });
    ownership.release();
    await restore(folder, sampleDatabase, location);
  });
});
