import type { DistributedSettings } from '../settings.ts';

/** Another bridge, as the configuration describes it. */
export interface BridgeNode {
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
  /** The node that a request for that target is handed to: the target itself unless a route says otherwise. */
  nextHopOf(targetId: string): string;
}

/** Peers that need no `nodes` entry (contract/bridge 9); one of the same id replaces them. */
export const builtInPeers: readonly BridgeNode[] = [
  { id: 'primary', role: '', zone: '', endpoint: 'http://172.29.10.1:8787', capabilities: [] },
  { id: 'edge', role: '', zone: '', endpoint: 'http://172.29.10.2:8787', capabilities: [] },
];

type MapSettings = Pick<DistributedSettings, 'local_node_id' | 'nodes'> & {
  readonly forwarding: Pick<DistributedSettings['forwarding'], 'routes'>;
};

export function buildNodeMap({ local_node_id: localId, nodes, forwarding }: MapSettings): NodeMap {
  const known = new Map(builtInPeers.map((peer) => [peer.id, peer]));
  for (const { id, role, zone, bridge_endpoint: endpoint, capabilities } of nodes) {
    known.set(id, { id, role, zone, endpoint, capabilities });
  }
  known.delete(localId);
  const others = new Map([...known].sort(([one], [other]) => (one < other ? -1 : 1)));
  const hops = new Map(forwarding.routes.map((route) => [route.target_node_id, route.next_hop_node_id]));
  return { localId, others, nextHopOf: (targetId) => hops.get(targetId) ?? targetId };
}
