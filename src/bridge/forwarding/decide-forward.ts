import type { DistributedSettings } from '../settings.ts';
import type { ForwardedRequest } from './call-node.ts';

/** Another bridge, as the configuration describes it. */
interface BridgeNode {
  readonly id: string;
  readonly role: string;
  readonly zone: string;
  /** Without a final slash. */
  readonly endpoint: string;
  readonly capabilities: readonly string[];
}

export interface NodeMap {
  /** Empty on a bridge that belongs to no group of bridges. */
  readonly localId: string;
  /** The other nodes by id, in the order of their ids. */
  readonly others: ReadonlyMap<string, BridgeNode>;
  /** The node that gets requests for a target: the target itself unless a route names another one. */
  nextHopOf(targetId: string): string;
}

/** Nodes that need no entry in `nodes`; an entry with the same id replaces them. */
export const builtInNodes: readonly BridgeNode[] = [
  { id: 'primary', role: '', zone: '', endpoint: 'http://172.29.10.1:8787', capabilities: [] },
  { id: 'edge', role: '', zone: '', endpoint: 'http://172.29.10.2:8787', capabilities: [] },
];

type MapSettings = Pick<DistributedSettings, 'local_node_id' | 'nodes'> & {
  readonly forwarding: Pick<DistributedSettings['forwarding'], 'routes'>;
};

export function buildNodeMap({ local_node_id: localId, nodes, forwarding }: MapSettings): NodeMap {
  const known = new Map(builtInNodes.map((node) => [node.id, node]));
  for (const { id, role, zone, bridge_endpoint: endpoint, capabilities } of nodes) {
    known.set(id, { id, role, zone, endpoint, capabilities });
  }
  known.delete(localId);
  const others = new Map([...known].sort(([one], [other]) => (one < other ? -1 : 1)));
  const hops = new Map(forwarding.routes.map((route) => [route.target_node_id, route.next_hop_node_id]));
  return { localId, others, nextHopOf: (targetId) => hops.get(targetId) ?? targetId };
}

/** Returns the nodes that the settings name or select, without built-in nodes that no setting refers to. */
export function usedNodes(
  settings: Pick<DistributedSettings, 'nodes' | 'task_forward_peer_id' | 'forwarding'>,
  map: NodeMap,
): readonly BridgeNode[] {
  const { rules, routes } = settings.forwarding;
  const named = new Set([
    ...settings.nodes.map(({ id }) => id),
    settings.task_forward_peer_id,
    ...rules.map(({ target }) => target.node_id),
    ...routes.flatMap((route) => [route.target_node_id, route.next_hop_node_id]),
  ]);
  const selects = (node: BridgeNode) =>
    rules.some(({ target }) => target.node_id === '' && matches(node, target.selector));
  return [...map.others.values()].filter((node) => named.has(node.id) || selects(node));
}

export interface ForwardCandidate {
  /** The node that is to run the call. */
  readonly target: string;
  /** The node that gets it from us. */
  readonly nextHop: BridgeNode;
}

export type ForwardDecision =
  | { readonly kind: 'local'; readonly reason: string }
  | {
      readonly kind: 'forward';
      readonly reason: string;
      /** In the order in which they are tried; there is at least one. */
      readonly candidates: readonly ForwardCandidate[];
      /** The rule that chose them, where it takes turns. */
      readonly rule: number | undefined;
    }
  | Refusal;

export interface Refusal {
  readonly kind: 'refuse';
  readonly code: 'TASK_FORWARD_HOP_LIMIT_EXCEEDED' | 'TASK_FORWARD_PEER_UNKNOWN';
  readonly reason: string;
}

export interface ForwardQuestion {
  readonly method: string;
  readonly settings: Pick<DistributedSettings, 'task_forward_peer_id' | 'forwarding'>;
  readonly map: NodeMap;
  /** Set when another bridge has sent the call. */
  readonly incoming: Pick<ForwardedRequest, 'target' | 'hop'> | undefined;
  /** The id of the node that has the session or job of the call, which may be this one. Undefined: no place is known. */
  readonly livesAt: string | undefined;
  /** False for nodes that could not be reached lately. */
  isUp(nodeId: string): boolean;
  /** How often a rule that takes turns has chosen so far. */
  choicesOf(rule: number): number;
}

type Rule = DistributedSettings['forwarding']['rules'][number];

