import { type CreateTableBuilder, type SchemaModule, sql } from 'kysely';
import type { Migration } from '../../platform/database/migration.ts';

/** Columns by name; a `?` after the type says that there may be nothing in it. */
type Columns = Readonly<Record<string, 'text' | 'text?' | 'integer' | 'integer?'>>;

/** The schema of accounts, forward only: a released migration is never edited, a new one is added below. */
export const accountsMigrations: readonly Migration[] = [
  {
    id: '0001-accounts',
    statements: ({ schema }) => [
      ...userTables(schema),
      ...sessionTables(schema),
      ...flowTables(schema),
      ...subscriptionTables(schema),
      ...administrationTables(schema),
    ],
  },
  {
    id: '0002-credentials-and-limits',
    statements: ({ schema, query }) => [
      ...credentialTables(schema),
      ...CREDENTIAL_COPIES.map((copy) => sql.raw(copy).compile(query)),
      schema.dropTable('recovery_codes'),
      schema.dropTable('oauth_links'),
      ...MOVED_COLUMNS.map((column) => schema.alterTable('users').dropColumn(column)),
      // What was counted is forgotten: the longest lock of 0.1.0 lasted an hour.
      schema.dropTable('login_failures'),
      schema.dropTable('counters'),
      table(schema, 'limits', ['policy', 'key'], {
        policy: 'text',
        key: 'text',
        count: 'integer',
        locked_until: 'integer',
        expires_at: 'integer',
      }),
      schema.createIndex('limits_expires_at').on('limits').column('expires_at'),
    ],
  },
  {
    id: '0003-outgoing-mails',
    statements: ({ schema }) => [
      table(schema, 'outgoing_mails', ['id'], {
        id: 'text',
        data: 'text',
        attempts: 'integer',
        due_at: 'integer',
        created_at: 'integer',
      }),
      schema.createIndex('outgoing_mails_due_at').on('outgoing_mails').columns(['due_at', 'id']),
    ],
  },
  {
    id: '0004-sliding-sessions',
    statements: ({ schema, query }) => [
      schema
        .alterTable('session_tokens')
        .addColumn('bearer_until', 'integer', (column) => column.notNull().defaultTo(0)),
      sql`update session_tokens set bearer_until = expires_at`.compile(query),
    ],
  },
  {
    id: '0005-plans-and-invitations',
    statements: ({ schema, query }) => [
      addColumn(schema, 'users', 'plan', 'text', ''),
      // Users from before there were plans keep what they could do until an administrator gives them another plan.
      query.updateTable('users').set({ plan: 'legacy' }).where('role', 'in', ['user', 'readonly']),
      addColumn(schema, 'users', 'confirmed', 'integer', 0),
      query.updateTable('users').set((build) => ({ confirmed: build.ref('email_verified') })),
      schema.alterTable('users').addColumn('closing_at', 'integer'),
      schema.createIndex('users_closing_at').on('users').column('closing_at'),
      schema.createIndex('users_plan').on('users').column('plan'),
      addColumn(schema, 'subscriptions', 'named_plan', 'text', ''),
      table(schema, 'invitations', ['id'], {
        id: 'text',
        token_hash: 'text',
        email: 'text',
        mailed: 'integer',
        role: 'text',
        plan: 'text',
        created_by: 'text',
        created_at: 'integer',
        expires_at: 'integer',
      }),
      schema.createIndex('invitations_token_hash').on('invitations').column('token_hash').unique(),
      schema.createIndex('invitations_email').on('invitations').column('email'),
      schema.createIndex('invitations_expires_at').on('invitations').column('expires_at'),
      schema.createIndex('audit_subject').on('audit').columns(['subject', 'id']),
      schema.createIndex('audit_address').on('audit').columns(['address', 'id']),
      schema.createIndex('audit_request').on('audit').column('request_id'),
      // A tenant and groups were stored and never used.
      schema.dropIndex('users_email'),
      schema.dropIndex('users_name_key'),
      schema.dropIndex('users_root_mark'),
      schema.alterTable('users').dropColumn('tenant'),
      schema.alterTable('users').dropColumn('groups'),
      schema.createIndex('users_email').on('users').column('email').unique(),
      schema.createIndex('users_name_key').on('users').column('name_key').unique(),
      schema.createIndex('users_root_mark').on('users').column('root_mark').unique(),
    ],
  },
  {
    id: '0006-pseudonyms',
    // The address of a deleted user, or of anyone who typed a wrong code, stayed in the audit log.
    statements: ({ engine, query }) => {
      const withoutEmail =
        engine === 'sqlite' ? sql`json_remove(details, '$.email')` : sql`(details::jsonb - 'email')::text`;
      const events = ['user.deleted', 'register.code_failed'];
      return [sql`update audit set details = ${withoutEmail} where event in (${sql.join(events)})`.compile(query)];
    },
  },
];

