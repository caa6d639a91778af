import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import workerThreads, { Worker } from 'node:worker_threads';
import { findProblems } from '../../../src/platform/database/backup/database-backup.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { item, type SampleSchema, sampleDatabase } from './sample-database.ts';

const VICTIM = fileURLToPath(new URL('./writing-victim.ts', import.meta.url));
const run = promisify(execFile);

describe('faults on SQLite', () => {
  const places = databasePlaces('sqlite');

  test('kill -9 of a process that stores loses nothing that it had reported as stored', async () => {
    const file = join(places.folder(), 'killed.db');
    const acknowledged: string[] = [];
    for (const [round, lines] of [40, 300, 700].entries()) {
      const victim = spawn(process.execPath, [VICTIM, file, `${round}`], { stdio: ['ignore', 'pipe', 'inherit'] });
      let seen = 0;
      for await (const line of createInterface({ input: victim.stdout })) {
        acknowledged.push(line);
        seen += 1;
        if (seen === lines) victim.kill('SIGKILL');
      }
      if (victim.signalCode === null) await once(victim, 'exit');
      assert.equal(victim.signalCode, 'SIGKILL');
    }
    const database = await places.open<SampleSchema>(sampleDatabase, { location: { engine: 'sqlite', file } });
    assert.deepEqual(await database.snapshot((connection) => findProblems(connection)), []);
    const items = await database.query.selectFrom('items').select('id').execute();
    const entries = await database.query.selectFrom('entries').select('item').execute();
    const stored = new Set(items.map(({ id }) => id));
    assert.deepEqual(
      acknowledged.filter((id) => !stored.has(id)),
      [],
    );
    assert.ok(acknowledged.length >= 1040);
    // Each batch was stored as a whole.
    assert.deepEqual(new Set(entries.map((entry) => entry.item)), stored);
  });

  test('after a file that could not be opened for long reads, they work again as soon as it can', async () => {
    const file = join(places.folder(), 'away.db');
    const database = await places.open<SampleSchema>(sampleDatabase, { location: { engine: 'sqlite', file } });
    const count = () => database.read(database.query.selectFrom('items').select('id').compile());
    await rename(file, `${file}.away`);
    await assert.rejects(count(), { code: 'STORAGE_UNAVAILABLE' });
    await rename(`${file}.away`, file);
    assert.deepEqual(await count(), []);
  });

  test('a full disk refuses writes, reads go on, and when there is room again so do writes', async (context) => {
    if (process.getuid?.() !== 0) return context.skip('only root may mount a small file system');
    const disk = join(places.folder(), 'disk');
    await mkdir(disk);
    const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk]).catch(() => undefined);
    if (mounted === undefined) return context.skip('a small file system cannot be mounted here');
    try {
      const ballast = join(disk, 'ballast');
      await writeFile(ballast, Buffer.alloc(1024 * 1024));
      const location = { engine: 'sqlite', file: join(disk, 'full.db') } as const;
      const database = await places.open<SampleSchema>(sampleDatabase, { location });
      const insert = database.statement((query, given: { id: string; label: string }) =>
        query.insertInto('items').values(item(given.id, { label: given.label })),
      );
      const stored: string[] = [];
      const errors: string[] = [];
      const store = async (id: string) => {
        try {
          await database.write([insert({ id, label: `${id}${'x'.repeat(20_000)}` })]);
          stored.push(id);
        } catch (error) {
          errors.push(errorCode(error));
        }
      };
      for (let round = 0; errors.length < 40 && round < 100; round += 1) {
        await Promise.all(Array.from({ length: 8 }, (_, index) => store(`${round}-${index}`)));
      }
      assert.deepEqual([...new Set(errors)], ['STORAGE_FULL']);
      const ids = database.statement((query) => query.selectFrom('items').select('id'));
      const found = () => database.readKeyed(ids()).then((rows) => rows.map(({ id }) => id).sort());
      assert.deepEqual(await found(), stored.toSorted());
      await database.check();
      await rm(ballast);
      const before = errors.length;
      await store('after');
      assert.equal(errors.length, before);
      assert.deepEqual(await found(), stored.toSorted());
      assert.deepEqual(await database.snapshot((connection) => findProblems(connection)), []);
      await database.close();
    } finally {
      await run('umount', [disk]);
    }
  });
});

describe('the end of the database thread', () => {
  const workers: Worker[] = [];
  workerThreads.Worker = class extends Worker {
    constructor(...given: ConstructorParameters<typeof Worker>) {
      super(...given);
      workers.push(this);
    }
  };
  syncBuiltinESMExports();
  after(() => {
    workerThreads.Worker = Worker;
    syncBuiltinESMExports();
  });
  const places = databasePlaces('sqlite');

  test('rejects what is under way, fails the check, and leaves keyed reads and later databases alone', async () => {
    const database = await places.open<SampleSchema>(sampleDatabase);
    const insert = (id: string) => database.write([database.query.insertInto('items').values(item(id)).compile()]);
    await insert('a');
    await database.check();
    const pending = insert('b');
    const ended = workers.map((worker) => worker.terminate());
    await Promise.all([assert.rejects(pending, { code: 'STORAGE_UNAVAILABLE' }), ...ended]);
    await assert.rejects(insert('c'), { code: 'STORAGE_UNAVAILABLE' });
    await assert.rejects(database.check(), { code: 'STORAGE_UNAVAILABLE' });
    const rows = await database.readKeyed(database.query.selectFrom('items').select('id').compile());
    assert.equal(
      rows.some(({ id }) => id === 'a'),
      true,
    );
    await database.close();
    const other = await places.open<SampleSchema>(sampleDatabase);
    await other.check();
  });
});
