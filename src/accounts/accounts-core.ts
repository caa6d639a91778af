import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { type CallbackNetwork, systemCallbackNetwork } from '../platform/callbacks/callback-post.ts';
import type { Database } from '../platform/database/database.ts';
import type { WakeUps } from '../platform/database/postgres/wake-ups.ts';
import { originAllowed } from '../platform/http/cross-origin.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import { withoutSlash } from '../platform/network-address/ip-address.ts';
import { createBatcher } from '../platform/queue/batcher.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import type { IsBreached } from '../platform/secrets/password-filter.ts';
import type { SecretBox } from '../platform/secrets/secret-keys.ts';
import { type AccountsAccess, createAccountsAccess } from './access.ts';
import { type Audit, createAudit } from './audit.ts';
import { createFlows, type Flows } from './flows.ts';

import { createLimiter, type Limiter } from './limiter/limiter.ts';
import { createKnownSessions, createSessionCheck, type SeenSession, type SessionCheck } from './login/session-check.ts';
import { createMailPost, type MailPost } from './mail/mail-post.ts';
import type { Mailer } from './mail/messages.ts';
import { type CompletionKeys, createOwners, type Owners } from './owners.ts';
import { createPasswordHasher, type PasswordHasher } from './passwords/passwords.ts';
import { type AgentRegistry, createAgentRegistry } from './proxy-nodes/agent-registry.ts';
import type { AccountsSettings } from './settings.ts';
import { createSetupChoices, type SetupChoices } from './setup/setup-choices.ts';
import type { AccountsSchema } from './storage/accounts-schema.ts';
import {
  type BlacklistStore,
  type ClientListStore,
  createAuditStore,
  createBlacklistStore,
  createClientListStore,
  createPermissionStore,
  createProxyAgentStore,
  type ProxyAgentStore,
} from './storage/administration-stores.ts';
import { type CredentialStore, createCredentialStore } from './storage/credential-store.ts';
import { createFlowStore, type FlowStore } from './storage/expiring-stores.ts';
import { type ChangedIds, watchWrites } from './storage/guarded-writes.ts';
import { createLimitStore } from './storage/limit-store.ts';
import { createWebhookStore } from './storage/outgoing-stores.ts';
import { createSessionStore, type SessionStore } from './storage/session-store.ts';
import { createSubscriptionStore, type SubscriptionStore } from './storage/subscription-store.ts';
import { createTeamStore, type TeamStore } from './storage/team-store.ts';
import { type AccessTokenStore, createAccessTokenStore, createCredentialCheckStore } from './storage/token-stores.ts';
import { createUserAdministrationStore, type UserAdministrationStore } from './storage/user-administration-store.ts';
import { createOwnerStore, createUserStore, type UserStore } from './storage/user-store.ts';
import { createIdentities, type Identities } from './tokens/identities.ts';
import { createSignedTokens, type SignedTokens } from './tokens/signed-tokens.ts';
import { createUserObjects, type UserObjects } from './user-object.ts';
import { createWebhookPost, type WebhookPost } from './webhooks/webhook-post.ts';

export interface AccountsOptions extends Runtime {
  readonly settings: AccountsSettings;
  /** Messages between instances. Undefined: no other shares the database. */
  readonly wakeUps?: WakeUps | undefined;
  /** How long audit records are kept, in milliseconds; 0: for ever. */
  readonly auditRetentionMs: number;
  readonly database: Database<AccountsSchema>;
  readonly secretBox: SecretBox;
  readonly dataDirectory: string;
  /** The address of the listener, once it is open: what users call when no public address is configured. */
  ownUrl(): string;
  /** Replaces the argon2id hasher: tests that are not about hashing pass a fast one. */
  readonly passwords?: PasswordHasher;
  /** Hands mails over instead of SMTP and the outbox folder. */
  readonly mailer?: Mailer;
  /** How webhooks reach their receivers; the system's network unless given. */
  readonly network?: CallbackNetwork;
  /** The keys of users, while the completions service runs beside this one. */
  completionKeys?(): CompletionKeys | undefined;
}

/** What every part uses. */
export interface BasePort extends Runtime {
  /** As they are now: some change while the program runs. */
  settings(): AccountsSettings;
  readonly setupChoices: SetupChoices;
  readonly database: Database<AccountsSchema>;
}

