import { sql } from 'kysely';
import type { DatabaseDefinition } from '../../../src/platform/database/migrations.ts';

/** A small schema with every column type, a reference, a composite key and a table that refers to itself. */
export const sampleDatabase: DatabaseDefinition = {
  name: 'sample',
  migrations: [
    {
      id: '0001-items',
      statements: ({ schema }) => [
        schema
          .createTable('items')
          .addColumn('id', 'text', (column) => column.primaryKey())
          .addColumn('label', 'text')
          .addColumn('amount', 'integer')
          .addColumn('ratio', 'real')
          .addColumn('content', 'blob')
          .addColumn('parent', 'text', (column) =>
            column.references('items.id').modifyEnd(sql`deferrable initially deferred`),
          ),
        schema.createIndex('items_label').on('items').column('label').unique(),
      ],
    },
    {
      id: '0002-entries',
      statements: ({ schema }) => [
        schema
          .createTable('entries')
          .addColumn('item', 'text', (column) => column.notNull().references('items.id'))
          .addColumn('place', 'integer', (column) => column.notNull())
          .addColumn('body', 'text', (column) => column.notNull())
          .addPrimaryKeyConstraint('entries_key', ['item', 'place']),
      ],
    },
  ],
};

export interface ItemRow {
  id: string;
  label: string | null;
  amount: number | bigint | null;
  ratio: number | null;
  content: Uint8Array | null;
  parent: string | null;
}

export interface SampleSchema {
  items: ItemRow;
  entries: { item: string; place: number; body: string };
}

export function item(id: string, values: Partial<ItemRow> = {}): ItemRow {
  return { id, label: null, amount: null, ratio: null, content: null, parent: null, ...values };
}
