import { sql } from 'kysely';
import type { Migration } from '../../platform/database/migrations.ts';

/** For the condition of an index on other columns. */
export const column = (name: string) => sql.ref(name);
const emptyText = (name: string) => sql.lit('').as(name);
const zero = (name: string) => sql.lit(0).as(name);

/** The second part of the bridge's schema, since 0.2.0: what the second surface needs. New migrations are added here. */
export const workbenchMigrations: readonly Migration[] = [
  {
    id: '0010-session-summaries',
    statements: ({ schema, query }) => [
      schema
        .createTable('session_summaries')
        .addColumn('session_key', 'text', (column) => column.primaryKey())
        .addColumn('session_id', 'text', (column) => column.notNull())
        .addColumn('thread_id', 'text', (column) => column.notNull())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('title', 'text', (column) => column.notNull())
        .addColumn('search_text', 'text', (column) => column.notNull())
        .addColumn('provider_id', 'text', (column) => column.notNull())
        .addColumn('model', 'text', (column) => column.notNull())
        .addColumn('folder', 'text', (column) => column.notNull())
        .addColumn('doing', 'text', (column) => column.notNull())
        .addColumn('turns', 'integer', (column) => column.notNull())
        .addColumn('input_tokens', 'integer', (column) => column.notNull())
        .addColumn('output_tokens', 'integer', (column) => column.notNull())
        .addColumn('total_tokens', 'integer', (column) => column.notNull())
        .addColumn('cost_usd', 'real')
        .addColumn('last_turn', 'text', (column) => column.notNull())
        .addColumn('last_status', 'text', (column) => column.notNull())
        .addColumn('last_code', 'text', (column) => column.notNull())
        .addColumn('last_seq', 'integer', (column) => column.notNull())
        .addColumn('job_id', 'text', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('updated_at', 'integer', (column) => column.notNull())
        .addColumn('archived_at', 'integer')
        .addColumn('pinned', 'integer', (column) => column.notNull()),
      // Lists are read newest first, of one owner or of all.
      schema
        .createIndex('session_summaries_owner')
        .on('session_summaries')
        .columns(['owner', 'updated_at', 'session_key'])
        .where(column('archived_at'), 'is', null),
      schema
        .createIndex('session_summaries_all')
        .on('session_summaries')
        .columns(['updated_at', 'session_key'])
        .where(column('archived_at'), 'is', null),
      schema
        .createIndex('session_summaries_archived_owner')
        .on('session_summaries')
        .columns(['owner', 'updated_at', 'session_key'])
        .where(column('archived_at'), 'is not', null),
      schema
        .createIndex('session_summaries_archived')
        .on('session_summaries')
        .columns(['updated_at', 'session_key'])
        .where(column('archived_at'), 'is not', null),
      // Sessions of earlier releases get a title with their next turn.
      query
        .insertInto('session_summaries')
        .columns([
          ...['session_key', 'session_id', 'thread_id', 'owner', 'tenant', 'provider_id', 'folder', 'last_seq'],
          ...['created_at', 'updated_at', 'title', 'search_text', 'model', 'doing', 'last_turn'],
          ...['last_status', 'last_code', 'job_id', 'turns', 'input_tokens', 'output_tokens', 'total_tokens', 'pinned'],
        ])
        .expression(
          query
            .selectFrom('sessions')
            .select(['key', 'session_id', 'thread_id', 'owner', 'tenant', 'provider_id', 'working_directory'])
            .select(['reserved_seq', 'created_at', 'updated_at', sql.lit('').as('title')])
            .select(sql<string>`lower(session_id)`.as('search_text'))
            .select(['model', 'doing', 'last_turn', 'last_status', 'last_code', 'job_id'].map(emptyText))
            .select(['turns', 'input_tokens', 'output_tokens', 'total_tokens', 'pinned'].map(zero))
            .where('closed_at', 'is', null),
        ),
      schema.createIndex('turns_session').on('turns').columns(['session_key', 'id']),
      // With the id, or SQLite would take the index above for the sake of the order, and look at all turns of the session.
      schema.dropIndex('turns_request'),
      schema.createIndex('turns_request').on('turns').columns(['session_key', 'request_fingerprint', 'id']),
      schema.dropIndex('turns_idempotency_key'),
      schema
        .createIndex('turns_idempotency_key')
        .on('turns')
        .columns(['session_key', 'idempotency_key', 'id'])
        .where('idempotency_key', '!=', ''),
      schema.createIndex('audit_records_owner').on('audit_records').columns(['owner', 'at', 'id']),
    ],
  },
  {
    id: '0011-permissions',
    statements: ({ schema }) => [
      schema
        .createTable('permissions')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('session_key', 'text', (column) => column.notNull())
        .addColumn('session_id', 'text', (column) => column.notNull())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('turn_id', 'text', (column) => column.notNull())
        .addColumn('instance', 'text', (column) => column.notNull())
        .addColumn('folder', 'text', (column) => column.notNull())
        .addColumn('tool_call_id', 'text', (column) => column.notNull())
        .addColumn('title', 'text', (column) => column.notNull())
        .addColumn('input', 'text', (column) => column.notNull())
        .addColumn('options', 'text', (column) => column.notNull())
        .addColumn('reason', 'text', (column) => column.notNull())
        .addColumn('tool_kind', 'text', (column) => column.notNull())
        .addColumn('state', 'text', (column) => column.notNull())
        .addColumn('option_id', 'text', (column) => column.notNull())
        .addColumn('scope', 'text', (column) => column.notNull())
        .addColumn('answered_by', 'text', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('expires_at', 'integer', (column) => column.notNull())
        .addColumn('answered_at', 'integer'),
      // Open requests are few: they are found without looking at all the others.
      schema
        .createIndex('permissions_open')
        .on('permissions')
        .columns(['owner', 'id'])
        .where(column('state'), '=', 'open'),
      schema.createIndex('permissions_session').on('permissions').columns(['session_key', 'id']),
      schema.createIndex('permissions_owner').on('permissions').columns(['owner', 'id']),
      schema
        .createTable('permission_rules')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('session_key', 'text', (column) => column.notNull())
        .addColumn('session_id', 'text', (column) => column.notNull())
        .addColumn('folder', 'text', (column) => column.notNull())
        .addColumn('tool_kind', 'text', (column) => column.notNull())
        .addColumn('command', 'text', (column) => column.notNull())
        .addColumn('path', 'text', (column) => column.notNull())
        .addColumn('decision', 'text', (column) => column.notNull())
        .addColumn('created_by', 'text', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('expires_at', 'integer', (column) => column.notNull()),
      schema.createIndex('permission_rules_owner').on('permission_rules').columns(['owner', 'folder']),
      schema.createIndex('permission_rules_session').on('permission_rules').column('session_key'),
      schema.createIndex('permission_rules_expires_at').on('permission_rules').column('expires_at'),
    ],
  },
  {
    id: '0012-priorities-and-retries-of-jobs',
    statements: ({ schema, query }) => [
      schema.alterTable('jobs').addColumn('priority', 'integer', (added) => added.notNull().defaultTo(1)),
      schema.alterTable('jobs').addColumn('retries', 'integer', (added) => added.notNull().defaultTo(0)),
      schema.alterTable('jobs').addColumn('retried', 'integer', (added) => added.notNull().defaultTo(0)),
      schema.alterTable('jobs').addColumn('not_before', 'integer', (added) => added.notNull().defaultTo(0)),
      schema.alterTable('jobs').addColumn('retry_at', 'integer', (added) => added.notNull().defaultTo(0)),
      schema.alterTable('jobs').addColumn('schedule_id', 'text', (added) => added.notNull().defaultTo('')),
      schema.alterTable('jobs').addColumn('search_text', 'text', (added) => added.notNull().defaultTo('')),
      // What is stored of a submit begins with its prompt.
      query.updateTable('jobs').set({ search_text: sql`lower(substr(request, 1, 300))` }),
      schema.dropIndex('jobs_waiting_of_owner'),
      // Jobs that wait for their moment are passed over without reading their rows.
      schema
        .createIndex('jobs_waiting_by_priority')
        .on('jobs')
        .columns(['owner', 'provider_id', 'priority', 'id', 'not_before', 'session_id'])
        .where(column('instance'), 'is', null)
        .where(column('completed_at'), 'is', null),
      schema
        .createIndex('jobs_schedule')
        .on('jobs')
        .columns(['schedule_id', 'id'])
        .where(column('schedule_id'), '!=', sql.lit('')),
      schema
        .createTable('job_delivery_attempts')
        .addColumn('delivery_id', 'text', (added) => added.notNull())
        .addColumn('attempt', 'integer', (added) => added.notNull())
        .addColumn('job_id', 'text', (added) => added.notNull())
        .addColumn('kind', 'text', (added) => added.notNull())
        .addColumn('started_at', 'integer', (added) => added.notNull())
        .addColumn('ended_at', 'integer')
        .addColumn('result', 'text', (added) => added.notNull())
        .addColumn('detail', 'text', (added) => added.notNull())
        .addPrimaryKeyConstraint('job_delivery_attempts_key', ['delivery_id', 'attempt']),
      schema.createIndex('job_delivery_attempts_job').on('job_delivery_attempts').column('job_id'),
    ],
  },
  {
    id: '0013-changed-files',
    statements: ({ schema }) =>
      ['changed_files', 'lines_added', 'lines_removed'].map((name) =>
        schema.alterTable('session_summaries').addColumn(name, 'integer', (column) => column.notNull().defaultTo(0)),
      ),
  },
  {
    id: '0014-schedules',
    statements: ({ schema }) => [
      schema
        .createTable('schedules')
        .addColumn('id', 'text', (added) => added.primaryKey())
        .addColumn('owner', 'text', (added) => added.notNull())
        .addColumn('tenant', 'text', (added) => added.notNull())
        .addColumn('name', 'text', (added) => added.notNull())
        .addColumn('cron', 'text', (added) => added.notNull())
        .addColumn('every_ms', 'integer', (added) => added.notNull())
        .addColumn('timezone', 'text', (added) => added.notNull())
        .addColumn('task', 'text', (added) => added.notNull())
        .addColumn('enabled', 'integer', (added) => added.notNull())
        .addColumn('overlap', 'text', (added) => added.notNull())
        .addColumn('catch_up', 'text', (added) => added.notNull())
        .addColumn('next_at', 'integer')
        .addColumn('counted_at', 'integer', (added) => added.notNull())
        .addColumn('version', 'integer', (added) => added.notNull())
        .addColumn('last_at', 'integer')
        .addColumn('last_result', 'text', (added) => added.notNull())
        .addColumn('last_message', 'text', (added) => added.notNull())
        .addColumn('last_job_id', 'text', (added) => added.notNull())
        .addColumn('created_at', 'integer', (added) => added.notNull())
        .addColumn('updated_at', 'integer', (added) => added.notNull()),
      schema.createIndex('schedules_owner').on('schedules').columns(['owner', 'id']),
      schema.createIndex('schedules_due').on('schedules').column('next_at').where(column('next_at'), 'is not', null),
      schema.createIndex('schedules_counted_at').on('schedules').column('counted_at'),
    ],
  },
  {
    id: '0015-attachments',
    statements: ({ schema }) => [
      schema.alterTable('turns').addColumn('attachments', 'text', (added) => added.notNull().defaultTo('[]')),
      schema
        .createTable('attachments')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('tenant', 'text', (column) => column.notNull())
        .addColumn('name', 'text', (column) => column.notNull())
        .addColumn('content_type', 'text', (column) => column.notNull())
        .addColumn('size_bytes', 'integer', (column) => column.notNull())
        .addColumn('sha256', 'text', (column) => column.notNull())
        .addColumn('used_at', 'integer')
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addColumn('expires_at', 'integer', (column) => column.notNull()),
      schema.createIndex('attachments_owner').on('attachments').columns(['owner', 'id']),
      schema.createIndex('attachments_expires_at').on('attachments').column('expires_at'),
    ],
  },
  {
    id: '0016-turns-of-messages',
    statements: ({ schema }) => [
      schema.alterTable('builtin_messages').addColumn('turn_id', 'text', (column) => column.notNull().defaultTo('')),
    ],
  },
  {
    id: '0017-modes-and-models',
    statements: ({ schema }) => [
      schema.alterTable('sessions').addColumn('choices', 'text', (column) => column.notNull().defaultTo('')),
      ...['mode', 'offers'].map((name) =>
        schema.alterTable('session_summaries').addColumn(name, 'text', (column) => column.notNull().defaultTo('')),
      ),
    ],
  },
  {
    id: '0018-questions-with-forms',
    statements: ({ schema }) => [
      ...['form', 'given'].map((name) =>
        schema.alterTable('permissions').addColumn(name, 'text', (column) => column.notNull().defaultTo('')),
      ),
      // Values that are on their way to an agent are few: those that nobody takes are found without looking at the others.
      schema.createIndex('permissions_given').on('permissions').column('id').where(column('given'), '!=', sql.lit('')),
    ],
  },
  {
    id: '0019-members-of-teams',
    statements: ({ schema }) => [
      ...['jobs', 'schedules'].map((table) =>
        schema.alterTable(table).addColumn('member', 'text', (column) => column.notNull().defaultTo('')),
      ),
      // The open jobs that someone has submitted for teams count for their plan.
      schema
        .createIndex('jobs_member')
        .on('jobs')
        .columns(['member', 'status'])
        .where(column('member'), '!=', sql.lit(''))
        .where(column('completed_at'), 'is', null),
    ],
  },
  {
    id: '0020-open-permissions',
    statements: ({ schema }) => [
      // With the state as a column, or SQLite would take the index of the owner, and look at all requests that ever were.
      schema.dropIndex('permissions_open'),
      schema
        .createIndex('permissions_open')
        .on('permissions')
        .columns(['state', 'owner', 'id'])
        .where(column('state'), '=', sql.lit('open')),
    ],
  },
  {
    id: '0021-mcp-servers',
    statements: ({ schema }) => [
      schema.alterTable('sessions').addColumn('mcp_servers', 'text', (column) => column.notNull().defaultTo('')),
    ],
  },
  {
    id: '0022-fenced-sessions',
    statements: ({ schema }) => [
      schema.alterTable('sessions').addColumn('epoch', 'integer', (column) => column.notNull().defaultTo(0)),
    ],
  },
  {
    id: '0023-homes',
    statements: ({ schema }) =>
      ['sessions', 'instances', 'artifacts', 'attachments'].map((table) =>
        schema.alterTable(table).addColumn('home', 'text', (column) => column.notNull().defaultTo('')),
      ),
  },
  {
    id: '0024-instance-reports',
    statements: ({ schema }) => [
      schema.alterTable('instances').addColumn('report', 'text', (column) => column.notNull().defaultTo('')),
    ],
  },
  {
    id: '0025-runners',
    statements: ({ schema }) => [
      schema
        .createTable('runners')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('name', 'text', (column) => column.notNull().unique())
        .addColumn('key_hash', 'text', (column) => column.notNull().unique())
        .addColumn('labels', 'text', (column) => column.notNull())
        .addColumn('report', 'text', (column) => column.notNull())
        .addColumn('slots', 'integer', (column) => column.notNull())
        .addColumn('instance', 'text', (column) => column.notNull())
        .addColumn('connection', 'text', (column) => column.notNull()),
      schema
        .createTable('runner_turns')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('runner_id', 'text', (column) => column.notNull())
        .addColumn('instance', 'text', (column) => column.notNull()),
      schema.createIndex('runner_turns_runner').on('runner_turns').columns(['runner_id', 'instance']),
    ],
  },
  {
    id: '0026-runners-for-one-session',
    // Programs that do not know the columns find no slots on such a runner, so they leave it alone.
    readableSince: '0025-runners',
    statements: ({ schema }) =>
      ['process', 'session'].map((name) =>
        schema.alterTable('runners').addColumn(name, 'text', (column) => column.notNull().defaultTo('')),
      ),
  },
];