/** Users, and what belongs to them. */
export interface PeoplePort {
  readonly users: UserStore;
  readonly userAdministration: UserAdministrationStore;
  readonly userObjects: UserObjects;
  readonly subscriptions: SubscriptionStore;
  readonly teams: TeamStore;
  readonly blacklist: BlacklistStore;
  /** The owners of keys, as other services see them. */
  readonly owners: Owners;
  completionKeys(): CompletionKeys | undefined;
  readonly clientList: ClientListStore;
  readonly agents: ProxyAgentStore;
  readonly agentRegistry: AgentRegistry;
}

/** What proves who someone is, and how often it may be tried. */
export interface CredentialsPort {
  readonly credentials: CredentialStore;
  readonly passwords: PasswordHasher;
  /** Whether a password is known from breaches, by the filter that the operator supplies. */
  readonly isBreached: IsBreached;
  readonly limiter: Limiter;
  readonly flows: Flows;
  readonly flowStore: FlowStore;
  readonly secretBox: SecretBox;
  readonly accessTokens: AccessTokenStore;
  readonly identities: Identities;
  readonly signedTokens: SignedTokens;
}

/** Login sessions, the guards that check them, and the addresses under which browsers reach this program. */
export interface SessionsPort {
  readonly sessions: SessionStore;
  readonly checkSession: SessionCheck;
  readonly access: AccountsAccess;
  /** Whether cookies may only travel encrypted. */
  cookiesAreSecure(head: RequestHead): boolean;
  /** Whether the page that sent a request may call us and read the response. */
  originAllowed(head: Pick<RequestHead, 'headers'>): boolean;
  /** Under which users reach this program, without a slash at the end. */
  publicUrl(): string;
  /** The web console that logins return to, without a slash at the end. */
  frontendUrl(): string;
}

/** Mails to people, notices to the operator, and events to other programs. */
export interface PostPort {
  readonly mail: MailPost;
  readonly webhooks: WebhookPost;
  readonly audit: Audit;
}

/** The shared parts of accounts: four ports and their base. Each module names the ports that it needs. */
export interface AccountsCore extends BasePort, PeoplePort, CredentialsPort, SessionsPort, PostPort {
  stop(): Promise<void>;
}

const SEEN_CAPACITY = 10_000;
const SEEN_BATCH = 200;
const SEEN_DELAY_MS = 1000;
/** Where several instances share a database, a change made elsewhere counts here after this long. */
const SHARED_FRESH_MS = 1000;

/** The topic of messages between instances about people, logins and tokens. */
const PEOPLE_CHANGED = 'people';
const ID_FORM = /^[a-z]{2,4}_[a-z0-9]{26}$/;

/** Returns the ids to send to other instances, without other values, which may be secrets. An empty id means everyone. */
function subjectsOf(ids: ChangedIds): readonly string[] {
  const named = ids === 'all' ? [] : [...ids].filter((id): id is string => ID_FORM.test(String(id)));
  return named.length === 0 ? [''] : named;
}

