import type { CreateTableBuilder, SchemaModule } from 'kysely';

/** Columns by name; a `?` after the type says that there may be nothing in it. */
type Columns = Readonly<Record<string, 'text' | 'text?' | 'integer' | 'integer?'>>;

/** The tables of release 0.1.0, which its first migration creates. */
export function firstTables(schema: SchemaModule) {
  return [
    ...userTables(schema),
    ...sessionTables(schema),
    ...flowTables(schema),
    ...subscriptionTables(schema),
    ...administrationTables(schema),
  ];
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

export function table(schema: SchemaModule, name: string, primaryKey: readonly string[], columns: Columns) {
  let builder: CreateTableBuilder<string, string> = schema.createTable(name);
  for (const [column, given] of Object.entries(columns)) {
    const optional = given.endsWith('?');
    const type = optional ? (given.slice(0, -1) as 'text' | 'integer') : (given as 'text' | 'integer');
    builder = builder.addColumn(column, type, (definition) => (optional ? definition : definition.notNull()));
  }
  return builder.addPrimaryKeyConstraint(`${name}_key`, [...primaryKey]);
}
