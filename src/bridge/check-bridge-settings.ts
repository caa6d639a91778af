import { type Complaint, nearestName } from '../platform/config/problem.ts';
import { agentPresets } from './agents/agent-catalog.ts';
import { builtInNodes } from './forwarding/decide-forward.ts';
import { refusalOfEndpoint } from './forwarding/endpoints.ts';
import { MULTI_AGENT_ID } from './multi-agent/create-multi-agent.ts';
import type { BridgeGroups, DistributedSettings } from './settings.ts';

const SHIPPED_AGENTS = ['builtin', 'codex', 'opencode', 'gemini'];
/** First words of the method family: an alias must not hide them. */
const METHOD_PREFIXES = ['acp', 'app', 'rpc', 'session'];

/** What must hold between the bridge's settings. */
export function checkBridgeSettings(settings: BridgeGroups): readonly Complaint[] {
  return [...checkAccess(settings), ...checkAgents(settings), ...checkNodes(settings), ...checkForwarding(settings)];
}

function checkAccess({ bridge }: BridgeGroups): readonly Complaint[] {
  const complaints: Complaint[] = [];
  if (bridge.auth_token !== '' && bridge.auth_token === bridge.review_auth_token) {
    complaints.push({
      path: 'bridge.review_auth_token',
      wrong: 'it is the same as the main token',
      right: 'give the review its own, so that it can be cleared alone',
      involves: ['bridge.auth_token'],
    });
  }
  if (bridge.user_root !== '' && !/\{(?:user|team)\}/.test(bridge.user_root)) {
    complaints.push({
      path: 'bridge.user_root',
      wrong: 'all people would share one folder',
      right: 'put {user} into it, which stands for the id of the person: ~/trestle/{user}',
    });
  }
  const serverNames = bridge.mcp_servers.map(({ name }) => name);
  bridge.mcp_servers.forEach(({ name, command, url, trestle }, index) => {
    const path = `bridge.mcp_servers[${index}]`;
    const ways = [command !== '' && 'command', url !== '' && 'url', trestle && 'trestle'].filter(
      (way) => way !== false,
    );
    if (ways.length !== 1) {
      const wrong = ways.length === 0 ? 'there is no way to reach the server' : `it has both "${ways.join('" and "')}"`;
      const right = 'give "command" for a program, or "url" for an address, or "trestle" for our own tools';
      complaints.push({ path, wrong, right });
    }
    if (serverNames.indexOf(name) !== index) {
      complaints.push({ path: `${path}.name`, wrong: `the name "${name}" is taken`, right: 'choose another name' });
    }
  });
  bridge.method_prefix_aliases.forEach((alias, index) => {
    if (!METHOD_PREFIXES.includes(alias)) return;
    const path = `bridge.method_prefix_aliases[${index}]`;
    complaints.push({ path, wrong: `"${alias}" is a prefix of its own`, right: 'choose another word' });
  });
  return complaints;
}

function checkAgents({ agents, gateway }: BridgeGroups): readonly Complaint[] {
  const complaints: Complaint[] = [];
  const customIds = agents.custom.map(({ id }) => id);
  const presetIds = agentPresets.map(({ id }) => id);
  const known = [...SHIPPED_AGENTS, ...customIds, ...presetIds];
  agents.custom.forEach(({ id, command, url, runner_agent: onRunner, requires }, index) => {
    const path = `agents.custom[${index}]`;
    const isTaken = SHIPPED_AGENTS.includes(id) || id === gateway.provider_id || id === MULTI_AGENT_ID;
    if (isTaken || customIds.indexOf(id) !== index) {
      complaints.push({ path: `${path}.id`, wrong: `the id "${id}" is taken`, right: 'choose another id' });
    }
    if (command === '' && url === '' && onRunner === '' && !presetIds.includes(id)) {
      const right = 'add "command", "url" or "runner_agent"';
      complaints.push({ path, wrong: 'there is no way to reach the agent', right });
    }
    if (onRunner !== '' && (command !== '' || url !== '')) {
      const wrong = 'the agent has two places';
      complaints.push({ path, wrong, right: 'take out "runner_agent", or "command" and "url"' });
    }
    if (onRunner === '' && requires.length > 0) {
      const wrong = 'only agents on runners require labels';
      complaints.push({ path: `${path}.requires`, wrong, right: 'add "runner_agent", or take it out' });
    }
  });
  if (gateway.provider_id === MULTI_AGENT_ID || SHIPPED_AGENTS.includes(gateway.provider_id)) {
    const wrong = `the id "${gateway.provider_id}" is taken`;
    complaints.push({ path: 'gateway.provider_id', wrong, right: 'choose another id' });
  }
  const servers = agents.builtin.mcp.map(({ name }) => name);
  servers.forEach((name, index) => {
    if (servers.indexOf(name) === index) return;
    const path = `agents.builtin.mcp[${index}].name`;
    complaints.push({ path, wrong: `the name "${name}" is there twice`, right: 'give each its own name' });
  });
  agents.catalog.forEach((id, index) => {
    if (known.includes(id)) return;
    const right = suggest(id, known, 'an agent');
    complaints.push({
      path: `agents.catalog[${index}]`,
      wrong: `there is no agent "${id}"`,
      right,
      involves: ['agents.custom'],
    });
  });
  if (!agents.catalog.includes(agents.default) && !customIds.includes(agents.default)) {
    complaints.push({
      path: 'agents.default',
      wrong: `"${agents.default}" is not in the catalog`,
      right: suggest(agents.default, [...agents.catalog, ...customIds], 'an agent'),
      involves: ['agents.catalog', 'agents.custom'],
    });
  }
  return complaints;
}

