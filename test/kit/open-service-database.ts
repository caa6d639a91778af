import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import type { Database } from '../../src/platform/database/database.ts';
import { type DatabaseDefinition, planMigrations } from '../../src/platform/database/migrations.ts';
import { type DatabaseOptions, openDatabase } from '../../src/platform/database/open-database.ts';

/** Files with a service's newest schema, kept between test runs. A changed migration changes the name. */
const SCHEMAS = join(tmpdir(), `trestle-test-schemas-${userInfo().uid}`);

const templates = new WeakMap<DatabaseDefinition['migrations'], Promise<string>>();

/**
 * Opens a database as `openDatabase` does. A new SQLite file begins as a copy of a file with all migrations, because
 * running them takes fifteen times longer, and most tests begin with a new file. Tests of migrations do not use this.
 */
export async function openServiceDatabase<Schema>(options: DatabaseOptions): Promise<Database<Schema>> {
  const { location } = options;
  if (location.engine === 'sqlite' && !existsSync(location.file)) {
    await copyFile(await templateOf(options), location.file);
  }
  return openDatabase<Schema>(options);
}

const CALLS = ['read', 'readKeyed', 'write', 'transaction'] as const;

/**
 * The same database for a service that copies its functions when it starts: a test that replaces one of them in `database` later
 * is asked nevertheless.
 */
export function withLateCalls<Schema>(database: Database<Schema>): Database<Schema> {
  const calls = CALLS.map((name) => {
    const call = (...given: unknown[]) => (database[name] as (...given: unknown[]) => unknown)(...given);
    return [name, call] as const;
  });
  return { ...database, ...Object.fromEntries(calls) };
}

function templateOf({ name, migrations, clock }: DatabaseDefinition & Pick<DatabaseOptions, 'clock'>): Promise<string> {
  const known = templates.get(migrations) ?? makeTemplate({ name, migrations, clock });
  templates.set(migrations, known);
  return known;
}

async function makeTemplate(definition: DatabaseDefinition & Pick<DatabaseOptions, 'clock'>): Promise<string> {
  const plan = planMigrations('sqlite', definition.migrations).map(({ id, checksum }) => `${id} ${checksum}`);
  const digest = createHash('sha256').update(plan.join('\n')).digest('hex').slice(0, 16);
  const template = join(SCHEMAS, `${definition.name}-${digest}.db`);
  if (existsSync(template)) return template;
  await mkdir(SCHEMAS, { recursive: true });
  const folder = await mkdtemp(join(SCHEMAS, 'new-'));
  const file = join(folder, 'schema.db');
  const database = await openDatabase({ ...definition, location: { engine: 'sqlite', file } });
  await database.close();
  // Closing folds the log into the file, and a rename replaces what another test process has made at the same time.
  await rename(file, template);
  await rm(folder, { recursive: true });
  return template;
}
