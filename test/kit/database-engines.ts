import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before } from 'node:test';
import { systemClock } from '../../src/platform/clock/clock.ts';
import type { Database, DatabaseLocation, EngineName } from '../../src/platform/database/database.ts';
import type { DatabaseDefinition } from '../../src/platform/database/migrations.ts';
import { type DatabaseOptions, openDatabase } from '../../src/platform/database/open-database.ts';
import { withCheckedReads } from './keyed-reads.ts';
import { type RealPostgres, startPostgres } from './real-postgres.ts';

/** What a store must work on: the same tests run on each. */
export const engines: readonly EngineName[] = ['sqlite', 'postgres'];

export interface DatabasePlaces {
  /** A folder that is removed at the end. */
  folder(): string;
  /** A place where nothing is yet. */
  location(engine?: EngineName): DatabaseLocation;
  /** Opens a database that is closed after the test. */
  open<Schema>(definition: DatabaseDefinition, options?: Partial<DatabaseOptions>): Promise<Database<Schema>>;
  /** The server, for tests that do something to it. */
  postgres(): RealPostgres;
}

/** One server for all tests of a process. */
let server: Promise<RealPostgres> | undefined;
let count = 0;
after(async () => {
  await (await server)?.stop();
});

const KEEPER = { name: 'keeper', migrations: [], clock: systemClock };

/** Call it inside `describe`: it prepares the engines before the tests and clears up after them. The first is used. */
export function databasePlaces(...needs: readonly [EngineName, ...EngineName[]]): DatabasePlaces {
  const opened = new Set<Pick<Database, 'close'>>();
  let folder = '';
  let postgres: RealPostgres | undefined;
  let keeper: Pick<Database, 'close'> | undefined;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'trestle-database-'));
    if (needs.includes('postgres')) {
      server ??= startPostgres();
      postgres = await server;
    }
    // As long as one is open, the others need not start a thread of their own.
    if (needs.includes('sqlite')) keeper = await openDatabase({ ...KEEPER, location: location('sqlite') });
  });
  afterEach(async () => {
    await Promise.all([...opened].map((database) => database.close()));
    opened.clear();
  });
  after(async () => {
    await keeper?.close();
    if (folder !== '') await rm(folder, { recursive: true, force: true });
  });
  const theServer = (): RealPostgres => {
    if (postgres === undefined) throw new Error('no PostgreSQL was asked for');
    return postgres;
  };
  const location = (engine: EngineName = needs[0]): DatabaseLocation => {
    count += 1;
    if (engine === 'sqlite') return { engine: 'sqlite', file: join(folder, `${count}.db`) };
    return { engine: 'postgres', url: theServer().url, schema: `test_${count}` };
  };
  return {
    folder: () => folder,
    location,
    postgres: theServer,
    async open<Schema>(definition: DatabaseDefinition, options: Partial<DatabaseOptions> = {}) {
      const given = { location: options.location ?? location(), clock: systemClock, ...definition, ...options };
      const database = await openDatabase<Schema>(given);
      opened.add(database);
      const { location: place } = given;
      return place.engine === 'sqlite' ? withCheckedReads(database, place.file) : database;
    },
  };
}
