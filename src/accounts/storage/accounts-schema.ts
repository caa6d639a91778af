/** Rows as they are stored. Times are milliseconds since 1970, flags 1 and 0, `*_hash` the digest of a token. */

export interface UserRow {
  readonly id: string;
  readonly name: string;
  /** The name as names are compared: see `identity-names.ts`. */
  readonly name_key: string;
  /** As addresses are compared: see `email-address.ts`. */
  readonly email: string;
  readonly email_verified: number;
  readonly role: string;
  /** `root` for the one user of that role: the column is unique. */
  readonly root_mark: string | null;
  /** The plan that an administrator or an invitation gave; empty: that of a subscription, or the default one. */
  readonly plan: string;
  readonly active: number;
  /** 1 once the person may log in. Whether the e-mail address was verified is another fact. */
  readonly confirmed: number;
  /** When the account is deleted, because its owner asked for it. */
  readonly closing_at: number | null;
  readonly proxy_uuid: string;
  readonly proxy_uuid_expires_at: number | null;
  /** 1 while one of the subscriptions is active. */
  readonly subscribed: number;
  /** How many teams they are in: nothing is read for those who are in none. */
  readonly teams: number;
  /** A session counts only while it carries this number: raising it ends them all. */
  readonly access_epoch: number;
  readonly created_at: number;
  readonly updated_at: number;
  readonly last_login_at: number | null;
}

/** A user as every read finds one: with the state of the second factor, which is one of their credentials. */
export interface FoundUser extends UserRow {
  readonly totp_state: string | null;
  readonly totp_issued_at: number | null;
  readonly totp_confirmed_at: number | null;
}

export type CredentialKind = 'password' | 'totp' | 'recovery_code' | 'oauth' | 'passkey';

/** One means to prove who someone is. A subject belongs to one credential of its kind. */
export interface CredentialRow {
  readonly id: string;
  readonly user_id: string;
  readonly kind: string;
  /**
   * What finds it: the user's id (password, totp), the digest of a recovery code, `<provider> <id there>` (oauth), the
   * credential id (passkey).
   */
  readonly subject: string;
  /** The argon2 hash of a password; sealed: the secret of an authenticator app, the public key of a passkey. */
  readonly value: string;
  /** `active`, or `pending` until the first code has come. */
  readonly state: string;
  /** What its owner knows it by: the e-mail address of a linked account, the name of a passkey. */
  readonly label: string;
  /** The last time step of an authenticator app whose code was accepted; how often a passkey says it was used. */
  readonly counter: number;
  readonly created_at: number;
  /** When the first code of an authenticator app came; when a mailed token set a password, otherwise null. */
  readonly confirmed_at: number | null;
  readonly last_used_at: number | null;
}

/** How many users registered on one day (UTC, counted from 1970) and have one role, kept up with every change of a user. */
export interface UserCountRow {
  readonly day: number;
  readonly role: string;
  readonly total: number;
  readonly active: number;
  readonly subscribed: number;
}

/** Counts the changes of something that is kept in memory elsewhere. */
export interface RevisionRow {
  readonly id: string;
  readonly revision: number;
}

/** One login and, with it, one family of refresh tokens. */
export interface SessionRow {
  readonly id: string;
  readonly user_id: string;
  readonly epoch: number;
  /** Which refresh token of the family is the current one. */
  readonly generation: number;
  readonly created_at: number;
  readonly last_seen_at: number;
  /** When the newest session token ends. */
  readonly access_expires_at: number;
  /** When nothing of it can be used any more. */
  readonly expires_at: number;
  readonly family_expires_at: number;
  readonly address: string;
  readonly user_agent: string;
}

export interface SessionTokenRow {
  readonly token_hash: string;
  readonly session_id: string;
  readonly expires_at: number;
  /** Until when it counts as a bearer token; in a cookie it lasts longer. */
  readonly bearer_until: number;
}

export interface RefreshTokenRow {
  readonly token_hash: string;
  readonly session_id: string;
  readonly generation: number;
  readonly expires_at: number;
  readonly used_at: number | null;
  /** The pair that its use gave, sealed: a lost answer is given again for a few seconds. */
  readonly replacement: string | null;
}

