import { systemClock } from '../../../src/platform/clock/clock.ts';
import type { DatabaseLocation, Engine } from '../../../src/platform/database/database.ts';
import { migrate } from '../../../src/platform/database/migrations.ts';
import { openEngine } from '../../../src/platform/database/open-engine.ts';
import { grownDatabase } from './grown-database.ts';

/** A process that migrates a database and kills itself at a statement: just before it, or while it runs. */
export interface MigrationVictim {
  readonly location: DatabaseLocation;
  /** Counted from 1; 0 for never. */
  readonly killAt: number;
  readonly during: boolean;
}

const { location, killAt, during } = JSON.parse(process.argv[2] ?? '') as MigrationVictim;
const engine = await openEngine(location);
let count = 0;
const doomed: Engine = {
  ...engine,
  exclusive: (work, options) =>
    engine.exclusive(
      (connection) =>
        work({
          engine: connection.engine,
          execute(statement) {
            count += 1;
            if (count !== killAt) return connection.execute(statement);
            if (during) void connection.execute(statement);
            process.kill(process.pid, 'SIGKILL');
            return new Promise(() => undefined);
          },
        }),
      options,
    ),
};
await migrate(doomed, grownDatabase, systemClock, location);
await engine.close();
process.stdout.write(`${count}\n`);
