import type { AuditQuery, MatrixSettings, UserQuery } from '../../accounts/contract/administration.ts';
import type { User } from '../../accounts/contract/conventions.ts';
import type {
  NewStatus,
  OwnedSubscription,
  PlanView,
  Subscription,
  SubscriptionQuery,
} from '../../accounts/contract/own-data.ts';
import type { Agent, AgentStatus, NewAgent } from '../../accounts/contract/proxy-node.ts';
import type { Invitation, NewInvitation } from '../../accounts/contract/registration.ts';
import { auth } from './accounts.ts';

/** What administrators see and change. */

export interface UserPage {
  readonly users: readonly User[];
  readonly nextCursor: string | null;
  readonly total: number;
}
export interface AuditPage {
  readonly entries: readonly {
    readonly id: string;
    readonly at: string;
    readonly event: string;
    readonly actor: string;
    readonly subject: string;
    readonly address: string;
    readonly requestId: string;
    readonly details: Readonly<Record<string, unknown>>;
  }[];
  readonly nextCursor: string | null;
}
/** Actions on one user that take nothing. `reset-mfa` needs a login from the last five minutes. */
export type UserAction = 'pause' | 'resume' | 'end-sessions' | 'reset-mfa';

const place = (id: string) => `admin/users/${encodeURIComponent(id)}`;

export const listUsers = (query: UserQuery) => auth<UserPage>('GET', 'admin/users', undefined, { query });
export const setRole = (id: string, role: string) => auth<{ user: User }>('POST', `${place(id)}/role`, { role });
/** Empty: the plan of a subscription, or the default. */
export const setPlan = (id: string, plan: string) => auth<{ user: User }>('POST', `${place(id)}/plan`, { plan });
export const actOnUser = (id: string, action: UserAction) => auth<{ user: User }>('POST', `${place(id)}/${action}`);
export const removeUser = (id: string) => auth<void>('DELETE', place(id));

export const invite = (input: NewInvitation) =>
  auth<{ invitation: Invitation; link?: string }>('POST', 'admin/invitations', input);
export const listInvitations = () =>
  auth<{ invitations: Invitation[] }>('GET', 'admin/invitations', undefined, { query: { limit: 200 } }).then(
    ({ invitations }) => invitations,
  );
export const revokeInvitation = (id: string) => auth<void>('DELETE', `admin/invitations/${encodeURIComponent(id)}`);

interface SubscriptionPage {
  readonly subscriptions: readonly OwnedSubscription[];
  readonly nextCursor: string | null;
}
export const listAllSubscriptions = (query: SubscriptionQuery) =>
  auth<SubscriptionPage>('GET', 'admin/subscriptions', undefined, { query });
export const setSubscriptionStatus = (id: string, given: NewStatus) =>
  auth<{ subscription: Subscription }>('POST', `admin/subscriptions/${encodeURIComponent(id)}/status`, given);
export const listPlans = () => auth<{ plans: PlanView[] }>('GET', 'admin/plans').then(({ plans }) => plans);

export const listAudit = (query: AuditQuery) => auth<AuditPage>('GET', 'admin/audit', undefined, { query });

export const readMatrix = () => auth<MatrixSettings>('GET', 'admin/settings');
/** Refused with status 409 when someone else has saved since. */
export const replaceMatrix = (given: MatrixSettings) => auth<MatrixSettings>('POST', 'admin/settings', given);

/** The proxy nodes with what they last reported. */
export async function listProxyNodes() {
  const [{ agents }, statuses] = await Promise.all([
    auth<{ agents: Agent[] }>('GET', 'admin/agents'),
    auth<{ agents: AgentStatus[] }>('GET', 'admin/agents/status'),
  ]);
  return agents.map((agent) => ({ agent, status: statuses.agents.find(({ id }) => id === agent.id) }));
}
/** The token is in this answer and nowhere else. */
export const createProxyNode = (given: NewAgent) => auth<{ token: string }>('POST', 'admin/agents', given);
export const removeProxyNode = (id: string) => auth<void>('DELETE', `admin/agents/${encodeURIComponent(id)}`);
