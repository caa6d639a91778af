import { Type } from 'typebox';
import { AppError } from '../platform/errors/app-error.ts';
import { type Guard, type Route, defineRoute as row } from '../platform/http/surface.ts';
import { actorOf, type UserCall, type UserCaller } from './access.ts';
import type { AccountsCore } from './accounts-core.ts';
import { createMatrixSettings, userMetrics } from './administration/metrics-and-permissions.ts';
import { createBlacklist, createUserAdministration } from './administration/user-administration.ts';
import { listAudit } from './audit.ts';
import { administrationOperations } from './contract/administration.ts';
import { loginOperations } from './contract/login.ts';
import { ownDataOperations } from './contract/own-data.ts';
import { proxyNodeOperations } from './contract/proxy-node.ts';
import { registrationOperations } from './contract/registration.ts';
import { teamOperations } from './contract/teams.ts';
import { tokenOperations } from './contract/tokens.ts';
import { createCredentials, createPasskeys } from './credentials/own-credentials.ts';
import { createDeviceLogin } from './device/device-login.ts';
import { createOwnSessions, createRefresh } from './login/kept-sessions.ts';
import { createLogin } from './login/login.ts';
import { createPasswordCheck, createReauthentication } from './login/password-check.ts';
import { createSessionOpening } from './login/session-opening.ts';
import { createEnrolment } from './mfa/enrolment.ts';
import { createSecondFactor } from './mfa/second-factor.ts';
import { createOauthAccounts } from './oauth/oauth-accounts.ts';
import { createOauthLogin } from './oauth/oauth-login.ts';
import { createOauthProviders } from './oauth/oauth-providers.ts';
import { createClosing, createProfile } from './own-account.ts';
import { createOwnKeys, listPlans } from './owners.ts';
import { createPasswordChange } from './passwords/password-change.ts';
import { describeAgent } from './proxy-nodes/agent-registry.ts';
import { createProxyNodes } from './proxy-nodes/proxy-nodes.ts';
import { createInvitations } from './registration/invitations.ts';
import { createRegistration } from './registration/registration.ts';
import { createSetup } from './setup/setup.ts';
import type { FoundUser } from './storage/accounts-schema.ts';
import { createAuditStore } from './storage/administration-stores.ts';
import { createPayments, createSubscriptions } from './subscriptions/subscriptions.ts';
import { createTeams } from './teams/teams.ts';
import { createAccessTokens, issueSignedToken } from './tokens/access-tokens.ts';
import { webhookRoutes } from './webhooks/webhook-routes.ts';

/** No body of this service needs more. A larger one, such as a password of a megabyte, is refused before it is read. */
const BODY_LIMIT = 16 * 1024;
const PROVIDER_LABELS: Readonly<Record<string, string>> = { github: 'GitHub', google: 'Google' };
const NO_QUERY = Type.Object({}, { additionalProperties: false });

/** The input and output of each row. */
const op = {
  ...registrationOperations,
  ...loginOperations,
  ...ownDataOperations,
  ...teamOperations,
  ...administrationOperations,
  ...proxyNodeOperations,
  ...tokenOperations,
};

/** THE TABLE of accounts: path, guard, operation, handler. */
export function accountsRoutes(core: AccountsCore): readonly Route[] {
  const { registration, ofPerson, ofAdministrators, ofNodes } = tables(core);
  return [...registration, ...ofPerson, ...ofAdministrators, ...webhookRoutes(core), ...ofNodes].map(withDefaults);
}

/**
 * Limits bodies, and refuses query parameters on reads whose row names none, because an ignored filter would return more
 * than the caller asked for.
 */
function withDefaults(route: Route): Route {
  const limited =
    route.body === undefined || route.bodyLimit !== undefined ? route : { ...route, bodyLimit: BODY_LIMIT };
  const isRead = route.method === 'GET' && route.path.startsWith('/api/') && !route.path.includes('/oauth/');
  if (!isRead || route.schema?.query !== undefined) return limited;
  return { ...limited, schema: { ...route.schema, query: NO_QUERY } };
}

