import { type CopyTarget, copyInto } from './copy-into.ts';
import type { Database } from './database.ts';
import type { TableDigest } from './table-digest.ts';

/** Copies a database to another place, on the same engine or the other; SQLite files must be owned by the caller. */
export function copyDatabase(from: Pick<Database, 'snapshot'>, to: CopyTarget): Promise<TableDigest[]> {
  return from.snapshot((source) => copyInto(source, to));
}
