import { Type } from 'typebox';
import type { Database } from '../platform/database/database.ts';
import { defineMethod, type MethodRow } from '../platform/json-rpc/method-table.ts';
import { PROGRAM_VERSION } from './release.ts';

/** What commands may ask of the server that owns a database. */
export function controlMethods(database: Database<never>): readonly MethodRow<undefined>[] {
  return [
    defineMethod({
      name: 'status',
      summary: 'Which process runs here.',
      params: Type.Object({}),
      result: Type.Object({ pid: Type.Integer(), version: Type.String(), database: Type.String() }),
      handle: () => ({ pid: process.pid, version: PROGRAM_VERSION, database: database.name }),
    }),
    defineMethod({
      name: 'backup',
      summary: 'Writes a copy of the database, of one moment, into a new file.',
      params: Type.Object({ file: Type.String({ minLength: 1 }) }),
      result: Type.Object({}),
      async handle({ file }) {
        await database.backupTo(file);
        return {};
      },
    }),
  ];
}