/** One step of a flow that someone may still finish: a code, ticket, reset, exchange code, state. */
export interface FlowRow {
  readonly kind: string;
  /** The digest of a token, or the e-mail address that a code is for. */
  readonly key: string;
  readonly user_id: string;
  readonly email: string;
  /** Sealed. */
  readonly data: string;
  readonly attempts: number;
  readonly created_at: number;
  readonly expires_at: number;
}

/** How often something happened that a policy of `limiter.ts` limits, and until when it is refused. */
export interface LimitRow {
  readonly policy: string;
  readonly key: string;
  readonly count: number;
  readonly locked_until: number;
  readonly expires_at: number;
}

/** A mail that has yet to go out. */
export interface OutgoingMailRow {
  readonly id: string;
  /** Sealed: recipient, subject and text, which may hold a token. */
  readonly data: string;
  /** How often it was tried. */
  readonly attempts: number;
  /** When it is tried next; while someone tries it, when that someone is given up. */
  readonly due_at: number;
  readonly created_at: number;
}

/** An address that events are posted to. */
export interface WebhookRow {
  readonly id: string;
  readonly url: string;
  /** JSON list of the events that it wants. */
  readonly events: string;
  /** Sealed: it signs each post. */
  readonly secret: string;
  readonly created_by: string;
  readonly created_at: number;
  /** Since when no delivery has succeeded. */
  readonly failing_since: number | null;
  /** When it was switched off, after a long failure. */
  readonly disabled_at: number | null;
  /** Events that were lost because too many deliveries waited. */
  readonly dropped: number;
}

/** An event on its way to a webhook. */
export interface WebhookDeliveryRow {
  readonly id: string;
  readonly webhook_id: string;
  readonly event: string;
  readonly body: string;
  readonly state: 'waiting' | 'sent' | 'failed';
  readonly attempts: number;
  /** The outcome of the last attempt. */
  readonly detail: string;
  /** When it is tried next; during an attempt, when that attempt is given up. Null once it has ended. */
  readonly due_at: number | null;
  readonly created_at: number;
  readonly ended_at: number | null;
}

export interface DeviceRow {
  readonly device_hash: string;
  readonly user_id: string;
  readonly created_at: number;
  readonly last_seen_at: number;
}

export interface SubscriptionRow {
  readonly id: string;
  readonly user_id: string;
  readonly external_id: string;
  readonly provider: string;
  readonly payment_method: string;
  readonly payment_qr: string;
  readonly kind: string;
  /** The plan as anyone named it, the client included. */
  readonly plan_id: string;
  /** The plan as the payment webhook or an administrator named it. Only this one counts. */
  readonly named_plan: string;
  readonly status: string;
  /** JSON. */
  readonly meta: string;
  readonly revision: number;
  readonly created_at: number;
  readonly updated_at: number;
  readonly expires_at: number | null;
  readonly cancelled_at: number | null;
  /** When the newest event was sent that changed it, or when it was cancelled: an older event counts no more. */
  readonly event_at: number;
}

/** Webhooks of payments that were taken: a replay is recognised by its digest. */
export interface BillingDeliveryRow {
  readonly digest: string;
  readonly received_at: number;
}

/** One row. `matrix` is JSON: module -> role -> whether it is granted. */
export interface PermissionMatrixRow {
  readonly id: string;
  readonly version: number;
  readonly matrix: string;
  readonly updated_at: number;
}

export interface ProxyAgentRow {
  readonly id: string;
  readonly name: string;
  readonly token_hash: string;
  /** A JSON list. */
  readonly groups: string;
  /** JSON: what of address, port, server_name, path, mode, xhttp_port, tcp_port was given. */
  readonly node: string;
  readonly created_at: number;
}

export interface ProxyAgentStatusRow {
  readonly agent_id: string;
  readonly healthy: number;
  readonly message: string;
  readonly users: number;
  readonly sync_revision: string;
  /** JSON. */
  readonly xray: string;
  readonly updated_at: number;
}

