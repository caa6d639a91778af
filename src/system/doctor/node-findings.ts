import { buildNodeMap } from '../../bridge/forwarding/node-map.ts';
import { sameSecret } from '../../platform/secrets/tokens.ts';
import type { Settings } from '../settings.ts';
import { type Finding, fine, note } from './finding.ts';

const PROBE_TIMEOUT_MS = 3_000;

/** The other bridges that calls may be forwarded to, each looked at once, and the token between them. */
export async function nodeFindings({ bridge, distributed }: Settings): Promise<readonly Finding[]> {
  const { nodes, task_forward_peer_id: peer, task_forward_token: forwardToken } = distributed;
  const map = buildNodeMap(distributed);
  const used = [...map.others.values()].filter(({ id }) => id === peer || nodes.some((node) => node.id === id));
  if (used.length === 0) return [];
  const found = await Promise.all(
    used.map(async ({ id, endpoint }) => {
      const hop = map.nextHopOf(id);
      const way = hop === id ? endpoint : `${endpoint}, by way of ${hop}`;
      if (hop !== id) return fine(`node ${id}`, way);
      const problem = (await look(endpoint)) ?? (await lookAtToken(endpoint, id, forwardToken || bridge.auth_token));
      return problem === undefined ? fine(`node ${id}`, way) : note(`node ${id}`, `${way}: ${problem}`);
    }),
  );
  const local = map.localId === '' ? note('this node', 'has no id: set distributed.local_node_id') : undefined;
  const self = local ?? fine('this node', map.localId);
  const isShared = bridge.auth_token !== '' && (forwardToken === '' || sameSecret(forwardToken, bridge.auth_token));
  const shared = note(
    'distributed.task_forward_token',
    'is the main token: who has that can pass for another bridge; give bridges a token of their own',
  );
  return [self, ...found, ...(isShared ? [shared] : [])];
}

/**
 * Whether the other bridge takes our token for its forward token. It refuses a malformed hop only then: with any other
 * credential it ignores the headers of forwarded requests, and would run calls that are meant for a node behind it.
 */
async function lookAtToken(endpoint: string, target: string, token: string): Promise<string | undefined> {
  if (token === '') return undefined;
  try {
    const response = await fetch(`${endpoint}/acp/rpc`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        'x-app-bridge-forwarded': '1',
        'x-app-forward-source': 'doctor',
        'x-app-forward-target': target,
        'x-app-forward-hop': 'malformed',
      },
      body: '{"jsonrpc":"2.0","id":"1","method":"acp.capabilities","params":{}}',
      redirect: 'manual',
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
    });
    await response.body?.cancel();
    if (response.status === 401)
      return 'it does not accept our forward token; set the same distributed.task_forward_token there';
    if (response.status !== 200) return undefined;
    return 'it accepts our forward token as an ordinary one, so it ignores which node a call is for; set the same distributed.task_forward_token there';
  } catch {
    return 'no answer in time';
  }
}

/** Whether anything answers there. `GET /` needs no credential on any bridge. */
async function look(endpoint: string): Promise<string | undefined> {
  try {
    const response = await fetch(`${endpoint}/`, {
      headers: { accept: 'text/plain' },
      redirect: 'manual',
      signal: AbortSignal.timeout(PROBE_TIMEOUT_MS),
    });
    await response.body?.cancel();
    return response.ok ? undefined : `it answers with status ${response.status}`;
  } catch (error) {
    return error instanceof Error && error.name === 'TimeoutError' ? 'no answer in time' : 'cannot be reached';
  }
}
