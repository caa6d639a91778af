import { sql } from 'kysely';
import type { DatabaseDefinition } from '../../../src/platform/database/migrations.ts';

/** As the versions of a program made it: a table, a column more, a table that is filled from the first one. */
export const grownDatabase: DatabaseDefinition = {
  name: 'grown',
  migrations: [
    {
      id: '0001-notes',
      statements: ({ schema }) => [
        schema
          .createTable('notes')
          .addColumn('id', 'text', (column) => column.primaryKey())
          .addColumn('text', 'text', (column) => column.notNull()),
      ],
    },
    {
      id: '0002-size',
      statements: ({ schema, query }) => [
        schema.alterTable('notes').addColumn('size', 'integer', (column) => column.notNull().defaultTo(0)),
        query.updateTable('notes').set({ size: sql`length(text)` }),
      ],
    },
    {
      id: '0003-words',
      statements: ({ schema, query }) => [
        schema
          .createTable('words')
          .addColumn('note', 'text', (column) => column.notNull().references('notes.id'))
          .addColumn('word', 'text', (column) => column.notNull())
          .addPrimaryKeyConstraint('words_key', ['note', 'word']),
        sql`insert into words (note, word) select id, text from notes`.compile(query),
        schema.createIndex('words_word').on('words').column('word'),
      ],
    },
  ],
};

/** As it was after so many migrations. */
export function versionOf(count: number): DatabaseDefinition {
  return { name: 'grown', migrations: grownDatabase.migrations.slice(0, count) };
}

export interface GrownSchema {
  notes: { id: string; text: string; size: number };
  words: { note: string; word: string };
  schema_migrations: { id: string; applied_at: number; checksum: string };
}
