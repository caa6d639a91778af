import { type SchemaModule, sql } from 'kysely';
import type { Migration } from '../../platform/database/migrations.ts';

/** The schema of completions, forward only: a released migration is never edited, a new one is added below. */
export const completionsMigrations: readonly Migration[] = [
  {
    id: '0001-keys-and-usage',
    statements: ({ schema }) => [...keyTables(schema), ...usageTables(schema)],
  },
  {
    // Money as whole nano-USD: sums of fractions depend on the order in which they are added.
    id: '0002-nano-usd',
    statements: ({ schema, query }) =>
      ['usage_records', 'usage_totals', 'key_spending'].flatMap((table) => [
        schema.alterTable(table).addColumn('cost_nano_usd', 'integer', (column) => column.notNull().defaultTo(0)),
        query.updateTable(table).set({ cost_nano_usd: sql`cast(round(cost_usd * 1000000000) as bigint)` }),
        schema.alterTable(table).dropColumn('cost_usd'),
      ]),
  },
  {
    id: '0003-no-tenant',
    // A tenant was stored and never used.
    statements: ({ schema }) => [schema.alterTable('keys').dropColumn('tenant')],
  },
  {
    id: '0004-upstream-objects',
    statements: ({ schema }) => [
      schema
        .createTable('upstream_objects')
        .addColumn('id', 'text', (column) => column.notNull())
        .addColumn('api', 'text', (column) => column.notNull())
        .addColumn('owner', 'text', (column) => column.notNull())
        .addColumn('created_at', 'integer', (column) => column.notNull())
        .addPrimaryKeyConstraint('upstream_objects_key', ['id', 'api']),
      schema.createIndex('upstream_objects_owner').on('upstream_objects').column('owner'),
      schema.createIndex('upstream_objects_age').on('upstream_objects').column('created_at'),
    ],
  },
  {
    // Users are owners like teams and service accounts, told apart by what comes before the id.
    id: '0005-owners',
    statements: ({ query }) =>
      ['keys', 'usage_records'].map((table) =>
        query
          .updateTable(table)
          .set({ owner: sql`'user:' || owner` })
          .where(sql<boolean>`substr(owner, 1, 4) = 'usr_'`),
      ),
  },
  {
    // What the log of calls shows and looks for.
    id: '0006-call-log',
    statements: ({ schema }) => [
      ...['cached_tokens', 'cache_write_tokens', 'reasoning_tokens'].map((name) =>
        schema.alterTable('usage_records').addColumn(name, 'integer', (column) => column.notNull().defaultTo(0)),
      ),
      schema.alterTable('usage_records').addColumn('failures', 'text', (column) => column.notNull().defaultTo('')),
      schema.createIndex('usage_records_key').on('usage_records').columns(['key_id', 'id']),
      schema.createIndex('usage_records_owner').on('usage_records').columns(['owner', 'id']),
      schema.createIndex('usage_records_request').on('usage_records').column('request_id'),
    ],
  },
  {
    // Work for teams.
    id: '0007-teams',
    statements: ({ schema }) => [
      ...['keys', 'usage_records'].map((table) =>
        schema.alterTable(table).addColumn('team', 'text', (column) => column.notNull().defaultTo('')),
      ),
      schema.createIndex('keys_team').on('keys').columns(['team', 'id']),
      schema.createIndex('usage_records_team').on('usage_records').columns(['team', 'id']),
    ],
  },
  {
    // Keys that are changed and rotated.
    id: '0008-key-changes',
    statements: ({ schema }) => [
      schema.alterTable('keys').addColumn('issued_by', 'text', (column) => column.notNull().defaultTo('')),
      schema.alterTable('keys').addColumn('enabled', 'integer', (column) => column.notNull().defaultTo(1)),
      schema.alterTable('keys').addColumn('previous_digest', 'text'),
      schema.alterTable('keys').addColumn('previous_until', 'integer'),
      schema.alterTable('keys').addColumn('revision', 'integer', (column) => column.notNull().defaultTo(0)),
      schema.createIndex('keys_previous_digest').on('keys').column('previous_digest').unique(),
    ],
  },
  {
    // Keys that limit how many calls run at the same time.
    id: '0009-parallel-calls',
    statements: ({ schema }) => [schema.alterTable('keys').addColumn('max_parallel', 'integer')],
  },
  {
    // Usage by anything and anything else, in any time zone. The sums per day stay as they are.
    id: '0010-usage-quarters',
    statements: ({ schema }) => [
      ...['keys', 'usage_records'].map((table) =>
        schema.alterTable(table).addColumn('tags', 'text', (column) => column.notNull().defaultTo('')),
      ),
      quarterTable(schema),
      ...['key_id', 'owner', 'team'].map((name) =>
        schema.createIndex(`usage_quarters_${name}`).on('usage_quarters').columns([name, 'quarter']),
      ),
    ],
  },
  {
    id: '0011-catalogues',
    statements: ({ schema }) => [
      schema
        .createTable('catalogues')
        .addColumn('id', 'text', (column) => column.primaryKey())
        .addColumn('source', 'text', (column) => column.notNull())
        .addColumn('checked_at', 'integer', (column) => column.notNull())
        .addColumn('body', 'text', (column) => column.notNull()),
    ],
  },
  {
    // Files and batches of callers, which they list.
    id: '0012-stored-files',
    statements: ({ schema }) => [
      ...['kind', 'detail'].map((name) =>
        schema.alterTable('upstream_objects').addColumn(name, 'text', (column) => column.notNull().defaultTo('')),
      ),
      schema
        .createIndex('upstream_objects_listed')
        .on('upstream_objects')
        .columns(['owner', 'kind', 'created_at', 'id']),
    ],
  },
  {
    id: '0013-exports',
    statements: ({ schema }) => [
      schema
        .createTable('export_cursors')
        .addColumn('name', 'text', (column) => column.primaryKey())
        .addColumn('last_id', 'text', (column) => column.notNull())
        .addColumn('busy_until', 'integer', (column) => column.notNull()),
    ],
  },
  {
    id: '0014-key-content',
    statements: ({ schema }) => [
      schema.alterTable('keys').addColumn('store_content', 'text', (column) => column.notNull().defaultTo('')),
    ],
  },
  {
    // What instances set aside of a budget that they share.
    id: '0015-budget-leases',
    statements: ({ schema }) =>
      ['leased_nano_usd', 'granted_nano_usd'].map((name) =>
        schema.alterTable('key_spending').addColumn(name, 'integer', (column) => column.notNull().defaultTo(0)),
      ),
  },
  {
    // One object of an owner was looked for among all objects of that owner.
    id: '0016-objects-of-owners',
    statements: ({ schema }) => [
      schema.dropIndex('upstream_objects_owner'),
      schema.createIndex('upstream_objects_owned').on('upstream_objects').columns(['owner', 'id']),
    ],
  },
];

