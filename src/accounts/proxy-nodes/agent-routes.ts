import { Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Route } from '../../platform/http/surface.ts';
import type { AgentCaller, UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { requireNotClosing } from '../closing.ts';
import { AgentReport, ProxyNode } from '../contract/proxy-node.ts';
import { reportRow } from './agent-status.ts';
import { createClientList } from './client-list.ts';
import { describeNode } from './describe-node.ts';

const REPORT_BYTES = 64 * 1024;

const Clients = Type.Object({
  clients: Type.Array(Type.Object({ id: Type.String(), email: Type.String(), flow: Type.String() })),
  total: Type.Integer(),
  generatedAt: Type.String(),
  revision: Type.String(),
});

type Parts = Pick<
  AccountsCore,
  'access' | 'database' | 'agents' | 'agentRegistry' | 'blacklist' | 'clientList' | 'clock'
>;

/** The agent API for proxy nodes (spec/accounts 4.4). */
export function agentRoutes(parts: Parts): readonly Route[] {
  const { access, database, agents, agentRegistry, blacklist, clock } = parts;
  const clientList = createClientList(parts.clientList, clock);

  const nodes: Route<UserCaller> = {
    method: 'GET',
    path: '/api/agent-server/v1/nodes',
    guard: access.user,
    summary: 'The proxy nodes, as the caller connects to them.',
    schema: { response: { 200: Type.Array(ProxyNode) } },
    async handle({ caller: { user } }) {
      if (await blacklist.has(user.email)) throw new AppError('ACCOUNT_SUSPENDED');
      requireNotClosing(user);
      const ends = user.proxy_uuid_expires_at;
      if (ends !== null && ends <= clock.now()) throw new AppError('PROXY_UUID_EXPIRED');
      return (await agentRegistry.list()).map((agent) => describeNode(agent, user.proxy_uuid));
    },
  };
  const ofAgents: readonly Route<AgentCaller>[] = [
    {
      method: 'GET',
      path: '/api/agent-server/v1/users',
      guard: access.agent,
      summary: 'The users that a node lets in.',
      schema: { response: { 200: Clients, 304: Type.Null() } },
      async handle({ head, reply }) {
        const { revision, body } = await clientList();
        const tag = `"${revision}"`;
        // Kept by the node itself and by nobody in between.
        reply.header('etag', tag).header('cache-control', 'private, no-cache');
        if (matches(head.headers['if-none-match'], tag)) return reply.code(304).send();
        return reply.type('application/json; charset=utf-8').send(body);
      },
    },
    {
      method: 'POST',
      path: '/api/agent-server/v1/status',
      guard: access.agent,
      summary: 'How a node stands.',
      body: 'json',
      bodyLimit: REPORT_BYTES,
      schema: { body: AgentReport, response: { 204: Type.Null() } },
      async handle({ caller: { agent }, body }) {
        const report = body as AgentReport;
        if (report.agentId !== agent.id) {
          throw new AppError('AGENT_ID_MISMATCH', { given: report.agentId.slice(0, 64) });
        }
        await database.write([agents.report(reportRow(report, clock.now()))]);
      },
    },
  ];
  return [nodes, ...ofAgents];
}

/** The header may be a list, and a proxy that compresses marks a tag as weak. */
function matches(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false;
  return header.trim() === '*' || header.split(',').some((each) => each.trim().replace(/^W\//, '') === tag);
}