function tables(core: AccountsCore) {
  const { access, userObjects, agentRegistry } = core;
  const anyone = access.anyone();
  const own = access.userEvenReadonly;

  const opening = createSessionOpening(core);
  const passwordCheck = createPasswordCheck(core);
  const secondFactor = createSecondFactor(core);
  const reauthentication = createReauthentication({ ...core, passwordCheck, secondFactor });
  const providers = createOauthProviders(() => core.settings().oauth, core.clock);
  const passkeys = createPasskeys(core);
  const ownCredentials = createCredentials({ ...core, providers, passkeys });
  const ownSessions = createOwnSessions(core);
  const parts = {
    ...core,
    opening,
    passwordCheck,
    secondFactor,
    reauthentication,
    ownCredentials,
    ownSessions,
    passkeys,
  };

  const register = createRegistration(core);
  const invitations = createInvitations(core);
  const setup = createSetup(core);
  const oauth = createOauthLogin({ ...core, providers, accounts: createOauthAccounts(core) });
  /** Linking adds a means of login, so only a login will do, and no access token; logging in is for everyone. */
  const linkOrLogin: Guard<UserCaller | undefined> = (head) =>
    head.query.get('link') === '1' ? access.loggedIn(head) : anyone(head);

  /** Adding a passkey is for those who have just logged in; logging in with one is for everyone. */
  const addOrLogin: Guard<UserCaller | undefined> = (head) =>
    head.query.get('add') === '1' ? access.freshLogin(head) : anyone(head);

  const registration = [
    row('GET /api/auth/methods', anyone, op.listMethods, () => ({
      providers: providers.names().map((id) => ({ id, label: PROVIDER_LABELS[id] ?? id })),
      registration: core.settings().registration,
    })),
    row('POST /api/auth/register/send', anyone, op.sendCode, ({ body, head }) => register.sendCode(body.email, head)),
    row('POST /api/auth/register/verify', anyone, op.verifyCode, (call) => register.verify(call.body, call)),
    row('POST /api/auth/register', anyone, op.register, (call) => register.register(call.body, call)),
    row('POST /api/auth/invitations/accept', anyone, op.acceptInvitation, ({ body, head }) =>
      invitations.accept(body, head),
    ),
    row('POST /api/auth/setup/options', anyone, op.readSetup, ({ body }) => setup.options(body.token)),
    row('POST /api/auth/setup', anyone, op.completeSetup, ({ body, head }) => setup.complete(body, head)),
    row('GET /api/auth/oauth/login/:provider', linkOrLogin, op.beginOauth, (call) =>
      oauth.begin(call.params.provider, call.query.link === '1' ? call.caller?.user : undefined, call),
    ),
    row(
      'GET /api/auth/oauth/callback/:provider',
      access.anyone('code', 'state', 'session_state'),
      op.finishOauth,
      (call) => oauth.finish(call.params.provider, call),
    ),
  ];

  const login = createLogin(parts);
  const refresh = createRefresh(parts);
  const enrolment = createEnrolment(parts);
  const passwords = createPasswordChange(parts);
  const subscriptions = createSubscriptions(core);
  const keys = createOwnKeys(core);
  const closing = createClosing(parts);
  const changeProfile = createProfile(parts);
  const tokens = createAccessTokens(core);
  const device = createDeviceLogin({ ...core, tokens });
  const payments = createPayments(core);
  const teams = createTeams(core);

  const ofPerson = [
    row('POST /api/auth/login', anyone, op.logIn, (call) => login.withPassword(call.body, call)),
    row('POST /api/auth/mfa/verify', anyone, op.proveSecondFactor, (call) => login.withTicket(call.body, call)),
    row('POST /api/auth/passkeys/options', addOrLogin, op.passkeyOptions, async ({ body, caller, head, reply }) =>
      caller === undefined
        ? login.passkeyOptions(body, head)
        : { publicKey: await passkeys.addOptions({ caller, head, reply }) },
    ),
    row('POST /api/auth/passkeys/verify', addOrLogin, op.verifyPasskey, async ({ body, caller, head, reply }) =>
      caller === undefined
        ? login.withPasskey(body, { head, reply })
        : { credential: await passkeys.add({ ...body.credential, name: body.name }, { caller, head, reply }) },
    ),
    row('POST /api/auth/token/exchange', anyone, op.exchangeCode, (call) => login.withExchangeCode(call.body, call)),
    row('POST /api/auth/token/refresh', anyone, op.refresh, (call) => refresh(call.body.refresh_token, call)),
    row('POST /api/auth/refresh', anyone, op.refreshAlias, (call) => refresh(call.body.refresh_token, call)),

    row('GET /api/auth/session', access.user, op.readSession, ({ caller }) => ownSessions.current(caller.user)),
    row('DELETE /api/auth/session', own, op.logOut, ownSessions.logOut),
    row('GET /api/auth/sessions', access.user, op.listSessions, async ({ caller }) => ({
      sessions: await ownSessions.list(caller.user),
    })),
    row('DELETE /api/auth/sessions', own, op.endOtherSessions, ownSessions.endOthers),
    row('DELETE /api/auth/sessions/:id', own, op.endSession, (call) => ownSessions.end(call.params.id, call)),

    row('POST /api/auth/mfa/totp/provision', own, op.provisionTotp, (call) => enrolment.provision(call.body, call)),
    row('POST /api/auth/mfa/totp/verify', own, op.confirmTotp, (call) => enrolment.confirm(call.body, call)),
    row('POST /api/auth/mfa/disable', own, op.disableMfa, (call) => enrolment.disable(call.body, call)),
    row('GET /api/auth/mfa/status', access.user, op.readMfaStatus, enrolment.status),
    row('POST /api/auth/mfa/recovery-codes', own, op.renewRecoveryCodes, (call) =>
      enrolment.renewRecoveryCodes(call.body, call),
    ),

    row('POST /api/auth/password/change', own, op.changePassword, (call) => passwords.change(call.body, call)),
    row('POST /api/auth/password/reset', own, op.startReset, (call) => passwords.startReset(call.body?.email, call)),
    row('POST /api/auth/password/reset/confirm', own, op.confirmReset, (call) =>
      passwords.confirmReset(call.body, call),
    ),
    row('POST /api/auth/password/forgot', anyone, op.startForgot, ({ body, head }) =>
      passwords.startForgot(body.email, head),
    ),
    row('POST /api/auth/password/forgot/confirm', anyone, op.confirmForgot, (call) =>
      passwords.confirmForgot(call.body, call),
    ),

    // A login from the last five minutes is needed even to see them.
    row('GET /api/auth/credentials', access.freshLogin, op.listCredentials, async ({ caller }) => ({
      credentials: await ownCredentials.list(caller.user.id),
    })),
    row('DELETE /api/auth/credentials/:id', access.freshLogin, op.removeCredential, (call) =>
      ownCredentials.remove(call.params.id, call),
    ),

    row('GET /api/auth/subscriptions', access.user, op.listSubscriptions, ({ caller }) =>
      subscriptions.list(caller.user.id),
    ),
    row('POST /api/auth/subscriptions', access.user, op.claimSubscription, (call) =>
      subscriptions.claim(call.body, call),
    ),
    row('POST /api/auth/subscriptions/cancel', access.user, op.cancelSubscription, (call) =>
      subscriptions.cancel(call.body.externalId, call),
    ),
    // Signed by the payment system.
    row('POST /api/billing/webhook', anyone, op.receivePayment, ({ body, head }) => payments.receive(body, head)),

    // Names of teams are groups that other apps may trust: only administrators create and change teams.
    row('GET /api/auth/teams', access.user, op.listTeams, (call) => teams.list(call.query, call)),
    row('POST /api/auth/teams', access.adminOnly, op.createTeam, (call) => teams.create(call.body, call)),
    row('PATCH /api/auth/teams/:id', access.adminOnly, op.changeTeam, (call) =>
      teams.change(call.params.id, call.body, call),
    ),
    row('DELETE /api/auth/teams/:id', access.adminOnly, op.removeTeam, (call) => teams.remove(call.params.id, call)),
    // Owners of the team and administrators; members remove themselves.
    row('GET /api/auth/teams/:id/members', access.user, op.listMembers, (call) =>
      teams.members(call.params.id, call.query, call),
    ),
    row('POST /api/auth/teams/:id/members', access.user, op.addMember, (call) =>
      teams.put(call.params.id, call.body, call),
    ),
    row('DELETE /api/auth/teams/:id/members/:user', access.user, op.removeMember, (call) =>
      teams.drop(call.params.id, call.params.user, call),
    ),

    // A key outlives the session that creates it.
    row('POST /api/auth/keys', access.freshUser, op.createKey, (call) => keys.create(call.body, call)),
    row('GET /api/auth/keys', access.user, op.listKeys, keys.list),
    row('POST /api/auth/keys/:id/rotate', access.freshUser, op.rotateKey, (call) =>
      keys.rotate(call.params.id, call.body, call),
    ),
    row('DELETE /api/auth/keys/:id', access.user, op.removeKey, (call) => keys.remove(call.params.id, call)),

    // A token outlives the session that creates it, too, and no token creates another.
    row('POST /api/auth/tokens', access.freshUser, op.createAccessToken, (call) => tokens.create(call.body, call)),
    row('GET /api/auth/tokens', access.user, op.listAccessTokens, tokens.list),
    row('DELETE /api/auth/tokens/:id', access.user, op.revokeAccessToken, (call) =>
      tokens.remove(call.params.id, call),
    ),

    // For five minutes, verifiable elsewhere. It opens the bridge and completions, never accounts.
    row('POST /api/auth/token/jwt', access.principal, op.issueSignedToken, ({ body = {}, caller }) =>
      issueSignedToken(core.signedTokens, caller, body),
    ),
    row('GET /.well-known/jwks.json', anyone, op.readKeySet, core.signedTokens.keySet),

    // A program without a browser requests a token, and its user approves with a login from the last five minutes.
    row('POST /api/auth/device/code', anyone, op.beginDeviceLogin, ({ body, head }) => device.begin(body ?? {}, head)),
    row('POST /api/auth/device/token', anyone, op.pollDeviceLogin, ({ body, head }) => device.poll(body, head)),
    row('GET /api/auth/device/approval/:code', access.freshUser, op.showDeviceRequest, (call) =>
      device.show(call.params.code, call),
    ),
    row('POST /api/auth/device/approval/:code', access.freshUser, op.decideDeviceRequest, (call) =>
      device.decide(call.params.code, call.body, call),
    ),

    row('PATCH /api/auth/profile', access.loggedIn, op.changeProfile, (call) => changeProfile(call.body, call)),
    row('GET /api/auth/export', access.user, op.exportData, async (call) => {
      const exported = await closing.exportOf(call);
      // The person may have been paused, or logged out, while the data was read.
      await access.user(call.head);
      return exported;
    }),
    row('POST /api/auth/delete', own, op.closeAccount, (call) => closing.begin(call.body?.password, call)),
    row('DELETE /api/auth/delete', own, op.keepAccount, closing.undo),
    // Apps call this path: it answers 501 to callers who are logged in.
    row('POST /api/auth/config/sync', access.user, op.syncConfiguration, () => {
      throw new AppError('NOT_IMPLEMENTED');
    }),
  ];

  const administration = createUserAdministration(core);
  const blacklist = createBlacklist(core);
  const matrix = createMatrixSettings(core);
  const auditStore = createAuditStore(core.database);
  const seen = async (user: FoundUser, { caller }: UserCall) => ({
    user: (await userObjects.describeFor(caller.user, [user]))[0],
  });
  const may = access.adminWith;
  const mayPause = may('admin.users.pause.write');
  const users = '/api/auth/admin/users' as const;

  const ofAdministrators = [
    row(`GET ${users}`, may('admin.users.list.read'), op.listUsers, async ({ caller, query }) => {
      const { rows, ...page } = await administration.list(query);
      return { users: await userObjects.describeFor(caller.user, rows), ...page };
    }),
    row(`POST ${users}`, may('admin.users.role.write'), op.createUser, async (call) =>
      seen(await administration.create(call.body, actorOf(call)), call),
    ),
    row(`POST ${users}/:id/role`, may('admin.users.role.write'), op.setRole, async (call) =>
      seen(await administration.setRole(call.params.id, call.body.role, actorOf(call)), call),
    ),
    row(`POST ${users}/:id/plan`, access.adminOnly, op.setPlan, async (call) =>
      seen(await administration.setPlan(call.params.id, call.body.plan, actorOf(call)), call),
    ),
    row(`POST ${users}/:id/pause`, mayPause, op.pauseUser, async (call) =>
      seen(await administration.pause(call.params.id, actorOf(call)), call),
    ),
    row(`POST ${users}/:id/resume`, may('admin.users.resume.write'), op.resumeUser, async (call) =>
      seen(await administration.resume(call.params.id, actorOf(call)), call),
    ),
    // The permission to pause includes it, because a pause ends the sessions too.
    row(`POST ${users}/:id/end-sessions`, mayPause, op.endSessionsOfUser, async (call) =>
      seen(await administration.endSessions(call.params.id, actorOf(call)), call),
    ),
    row(`POST ${users}/:id/reset-mfa`, access.freshAdmin, op.resetMfa, async (call) =>
      seen(await administration.resetMfa(call.params.id, actorOf(call)), call),
    ),
    row(`DELETE ${users}/:id`, may('admin.users.delete.write'), op.removeUser, (call) =>
      administration.remove(call.params.id, actorOf(call)),
    ),
    row(`GET ${users}/metrics`, may('admin.users.metrics.read'), op.readMetrics, () => userMetrics(core)),

    row('POST /api/auth/admin/invitations', may('admin.users.role.write'), op.invite, (call) =>
      invitations.create(call.body, actorOf(call)),
    ),
    row('GET /api/auth/admin/invitations', may('admin.users.list.read'), op.listInvitations, ({ query }) =>
      invitations.list(query),
    ),
    row('DELETE /api/auth/admin/invitations/:id', may('admin.users.role.write'), op.revokeInvitation, (call) =>
      invitations.revoke(call.params.id, actorOf(call)),
    ),

    row('POST /api/auth/admin/services', access.freshAdmin, op.createService, (call) =>
      tokens.services.create(call.body, actorOf(call)),
    ),
    row('GET /api/auth/admin/services', access.adminOnly, op.listServices, tokens.services.list),
    row('DELETE /api/auth/admin/services/:id', access.adminOnly, op.removeService, (call) =>
      tokens.services.remove(call.params.id, actorOf(call)),
    ),
    row('POST /api/auth/admin/services/:id/tokens', access.freshAdmin, op.createServiceToken, (call) =>
      tokens.services.createToken(call.params.id, call.body, actorOf(call)),
    ),
    row('GET /api/auth/admin/services/:id/tokens', access.adminOnly, op.listServiceTokens, (call) =>
      tokens.services.listTokens(call.params.id),
    ),
    row('DELETE /api/auth/admin/services/:id/tokens/:token', access.adminOnly, op.revokeServiceToken, (call) =>
      tokens.services.revokeToken(call.params.id, call.params.token, actorOf(call)),
    ),

    row('GET /api/auth/admin/settings', may('admin.settings.read'), op.readSettings, matrix.read),
    row('POST /api/auth/admin/settings', may('admin.settings.write'), op.replaceSettings, (call) =>
      matrix.replace(call.body, call),
    ),
    row('GET /api/auth/admin/blacklist', may('admin.blacklist.read'), op.listBlacklist, ({ query }) =>
      blacklist.list(query),
    ),
    row('POST /api/auth/admin/blacklist', may('admin.blacklist.write'), op.block, (call) =>
      administration.block(call.body.email, actorOf(call)),
    ),
    row('DELETE /api/auth/admin/blacklist/:email', may('admin.blacklist.write'), op.unblock, (call) =>
      blacklist.remove(call.params.email, call),
    ),
    row('GET /api/auth/admin/audit', may('admin.audit.read'), op.listAudit, ({ query }) =>
      listAudit(auditStore, query),
    ),
    row('GET /api/auth/admin/subscriptions', may('admin.users.list.read'), op.listAllSubscriptions, (call) =>
      subscriptions.listAll(call.query),
    ),
    row('GET /api/auth/admin/plans', may('admin.users.list.read'), op.listPlans, () => listPlans(core.settings())),
    row('POST /api/auth/admin/subscriptions/:id/status', access.adminOnly, op.setSubscriptionStatus, (call) =>
      subscriptions.setStatus(call.params.id, call.body, call),
    ),
  ];

  if (!core.settings().proxy_nodes) return { registration, ofPerson, ofAdministrators, ofNodes: [] };
  const nodes = createProxyNodes(core);
  const maySeeAgents = may('admin.agents.status.read');
  const ofNodes = [
    row(`POST ${users}/:id/renew-uuid`, may('admin.users.renew_uuid.write'), op.renewUuid, async (call) =>
      seen(await administration.renewUuid(call.params.id, call.body ?? {}, actorOf(call)), call),
    ),
    row('GET /api/auth/admin/agents/status', maySeeAgents, op.readStatuses, nodes.statuses),
    row('GET /api/admin/agents/status', maySeeAgents, op.readStatusesAlias, nodes.statuses),
    row('GET /api/auth/admin/agents', maySeeAgents, op.listAgents, async () => ({
      agents: (await agentRegistry.list()).map(describeAgent),
    })),
    row('POST /api/auth/admin/agents', access.adminOnly, op.createAgent, async (call) => {
      const { agent, token } = await agentRegistry.create(call.body, actorOf(call));
      return { agent: describeAgent(agent), token };
    }),
    row('DELETE /api/auth/admin/agents/:id', access.adminOnly, op.removeAgent, (call) =>
      agentRegistry.revoke(call.params.id, actorOf(call)),
    ),
    row('GET /api/agent-server/v1/nodes', access.user, op.listNodes, nodes.list),
    row('GET /api/agent-server/v1/users', access.agent, op.listClients, nodes.sendClients),
    row('POST /api/agent-server/v1/status', access.agent, op.reportStatus, ({ body, caller }) =>
      nodes.report(body, caller),
    ),
  ];
  return { registration, ofPerson, ofAdministrators, ofNodes };
}