function credentialTables(schema: SchemaModule) {
  return [
    table(schema, 'credentials', ['id'], {
      id: 'text',
      user_id: 'text',
      kind: 'text',
      subject: 'text',
      value: 'text',
      state: 'text',
      label: 'text',
      counter: 'integer',
      created_at: 'integer',
      confirmed_at: 'integer?',
      last_used_at: 'integer?',
    }),
    schema.createIndex('credentials_subject').on('credentials').columns(['kind', 'subject']).unique(),
    schema.createIndex('credentials_user_id').on('credentials').columns(['user_id', 'kind']),
  ];
}

const CREDENTIAL_COLUMNS =
  '(id, user_id, kind, subject, value, state, label, counter, created_at, confirmed_at, last_used_at)';

/** Carries the credentials of 0.1.0 over, each with its value as it was: hashes and sealed secrets stay readable. */
const CREDENTIAL_COPIES: readonly string[] = [
  `insert into credentials ${CREDENTIAL_COLUMNS}
    select 'pwd_' || id, id, 'password', id, password_hash, 'active', '', 0, created_at, null, null
    from users where password_hash is not null`,
  `insert into credentials ${CREDENTIAL_COLUMNS}
    select 'totp_' || id, id, 'totp', id, coalesce(totp_secret, totp_pending),
      case when totp_secret is null then 'pending' else 'active' end, '', totp_last_step,
      coalesce(totp_issued_at, created_at), totp_confirmed_at, null
    from users where totp_secret is not null or totp_pending is not null`,
  `insert into credentials ${CREDENTIAL_COLUMNS}
    select 'rec_' || code_hash, user_id, 'recovery_code', code_hash, '', 'active', '', 0,
      coalesce((select totp_confirmed_at from users where users.id = recovery_codes.user_id), 0), null, null
    from recovery_codes`,
  `insert into credentials ${CREDENTIAL_COLUMNS}
    select 'lnk_' || user_id || '_' || row_number() over (partition by user_id order by created_at, provider, provider_user_id),
      user_id, 'oauth', provider || ' ' || provider_user_id, '', 'active', email, 0, created_at, null, null
    from oauth_links`,
];

const MOVED_COLUMNS = [
  'password_hash',
  'totp_secret',
  'totp_pending',
  'totp_issued_at',
  'totp_confirmed_at',
  'totp_last_step',
  'totp_failures',
  'totp_locks',
  'totp_locked_until',
];

function addColumn(
  schema: SchemaModule,
  name: string,
  column: string,
  type: 'text' | 'integer',
  value: string | number,
) {
  return schema.alterTable(name).addColumn(column, type, (definition) => definition.notNull().defaultTo(value));
}

function userTables(schema: SchemaModule) {
  return [
    table(schema, 'users', ['id'], {
      id: 'text',
      tenant: 'text',
      name: 'text',
      name_key: 'text',
      email: 'text',
      email_verified: 'integer',
      password_hash: 'text?',
      role: 'text',
      root_mark: 'text?',
      groups: 'text',
      active: 'integer',
      proxy_uuid: 'text',
      proxy_uuid_expires_at: 'integer?',
      subscribed: 'integer',
      access_epoch: 'integer',
      totp_secret: 'text?',
      totp_pending: 'text?',
      totp_issued_at: 'integer?',
      totp_confirmed_at: 'integer?',
      totp_last_step: 'integer',
      totp_failures: 'integer',
      totp_locks: 'integer',
      totp_locked_until: 'integer',
      created_at: 'integer',
      updated_at: 'integer',
      last_login_at: 'integer?',
    }),
    schema.createIndex('users_email').on('users').columns(['tenant', 'email']).unique(),
    schema.createIndex('users_name_key').on('users').columns(['tenant', 'name_key']).unique(),
    schema.createIndex('users_root_mark').on('users').columns(['tenant', 'root_mark']).unique(),
    schema.createIndex('users_proxy_uuid').on('users').column('proxy_uuid').unique(),
    schema.createIndex('users_role').on('users').columns(['role', 'id']),
    schema.createIndex('users_created_at').on('users').column('created_at'),
    table(schema, 'user_counts', ['day', 'role'], {
      day: 'integer',
      role: 'text',
      total: 'integer',
      active: 'integer',
      subscribed: 'integer',
    }),
    table(schema, 'revisions', ['id'], { id: 'text', revision: 'integer' }),
    table(schema, 'recovery_codes', ['user_id', 'code_hash'], { user_id: 'text', code_hash: 'text' }),
    table(schema, 'devices', ['user_id', 'device_hash'], {
      device_hash: 'text',
      user_id: 'text',
      created_at: 'integer',
      last_seen_at: 'integer',
    }),
    schema.createIndex('devices_last_seen_at').on('devices').column('last_seen_at'),
    table(schema, 'oauth_links', ['provider', 'provider_user_id'], {
      provider: 'text',
      provider_user_id: 'text',
      user_id: 'text',
      email: 'text',
      created_at: 'integer',
    }),
    schema.createIndex('oauth_links_user_id').on('oauth_links').column('user_id'),
  ];
}

