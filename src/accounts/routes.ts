import type { Route } from '../platform/http/surface.ts';
import type { AccountsCore } from './accounts-core.ts';
import { configurationRoutes } from './configuration-routes.ts';
import { sessionRoutes } from './login/session-routes.ts';
import { createRegistration } from './registration/registration.ts';
import { registrationRoutes } from './registration/registration-routes.ts';

/** THE TABLE of accounts (spec/accounts 4): each row names its guard. One file per group of rows. */
export function accountsRoutes(core: AccountsCore): readonly Route[] {
  return [...registrationRoutes(core, createRegistration(core)), ...sessionRoutes(core), ...configurationRoutes(core)];
}
