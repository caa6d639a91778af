import { Type } from 'typebox';
import type { Route } from '../platform/http/surface.ts';
import type { AccountsCore } from './accounts-core.ts';
import { auditRoutes } from './administration/audit-routes.ts';
import { blacklistRoutes } from './administration/blacklist-routes.ts';
import { metricsRoutes } from './administration/metrics-routes.ts';
import { settingsRoutes } from './administration/settings-routes.ts';
import { createUserAdministration } from './administration/user-administration.ts';
import { userRoutes } from './administration/user-routes.ts';
import { billingRoutes } from './billing/billing-routes.ts';
import { closingRoutes, createClosing } from './closing.ts';
import { configurationRoutes } from './configuration-routes.ts';
import { createCredentials, credentialRoutes } from './credentials/credentials.ts';
import { keyRoutes } from './keys/key-routes.ts';
import { createLogin } from './login/login.ts';
import { loginRoutes } from './login/login-routes.ts';
import { createPasswordCheck } from './login/password-check.ts';
import { createReauthentication } from './login/reauthentication.ts';
import { createRefresh } from './login/refresh.ts';
import { createSessionOpening } from './login/session-opening.ts';
import { sessionRoutes } from './login/session-routes.ts';
import { createEnrolment } from './mfa/enrolment.ts';
import { mfaRoutes } from './mfa/mfa-routes.ts';
import { createSecondFactor } from './mfa/second-factor.ts';
import { createOauthAccounts } from './oauth/oauth-accounts.ts';
import { createOauthLogin } from './oauth/oauth-login.ts';
import { createOauthProviders } from './oauth/oauth-providers.ts';
import { oauthRoutes } from './oauth/oauth-routes.ts';
import { createPasswordChange } from './passwords/password-change.ts';
import { passwordRoutes } from './passwords/password-routes.ts';
import { agentAdministrationRoutes } from './proxy-nodes/agent-administration-routes.ts';
import { agentRoutes } from './proxy-nodes/agent-routes.ts';
import { createInvitations, invitationRoutes } from './registration/invitations.ts';
import { createRegistration } from './registration/registration.ts';
import { registrationRoutes } from './registration/registration-routes.ts';
import { createSetup } from './setup/setup.ts';
import { setupRoutes } from './setup/setup-routes.ts';
import { subscriptionRoutes } from './subscriptions/subscription-routes.ts';
import { createSubscriptions } from './subscriptions/subscriptions.ts';

const NO_QUERY = Type.Object({}, { additionalProperties: false });

/** THE TABLE of accounts (spec/accounts 4): each row names its guard. One file per group of rows. */
export function accountsRoutes(core: AccountsCore): readonly Route[] {
  return rowsOf(core).map(withStrictQuery);
}

/** A filter that is not known would show more than was asked for: where a row names no query, there is none. */
function withStrictQuery(row: Route): Route {
  const isRead = row.method === 'GET' && row.path.startsWith('/api/') && !row.path.includes('/oauth/');
  if (!isRead || row.schema?.query !== undefined) return row;
  return { ...row, schema: { ...row.schema, query: NO_QUERY } };
}

function rowsOf(core: AccountsCore): readonly Route[] {
  const opening = createSessionOpening(core);
  const passwordCheck = createPasswordCheck(core);
  const secondFactor = createSecondFactor(core);
  const reauthentication = createReauthentication({ ...core, passwordCheck, secondFactor });
  const providers = createOauthProviders(() => core.settings().oauth, core.clock);
  const ownCredentials = createCredentials({ ...core, providers });
  const parts = { ...core, opening, passwordCheck, secondFactor, reauthentication, ownCredentials };
  const administration = createUserAdministration(core);
  return [
    ...registrationRoutes(core, createRegistration(core)),
    ...invitationRoutes(core, createInvitations(core)),
    ...loginRoutes(core, createLogin(parts), createRefresh(parts)),
    ...sessionRoutes(core),
    ...mfaRoutes(core, createEnrolment(parts)),
    ...passwordRoutes(core, createPasswordChange(parts)),
    ...credentialRoutes(core, ownCredentials),
    ...closingRoutes(parts, createClosing(parts)),
    ...configurationRoutes(core),
    ...oauthRoutes(core, createOauthLogin({ ...core, providers, accounts: createOauthAccounts(core) })),
    ...subscriptionRoutes(core, createSubscriptions(core)),
    ...billingRoutes(core),
    ...keyRoutes(core),
    ...setupRoutes(core, createSetup(core)),
    ...settingsRoutes(core),
    ...userRoutes(core, administration),
    ...metricsRoutes(core),
    ...blacklistRoutes(core, administration),
    ...auditRoutes(core),
    ...agentAdministrationRoutes(core),
    ...agentRoutes(core),
  ];
}
