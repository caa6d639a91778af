import type { Route } from '../platform/http/surface.ts';
import type { AccountsCore } from './accounts-core.ts';
import { configurationRoutes } from './configuration-routes.ts';
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
import { createPasswordChange } from './passwords/password-change.ts';
import { passwordRoutes } from './passwords/password-routes.ts';
import { createRegistration } from './registration/registration.ts';
import { registrationRoutes } from './registration/registration-routes.ts';

/** THE TABLE of accounts (spec/accounts 4): each row names its guard. One file per group of rows. */
export function accountsRoutes(core: AccountsCore): readonly Route[] {
  const opening = createSessionOpening(core);
  const passwordCheck = createPasswordCheck(core);
  const secondFactor = createSecondFactor(core);
  const reauthentication = createReauthentication(passwordCheck, secondFactor);
  const parts = { ...core, opening, passwordCheck, secondFactor, reauthentication };
  return [
    ...registrationRoutes(core, createRegistration(core)),
    ...loginRoutes(core, createLogin(parts), createRefresh(parts)),
    ...sessionRoutes(core),
    ...mfaRoutes(core, createEnrolment(parts)),
    ...passwordRoutes(core, createPasswordChange(parts)),
    ...configurationRoutes(core),
  ];
}
