import { commandsScenario } from './accounts/commands-scenario.ts';
import { keysOfUsersScenario } from './accounts/keys-scenario.ts';
import { loginScenario } from './accounts/login-scenario.ts';
import { oauthScenario } from './accounts/oauth-scenario.ts';
import { ownAccountScenario } from './accounts/own-account-scenario.ts';
import { passkeysScenario } from './accounts/passkeys-scenario.ts';
import { passwordsScenario } from './accounts/passwords-scenario.ts';
import { proxyNodesScenario } from './accounts/proxy-nodes-scenario.ts';
import { registrationScenario } from './accounts/registration-scenario.ts';
import { secondFactorScenario } from './accounts/second-factor-scenario.ts';
import { sessionsScenario } from './accounts/sessions-scenario.ts';
import { subscriptionsScenario } from './accounts/subscriptions-scenario.ts';
import { teamsScenario } from './accounts/teams-scenario.ts';
import { deviceScenario, tokensScenario } from './accounts/tokens-scenario.ts';
import { usersScenario } from './accounts/users-scenario.ts';
import { webhooksScenario } from './accounts/webhooks-scenario.ts';
import { artifactsScenario } from './bridge/artifacts-scenario.ts';
import { attachmentsScenario } from './bridge/attachments-scenario.ts';
import { conversationsScenario } from './bridge/conversations-scenario.ts';
import { deadlinesScenario } from './bridge/deadlines-scenario.ts';
import { forwardingScenario } from './bridge/forwarding-scenario.ts';
import { jobsScenario } from './bridge/jobs-scenario.ts';
import { peopleScenario } from './bridge/people-scenario.ts';
import { permissionsScenario } from './bridge/permissions-scenario.ts';
import { retentionScenario } from './bridge/retention-scenario.ts';
import { runnersScenario } from './bridge/runners-scenario.ts';
import { schedulesScenario } from './bridge/schedules-scenario.ts';
import { sessionsScenario as bridgeSessionsScenario } from './bridge/sessions-scenario.ts';
import { startScenario } from './bridge/start-scenario.ts';
import { workbenchScenario } from './bridge/workbench-scenario.ts';
import { callsScenario } from './completions/calls-scenario.ts';
import { keysScenario, usageRetentionScenario } from './completions/keys-scenario.ts';
import { objectsScenario } from './completions/objects-scenario.ts';
import type { Scenario } from './scenario.ts';

/** All ways in which services are used while their stores fail. */
export const SCENARIOS: readonly Scenario[] = [
  jobsScenario,
  deadlinesScenario,
  bridgeSessionsScenario,
  artifactsScenario,
  retentionScenario,
  conversationsScenario,
  forwardingScenario,
  startScenario,
  workbenchScenario,
  permissionsScenario,
  schedulesScenario,
  attachmentsScenario,
  peopleScenario,
  runnersScenario,
  registrationScenario,
  loginScenario,
  sessionsScenario,
  secondFactorScenario,
  passwordsScenario,
  usersScenario,
  subscriptionsScenario,
  keysOfUsersScenario,
  proxyNodesScenario,
  commandsScenario,
  oauthScenario,
  passkeysScenario,
  tokensScenario,
  deviceScenario,
  teamsScenario,
  ownAccountScenario,
  webhooksScenario,
  keysScenario,
  usageRetentionScenario,
  callsScenario,
  objectsScenario,
];
