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
  {
    id: '0002-sessions',
    statements: ({ schema }) => [
      schema
        .createTable('sessions')
        .addColumn('key', 'text', (column) => column.primaryKey())
        .addColumn('session_id', 'text', (column) => column.notNull())
        .addColumn('thread_id', 'text', (column) => column.notNull())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('instance', 'text', (column) => column.notNull())
        .addColumn('provider_id', 'text', (column) => column.notNull())
        .addColumn('reference', 'text', (column) => column.notNull())
        .addColumn('working_directory', 'text', (column) => column.notNull())
        .addColumn('reserved_seq', 'integer', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('updated_at', 'integer', (column) => column.notNull())
        .addColumn('closed_at', 'integer'),
      schema.createIndex('sessions_session_id').unique().on('sessions').columns(['session_id', 'owner', 'tenant']),
      schema.createIndex('sessions_thread_id').on('sessions').columns(['thread_id', 'owner']),
      schema
        .createTable('turns')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('session_key', 'text', (column) => column.notNull())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('instance', 'text', (column) => column.notNull())
        .addColumn('method', 'text', (column) => column.notNull())
        .addColumn('request_id', 'text', (column) => column.notNull())
        .addColumn('request_digest', 'text', (column) => column.notNull())
        .addColumn('idempotency_key', 'text', (column) => column.notNull())
        .addColumn('prompt', 'text', (column) => column.notNull())
        .addColumn('status', 'text', (column) => column.notNull())
        .addColumn('base', 'text', (column) => column.notNull())
        .addColumn('outcome', 'text', (column) => column.notNull())
        .addColumn('first_seq', 'integer', (column) => column.notNull())
        .addColumn('last_seq', 'integer', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('ended_at', 'integer'),
      schema.createIndex('turns_session_key').on('turns').columns(['session_key', 'idempotency_key', 'request_digest']),
      // Open turns are few: a start after a crash finds them without looking at all the others.
      schema.createIndex('turns_open').on('turns').columns(['instance', 'ended_at']).where('ended_at', 'is', null),
      schema.createIndex('turns_ended_at').on('turns').column('ended_at'),
      schema
        .createTable('session_updates')
        .addColumn('session_key', 'text', (column) => column.notNull())
        .addColumn('first_seq', 'integer', (column) => column.notNull())
        .addColumn('last_seq', 'integer', (column) => column.notNull())
        .addColumn('version', 'integer', (column) => column.notNull())
        .addColumn('at', 'integer', (column) => column.notNull())
        .addColumn('updates', 'text', (column) => column.notNull())
        .addPrimaryKeyConstraint('session_updates_key', ['session_key', 'first_seq']),
      schema.createIndex('session_updates_at').on('session_updates').column('at'),
      schema
        .createTable('audit_records')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('at', 'integer', (column) => column.notNull())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('action', 'text', (column) => column.notNull())
        .addColumn('decision', 'text', (column) => column.notNull())
        .addColumn('session_id', 'text', (column) => column.notNull())
        .addColumn('turn_id', 'text', (column) => column.notNull())
        .addColumn('provider_id', 'text', (column) => column.notNull())
        .addColumn('subject', 'text', (column) => column.notNull()),
      schema.createIndex('audit_records_at').on('audit_records').column('at'),
    ],
  },
  {
    id: '0003-builtin-conversations',
    statements: ({ schema }) => [
      schema
        .createTable('builtin_messages')
        .addColumn('conversation_id', 'text', (column) => column.notNull())
        .addColumn('position', 'integer', (column) => column.notNull())
        .addColumn('body', 'text', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addPrimaryKeyConstraint('builtin_messages_key', ['conversation_id', 'position']),
    ],
  },
];
