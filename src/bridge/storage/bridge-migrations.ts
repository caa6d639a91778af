import type { Migration } from '../../platform/database/migration.ts';

/** The schema of the bridge, forward only: a released migration is never edited, a new one is added below. */
export const bridgeMigrations: readonly Migration[] = [
  {
    id: '0001-instances',
    // Sessions and jobs record which running bridge owns them; its heartbeat tells whether that one still lives.
    statements: ({ schema }) => [
      schema
        .createTable('instances')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('version', 'text', (column) => column.notNull())
        .addColumn('address', 'text', (column) => column.notNull())
        .addColumn('started_at', 'integer', (column) => column.notNull())
        .addColumn('heartbeat_at', 'integer', (column) => column.notNull()),
      schema.createIndex('instances_heartbeat_at').on('instances').column('heartbeat_at'),
    ],
  },
];