function keyTables(schema: SchemaModule) {
  return [
    schema
      .createTable('keys')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('tenant', 'text', (column) => column.notNull())
      .addColumn('owner', 'text', (column) => column.notNull())
      .addColumn('name', 'text', (column) => column.notNull())
      .addColumn('digest', 'text', (column) => column.notNull())
      .addColumn('hint', 'text', (column) => column.notNull())
      .addColumn('models', 'text', (column) => column.notNull())
      .addColumn('requests_per_minute', 'integer')
      .addColumn('tokens_per_minute', 'integer')
      .addColumn('budget_usd', 'real')
      .addColumn('budget_period', 'text')
      .addColumn('expires_at', 'integer')
      .addColumn('created_at', 'integer', (column) => column.notNull()),
    schema.createIndex('keys_digest').on('keys').column('digest').unique(),
    schema.createIndex('keys_owner').on('keys').columns(['owner', 'id']),
    schema
      .createTable('key_spending')
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('period', 'text', (column) => column.notNull())
      .addColumn('cost_usd', 'real', (column) => column.notNull())
      .addPrimaryKeyConstraint('key_spending_key', ['key_id', 'period']),
  ];
}

function quarterTable(schema: SchemaModule) {
  const names = ['key_id', 'owner', 'team', 'model', 'api', 'outcome', 'tags'];
  const counts = ['requests', 'errors', 'prompt_tokens', 'completion_tokens', 'cost_nano_usd'];
  let table = schema
    .createTable('usage_quarters')
    .addColumn('quarter', 'integer', (column) => column.notNull())
    .addColumn('id', 'text', (column) => column.notNull());
  for (const name of names) table = table.addColumn(name, 'text', (column) => column.notNull());
  for (const name of counts) table = table.addColumn(name, 'integer', (column) => column.notNull());
  return table.addPrimaryKeyConstraint('usage_quarters_key', ['quarter', 'id']);
}

function usageTables(schema: SchemaModule) {
  return [
    schema
      .createTable('usage_records')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('at', 'integer', (column) => column.notNull())
      .addColumn('key_id', 'text', (column) => column.notNull())
      .addColumn('owner', 'text', (column) => column.notNull())
      .addColumn('model', 'text', (column) => column.notNull())
      .addColumn('api', 'text', (column) => column.notNull())
      .addColumn('upstream_model', 'text', (column) => column.notNull())
      .addColumn('operation', 'text', (column) => column.notNull())
      .addColumn('prompt_tokens', 'integer', (column) => column.notNull())
      .addColumn('completion_tokens', 'integer', (column) => column.notNull())
      .addColumn('cost_usd', 'real', (column) => column.notNull())
      .addColumn('price_known', 'integer', (column) => column.notNull())
      .addColumn('estimated', 'integer', (column) => column.notNull())
      .addColumn('outcome', 'text', (column) => column.notNull())
      .addColumn('status', 'integer', (column) => column.notNull())
      .addColumn('attempts', 'integer', (column) => column.notNull())
      .addColumn('duration_ms', 'integer', (column) => column.notNull())
      .addColumn('first_token_ms', 'integer', (column) => column.notNull())
      .addColumn('request_id', 'text', (column) => column.notNull()),
    schema
      .createTable('usage_contents')
      .addColumn('record_id', 'text', (column) => column.primaryKey())
      .addColumn('request', 'text', (column) => column.notNull())
      .addColumn('answer', 'text', (column) => column.notNull()),
    schema
      .createTable('usage_totals')
      .addColumn('scope', 'text', (column) => column.notNull())
      .addColumn('dimension', 'text', (column) => column.notNull())
      .addColumn('day', 'text', (column) => column.notNull())
      .addColumn('value', 'text', (column) => column.notNull())
      .addColumn('requests', 'integer', (column) => column.notNull())
      .addColumn('errors', 'integer', (column) => column.notNull())
      .addColumn('prompt_tokens', 'integer', (column) => column.notNull())
      .addColumn('completion_tokens', 'integer', (column) => column.notNull())
      .addColumn('cost_usd', 'real', (column) => column.notNull())
      .addPrimaryKeyConstraint('usage_totals_key', ['scope', 'dimension', 'day', 'value']),
    schema.createIndex('usage_totals_day').on('usage_totals').column('day'),
    schema.createTable('usage_flushes').addColumn('id', 'text', (column) => column.primaryKey()),
  ];
}
