import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { rowsIn } from './stored-rows.ts';

const AGENT = 'node-1';
const USERS = '/api/agent-server/v1/users';

/** Agents of proxy nodes: registered, reporting, asking for users, revoked. */
export const proxyNodesScenario: Scenario = {
  name: 'proxy nodes',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const secrets: string[] = [];
    const ask = createAskAccounts(accounts, secrets);
    const admin = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const { token: prepared } = await accounts.control<{ token: string }>('agents.create', { id: 'node-0' });
    stage.watch(accounts.database);

    const agents = () => accounts.database.query.selectFrom('proxy_agents').select('id').execute();
    const isThere = async (id: string) => (await agents()).some((agent) => agent.id === id);
    const look = (name: string, path: string, token: string, refusal?: string) =>
      stage.step({ name, ask: () => ask('GET', path, { token }), ...(refusal !== undefined && { refusal }) });

    const made = await stage.step({
      name: 'a new agent',
      ask: () => ask('POST', 'admin/agents', { token: admin.token, body: { id: AGENT, groups: ['eu'] } }),
      stored: async () => storedOf(await isThere(AGENT)),
      whenDone: ['agent_exists'],
    });
    // Whoever was not told the token of an agent has to make another one.
    const [token, agentId]: readonly [string, string] =
      made === undefined ? [prepared, 'node-0'] : [made.body.token, AGENT];
    secrets.push(token);
    await stage.step({
      name: 'a report',
      ask: () => ask('POST', '/api/agent-server/v1/status', { token, body: { agentId, healthy: true } }),
      stored: async () => storedOf((await rowsIn(accounts, 'proxy_agent_status')) === 1),
    });
    await look('the users', USERS, token);
    await look('the users, again', USERS, token);
    await look('the agents', 'admin/agents', admin.token);
    await look('how the agents stand', 'admin/agents/status', admin.token);
    await look('the nodes', '/api/agent-server/v1/nodes', ann.token);
    await stage.step({
      name: 'the end of an agent',
      ask: () => ask('DELETE', `admin/agents/${agentId}`, { token: admin.token }),
      stored: async () => storedOf(!(await isThere(agentId))),
      whenDone: ['agent_not_found'],
    });
    await look('the users, for an agent that was revoked', USERS, token, 'invalid_token');
    stage.mend();
    await noteStore(stage, accounts);
  },
};
