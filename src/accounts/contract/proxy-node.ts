import { type Static, Type } from 'typebox';
import { Nothing } from './conventions.ts';

/** One node as a proxy client needs it. */
export const ProxyNode = Type.Object({
  name: Type.String(),
  address: Type.String(),
  port: Type.Integer(),
  users: Type.Array(Type.String({ description: 'The caller’s own proxy UUID.' })),
  transport: Type.String(),
  path: Type.String(),
  mode: Type.String(),
  security: Type.String(),
  flow: Type.String(),
  server_name: Type.String(),
  xhttp_port: Type.Integer(),
  tcp_port: Type.Integer(),
  uri_scheme_xhttp: Type.String(),
  uri_scheme_tcp: Type.String(),
});

export type ProxyNode = Static<typeof ProxyNode>;

/** What an agent reports; members that are not named here are ignored. */
export const AgentReport = Type.Object({
  agentId: Type.String({ maxLength: 200 }),
  healthy: Type.Boolean(),
  message: Type.Optional(Type.String()),
  users: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  syncRevision: Type.Optional(Type.String({ maxLength: 200 })),
  xray: Type.Optional(
    Type.Object({
      running: Type.Optional(Type.Boolean()),
      clients: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
      lastSync: Type.Optional(Type.Union([Type.String({ maxLength: 64 }), Type.Null()])),
    }),
  ),
});

export type AgentReport = Static<typeof AgentReport>;

export const AgentStatus = Type.Object({
  id: Type.String(),
  name: Type.String(),
  groups: Type.Array(Type.String()),
  healthy: Type.Boolean(),
  message: Type.String(),
  users: Type.Integer(),
  syncRevision: Type.String(),
  updatedAt: Type.Union([Type.String(), Type.Null()]),
  stale: Type.Boolean({ description: 'The node has not reported for three minutes.' }),
  xray: Type.Object({
    running: Type.Boolean(),
    clients: Type.Integer(),
    lastSync: Type.Union([Type.String(), Type.Null()]),
  }),
});

export type AgentStatus = Static<typeof AgentStatus>;

const port = Type.Optional(Type.Integer({ minimum: 1, maximum: 65_535 }));
const word = (maxLength: number, description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength, pattern: '^[!-~]*$', description }));

export const NewAgent = Type.Object({
  id: Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$', examples: ['node-1'] }),
  name: Type.Optional(Type.String({ maxLength: 200 })),
  groups: Type.Optional(Type.Array(Type.String({ maxLength: 64 }), { maxItems: 100 })),
  address: word(253, 'Address that clients connect to. Default: the id.'),
  port,
  server_name: word(253, 'Name in its certificate. Default: the id.'),
  path: word(200, 'Path of the xhttp transport.'),
  mode: word(64, 'Mode of the xhttp transport.'),
  xhttp_port: port,
  tcp_port: port,
});

export type NewAgent = Static<typeof NewAgent>;

export const Agent = Type.Object({
  id: Type.String(),
  name: Type.String(),
  groups: Type.Array(Type.String()),
  configured: Type.Boolean({ description: 'From the settings.' }),
  hasToken: Type.Boolean(),
  createdAt: Type.Union([Type.String(), Type.Null()]),
});

export type Agent = Static<typeof Agent>;

const Statuses = { 200: Type.Object({ agents: Type.Array(AgentStatus) }) };

/** The agent API for proxy nodes, and agents as administrators see and make them. */
export const proxyNodeOperations = {
  listNodes: {
    summary: 'The proxy nodes, with what the caller needs to connect to them.',
    response: { 200: Type.Array(ProxyNode) },
  },
  listClients: {
    summary: 'The users that a node admits.',
    response: {
      200: Type.Object({
        clients: Type.Array(Type.Object({ id: Type.String(), email: Type.String(), flow: Type.String() })),
        total: Type.Integer(),
        generatedAt: Type.String(),
        revision: Type.String(),
      }),
      304: Type.Null(),
    },
  },
  reportStatus: { summary: 'Reports the state of a node.', body: AgentReport, bodyLimit: 64 * 1024, response: Nothing },
  readStatuses: { summary: 'The state of the proxy nodes.', response: Statuses },
  readStatusesAlias: { summary: 'The same as /api/auth/admin/agents/status.', response: Statuses },
  listAgents: {
    summary: 'The registered agents of proxy nodes.',
    response: { 200: Type.Object({ agents: Type.Array(Agent) }) },
  },
  createAgent: {
    summary: 'Registers an agent. Its token is shown only in this response.',
    body: NewAgent,
    response: {
      201: Type.Object({ agent: Agent, token: Type.String({ description: 'Shown only in this response.' }) }),
    },
  },
  removeAgent: { summary: 'Removes an agent; its token stops working immediately.', response: Nothing },
};