export function createAccountsCore(
  options: AccountsOptions,
  settings: () => AccountsSettings,
  isBreached: IsBreached,
  setupChoices: SetupChoices = createSetupChoices(options.database),
): AccountsCore {
  const { secretBox, clock, randomness, makeId, logger, ownUrl } = options;
  const database = watchWrites(options.database, (ids) => {
    peopleChanged(ids);
    for (const subject of subjectsOf(ids)) options.wakeUps?.send(PEOPLE_CHANGED, subject);
  });
  options.wakeUps?.on(PEOPLE_CHANGED, (id) => {
    peopleChanged(id === '' ? 'all' : new Set([id]));
    if (id === '') owners.forgetPlans();
    else void owners.refresh(id);
  });
  function peopleChanged(ids: ChangedIds): void {
    if (ids === 'all') userObjects.matrixChanged();
    knownSessions?.changed(ids);
    identities.changed(ids);
  }
  const isShared = database.engine === 'postgres';
  const freshMs = isShared ? SHARED_FRESH_MS : Number.POSITIVE_INFINITY;
  // Not kept if several instances share the database: a login that another instance ended must be refused immediately.
  const knownSessions = isShared ? undefined : createKnownSessions(clock);
  const users = createUserStore(database);
  const owners = createOwners({
    store: createOwnerStore(database),
    settings,
    clock,
    freshMs,
    onError: (error) => logger.warn({ err: error }, 'an owner of keys was not read'),
  });
  const sessions = createSessionStore(database);
  const agents = createProxyAgentStore(database);
  const flowStore = createFlowStore(database);
  const audit = createAudit({ store: createAuditStore(database), clock, makeId });
  const agentRegistry = createAgentRegistry({ database, store: agents, audit, settings, clock, randomness });
  const teams = createTeamStore(database);
  const userObjects = createUserObjects({
    store: createPermissionStore(database),
    limits: createLimitStore(database),
    teams,
    clock,
    isShared,
  });
  const mail = createMailPost({
    database,
    secretBox,
    settings: () => settings().smtp,
    language: () => settings().mail_language,
    outboxFolder: join(options.dataDirectory, 'outbox'),
    mailer: options.mailer,
    clock,
    makeId,
    logger,
  });
  const webhooks = createWebhookPost({
    database,
    store: createWebhookStore(database),
    secretBox,
    network: options.network ?? systemCallbackNetwork,
    allow: settings().webhook_allow,
    users,
    audit,
    mail,
    clock,
    makeId,
    logger,
  });
  const seen = createBatcher<SeenSession>({
    capacity: SEEN_CAPACITY,
    maxBatch: SEEN_BATCH,
    maxDelayMs: SEEN_DELAY_MS,
    waitsAgain: true,
    // Written to the unwatched database, because a use changes no decision about a login.
    write: async (batch) => void (await options.database.write(batch.map(sessions.touch))),
    clock,
    onDropped: () => undefined,
  });
  const checkSession = createSessionCheck({ store: sessions, known: knownSessions, settings, clock, seen });
  const accessTokens = createAccessTokenStore(database);
  const used = createBatcher<{ readonly id: string; readonly now: number }>({
    capacity: SEEN_CAPACITY,
    maxBatch: SEEN_BATCH,
    maxDelayMs: SEEN_DELAY_MS,
    waitsAgain: true,
    write: async (batch) => void (await options.database.write(batch.map(accessTokens.touch))),
    clock,
    onDropped: () => undefined,
  });
  const publicUrl = () => withoutSlash(settings().public_url === '' ? ownUrl() : settings().public_url);
  const signedTokens = createSignedTokens({ database, secretBox, publicUrl, clock, makeId });
  const identities = createIdentities({
    checkSession,
    tokens: accessTokens,
    signed: signedTokens,
    credentials: createCredentialCheckStore(database),
    owners,
    settings,
    matrix: userObjects.matrix,
    publicUrl,
    clock,
    freshMs,
    used,
    onError: (error) => logger.warn({ err: error }, 'a login or token was not looked at'),
  });

  return {
    ...options,
    database,
    accessTokens,
    identities,
    signedTokens,
    settings,
    setupChoices,
    isBreached,
    completionKeys: () => options.completionKeys?.(),
    publicUrl,
    frontendUrl: () => (settings().frontend_url === '' ? publicUrl() : withoutSlash(settings().frontend_url)),
    originAllowed: (head) => originAllowed(head, settings().allowed_origins, [URL.parse(publicUrl())?.origin ?? '']),
    cookiesAreSecure: (head) => head.secure || publicUrl().startsWith('https:'),
    owners,
    users,
    userAdministration: createUserAdministrationStore(database, owners.refresh),
    sessions,
    subscriptions: createSubscriptionStore(database, owners.refresh),
    teams,
    blacklist: createBlacklistStore(database),
    agents,
    agentRegistry,
    clientList: createClientListStore(database),
    flowStore,
    flows: createFlows({ store: flowStore, secretBox, clock, randomness }),
    audit,
    mail,
    webhooks,
    credentials: createCredentialStore(database),
    limiter: createLimiter(database, clock),
    // Two more than there are cores, so that no core is idle between two hashes.
    passwords: options.passwords ?? createPasswordHasher({ concurrency: availableParallelism() + 2 }),
    userObjects,
    checkSession,
    access: createAccountsAccess({
      checkSession,
      identities,
      users,
      agents: agentRegistry,
      matrix: userObjects.matrix,
      publicUrl,
      clock,
    }),
    async stop() {
      await webhooks.stop();
      await mail.stop();
      await identities.stop();
      await seen.close();
      await used.close();
    },
  };
}
