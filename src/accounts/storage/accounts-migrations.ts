import { type SchemaModule, sql } from 'kysely';
import type { Migration } from '../../platform/database/migrations.ts';
import { firstTables, table } from './first-tables.ts';

/** The schema of accounts, forward only: a released migration is never edited, a new one is added below. */
export const accountsMigrations: readonly Migration[] = [
  {
    id: '0001-accounts',
    statements: ({ schema }) => firstTables(schema),
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
  {
    id: '0007-access-tokens',
    statements: ({ schema }) => [
      table(schema, 'access_tokens', ['id'], {
        id: 'text',
        token_hash: 'text',
        hint: 'text',
        owner: 'text',
        name: 'text',
        scopes: 'text',
        created_at: 'integer',
        expires_at: 'integer',
        last_used_at: 'integer?',
      }),
      schema.createIndex('access_tokens_token_hash').on('access_tokens').column('token_hash').unique(),
      schema.createIndex('access_tokens_owner').on('access_tokens').columns(['owner', 'id']),
      schema.createIndex('access_tokens_expires_at').on('access_tokens').column('expires_at'),
      table(schema, 'service_accounts', ['id'], {
        id: 'text',
        name: 'text',
        plan: 'text',
        created_by: 'text',
        created_at: 'integer',
      }),
    ],
  },
  {
    id: '0008-teams',
    statements: ({ schema }) => [
      addColumn(schema, 'users', 'teams', 'integer', 0),
      addColumn(schema, 'invitations', 'team', 'text', ''),
      table(schema, 'teams', ['id'], {
        id: 'text',
        name: 'text',
        name_key: 'text',
        plan: 'text',
        budget: 'text',
        created_at: 'integer',
        updated_at: 'integer',
      }),
      schema.createIndex('teams_name_key').on('teams').column('name_key').unique(),
      table(schema, 'team_members', ['team_id', 'user_id'], {
        team_id: 'text',
        user_id: 'text',
        role: 'text',
        created_at: 'integer',
      }),
      schema.createIndex('team_members_user_id').on('team_members').column('user_id'),
    ],
  },
  {
    id: '0009-team-tokens',
    statements: ({ schema }) => [addColumn(schema, 'access_tokens', 'team', 'text', '')],
  },
  {
    id: '0010-device-logins',
    statements: ({ schema }) => [
      table(schema, 'device_logins', ['code_hash'], {
        code_hash: 'text',
        user_code_hash: 'text',
        client: 'text',
        name: 'text',
        days: 'integer?',
        scopes: 'text',
        address: 'text',
        state: 'text',
        user_id: 'text',
        interval_ms: 'integer',
        polled_at: 'integer',
        created_at: 'integer',
        expires_at: 'integer',
      }),
      schema.createIndex('device_logins_user_code').on('device_logins').column('user_code_hash').unique(),
      schema.createIndex('device_logins_user_id').on('device_logins').column('user_id'),
      schema.createIndex('device_logins_expires_at').on('device_logins').column('expires_at'),
    ],
  },
  {
    id: '0011-signing-keys',
    statements: ({ schema }) => [
      table(schema, 'signing_keys', ['id'], {
        id: 'text',
        public_key: 'text',
        private_key: 'text',
        created_at: 'integer',
      }),
      schema.createIndex('signing_keys_created_at').on('signing_keys').column('created_at'),
    ],
  },
  {
    id: '0012-webhooks',
    statements: ({ schema }) => [
      table(schema, 'webhooks', ['id'], {
        id: 'text',
        url: 'text',
        events: 'text',
        secret: 'text',
        created_by: 'text',
        created_at: 'integer',
        failing_since: 'integer?',
        disabled_at: 'integer?',
        dropped: 'integer',
      }),
      table(schema, 'webhook_deliveries', ['id'], {
        id: 'text',
        webhook_id: 'text',
        event: 'text',
        body: 'text',
        state: 'text',
        attempts: 'integer',
        detail: 'text',
        due_at: 'integer?',
        created_at: 'integer',
        ended_at: 'integer?',
      }),
      schema.createIndex('webhook_deliveries_due_at').on('webhook_deliveries').columns(['due_at', 'id']),
      schema.createIndex('webhook_deliveries_waiting').on('webhook_deliveries').columns(['webhook_id', 'due_at']),
      schema.createIndex('webhook_deliveries_webhook').on('webhook_deliveries').columns(['webhook_id', 'id']),
      schema.createIndex('webhook_deliveries_created_at').on('webhook_deliveries').column('created_at'),
    ],
  },
  {
    id: '0013-device-epochs',
    statements: ({ schema }) => [addColumn(schema, 'device_logins', 'epoch', 'integer', 0)],
  },
  {
    id: '0014-subscriptions-by-status',
    statements: ({ schema }) => [
      schema.createIndex('subscriptions_newest').on('subscriptions').columns(['status', 'id']),
      schema.createIndex('subscriptions_plan').on('subscriptions').columns(['named_plan', 'id']),
    ],
  },
  {
    id: '0015-setup-choices',
    statements: ({ schema }) => [table(schema, 'setup_choices', ['name'], { name: 'text', value: 'text' })],
  },
  {
    id: '0016-sessions-by-key',
    // PostgreSQL has no such tables.
    statements: ({ engine, query }) =>
      engine === 'sqlite' ? TABLES_BY_KEY.flatMap(rebuildByKey).map((text) => sql.raw(text).compile(query)) : [],
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

interface TableByKey {
  readonly name: string;
  readonly columns: Readonly<Record<string, string>>;
  readonly key: string;
  /** By the end of their names, the columns of further indexes. */
  readonly indexes: Readonly<Record<string, string>>;
}

/**
 * Tables of small rows that are found by their key. On SQLite the rows move into the tree of the key, so that a session check looks
 * into two trees fewer, and a login writes to four fewer.
 */
const TABLES_BY_KEY: readonly TableByKey[] = [
  {
    name: 'sessions',
    columns: {
      id: 'text not null',
      user_id: 'text not null',
      epoch: 'integer not null',
      generation: 'integer not null',
      created_at: 'integer not null',
      last_seen_at: 'integer not null',
      access_expires_at: 'integer not null',
      expires_at: 'integer not null',
      family_expires_at: 'integer not null',
      address: 'text not null',
      user_agent: 'text not null',
    },
    key: 'id',
    indexes: { user_id: 'user_id, id', expires_at: 'expires_at' },
  },
  {
    name: 'session_tokens',
    columns: {
      token_hash: 'text not null',
      session_id: 'text not null',
      expires_at: 'integer not null',
      bearer_until: 'integer default 0 not null',
    },
    key: 'token_hash',
    indexes: { session_id: 'session_id', expires_at: 'expires_at' },
  },
  {
    name: 'refresh_tokens',
    columns: {
      token_hash: 'text not null',
      session_id: 'text not null',
      generation: 'integer not null',
      expires_at: 'integer not null',
      used_at: 'integer',
      replacement: 'text',
    },
    key: 'token_hash',
    indexes: { session_id: 'session_id', expires_at: 'expires_at' },
  },
  {
    name: 'devices',
    columns: {
      device_hash: 'text not null',
      user_id: 'text not null',
      created_at: 'integer not null',
      last_seen_at: 'integer not null',
    },
    key: 'user_id, device_hash',
    indexes: { last_seen_at: 'last_seen_at' },
  },
];

function rebuildByKey({ name, columns, key, indexes }: TableByKey): readonly string[] {
  const names = Object.keys(columns).join(', ');
  const declared = Object.entries(columns).map(([column, type]) => `${column} ${type}`);
  return [
    `create table ${name}_by_key (${declared.join(', ')}, constraint ${name}_key primary key (${key})) strict, without rowid`,
    `insert into ${name}_by_key (${names}) select ${names} from ${name} order by ${key}`,
    `drop table ${name}`,
    `alter table ${name}_by_key rename to ${name}`,
    ...Object.entries(indexes).map(([end, on]) => `create index ${name}_${end} on ${name} (${on})`),
  ];
}