/** An invitation that was not accepted yet: the row goes with its use. */
export interface InvitationRow {
  readonly id: string;
  readonly token_hash: string;
  /** Empty: anyone who has the link chooses the address. */
  readonly email: string;
  /** 1: the link went to the address and nowhere else, so it verifies the address. */
  readonly mailed: number;
  readonly role: string;
  readonly plan: string;
  /** The team that they come into; empty: none. */
  readonly team: string;
  readonly created_by: string;
  readonly created_at: number;
  readonly expires_at: number;
}

export interface TeamRow {
  readonly id: string;
  readonly name: string;
  readonly name_key: string;
  /** The plan whose limits apply to the team; empty: none. */
  readonly plan: string;
  /** JSON: `{usd, period}`; empty: none. */
  readonly budget: string;
  readonly created_at: number;
  readonly updated_at: number;
}

export interface TeamMemberRow {
  readonly team_id: string;
  readonly user_id: string;
  /** `owner` or `member`. */
  readonly role: string;
  readonly created_at: number;
}

export interface BlacklistRow {
  readonly email: string;
  readonly created_by: string;
  readonly created_at: number;
}

export interface AuditRow {
  readonly id: string;
  readonly at: number;
  readonly event: string;
  /** Who did it: a user's id, `agent:<id>`, `command`, `system`, or empty for a stranger. */
  readonly actor: string;
  /** Whom or what it was done to. */
  readonly subject: string;
  readonly address: string;
  readonly request_id: string;
  /** JSON. */
  readonly details: string;
}

/** A device that asks for a token (RFC 8628). */
export interface DeviceLoginRow {
  readonly code_hash: string;
  readonly user_code_hash: string;
  /** What the program calls itself. */
  readonly client: string;
  /** Name and lifetime of the token that it asks for. */
  readonly name: string;
  readonly days: number | null;
  /** Separated by spaces. */
  readonly scopes: string;
  readonly address: string;
  readonly state: 'pending' | 'approved' | 'denied';
  /** Who has decided; empty until then. */
  readonly user_id: string;
  /** The epoch of that user at the decision: an approval ends with the logins of its time. */
  readonly epoch: number;
  readonly interval_ms: number;
  readonly polled_at: number;
  readonly created_at: number;
  readonly expires_at: number;
}

/** A key that signs tokens for five minutes. */
export interface SigningKeyRow {
  readonly id: string;
  /** JSON (RFC 7517). */
  readonly public_key: string;
  /** Sealed. */
  readonly private_key: string;
  readonly created_at: number;
}

/** A personal access token, or one of a service account. */
export interface AccessTokenRow {
  readonly id: string;
  readonly token_hash: string;
  /** How it begins. */
  readonly hint: string;
  /** `user:<id>` or `service:<id>`. */
  readonly owner: string;
  readonly name: string;
  /** JSON. */
  readonly scopes: string;
  /** The team that all work with it is for; empty for none. */
  readonly team: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly last_used_at: number | null;
}

export interface ServiceAccountRow {
  readonly id: string;
  readonly name: string;
  /** Empty: the default plan. */
  readonly plan: string;
  readonly created_by: string;
  readonly created_at: number;
}

export interface AccountsSchema {
  users: UserRow;
  user_counts: UserCountRow;
  revisions: RevisionRow;
  sessions: SessionRow;
  session_tokens: SessionTokenRow;
  refresh_tokens: RefreshTokenRow;
  flows: FlowRow;
  credentials: CredentialRow;
  limits: LimitRow;
  outgoing_mails: OutgoingMailRow;
  webhooks: WebhookRow;
  webhook_deliveries: WebhookDeliveryRow;
  devices: DeviceRow;
  subscriptions: SubscriptionRow;
  billing_deliveries: BillingDeliveryRow;
  permission_matrix: PermissionMatrixRow;
  proxy_agents: ProxyAgentRow;
  proxy_agent_status: ProxyAgentStatusRow;
  invitations: InvitationRow;
  teams: TeamRow;
  team_members: TeamMemberRow;
  blacklist: BlacklistRow;
  audit: AuditRow;
  access_tokens: AccessTokenRow;
  service_accounts: ServiceAccountRow;
  device_logins: DeviceLoginRow;
  signing_keys: SigningKeyRow;
  setup_choices: { readonly name: string; readonly value: string };
}
