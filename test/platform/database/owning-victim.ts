import { ownSqliteFile } from '../../../src/platform/database/sqlite/sqlite-file.ts';

/** A process that owns a file until it is killed. */
await ownSqliteFile(process.argv[2] ?? '');
process.stdout.write('owned\n');
setInterval(() => undefined, 60_000);