function sessionTables(schema: SchemaModule) {
  return [
    table(schema, 'sessions', ['id'], {
      id: 'text',
      user_id: 'text',
      epoch: 'integer',
      generation: 'integer',
      created_at: 'integer',
      last_seen_at: 'integer',
      access_expires_at: 'integer',
      expires_at: 'integer',
      family_expires_at: 'integer',
      address: 'text',
      user_agent: 'text',
    }),
    schema.createIndex('sessions_user_id').on('sessions').columns(['user_id', 'id']),
    schema.createIndex('sessions_expires_at').on('sessions').column('expires_at'),
    table(schema, 'session_tokens', ['token_hash'], { token_hash: 'text', session_id: 'text', expires_at: 'integer' }),
    schema.createIndex('session_tokens_session_id').on('session_tokens').column('session_id'),
    schema.createIndex('session_tokens_expires_at').on('session_tokens').column('expires_at'),
    table(schema, 'refresh_tokens', ['token_hash'], {
      token_hash: 'text',
      session_id: 'text',
      generation: 'integer',
      expires_at: 'integer',
      used_at: 'integer?',
      replacement: 'text?',
    }),
    schema.createIndex('refresh_tokens_session_id').on('refresh_tokens').column('session_id'),
    schema.createIndex('refresh_tokens_expires_at').on('refresh_tokens').column('expires_at'),
  ];
}

function flowTables(schema: SchemaModule) {
  return [
    table(schema, 'flows', ['kind', 'key'], {
      kind: 'text',
      key: 'text',
      user_id: 'text',
      email: 'text',
      data: 'text',
      attempts: 'integer',
      created_at: 'integer',
      expires_at: 'integer',
    }),
    schema.createIndex('flows_user_id').on('flows').column('user_id'),
    schema.createIndex('flows_email').on('flows').column('email'),
    schema.createIndex('flows_expires_at').on('flows').column('expires_at'),
    table(schema, 'login_failures', ['account', 'address'], {
      account: 'text',
      address: 'text',
      failures: 'integer',
      window_started_at: 'integer',
      locked_until: 'integer',
      expires_at: 'integer',
    }),
    schema.createIndex('login_failures_expires_at').on('login_failures').column('expires_at'),
    table(schema, 'counters', ['kind', 'key'], {
      kind: 'text',
      key: 'text',
      count: 'integer',
      window_started_at: 'integer',
      expires_at: 'integer',
    }),
    schema.createIndex('counters_expires_at').on('counters').column('expires_at'),
  ];
}

function subscriptionTables(schema: SchemaModule) {
  return [
    table(schema, 'subscriptions', ['id'], {
      id: 'text',
      user_id: 'text',
      external_id: 'text',
      provider: 'text',
      payment_method: 'text',
      payment_qr: 'text',
      kind: 'text',
      plan_id: 'text',
      status: 'text',
      meta: 'text',
      revision: 'integer',
      created_at: 'integer',
      updated_at: 'integer',
      expires_at: 'integer?',
      cancelled_at: 'integer?',
      event_at: 'integer',
    }),
    schema.createIndex('subscriptions_external_id').on('subscriptions').columns(['user_id', 'external_id']).unique(),
    schema.createIndex('subscriptions_status').on('subscriptions').columns(['status', 'user_id']),
    table(schema, 'billing_deliveries', ['digest'], { digest: 'text', received_at: 'integer' }),
    schema.createIndex('billing_deliveries_received_at').on('billing_deliveries').column('received_at'),
  ];
}

function administrationTables(schema: SchemaModule) {
  return [
    table(schema, 'permission_matrix', ['id'], {
      id: 'text',
      version: 'integer',
      matrix: 'text',
      updated_at: 'integer',
    }),
    table(schema, 'proxy_agents', ['id'], {
      id: 'text',
      name: 'text',
      token_hash: 'text',
      groups: 'text',
      node: 'text',
      created_at: 'integer',
    }),
    schema.createIndex('proxy_agents_token_hash').on('proxy_agents').column('token_hash'),
    table(schema, 'proxy_agent_status', ['agent_id'], {
      agent_id: 'text',
      healthy: 'integer',
      message: 'text',
      users: 'integer',
      sync_revision: 'text',
      xray: 'text',
      updated_at: 'integer',
    }),
    table(schema, 'blacklist', ['email'], { email: 'text', created_by: 'text', created_at: 'integer' }),
    table(schema, 'audit', ['id'], {
      id: 'text',
      at: 'integer',
      event: 'text',
      actor: 'text',
      subject: 'text',
      address: 'text',
      request_id: 'text',
      details: 'text',
    }),
    schema.createIndex('audit_at').on('audit').column('at'),
    schema.createIndex('audit_event').on('audit').columns(['event', 'id']),
    schema.createIndex('audit_actor').on('audit').columns(['actor', 'id']),
  ];
}

function table(schema: SchemaModule, name: string, primaryKey: readonly string[], columns: Columns) {
  let builder: CreateTableBuilder<string, string> = schema.createTable(name);
  for (const [column, given] of Object.entries(columns)) {
    const optional = given.endsWith('?');
    const type = optional ? (given.slice(0, -1) as 'text' | 'integer') : (given as 'text' | 'integer');
    builder = builder.addColumn(column, type, (definition) => (optional ? definition : definition.notNull()));
  }
  return builder.addPrimaryKeyConstraint(`${name}_key`, [...primaryKey]);
}