/** The methods that the short form forwards. */
const SHORT_FORM_METHODS: ReadonlySet<string> = new Set(['session.start', 'session.message']);

/** Decides where a call goes, from its arguments alone. */
export function decideForward(question: ForwardQuestion): ForwardDecision {
  const { method, settings, map, incoming, livesAt } = question;
  if (incoming !== undefined) return decideIncoming(question, incoming);
  if (livesAt === map.localId) return local('what it is about lives here');
  if (livesAt !== undefined) return toNode(map, livesAt, `what it is about lives on node "${livesAt}"`);
  const { rules, default_action: defaultAction } = settings.forwarding;
  const index = rules.findIndex(({ methods }) => methods.includes(method) || methods.includes('*'));
  const rule = rules[index];
  if (rule !== undefined) return byRule(question, rule, index);
  const peer = settings.task_forward_peer_id;
  if (peer !== '' && SHORT_FORM_METHODS.has(method)) return toNode(map, peer, `task_forward_peer_id is "${peer}"`);
  if (defaultAction === 'execute_local') return local('no rule is about it, and default_action is execute_local');
  return unknown(`no rule is about ${method}, and default_action is reject`);
}

/** A bridge without an id belongs to no group, so every forwarded request is for this bridge. */
function decideIncoming(
  { settings, map }: ForwardQuestion,
  { target, hop }: Pick<ForwardedRequest, 'target' | 'hop'>,
): ForwardDecision {
  if (target === map.localId || map.localId === '') return local('another bridge sent it here');
  return refuseBeyondLimit(hop, settings) ?? toNode(map, target, `another bridge sent it to node "${target}"`);
}

/** Returns the refusal of a call that has reached the hop limit; undefined when it may be forwarded. */
export function refuseBeyondLimit(hop: number, { forwarding }: ForwardQuestion['settings']): Refusal | undefined {
  const { hop_limit: limit } = forwarding;
  if (hop + 1 <= limit) return undefined;
  const reason = `it has passed ${hop} nodes, and hop_limit is ${limit}; look for nodes that point at each other`;
  return { kind: 'refuse', code: 'TASK_FORWARD_HOP_LIMIT_EXCEEDED', reason };
}

function byRule(question: ForwardQuestion, rule: Rule, index: number): ForwardDecision {
  const { map, isUp, choicesOf } = question;
  const { node_id: nodeId, selector, strategy } = rule.target;
  const words = `rule ${index + 1} of distributed.forwarding.rules`;
  if (nodeId !== '') {
    return nodeId === map.localId ? local(`${words} names this node`) : toNode(map, nodeId, `${words} names it`);
  }
  const matching = [...map.others.values()].flatMap((node) => (matches(node, selector) ? candidate(map, node.id) : []));
  if (matching.length === 0) return unknown(`${words} selects no node that is known`);
  // If all are down, a call is tried rather than refused.
  const up = matching.filter(({ target }) => isUp(target));
  const usable = up.length === 0 ? matching : up;
  const takesTurns = strategy === 'round_robin';
  const start = takesTurns ? choicesOf(index) % usable.length : 0;
  return {
    kind: 'forward',
    candidates: [...usable.slice(start), ...usable.slice(0, start)],
    rule: takesTurns ? index : undefined,
    reason: `${words} selects ${usable.length} of ${map.others.size} nodes (${strategy})`,
  };
}

function matches({ role, zone, capabilities }: BridgeNode, selector: Rule['target']['selector']): boolean {
  return (
    (selector.role === '' || selector.role === role) &&
    (selector.zone === '' || selector.zone === zone) &&
    (selector.capability === '' || capabilities.includes(selector.capability))
  );
}

function toNode(map: NodeMap, target: string, reason: string): ForwardDecision {
  const candidates = candidate(map, target);
  if (candidates.length === 0) return unknown(`node "${target}" is not known here`);
  return { kind: 'forward', candidates, rule: undefined, reason };
}

/** Returns the way to a target, or nothing if there is none. The target itself need not be known if a route leads to it. */
function candidate(map: NodeMap, target: string): readonly ForwardCandidate[] {
  const nextHop = map.others.get(map.nextHopOf(target));
  return nextHop === undefined ? [] : [{ target, nextHop }];
}

function local(reason: string): ForwardDecision {
  return { kind: 'local', reason };
}

function unknown(reason: string): ForwardDecision {
  return { kind: 'refuse', code: 'TASK_FORWARD_PEER_UNKNOWN', reason };
}
