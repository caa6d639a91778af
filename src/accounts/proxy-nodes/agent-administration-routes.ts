import { type Static, Type } from 'typebox';
import type { Call, Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { Agent, AgentStatus, NewAgent } from '../contract/proxy-node.ts';
import { BODY_LIMIT } from '../limits.ts';
import { describeAgent, type RegistryActor } from './agent-registry.ts';
import { describeStatus } from './agent-status.ts';

const Statuses = Type.Object({ agents: Type.Array(AgentStatus) });
const Agents = Type.Object({ agents: Type.Array(Agent) });
const Created = Type.Object({ agent: Agent, token: Type.String({ description: 'Shown this once.' }) });

type Parts = Pick<AccountsCore, 'access' | 'agents' | 'agentRegistry' | 'clock'>;

/** Agents as administrators see and make them. */
export function agentAdministrationRoutes({ access, agents, agentRegistry, clock }: Parts): readonly Route[] {
  const mayRead = access.adminWith('admin.agents.status.read');

  const statusAt = (path: string, summary: string): Route<UserCaller> => ({
    method: 'GET',
    path,
    guard: mayRead,
    summary,
    schema: { response: { 200: Statuses } },
    async handle() {
      const [registered, reports] = await Promise.all([agentRegistry.list(), agents.reports()]);
      const byId = new Map(reports.map((row) => [row.agent_id, row]));
      const now = clock.now();
      return { agents: registered.map((agent) => describeStatus(agent, byId.get(agent.id), now)) };
    },
  });

  const rows: readonly Route<UserCaller>[] = [
    statusAt('/api/auth/admin/agents/status', 'How the agents of the proxy nodes stand.'),
    statusAt('/api/admin/agents/status', 'The same as /api/auth/admin/agents/status.'),
    {
      method: 'GET',
      path: '/api/auth/admin/agents',
      guard: mayRead,
      summary: 'The agents of proxy nodes that are registered.',
      schema: { response: { 200: Agents } },
      handle: async () => ({ agents: (await agentRegistry.list()).map(describeAgent) }),
    },
    {
      method: 'POST',
      path: '/api/auth/admin/agents',
      guard: access.adminOnly,
      summary: 'Registers an agent, and shows its token, once.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: NewAgent, response: { 201: Created } },
      async handle(call) {
        const { agent, token } = await agentRegistry.create(call.body as Static<typeof NewAgent>, actorOf(call));
        call.reply.code(201);
        return { agent: describeAgent(agent), token };
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/admin/agents/:id',
      guard: access.adminOnly,
      summary: 'Removes an agent; its token stops working at once.',
      schema: { response: { 204: Type.Null() } },
      handle: (call) => agentRegistry.revoke(call.params.id ?? '', actorOf(call)),
    },
  ];
  return rows;
}

function actorOf({ caller, head }: Call<UserCaller>): RegistryActor {
  return { id: caller.user.id, head };
}