function checkNodes({ distributed }: BridgeGroups): readonly Complaint[] {
  const { nodes, local_node_id: local, task_forward_peer_id: peer, forwarding } = distributed;
  const ids = nodes.map(({ id }) => id);
  const complaints = ids.flatMap((id, index): readonly Complaint[] =>
    ids.indexOf(id) === index
      ? []
      : [
          {
            path: `distributed.nodes[${index}].id`,
            wrong: `the node "${id}" is there twice`,
            right: 'give each its own id',
          },
        ],
  );
  nodes.forEach(({ bridge_endpoint: endpoint }, index) => {
    const wrong = refusalOfEndpoint(endpoint);
    if (wrong === undefined) return;
    const path = `distributed.nodes[${index}].bridge_endpoint`;
    complaints.push({ path, wrong, right: 'name the end of a tunnel: bridges are not reached over public addresses' });
  });
  if (local === '' && (peer !== '' || forwarding.rules.length > 0)) {
    const right = 'say which node this one is';
    complaints.push({ path: 'distributed.local_node_id', wrong: 'a node that forwards needs an id', right });
  }
  if (peer !== '') complaints.push(...checkNodeId('distributed.task_forward_peer_id', peer, distributed, true));
  return complaints;
}

function checkForwarding({ distributed }: BridgeGroups): readonly Complaint[] {
  const { rules, routes } = distributed.forwarding;
  return [
    ...rules.flatMap(({ target }, index): readonly Complaint[] => {
      const path = `distributed.forwarding.rules[${index}].target`;
      const bySelector = Object.values(target.selector).some((wanted) => wanted !== '');
      if (bySelector === (target.node_id !== '')) {
        const wrong = bySelector ? 'there are both "node_id" and "selector"' : 'the rule has no target';
        return [{ path, wrong, right: 'give either "node_id" or "selector"' }];
      }
      return bySelector ? [] : checkNodeId(`${path}.node_id`, target.node_id, distributed, false);
    }),
    ...routes.flatMap(({ target_node_id: target, next_hop_node_id: hop }, index) => {
      const path = `distributed.forwarding.routes[${index}]`;
      return [
        ...checkNodeId(`${path}.target_node_id`, target, distributed, false),
        ...checkNodeId(`${path}.next_hop_node_id`, hop, distributed, true),
      ];
    }),
  ];
}

function checkNodeId(
  path: string,
  id: string,
  { nodes, local_node_id: local }: DistributedSettings,
  mustBeRemote: boolean,
): readonly Complaint[] {
  const known = [...nodes.map((node) => node.id), ...builtInNodes.map((node) => node.id)];
  if (id === local) {
    return mustBeRemote ? [{ path, wrong: `"${id}" is this node itself`, right: 'name another node' }] : [];
  }
  if (known.includes(id)) return [];
  const right = suggest(id, known, 'a node of distributed.nodes');
  return [{ path, wrong: `there is no node "${id}"`, right, involves: ['distributed.nodes'] }];
}

function suggest(id: string, known: readonly string[], what: string): string {
  const near = nearestName(id, known);
  return near === undefined ? `name ${what}: ${known.join(', ')}` : `did you mean "${near}"?`;
}
