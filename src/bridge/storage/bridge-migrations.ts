import type { Migration } from '../../platform/database/migrations.ts';
import { column, workbenchMigrations } from './workbench-migrations.ts';

/** The schema of the bridge, forward only: a released migration is never edited, a new one is added at the end. */
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
        .addColumn('request_fingerprint', 'text', (column) => column.notNull())
        .addColumn('idempotency_key', 'text', (column) => column.notNull())
        .addColumn('prompt', 'text', (column) => column.notNull())
        .addColumn('status', 'text', (column) => column.notNull())
        .addColumn('base', 'text', (column) => column.notNull())
        .addColumn('outcome', 'text', (column) => column.notNull())
        .addColumn('first_seq', 'integer', (column) => column.notNull())
        .addColumn('last_seq', 'integer', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('ended_at', 'integer'),
      schema
        .createIndex('turns_session_key')
        .on('turns')
        .columns(['session_key', 'idempotency_key', 'request_fingerprint']),
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
  {
    id: '0004-artifacts',
    statements: ({ schema }) => [
      schema
        .createTable('artifacts')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('session_key', 'text', (column) => column.notNull())
        .addColumn('turn_id', 'text', (column) => column.notNull())
        .addColumn('relative_path', 'text', (column) => column.notNull())
        .addColumn('content_type', 'text', (column) => column.notNull())
        .addColumn('size_bytes', 'integer', (column) => column.notNull())
        .addColumn('sha256', 'text', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('expires_at', 'integer', (column) => column.notNull()),
      schema.createIndex('artifacts_expires_at').on('artifacts').column('expires_at'),
    ],
  },
  {
    id: '0005-jobs',
    statements: ({ schema }) => [
      schema
        .createTable('jobs')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('status', 'text', (column) => column.notNull())
        .addColumn('provider_id', 'text', (column) => column.notNull())
        .addColumn('session_id', 'text', (column) => column.notNull())
        .addColumn('thread_id', 'text', (column) => column.notNull())
        .addColumn('request', 'text', (column) => column.notNull())
        .addColumn('idempotency_key', 'text')
        .addColumn('retry_on_restart', 'integer', (column) => column.notNull())
        .addColumn('timeout_ms', 'integer', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('deadline_at', 'integer', (column) => column.notNull())
        .addColumn('started_at', 'integer')
        .addColumn('completed_at', 'integer')
        .addColumn('instance', 'text')
        .addColumn('attempt', 'integer', (column) => column.notNull())
        .addColumn('stop_requested', 'integer', (column) => column.notNull())
        .addColumn('outcome', 'text', (column) => column.notNull())
        .addColumn('webhook_url', 'text', (column) => column.notNull())
        .addColumn('webhook_sent', 'integer', (column) => column.notNull())
        .addColumn('webhook_tries', 'integer', (column) => column.notNull())
        .addColumn('card_sent', 'integer', (column) => column.notNull()),
      schema
        .createIndex('jobs_idempotency_key')
        .unique()
        .on('jobs')
        .columns(['owner', 'tenant', 'idempotency_key'])
        .where('idempotency_key', 'is not', null),
      schema.createIndex('jobs_owner').on('jobs').columns(['owner', 'id']),
      schema.createIndex('jobs_status').on('jobs').columns(['status', 'id']),
      schema.createIndex('jobs_owner_status').on('jobs').columns(['owner', 'status', 'id']),
      schema.createIndex('jobs_completed_at').on('jobs').column('completed_at'),
      // What is open is little beside what has ended: these stay small.
      schema
        .createIndex('jobs_waiting')
        .on('jobs')
        .columns(['provider_id', 'id'])
        .where(column('instance'), 'is', null)
        .where(column('completed_at'), 'is', null),
      schema.createIndex('jobs_deadline').on('jobs').column('deadline_at').where(column('completed_at'), 'is', null),
      schema.createIndex('jobs_open_session').on('jobs').column('session_id').where(column('completed_at'), 'is', null),
      schema.createIndex('jobs_open_thread').on('jobs').column('thread_id').where(column('completed_at'), 'is', null),
      schema.createIndex('jobs_instance').on('jobs').column('instance').where('instance', 'is not', null),
      schema
        .createTable('job_counts')
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('provider_id', 'text', (column) => column.notNull())
        .addColumn('shard', 'integer', (column) => column.notNull())
        .addColumn('pending', 'integer', (column) => column.notNull())
        .addColumn('running', 'integer', (column) => column.notNull())
        .addColumn('completed', 'integer', (column) => column.notNull())
        .addColumn('failed', 'integer', (column) => column.notNull())
        .addColumn('ended_runs', 'integer', (column) => column.notNull())
        .addColumn('run_ms', 'integer', (column) => column.notNull())
        .addPrimaryKeyConstraint('job_counts_key', ['owner', 'tenant', 'provider_id', 'shard']),
      schema
        .createTable('job_deliveries')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('job_id', 'text', (column) => column.notNull())
        .addColumn('kind', 'text', (column) => column.notNull())
        .addColumn('attempts', 'integer', (column) => column.notNull())
        .addColumn('due_at', 'integer', (column) => column.notNull()),
      schema.createIndex('job_deliveries_due_at').on('job_deliveries').column('due_at'),
    ],
  },
  {
    id: '0006-session-routes',
    statements: ({ schema }) => [
      schema
        .createTable('session_routes')
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('kind', 'text', (column) => column.notNull())
        .addColumn('name', 'text', (column) => column.notNull())
        .addColumn('thread_id', 'text', (column) => column.notNull())
        .addColumn('node_id', 'text', (column) => column.notNull())
        .addColumn('used_at', 'integer', (column) => column.notNull())
        .addPrimaryKeyConstraint('session_routes_key', ['owner', 'kind', 'name']),
      schema.createIndex('session_routes_name').on('session_routes').columns(['name', 'kind']),
      schema.createIndex('session_routes_thread').on('session_routes').column('thread_id'),
      schema.createIndex('session_routes_used_at').on('session_routes').column('used_at'),
    ],
  },
  {
    id: '0007-lookups',
    statements: ({ schema }) => [
      // Without those that are open, or SQLite would look for overdue ones among all of them.
      schema.dropIndex('jobs_completed_at'),
      schema.createIndex('jobs_ended').on('jobs').column('completed_at').where(column('completed_at'), 'is not', null),
      // A turn is looked for by its key or by what it asks, in sessions of any length.
      schema.dropIndex('turns_session_key'),
      schema.createIndex('turns_request').on('turns').columns(['session_key', 'request_fingerprint']),
      schema
        .createIndex('turns_idempotency_key')
        .on('turns')
        .columns(['session_key', 'idempotency_key'])
        .where('idempotency_key', '!=', ''),
    ],
  },
  {
    id: '0008-jobs-wait-in-sessions',
    // Version 0.1.0 writes without a fence: what it writes about a session that another instance has taken would count.
    inUse: `SELECT id FROM instances WHERE heartbeat_at > (extract(epoch from clock_timestamp()) * 1000)::bigint - 10000`,
    statements: ({ schema }) => [
      // Owners take turns, and so do the agents of an owner.
      schema.dropIndex('jobs_waiting'),
      schema
        .createIndex('jobs_waiting_of_owner')
        .on('jobs')
        .columns(['owner', 'provider_id', 'id'])
        .where(column('instance'), 'is', null)
        .where(column('completed_at'), 'is', null),
      schema.alterTable('jobs').addColumn('request_fingerprint', 'text', (added) => added.notNull().defaultTo('')),
    ],
  },
  {
    id: '0009-retention-of-sessions',
    statements: ({ schema }) => [
      schema.createIndex('sessions_updated_at').on('sessions').columns(['instance', 'updated_at']),
      schema.createIndex('artifacts_session_key').on('artifacts').column('session_key'),
      schema.createIndex('artifacts_owner').on('artifacts').columns(['owner', 'created_at', 'size_bytes']),
    ],
  },
  ...workbenchMigrations,
];
